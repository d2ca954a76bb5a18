package daylogs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// day is one file. Its index is built when somebody needs it, and may be forgotten after.
type day struct {
	date string
	path string
	file *os.File // nil until the day is used
	tidy bool     // what a crash left half written at the end is cut off
	end  int64    // where the last whole frame ends
	runs map[name]*run
	used time.Time
}

type name struct {
	tenant jobs.Tenant
	run    jobs.ID
}

// run is what a day holds of a run.
type run struct{ attempts []*attempt }

// attempt is what a day holds of an attempt.
type attempt struct {
	number  uint32
	account int // bytes against metastore.MaxLog, with the days before; beyond it once a line was dropped
	extents []extent
	before  *attempt // what the day before holds
}

// extent is a frame with lines first to last.
type extent struct {
	offset      int64
	size        int
	first, last uint64
}

// has says that a line is there already.
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
func (d *day) attempt(n name, number uint32) *attempt {
	if r := d.runs[n]; r != nil {
		if i := slices.IndexFunc(r.attempts, func(a *attempt) bool { return a.number == number }); i >= 0 {
			return r.attempts[i]
		}
	}
	return nil
}

// add is the attempt of a run, made if there is none.
func (d *day) add(n name, number uint32) *attempt {
	if a := d.attempt(n, number); a != nil {
		return a
	}
	r := d.runs[n]
	if r == nil {
		r = new(run)
		d.runs[n] = r
	}
	a := &attempt{number: number}
	r.attempts = append(r.attempts, a)
	return a
}

// open opens the file and builds its index.
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
	if d.runs != nil {
		return nil
	}
	d.runs = make(map[name]*run)
	if err := d.index(); err != nil {
		d.runs = nil
		return fmt.Errorf("read log file %s: %w", d.path, err)
	}
	return nil
}

// openToWrite opens the file and cuts off what a crash has left half written at its end.
func (d *day) openToWrite() error {
	if err := d.open(true); err != nil || d.tidy {
		return err
	}
	if err := d.file.Truncate(d.end); err != nil {
		return fmt.Errorf("cut log file: %w", err)
	}
	d.tidy = true
	return nil
}

// index reads all frames. One with a wrong checksum is left out; from one without a proper length on, nothing can
// be told apart.
func (d *day) index() error {
	d.end = 0
	info, err := d.file.Stat()
	if err != nil {
		return err
	}
	in := bufio.NewReaderSize(io.NewSectionReader(d.file, 0, info.Size()), 256<<10)
	var buf []byte
	for offset := int64(0); ; {
		head, err := in.Peek(frameHead)
		if err != nil {
			return ignoreEnd(err)
		}
		size := frameSize(head)
		if size == 0 || offset+int64(size) > info.Size() {
			return nil
		}
		buf = slices.Grow(buf[:0], size)[:size]
		if _, err := io.ReadFull(in, buf); err != nil {
			return ignoreEnd(err)
		}
		if f, err := parseFrame(buf); err == nil {
			d.note(&f, offset, size)
			d.end = offset + int64(size)
		}
		offset += int64(size)
	}
}

func ignoreEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// note adds a frame to the index.
func (d *day) note(f *frame, offset int64, size int) {
	a := d.add(name{jobs.Tenant(f.tenant), f.run}, f.attempt)
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

// close closes the file and forgets the index.
func (d *day) close() error {
	d.runs = nil
	if d.file == nil {
		return nil
	}
	err := d.file.Close()
	d.file = nil
	return err
}
