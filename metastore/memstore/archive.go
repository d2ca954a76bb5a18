package memstore

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Archive stores the runs that ended last, in memory.
type Archive struct {
	mu   sync.RWMutex
	most int
	rows []*kernel.Run // a ring once it is full; nil = purged
	ids  map[archived]uint64
	logs *Logs  // whose lines go with their runs; nil = none
	next uint64 // number of the next row; rows are numbered from 1
}

type archived struct {
	tenant jobs.Tenant
	id     jobs.ID
}

var _ metastore.Archive = (*Archive)(nil)

// DefaultArchive is how many runs an Archive keeps by default.
const DefaultArchive = 100_000

// NewArchive makes an archive of at most maxRows runs; when one more ends, the oldest is dropped. 0 means
// DefaultArchive.
func NewArchive(maxRows int) *Archive {
	if maxRows <= 0 {
		maxRows = DefaultArchive
	}
	return &Archive{most: maxRows, ids: make(map[archived]uint64), next: 1}
}

// at is the index of the row of a number.
func (a *Archive) at(number uint64) int { return int((number - 1) % uint64(a.most)) }

// Append adds settled runs, in the order in which they ended.
func (a *Archive) Append(rows []*kernel.Run) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, run := range rows {
		if at := a.at(a.next); at < len(a.rows) {
			if old := a.rows[at]; old != nil {
				if name := (archived{old.Tenant, old.ID}); a.ids[name]+uint64(a.most) == a.next {
					delete(a.ids, name)
				}
			}
			a.rows[at] = run
		} else {
			a.rows = append(a.rows, run)
		}
		a.ids[archived{run.Tenant, run.ID}] = a.next
		a.next++
	}
}

// Get is one run, or nil.
func (a *Archive) Get(_ context.Context, tenant jobs.Tenant, id jobs.ID) (*kernel.Run, error) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	number, found := a.ids[archived{tenant, id}]
	if !found {
		return nil, nil
	}
	return a.rows[a.at(number)], nil
}

// List answers a query, last ended first.
func (a *Archive) List(ctx context.Context, q metastore.RunQuery) (page metastore.Page, err error) {
	number := uint64(0) // of the last row looked at
	if q.Cursor != "" {
		if number, err = strconv.ParseUint(q.Cursor, 36, 64); err != nil || number == 0 {
			return page, kernel.Invalid("cursor %.60q is not from this list: use the cursor of the previous page", q.Cursor)
		}
	}
	size, deadline := q.Size(), time.Now().Add(mostTime)
	for {
		over, left := a.stretch(&q, &number, size, &page)
		if over {
			return page, nil
		}
		if err := ctx.Err(); err != nil {
			return page, err
		}
		if time.Now().After(deadline) {
			page.Next, page.Searched = strconv.FormatUint(number, 36), left
			return page, nil
		}
	}
}

// stretch reads the next few rows before a number, and reports whether the page is complete and, if not, when the
// last of them ended.
func (a *Archive) stretch(q *metastore.RunQuery, number *uint64, size int, page *metastore.Page) (over bool, left time.Time) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	oldest := a.next - uint64(len(a.rows))
	if *number == 0 || *number > a.next {
		*number = a.next
	}
	for range stretch {
		if *number <= oldest {
			return true, left
		}
		run := a.rows[a.at(*number-1)]
		if run == nil {
			*number--
			continue
		}
		if run.Tenant == q.Tenant {
			if q.Past(run) {
				return true, left
			}
			if q.Matches(run) {
				if len(page.Runs) == size {
					page.Next = strconv.FormatUint(*number, 36)
					return true, left
				}
				page.Runs = append(page.Runs, run)
			}
		}
		*number--
		left = run.Ended
	}
	return false, left
}

var _ metastore.Retainer = (*Archive)(nil)

// Dropping has the lines of a run purged with it.
func (a *Archive) Dropping(l *Logs) { a.logs = l }

// Retain purges. The size of a run is about its size in memory.
func (a *Archive) Retain(ctx context.Context, r metastore.Retention) (done metastore.Retained, err error) {
	type class struct {
		tenant    jobs.Tenant
		key       jobs.Key
		succeeded bool
	}
	seen, kept, sizes := map[class]int{}, map[archivedJob]kernel.Kept{}, map[metastore.Owner]int64{}
	a.mu.RLock()
	next, n := a.next, len(a.rows)
	a.mu.RUnlock()
	var old []uint64
	type keeps struct {
		number uint64
		of     metastore.Owner
		size   int64
	}
	var rest []keeps // newest first
	for number := next - 1; number >= next-uint64(n) && number > 0; number-- {
		if ctx.Err() != nil {
			return done, ctx.Err()
		}
		a.mu.RLock()
		run := a.rows[a.at(number)]
		a.mu.RUnlock()
		if run == nil {
			continue
		}
		name := archivedJob{run.Tenant, run.Key}
		k, ok := kept[name]
		if !ok {
			if k, err = r.Of(run.Tenant, run.Key); err != nil {
				return done, err
			}
			kept[name] = k
		}
		c := class{run.Tenant, run.Key, run.State == jobs.Succeeded}
		most := k.Others
		if c.succeeded {
			most = k.Succeeded
		}
		young := !k.Young.IsZero() && !run.Ended.Before(k.Young)
		if run.Ended.Before(k.Since) || most > 0 && seen[c] >= most && !young {
			old = append(old, number)
			continue
		}
		seen[c]++
		has := keeps{number, metastore.Owner{Tenant: run.Tenant, App: k.App}, int64(1200 + len(run.Args) + len(run.Result) + len(run.Checkpoint))}
		sizes[has.of] += has.size
		done.Bytes += has.size
		if r.Bytes > 0 {
			rest = append(rest, has)
		}
	}
	if done.Bytes > r.Bytes && r.Bytes > 0 {
		excess := metastore.Excess(sizes, r.Bytes)
		for _, has := range slices.Backward(rest) {
			if excess[has.of] > 0 {
				old = append(old, has.number)
				excess[has.of] -= has.size
				done.Bytes -= has.size
			}
		}
	}
	gone := map[archived]bool{}
	for part := range slices.Chunk(old, 500) { // commits may run in between
		a.mu.Lock()
		for _, number := range part {
			if number+uint64(len(a.rows)) < a.next { // purged meanwhile
				continue
			}
			run := a.rows[a.at(number)]
			if name := (archived{run.Tenant, run.ID}); a.ids[name] == number {
				delete(a.ids, name)
				gone[name] = true
			}
			a.rows[a.at(number)] = nil
			done.Dropped++
		}
		a.mu.Unlock()
	}
	if a.logs != nil && len(gone) > 0 {
		a.logs.drop(gone)
	}
	return done, nil
}

type archivedJob struct {
	tenant jobs.Tenant
	key    jobs.Key
}
