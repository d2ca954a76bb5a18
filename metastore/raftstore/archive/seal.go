package archive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/blocks"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
)

// A file gets its name when it is whole and on disk, and only then its sources are deleted. So a crash in between
// leaves some runs twice, and the ranges of numbers show which segments are superfluous.

// openSegments opens the segments, and removes what a crash has left.
func (a *Archive) openSegments() error {
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		return err
	}
	for _, e := range entries { // in the order of their names, which is that of their numbers
		path := filepath.Join(a.dir, e.Name())
		if !strings.HasSuffix(path, segmentSuffix) {
			continue
		}
		s, err := openSegment(path)
		if err != nil {
			return err
		}
		if n := len(a.sealed); n > 0 && s.after < a.sealed[n-1].last {
			before := a.sealed[n-1]
			if err = before.verify(); s.last > before.last { // a merged segment moves as a whole
				err = s.is(fmt.Sprintf("it begins after run %d, but %s goes up to %d", s.after, before.path, before.last))
			}
			if err != nil {
				return errors.Join(err, s.file.Close())
			}
			if err := s.remove(); err != nil { // it went into that one
				return err
			}
			continue
		}
		a.sealed = append(a.sealed, s)
	}
	return nil
}

// countIn adds a segment's runs to those of their jobs, or with -1 takes them away. filing must be held.
func (a *Archive) countIn(s *segment, sign int) error {
	var counts map[job]count
	err := s.index(func(t *table) {
		counts = t.count(func(place int) bool { return !t.isHidden(place) })
	})
	if err != nil {
		return err
	}
	for name, n := range counts {
		c := a.counts[name]
		if c == nil {
			c = new(count)
			a.counts[name] = c
		}
		c.succeeded, c.others = c.succeeded+sign*n.succeeded, c.others+sign*n.others
	}
	return nil
}

// endSegment appends the index of a segment, the runs of which are in the blocks before.
func endSegment(w *blocks.Writer, x *building, after, last uint64) {
	at, n := w.Begin(blocks.Index), x.offsets.len()
	w.B = x.encode(w.B, after, n)
	w.Head.Count = uint32(n)
	w.End(last)
	w.B = append(binary.BigEndian.AppendUint64(w.B, uint64(at)), blocks.Title...)
}

// seal makes a segment of the open file and begins another one. filing must be held. If that fails nothing more may be
// written.
func (a *Archive) seal() error {
	err := a.sealOpen()
	if err != nil {
		err = fmt.Errorf("seal archive %s: %w", a.dir, err)
		a.fail(err)
	}
	return err
}

func (a *Archive) sealOpen() error {
	a.mu.RLock()
	x := *a.index
	a.mu.RUnlock()
	path := filepath.Join(a.dir, nameOf(a.after))
	runs, purged := x.offsets.len(), countSet(x.hidden)
	if purged < runs {
		w := &blocks.Writer{At: a.length, Last: a.filed}
		endSegment(w, &x, a.after, a.filed)
		if _, err := a.open.WriteAt(w.B, a.length); err != nil {
			return err
		}
		if err := a.open.Sync(); err != nil {
			return err
		}
		if purged > 0 {
			if err := writeGone(path, x.salt, x.hidden); err != nil {
				return err
			}
		}
	}
	a.files.Lock()
	defer a.files.Unlock()
	if err := a.open.Close(); err != nil {
		return err
	}
	if purged < runs {
		if err := errors.Join(os.Rename(a.openPath(), path), syncDir(a.dir)); err != nil {
			return err
		}
		if err := a.take(path); err != nil {
			return err
		}
	}
	return a.newOpen(a.filed)
}

// take opens a new segment as the last of the archive's. filing and files must be held.
func (a *Archive) take(path string) error {
	s, err := openSegment(path)
	if err != nil {
		return err
	}
	a.sealed = append(a.sealed, s)
	if a.counts == nil {
		return nil
	}
	return a.countIn(s, 1)
}

// tidy rewrites segments of which most is purged, and merges small neighbours. It changes at most one and reports
// whether it did. filing must be held.
func (a *Archive) tidy() (did bool, err error) {
	rest := func(s *segment) int64 { return s.size * int64(s.live) / int64(s.runs) }
	for i, s := range a.sealed {
		if s.damaged {
			continue
		}
		end := i + 1
		for size := rest(s); end < len(a.sealed) && !a.sealed[end].damaged && size <= a.sealAt/4 && rest(a.sealed[end]) <= a.sealAt/4; end++ {
			size += rest(a.sealed[end])
		}
		if end > i+1 || 2*s.live < s.runs {
			return true, a.merge(i, end)
		}
	}
	return false, nil
}

// merge makes one segment of those from i to end. filing must be held. One in which it finds a damaged run stays as
// it is.
func (a *Archive) merge(i, end int) error {
	of := slices.Clone(a.sealed[i:end])
	w, err := newWriter(a.dir, of[0].after)
	if err != nil {
		return err
	}
	defer w.giveUp()
	for _, s := range of {
		err := s.records(0, func(number uint64, record []byte, err error) (bool, error) {
			if err == nil {
				err = w.add(number, record)
			}
			return true, err
		})
		if err != nil {
			_, s.damaged = errors.AsType[*disk.Damaged](err)
			return fmt.Errorf("merge %s: %w", s.path, err)
		}
	}
	if err := w.finish(of[0].after, of[len(of)-1].last); err != nil {
		return fmt.Errorf("merge segments of archive %s: %w", a.dir, err)
	}
	a.files.Lock()
	defer a.files.Unlock()
	// Over the first of them, whose name it takes. From there on its sources must not be used any more.
	if err := a.replace(i, of, w.path); err != nil {
		err = fmt.Errorf("merge segments of archive %s: %w", a.dir, err)
		a.fail(err)
		return err
	}
	return nil
}

func (a *Archive) replace(i int, of []*segment, by string) error {
	if err := errors.Join(of[0].file.Close(), os.Rename(by, of[0].path), syncDir(a.dir)); err != nil {
		return err
	}
	made, err := openSegment(of[0].path)
	if err != nil {
		return err
	}
	a.sealed = slices.Replace(a.sealed, i, i+len(of), made)
	if err := os.Remove(goneOf(made.path)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, s := range of[1:] {
		if err := s.remove(); err != nil {
			return err
		}
	}
	return nil
}

// writer writes a segment beside its place.
type writer struct {
	path   string
	file   *os.File
	index  *building
	blocks *blocks.Writer
	room   kernel.Run
}

func newWriter(dir string, after uint64) (*writer, error) {
	begin, s := blocks.NewFile(after)
	path := filepath.Join(dir, unfinished)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	return &writer{path: path, file: file, index: newBuilding(s), blocks: begin}, err
}

func (w *writer) add(number uint64, record []byte) error {
	if _, err := readLabel(number, record, &w.room); err != nil {
		return damagedRun(w.path, number, err)
	}
	w.index.add(number, &w.room)
	w.index.wrote(w.blocks.Record(blocks.Runs, number, func(b []byte) []byte { return append(b, record...) }))
	if len(w.blocks.B) < perWrite || w.blocks.Head.Kind != 0 {
		return nil
	}
	return w.flush()
}

// flush writes the blocks, all of which have ended.
func (w *writer) flush() error {
	_, err := w.file.Write(w.blocks.B)
	w.blocks.At += int64(len(w.blocks.B))
	w.blocks.B = w.blocks.B[:0]
	return err
}

// finish ends the segment. It is on disk then, and has no name yet.
func (w *writer) finish(after, last uint64) error {
	w.blocks.End(0)
	endSegment(w.blocks, w.index, after, last)
	err := errors.Join(w.flush(), w.file.Sync(), w.file.Close())
	w.file = nil
	return err
}

// giveUp removes a segment that did not get its name.
func (w *writer) giveUp() {
	if w.file != nil {
		_ = w.file.Close()
		_ = os.Remove(w.path)
	}
}
