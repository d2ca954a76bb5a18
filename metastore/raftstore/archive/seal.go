package archive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
)

// A file gets its name when it is whole and on disk, and only then its sources are deleted. So a crash in between
// leaves some runs twice, and the ranges of numbers show which files are superfluous.

// openSealed opens the sealed files, and removes what a crash has left.
func (a *Archive) openSealed() error {
	folder := folderOf(a.path)
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries { // in the order of their names, which is that of their first numbers
		path := filepath.Join(folder, e.Name())
		if e.Name() == unfinished {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
		if !strings.HasSuffix(path, sealedSuffix) {
			continue
		}
		s, err := openSealed(path)
		if err != nil {
			return err
		}
		if n := len(a.sealed); n > 0 && s.first <= a.sealed[n-1].last {
			if before := a.sealed[n-1]; s.last > before.last { // a merged file moves as a whole
				err := &disk.Damaged{Path: path, What: fmt.Sprintf("it begins with run %d, but %s goes up to %d", s.first, before.path, before.last)}
				return errors.Join(err, s.db.Close())
			}
			if err := s.remove(); err != nil { // it went into that one
				return err
			}
			continue
		}
		a.sealed = append(a.sealed, s)
		a.last = max(a.last, s.last)
	}
	if n := len(a.sealed); n > 0 {
		return a.clearOpen(a.sealed[n-1].last)
	}
	return nil
}

func (s *sealed) remove() error { return errors.Join(s.db.Close(), os.Remove(s.path)) }

// clearOpen empties the open file, if its runs have gone to a sealed one, which goes up to last.
func (a *Archive) clearOpen(last uint64) error {
	return disk.Guard(a.path, func() error {
		return a.db.Update(func(tx *bbolt.Tx) error {
			c := tx.Bucket(bucketRuns).Cursor()
			key, _ := c.First()
			if key == nil || binary.BigEndian.Uint64(key) > last {
				return nil
			}
			if newest, _ := c.Last(); binary.BigEndian.Uint64(newest) > last { // written after it could not be emptied
				gone := 0
				for key, _ := c.First(); key != nil && binary.BigEndian.Uint64(key) <= last; key, _ = c.First() {
					if err := c.Delete(); err != nil {
						return err
					}
					gone++
				}
				return a.count(tx, -gone, last)
			}
			t, err := a.readTally(tx)
			if err != nil {
				return err
			}
			if err := errors.Join(tx.DeleteBucket(bucketRuns), tally{last: max(t.last, last)}.put(tx)); err != nil {
				return err
			}
			if tx.Bucket(bucketHidden) != nil {
				if err := tx.DeleteBucket(bucketHidden); err != nil {
					return err
				}
			}
			_, err = tx.CreateBucket(bucketRuns)
			return err
		})
	})
}

// countIn adds a file's runs to those of their jobs. filing must be held, unless the archive is not in use yet.
func (a *Archive) countIn(s *sealed) error {
	return s.view(func(_ *bbolt.Bucket, f *finder) error {
		return f.each(func(g *group) {
			name := job{jobs.Tenant(g.tenant), jobs.Key(g.key)}
			c := a.counts[name]
			for i := range g.len() {
				if place := g.at(i); !s.isHidden(place) {
					if c == nil {
						c = new(count)
						a.counts[name] = c
					}
					c.add(jobs.State(f.states[place]), 1)
				}
			}
		})
	})
}

// seal moves the open file's runs to a file of its own. filing must be held. If that fails nothing more may be
// written: the ranges of numbers would no longer show which file has a run.
func (a *Archive) seal() error {
	err := a.sealOpen()
	if err != nil {
		err = fmt.Errorf("seal archive %s: %w", a.path, err)
		a.fail(err)
	}
	return err
}

func (a *Archive) sealOpen() error {
	a.mu.RLock()
	states := slices.Clone(a.index.states[:a.flushed])
	a.mu.RUnlock()
	w, err := newWriter(folderOf(a.path), a.cfg.sealedPage())
	if err != nil {
		return err
	}
	var first, last uint64
	err = a.view(func(runs *bbolt.Bucket) error {
		place := 0
		return runs.ForEach(func(key, record []byte) error {
			last = binary.BigEndian.Uint64(key)
			if first == 0 {
				first = last
			}
			place++
			if states[place-1]&hidden != 0 {
				return nil
			}
			return w.add(last, record)
		})
	})
	if err != nil {
		w.giveUp()
		return err
	}
	s, err := w.finish(first, last)
	if err != nil {
		return err
	}
	if s != nil {
		if err := a.countIn(s); err != nil {
			return err
		}
	}
	a.files.Lock()
	defer a.files.Unlock()
	if err := a.clearOpen(last); err != nil {
		return err
	}
	if s != nil {
		a.sealed = append(a.sealed, s)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.index
	a.index = newIndex()
	for i, p := range a.buffer {
		l := labelOf(p.row)
		a.index.add(p.number, &l)
		if was.states[int(a.flushed)+i]&hidden != 0 {
			a.index.hide(a.index.shelves[string(l.tenant)].jobs[string(l.key)], uint32(i))
		}
	}
	a.flushed, a.bytes = 0, 0
	return nil
}

// tidy rewrites files of which most is purged, and merges small neighbours. It changes at most one file and reports
// whether it did. filing must be held.
func (a *Archive) tidy() (did bool, err error) {
	rest := func(s *sealed) int64 { return s.size * int64(s.live) / int64(s.runs) }
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

// merge makes one file of those from i to end. filing must be held. A file in which it finds a damaged run stays as
// it is.
func (a *Archive) merge(i, end int) error {
	of := slices.Clone(a.sealed[i:end])
	w, err := newWriter(folderOf(a.path), a.cfg.sealedPage())
	if err != nil {
		return err
	}
	for _, s := range of {
		err := s.each(0, func(number uint64, record []byte) (bool, error) { return true, w.add(number, record) })
		if err != nil {
			w.giveUp()
			_, torn := errors.AsType[*disk.Damaged](err)
			s.damaged = torn || errors.Is(err, errRecord)
			return fmt.Errorf("merge file %s: %w", s.path, err)
		}
	}
	made, err := w.finish(of[0].first, of[len(of)-1].last) // over the first of them
	if err != nil {
		if err = fmt.Errorf("merge files of archive %s: %w", a.path, err); w.named {
			a.fail(err) // later purges in the first of them would go to a file without a name
		}
		return err
	}
	a.files.Lock()
	defer a.files.Unlock()
	put := []*sealed{}
	if made != nil {
		put = append(put, made)
	}
	a.sealed = slices.Replace(a.sealed, i, end, put...)
	var errs []error
	for j, s := range of {
		if j == 0 && made != nil {
			errs = append(errs, s.db.Close())
			continue
		}
		errs = append(errs, s.remove())
	}
	return errors.Join(errs...)
}
