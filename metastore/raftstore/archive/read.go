package archive

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
)

// How much one read may cost.
const (
	mostRows = 20_000
	mostTime = 100 * time.Millisecond
	stretch  = 256
)

// found is a run by its number in the file, or itself if it is not there yet.
type found struct {
	number uint64
	row    *kernel.Run
}

// at is the run at a place. mu must be held.
func (a *Archive) at(place uint32) found {
	f := found{number: a.index.number(place)}
	if i := int(place) - int(a.flushed); i >= 0 && i < len(a.buffer) {
		f.row = a.buffer[i].row
	}
	return f
}

// Get is one run, or nil.
func (a *Archive) Get(ctx context.Context, tenant jobs.Tenant, id jobs.ID) (*kernel.Run, error) {
	if err := a.ready(ctx); err != nil {
		return nil, err
	}
	a.files.RLock()
	defer a.files.RUnlock()
	run, err := a.getOpen(tenant, id)
	if run != nil || err != nil {
		return run, err
	}
	for _, s := range slices.Backward(a.sealed) {
		if run, err := s.get(tenant, id); run != nil || err != nil {
			return run, err
		}
	}
	return nil, nil
}

// getOpen is one run of the open file or the buffer, or nil.
func (a *Archive) getOpen(tenant jobs.Tenant, id jobs.ID) (*kernel.Run, error) {
	a.mu.RLock()
	place, known := a.index.ids[a.index.hash([]byte(tenant), id)]
	var f found
	if known {
		f = a.at(place)
	}
	a.mu.RUnlock()
	if f.number == 0 {
		return nil, nil
	}
	run := f.row
	if run == nil {
		err := a.view(func(runs *bbolt.Bucket) (err error) {
			if record := runs.Get(keyOf(f.number)); record != nil {
				run, err = decode(f.number, record)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if run == nil || run.ID != id || run.Tenant != tenant {
		return nil, nil
	}
	return run, nil
}

// view reads the file.
func (a *Archive) view(fn func(runs *bbolt.Bucket) error) error {
	err := disk.Guard(a.path, func() error {
		return a.db.View(func(tx *bbolt.Tx) error { return fn(tx.Bucket(bucketRuns)) })
	})
	if err != nil {
		return fmt.Errorf("read archive %s: %w", a.path, err)
	}
	return nil
}

// List answers a query, last ended first.
func (a *Archive) List(ctx context.Context, q metastore.RunQuery) (metastore.Page, error) {
	w := walk{query: &q, size: q.Size(), deadline: time.Now().Add(mostTime)}
	before := uint64(0)
	if q.Cursor != "" {
		var err error
		if before, err = strconv.ParseUint(q.Cursor, 36, 64); err != nil || before == 0 {
			return w.page, kernel.Invalid("cursor %.60q is not from this list: use the cursor of the previous page", q.Cursor)
		}
	}
	if err := a.ready(ctx); err != nil {
		return w.page, err
	}
	for {
		over, err := a.step(&w, &before)
		if err == nil && !over {
			err = ctx.Err()
		}
		if err != nil || over {
			return w.page, err
		}
		if w.looked >= mostRows || time.Now().After(w.deadline) {
			w.page.Next = strconv.FormatUint(w.last, 36)
			if len(w.page.Runs) < w.size {
				w.page.Searched = w.ended
			}
			return w.page, nil
		}
	}
}

// step reads the next few runs before a number, which it advances, and reports whether that was all.
func (a *Archive) step(w *walk, before *uint64) (over bool, err error) {
	a.files.RLock()
	defer a.files.RUnlock()
	a.mu.RLock()
	left := a.index.find(w.query, *before)
	batch := make([]found, 0, min(stretch, len(left)))
	for len(left) > 0 && len(batch) < stretch {
		if f := a.at(left[len(left)-1]); f.number > 0 {
			batch = append(batch, f)
		}
		left = left[:len(left)-1]
	}
	a.mu.RUnlock()
	if len(batch) > 0 {
		*before = batch[len(batch)-1].number
		err := a.view(func(runs *bbolt.Bucket) (err error) {
			over, err = w.look(batch, runs)
			return err
		})
		return over, err
	}
	for _, s := range slices.Backward(a.sealed) {
		if *before != 0 && s.first >= *before {
			continue
		}
		err := s.view(func(runs *bbolt.Bucket, f *finder) (err error) {
			left := f.find(w.query, *before)
			for len(left) > 0 && len(batch) < stretch {
				n := left.len() - 1
				if place := left.at(n); !s.isHidden(place) {
					batch = append(batch, found{number: f.number(place)})
				}
				left = left.up(n)
			}
			over, err = w.look(batch, runs)
			return err
		})
		if err != nil || len(batch) > 0 {
			if len(batch) > 0 {
				*before = batch[len(batch)-1].number
			}
			return over, err
		}
	}
	return true, nil
}

// walk searches the runs of a query.
type walk struct {
	query    *metastore.RunQuery
	size     int
	deadline time.Time

	page   metastore.Page
	looked int
	last   uint64 // the last run of the page, or the last one read while the page is not full
	ended  time.Time
}

// look reads some runs of a file and reports whether the page is complete.
func (w *walk) look(batch []found, runs *bbolt.Bucket) (over bool, err error) {
	for _, f := range batch {
		sketch, record := f.row, []byte(nil)
		if sketch == nil {
			if record = runs.Get(keyOf(f.number)); record == nil {
				continue
			}
			l, _, err := readLabel(f.number, record)
			if err != nil {
				return false, err
			}
			sketch = l.sketch()
		}
		w.looked++
		if sketch.Tenant != w.query.Tenant { // found by a hash
			continue
		}
		if w.query.Past(sketch) {
			return true, nil
		}
		full := len(w.page.Runs) == w.size
		row, err := w.match(sketch, f.number, record)
		if err != nil {
			return false, err
		}
		if row != nil {
			if full {
				w.page.Next = strconv.FormatUint(w.last, 36)
				return true, nil
			}
			w.page.Runs = append(w.page.Runs, row)
		}
		if !full {
			w.last, w.ended = f.number, sketch.Ended
		}
	}
	return false, nil
}

// match is the run if the query selects it, or nil. The label answers all filters but cause, code and app, for
// which the row of a run that passes the others is decoded.
func (w *walk) match(sketch *kernel.Run, number uint64, record []byte) (*kernel.Run, error) {
	q := *w.query
	if record != nil {
		q.Cause, q.Code, q.App = "", "", ""
	}
	if !q.Matches(sketch) {
		return nil, nil
	}
	if record == nil {
		return sketch, nil
	}
	row, err := decode(number, record)
	if err != nil || !w.query.Matches(row) {
		return nil, err
	}
	return row, nil
}

// CopyFile writes the archive, as far as it is in its files, to others: a backup.
func (a *Archive) CopyFile(path string) error {
	a.filing.Lock()
	defer a.filing.Unlock()
	err := a.db.View(func(tx *bbolt.Tx) error { return tx.CopyFile(path, 0o600) })
	if err == nil && len(a.sealed) > 0 {
		err = os.MkdirAll(folderOf(path), 0o700)
	}
	for _, s := range a.sealed {
		if err == nil {
			err = s.db.View(func(tx *bbolt.Tx) error {
				return tx.CopyFile(filepath.Join(folderOf(path), filepath.Base(s.path)), 0o600)
			})
		}
	}
	if err != nil {
		return fmt.Errorf("copy archive %s: %w", a.path, err)
	}
	return nil
}
