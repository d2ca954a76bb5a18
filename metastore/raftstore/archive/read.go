package archive

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
)

// How much one question may cost.
const (
	mostRows = 20_000
	mostTime = 100 * time.Millisecond
	stretch  = 256
)

// found is a run by its number in the file, or itself if it is not there yet.
type found struct {
	number uint64
	row    *jobs.Instance
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
func (a *Archive) Get(ctx context.Context, tenant jobs.Tenant, id jobs.ID) (*jobs.Instance, error) {
	if err := a.ready(ctx); err != nil {
		return nil, err
	}
	a.mu.RLock()
	place, known := a.index.ids[a.index.hash([]byte(tenant), id)]
	var f found
	if known {
		f = a.at(place)
	}
	a.mu.RUnlock()
	in := f.row
	if known && in == nil {
		err := a.view(func(runs *bbolt.Bucket) (err error) {
			if record := runs.Get(keyOf(f.number)); record != nil {
				in, err = decode(record)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if in == nil || in.ID != id || in.Tenant != tenant {
		return nil, nil
	}
	return in, nil
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
func (a *Archive) List(ctx context.Context, q metastore.InstanceQuery) (metastore.Page, error) {
	w := walk{query: &q, size: q.Size(), deadline: time.Now().Add(mostTime)}
	before := uint64(0)
	if q.Cursor != "" {
		var err error
		if before, err = strconv.ParseUint(q.Cursor, 36, 64); err != nil || before == 0 {
			return w.page, jobs.Invalid("cursor %.60q is not one that this list has given", q.Cursor)
		}
	}
	if err := a.ready(ctx); err != nil {
		return w.page, err
	}
	a.mu.RLock()
	left := a.index.find(&q, before)
	a.mu.RUnlock()
	for len(left) > 0 {
		n := min(stretch, len(left))
		batch := make([]found, n)
		a.mu.RLock()
		for i := range batch {
			batch[i] = a.at(left[len(left)-1-i])
		}
		a.mu.RUnlock()
		left = left[:len(left)-n]
		over, err := a.look(&w, batch)
		if err == nil && !over {
			err = ctx.Err()
		}
		if err != nil || over {
			return w.page, err
		}
		if len(left) > 0 && (w.looked >= mostRows || time.Now().After(w.deadline)) {
			w.page.Next = strconv.FormatUint(w.last, 36)
			if len(w.page.Instances) < w.size {
				w.page.Searched = w.ended
			}
			break
		}
	}
	return w.page, nil
}

// walk looks for the runs that a query asks for.
type walk struct {
	query    *metastore.InstanceQuery
	size     int
	deadline time.Time

	page   metastore.Page
	looked int
	last   uint64 // the last run of the page, or the last one looked at while the page is not full
	ended  time.Time
}

// look goes through some runs and says whether the page is complete.
func (a *Archive) look(w *walk, batch []found) (over bool, err error) {
	err = a.view(func(runs *bbolt.Bucket) error {
		for _, f := range batch {
			sketch, record := f.row, []byte(nil)
			if sketch == nil {
				if record = runs.Get(keyOf(f.number)); record == nil {
					continue // pruned
				}
				l, _, err := readLabel(record)
				if err != nil {
					return err
				}
				sketch = l.sketch()
			}
			w.looked++
			if w.query.Past(sketch) {
				over = true
				return nil
			}
			full := len(w.page.Instances) == w.size
			if w.query.Matches(sketch) {
				if full {
					w.page.Next = strconv.FormatUint(w.last, 36)
					over = true
					return nil
				}
				if record != nil {
					if sketch, err = decode(record); err != nil {
						return err
					}
				}
				w.page.Instances = append(w.page.Instances, sketch)
			}
			if !full {
				w.last, w.ended = f.number, sketch.Ended
			}
		}
		return nil
	})
	return over, err
}

// CopyFile writes the archive, as far as it is in its file, to another file: a backup.
func (a *Archive) CopyFile(path string) error {
	err := a.db.View(func(tx *bbolt.Tx) error { return tx.CopyFile(path, 0o600) })
	if err != nil {
		return fmt.Errorf("copy archive %s: %w", a.path, err)
	}
	return nil
}
