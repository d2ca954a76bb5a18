package daylogs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// day is one file. Its index is read when it is needed, and may be dropped after.
type day struct {
	date     string
	path     string
	file     *os.File // nil until the day is used
	*index            // nil = not read yet, or dropped
	reported bool     // some of its bytes are no lines
	used     time.Time
}

type name struct {
	tenant jobs.Tenant
	run    jobs.ID
}

// run is the lines of a run in a day.
type run struct{ attempts []*attempt }

// attempt is the lines of an attempt in a day.
type attempt struct {
	number  uint32
	account int // bytes against metastore.MaxLog, with the days before; beyond it once a line was dropped
	extents []extent
	before  *attempt // in the day before
}

// extent is a frame with lines first to last.
type extent struct {
	offset      int64
	size        int
	first, last uint64
}

// has reports whether a line is stored already.
func (a *attempt) has(sequence uint64) bool {
	for ; a != nil; a = a.before {
		for i := len(a.extents) - 1; i >= 0; i-- {
			if x := a.extents[i]; x.first <= sequence && sequence <= x.last {
				return true
			}
		}
	}
	return false
}

// attempt is the attempt of a run, or nil.
func (x *index) attempt(n name, number uint32) *attempt {
	if r := x.runs[n]; r != nil {
		if i := slices.IndexFunc(r.attempts, func(a *attempt) bool { return a.number == number }); i >= 0 {
			return r.attempts[i]
		}
	}
	return nil
}

// add is the attempt of a run, made if there is none.
func (x *index) add(n name, number uint32) *attempt {
	if a := x.attempt(n, number); a != nil {
		return a
	}
	r := x.runs[n]
	if r == nil {
		r = new(run)
		x.runs[n] = r
	}
	a := &attempt{number: number}
	r.attempts = append(r.attempts, a)
	return a
}

// open opens the file and reads its index.
func (d *day) open(create bool) error {
	if d.file == nil {
		flags := os.O_RDWR
		if create {
			flags |= os.O_CREATE
		}
		f, err := os.OpenFile(d.path, flags, 0o600)
		if err != nil {
			return fmt.Errorf("open log file: %w", err)
		}
		d.file = f
	}
	if d.index != nil {
		return nil
	}
	x, err := readIndex(d.file)
	if err != nil {
		return fmt.Errorf("read log file %s: %w", d.path, err)
	}
	d.index = x
	return nil
}

// index records where the lines of runs are in a file.
type index struct {
	runs map[name]*run
	end  int64 // of the file: new lines go there
	lost int64 // bytes that are no frames: half written in a crash, or damaged
	from int64 // where the first of them are
}

// readIndex reads all frames of a file, and skips bytes that are no frame.
func readIndex(file *os.File) (*index, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	x := &index{runs: make(map[name]*run), end: info.Size()}
	at := func(offset int64) io.Reader { return io.NewSectionReader(file, offset, x.end-offset) }
	in := bufio.NewReaderSize(at(0), 256<<10)
	var buf []byte
	for offset := int64(0); offset < x.end; {
		head, err := in.Peek(frameHead)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if size := frameSize(head); size > 0 && offset+int64(size) <= x.end {
			buf = slices.Grow(buf[:0], size)[:size]
			if _, err := io.ReadFull(in, buf); err != nil {
				return nil, err
			}
			if f, err := parseFrame(buf); err == nil {
				x.note(&f, offset, size)
				offset += int64(size)
				continue
			}
			in.Reset(at(offset))
		}
		skipped, err := skipToMark(in)
		if err != nil {
			return nil, err
		}
		if x.lost == 0 {
			x.from = offset
		}
		x.lost += skipped
		offset += skipped
	}
	return x, nil
}

// skipToMark skips at least one byte, and all others up to the next mark or the end.
func skipToMark(in *bufio.Reader) (skipped int64, err error) {
	for first := 1; ; first = 0 {
		b, err := in.Peek(min(max(in.Buffered(), len(mark)+1), in.Size()))
		if err != nil && !errors.Is(err, io.EOF) {
			return skipped, err
		}
		n := len(b)
		if err == nil {
			n -= len(mark) - 1 // a mark may begin there
		}
		i := -1
		if len(b) > first {
			i = bytes.Index(b[first:], mark)
		}
		if i >= 0 {
			n = i + first
		}
		if _, err := in.Discard(n); err != nil {
			return skipped, err
		}
		if skipped += int64(n); i >= 0 || err != nil {
			return skipped, nil
		}
	}
}

// note adds a frame to the index.
func (x *index) note(f *frame, offset int64, size int) {
	a := x.add(name{jobs.Tenant(f.tenant), f.run}, f.attempt)
	a.account = max(a.account, f.account)
	a.extents = append(a.extents, extent{offset: offset, size: size, first: f.first, last: f.first + uint64(f.lines) - 1})
}

// readAt reads the lines of one frame.
func readAt(file *os.File, x extent) ([]metastore.LogLine, error) {
	b := make([]byte, x.size)
	if _, err := file.ReadAt(b, x.offset); err != nil {
		return nil, err
	}
	f, err := parseFrame(b)
	if err != nil {
		return nil, err
	}
	return f.read()
}

// close closes the file and drops the index.
func (d *day) close() error {
	d.index = nil
	if d.file == nil {
		return nil
	}
	err := d.file.Close()
	d.file = nil
	return err
}
