package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/blocks"
)

// How much one read may cost.
const (
	mostRows = 20_000
	mostTime = 60 * time.Millisecond
	stretch  = 256
)

// Get is one run, or nil.
func (a *Archive) Get(_ context.Context, tenant jobs.Tenant, id jobs.ID) (*kernel.Run, error) {
	if err := a.failure(); err != nil {
		return nil, err
	}
	a.files.RLock()
	defer a.files.RUnlock()
	a.mu.RLock()
	batch := a.index.at(a.index.withID(tenant, id), a.buffer)
	a.mu.RUnlock()
	run, err := among(a.open, batch, tenant, id)
	if run != nil || err != nil {
		return run, err
	}
	for _, s := range slices.Backward(a.sealed) {
		v := s.view()
		batch := v.at(v.withID(tenant, id), nil)
		if err := s.done(v); err != nil {
			return nil, err
		}
		if run, err := among(s.file, batch, tenant, id); run != nil || err != nil {
			return run, err
		}
	}
	return nil, nil
}

// among is the first of some runs that has an ID, or nil.
func among(file *os.File, batch []found, tenant jobs.Tenant, id jobs.ID) (*kernel.Run, error) {
	for _, f := range batch {
		run := f.row
		if run == nil {
			record, _, err := blocks.ReadRecord(file, f.offset, f.number, nil)
			if err == nil {
				run, err = decode(f.number, record)
			}
			if err != nil {
				return nil, fmt.Errorf("read archive: %w", damagedRun(file.Name(), f.number, err))
			}
		}
		if run.ID == id && run.Tenant == tenant {
			return run, nil
		}
	}
	return nil, nil
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
	if err := a.failure(); err != nil {
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
			w.page.Next = strconv.FormatUint(before, 36)
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
	x := *a.index // to read it while runs are added
	a.mu.RUnlock()
	places := x.newest(w.query, *before, stretch)
	a.mu.RLock()
	batch := a.index.at(places, a.buffer)
	a.mu.RUnlock()
	file := a.open
	for i := len(a.sealed) - 1; i >= 0 && len(batch) == 0; i-- {
		s := a.sealed[i]
		if *before != 0 && s.after >= *before {
			continue
		}
		v := s.view()
		batch, file = v.at(v.newest(w.query, *before, stretch), nil), s.file
		if err := s.done(v); err != nil {
			return false, err
		}
	}
	if len(batch) == 0 {
		return true, nil
	}
	*before = batch[len(batch)-1].number
	return w.look(batch, file)
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
	room   []byte
	label  kernel.Run
}

// look reads some runs of a file and reports whether the page is complete.
func (w *walk) look(batch []found, file *os.File) (over bool, err error) {
	for _, f := range batch {
		sketch, record := f.row, []byte(nil)
		if sketch == nil {
			sketch = &w.label
			record, w.room, err = blocks.ReadRecord(file, f.offset, f.number, w.room)
			if err == nil {
				_, err = readLabel(f.number, record, sketch)
			}
			if err != nil {
				return false, fmt.Errorf("read archive: %w", damagedRun(file.Name(), f.number, err))
			}
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
			return false, fmt.Errorf("read archive: %w", damagedRun(file.Name(), f.number, err))
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

// match is the run if the query selects it, or nil. The label answers all filters but cause, code, app and
// arguments, for which the row of a run that passes the others is decoded.
func (w *walk) match(sketch *kernel.Run, number uint64, record []byte) (*kernel.Run, error) {
	q := *w.query
	if record != nil {
		q.Cause, q.Code, q.App, q.Args = "", "", "", nil
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

// CopyFiles writes the archive, as far as it is in its files, to another folder.
func (a *Archive) CopyFiles(dir string) error {
	a.filing.Lock()
	defer a.filing.Unlock()
	err := errors.Join(a.mark(), os.CopyFS(dir, os.DirFS(a.dir)))
	if err != nil {
		return fmt.Errorf("copy archive %s: %w", a.dir, err)
	}
	return nil
}
