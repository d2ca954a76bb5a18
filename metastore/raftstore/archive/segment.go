package archive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/blocks"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
)

// A segment is a file of blocks that gets no more of them: its last is an index of its runs, and the file ends with
// the place of that. It never changes. Purged runs are bits in a file beside it; when all are purged, both files are
// deleted, and when most are, the segment is rewritten without them.

// segment is an open segment. live and hidden change, guarded by Archive.files.
type segment struct {
	path        string
	file        *os.File
	salt        blocks.Salt
	size        int64
	indexAt     int64    // where the content of its last block lies
	after, last uint64   // its range of numbers, without the first; some may have no run
	runs        int      // that lie in it
	live        int      // of those, not hidden
	hidden      []byte   // a bit a run; it is replaced when runs are purged
	begins      int64    // when the first of them ended
	entries     int      // of lists
	fences      []uint32 // the hash of the first entry in each window: a list is found with one read
	names       int      // bytes of the names of jobs
	damaged     bool     // it has a damaged run, so it is not rewritten; guarded by Archive.filing
}

const (
	segmentSuffix = ".seg"
	goneSuffix    = ".gone"
	tailSize      = 16           // the place of the index, and the blocks.Title
	indexHead     = 16 + 8 + 2*4 // the salt, the number that the segment begins after, two lengths
)

// nameOf is the name of the segment that begins after a number.
func nameOf(after uint64) string { return fmt.Sprintf("%016x%s", after, segmentSuffix) }

// openSegment opens a segment and checks its index, and which of its runs are purged.
func openSegment(path string) (s *segment, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	s = &segment{path: path, file: file}
	if err = s.open(); err == nil && filepath.Base(path) != nameOf(s.after) {
		err = s.is("its content is that of " + nameOf(s.after))
	}
	if err == nil {
		s.hidden, err = readGone(path, s.salt, s.runs)
		s.live -= countSet(s.hidden)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return s, nil
}

// is an error about the segment.
func (s *segment) is(what string) error { return &disk.Damaged{Path: s.path, What: what} }

var errIndex = errors.New("its index has a wrong checksum")

// open reads the index's head and checks the index.
func (s *segment) open() error {
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	s.size = info.Size()
	var tail [tailSize]byte
	var b [blocks.HeadSize + indexHead]byte
	if s.size < tailSize {
		return s.is("it is cut off")
	}
	if _, err := s.file.ReadAt(tail[:], s.size-tailSize); err != nil {
		return err
	}
	at := int64(binary.BigEndian.Uint64(tail[:]))
	if string(tail[8:]) != blocks.Title || at < 0 || at > s.size-int64(len(b))-tailSize {
		return s.is("it has no index at its end")
	}
	if _, err := s.file.ReadAt(b[:], at); err != nil {
		return err
	}
	h, sum, err := blocks.ReadHead(b[:], s.size-tailSize-at)
	if err != nil || h.Kind != blocks.Index || at+h.Size != s.size-tailSize {
		return s.is("it has no index at its end")
	}
	got := crc32.New(blocks.Castagnoli)
	got.Write(b[:8])
	got.Write(b[12:blocks.HeadSize])
	s.runs, s.entries = int(h.Count), int(binary.BigEndian.Uint32(b[blocks.HeadSize+24:]))
	lists := sampler{at: -indexHead - 25*int64(s.runs), end: 8 * int64(s.entries)}
	if _, err := io.Copy(io.MultiWriter(got, &lists), io.NewSectionReader(s.file, at+blocks.HeadSize, h.Size-blocks.HeadSize)); err != nil {
		return err
	}
	if got.Sum32() != sum {
		return s.is(errIndex.Error())
	}
	s.indexAt, s.after, s.last = at+blocks.HeadSize, binary.BigEndian.Uint64(b[blocks.HeadSize+16:]), h.Last
	copy(s.salt[:], b[blocks.HeadSize:])
	s.names = int(binary.BigEndian.Uint32(b[blocks.HeadSize+28:]))
	if want := int64(blocks.HeadSize+indexHead) + 25*int64(s.runs) + 8*int64(s.entries) + int64(s.names); h.Size != want || s.runs == 0 {
		return s.is("its index has another length")
	}
	s.live, s.fences = s.runs, lists.hashes
	v := s.view()
	s.begins = v.endedAt(0)
	return v.failed
}

// sampler keeps the hash, four bytes, at the beginning of each window of what is written from 0 to end.
type sampler struct {
	at, end int64
	hashes  []uint32
	part    []byte // of a hash
}

func (s *sampler) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		next := int64(len(s.hashes)) * window
		if next >= s.end || next+int64(len(s.part)) >= s.at+int64(len(rest)) {
			s.at += int64(len(rest))
			break
		}
		from := next + int64(len(s.part)) - s.at
		n := min(int64(4-len(s.part)), int64(len(rest))-from)
		s.part = append(s.part, rest[from:from+n]...)
		s.at, rest = s.at+from+n, rest[from+n:]
		if len(s.part) == 4 {
			s.hashes, s.part = append(s.hashes, binary.BigEndian.Uint32(s.part)), s.part[:0]
		}
	}
	return len(b), nil
}

// view is the index, for one reader. files must be held.
func (s *segment) view() *reading {
	v, at := &reading{table: table{salt: s.salt, hidden: s.hidden}, fences: s.fences}, s.indexAt+indexHead
	for _, c := range []struct {
		*column
		width, n int
	}{{&v.numbers, 8, s.runs}, {&v.ended, 8, s.runs}, {&v.offsets, 4, s.runs}, {&v.states, 1, s.runs}, {&v.jobs, 4, s.runs}, {&v.entries, 8, s.entries}} {
		*c.column = column{width: c.width, most: window / c.width, file: s.file, begin: at, n: c.n, err: &v.failed}
		at += int64(c.width) * int64(c.n)
	}
	return v
}

// index calls fn with the index and the names of its jobs. Damage that came after the index was checked is an error.
func (s *segment) index(fn func(t *table)) error {
	v, b := s.view(), make([]byte, s.names)
	if _, err := s.file.ReadAt(b, v.entries.begin+8*int64(s.entries)); err != nil {
		return err
	}
	text := func() (t string) {
		if n, size := binary.Uvarint(b); size > 0 && n <= uint64(len(b)-size) {
			t, b = string(b[size:size+int(n)]), b[size+int(n):]
		}
		return t
	}
	for len(b) > 0 {
		v.names = append(v.names, job{jobs.Tenant(text()), jobs.Key(text())})
	}
	return disk.Guard(s.path, func() error {
		fn(&v.table)
		return s.done(v)
	})
}

// done is the error of a reader at its end.
func (s *segment) done(v *reading) error {
	if v.failed == nil {
		return nil
	}
	return fmt.Errorf("read the index of %s: %w", s.path, v.failed)
}

// records calls fn for the runs that are not hidden and have numbers above after, in order, until it returns false. An
// unreadable one has an error instead of a record. files must be held.
func (s *segment) records(after uint64, fn func(number uint64, record []byte, err error) (goOn bool, _ error)) error {
	v := s.view()
	if err := eachOf(&v.table, s.file, after, fn); err != nil {
		return err
	}
	return s.done(v)
}

func eachOf(t *table, file *os.File, after uint64, fn func(number uint64, record []byte, err error) (goOn bool, _ error)) error {
	var room []byte
	var label kernel.Run
	for place := t.from(after + 1); place < t.offsets.len(); place++ {
		if t.isHidden(place) {
			continue
		}
		number := t.numbers.at(place)
		record, larger, err := blocks.ReadRecord(file, int64(t.offsets.at(place)), number, room)
		if room = larger; err == nil {
			_, err = readLabel(number, record, &label)
		}
		if err != nil {
			err = damagedRun(file.Name(), number, err)
		}
		if goOn, err := fn(number, record, err); err != nil || !goOn {
			return err
		}
	}
	return nil
}

// verify reads the whole file and compares each checksum.
func (s *segment) verify() error {
	scan := blocks.Scanner{File: s.file, Size: s.size - tailSize}
	runs := 0
	for {
		at := scan.At
		h, content, err := scan.Next()
		if errors.Is(err, blocks.ErrUnreadable) {
			return s.is(fmt.Sprintf("at byte %d: %v", at, err))
		}
		if err != nil {
			return err
		}
		switch {
		case at == 0 && (h.Kind != blocks.Begin || h.After != s.after || string(content) != string(s.salt[:])):
			return s.is("it does not begin as its index says")
		case h.Kind == blocks.Index:
			if at+blocks.HeadSize != s.indexAt || runs != s.runs {
				return s.is(fmt.Sprintf("it has %d runs, want %d", runs, s.runs))
			}
			return nil
		case h.Kind == blocks.Runs:
			if runs += int(h.Count); h.Last > s.last {
				return s.is("it has runs beyond its range")
			}
		case at > 0:
			return s.is(fmt.Sprintf("at byte %d: a block of unknown kind %d", at, h.Kind))
		}
	}
}

// The file of purged runs lies beside that of the runs: the title, the salt of those, a bit a run, and a checksum.

func goneOf(path string) string { return strings.TrimSuffix(path, segmentSuffix) + goneSuffix }

// readGone reads which runs of a file are purged. A list of a file with another salt is one that a crash has left,
// from before the file was replaced.
func readGone(path string, of blocks.Salt, runs int) (bits []byte, err error) {
	path = goneOf(path)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b, ok := unsummed(b)
	if begin := len(blocks.Title) + len(of); !ok || len(b) < begin || string(b[:len(blocks.Title)]) != blocks.Title {
		return nil, &disk.Damaged{Path: path, What: "the list of purged runs has a wrong checksum"}
	} else if string(b[len(blocks.Title):begin]) != string(of[:]) {
		return nil, nil
	} else if b = b[begin:]; len(b) > (runs+7)/8 {
		return nil, &disk.Damaged{Path: path, What: fmt.Sprintf("it has purged runs beyond the %d that there are", runs)}
	}
	return b, nil
}

// writeGone writes which runs of a file are purged.
func writeGone(path string, of blocks.Salt, bits []byte) error {
	return writeFile(goneOf(path), summed(append(append([]byte(blocks.Title), of[:]...), bits...)))
}

// summed is b with its checksum appended.
func summed(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, blocks.Castagnoli))
}

// unsummed is summed's argument; false means that the checksum is wrong.
func unsummed(b []byte) ([]byte, bool) {
	n := len(b) - 4
	if n < 0 || binary.BigEndian.Uint32(b[n:]) != crc32.Checksum(b[:n], blocks.Castagnoli) {
		return nil, false
	}
	return b[:n], true
}

// remove deletes the segment.
func (s *segment) remove() error {
	err := errors.Join(s.file.Close(), os.Remove(s.path))
	if gone := os.Remove(goneOf(s.path)); !errors.Is(gone, os.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}

// writeFile replaces a file. It is on disk under its name afterwards.
func writeFile(path string, b []byte) error {
	beside := filepath.Join(filepath.Dir(path), unfinished)
	f, err := os.OpenFile(beside, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(beside, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// unfinished is the name of a file that is being written.
const unfinished = "unfinished"

// syncDir is a variable for a test, in which the disk fails.
var syncDir = disk.SyncFolder
