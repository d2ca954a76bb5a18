package ops

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// dues caches the next due times of jobs, so that listing ten thousand jobs reads ten thousand rows and parses no
// schedule. An entry is valid for a revision of a job, until its time has passed.
type dues struct {
	mu    sync.Mutex
	known map[jobs.ID]due // by the job's uid
}

type due struct {
	revision uint64
	closed   uint64    // of the calendars
	ended    time.Time // of the run from which it counts
	asked    time.Time // the result is the first due time after this
	next     time.Time // zero = never
	trouble  error     // why the schedule is invalid
}

// maxDues limits the cache; beyond it, all entries are dropped.
const maxDues = 100_000

// next returns when a job is due after now, and why its schedule is invalid; zero = never.
func (o *Ops) next(d *kernel.Definition, g *kernel.Global, now time.Time) (time.Time, error) {
	if d.Waits() {
		return time.Time{}, nil
	}
	now = undecided(d, now)
	s := &o.dues
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.known[d.UID]
	if ok && known.revision == d.Revision && known.closed == g.Calendars && known.ended.Equal(d.Ended) && !now.Before(known.asked) && (known.next.IsZero() || known.next.After(now)) {
		return known.next, known.trouble
	}
	fresh := due{revision: d.Revision, closed: g.Calendars, ended: d.Ended, asked: now}
	when, err := o.dueBy(d, g)
	if fresh.trouble = err; err == nil && when != nil {
		fresh.next, _ = when.Next(now)
	}
	if s.known == nil || len(s.known) >= maxDues {
		s.known = map[jobs.ID]due{}
	}
	s.known[d.UID] = fresh
	return fresh.next, fresh.trouble
}

// Soon lists the n jobs that fire next, soonest first, and the number of all jobs. Jobs that would not fire now are
// left out.
func (o *Ops) Soon(ctx context.Context, who Who, n int) (soon []Job, all int, err error) {
	global, err := o.store.Global(ctx, who.tenant())
	if err != nil {
		return nil, 0, err
	}
	type candidate struct {
		at time.Time
		*kernel.Definition
	}
	var list []candidate
	now := o.Now()
	err = metastore.EachDefinition(ctx, o.store, who.tenant(), func(part []*kernel.Definition) error {
		for _, d := range part {
			all++
			if d.Policy.Schedule == "" {
				continue
			}
			if at, _ := o.next(d, global, now); !at.IsZero() && Silence(d, global, at) == "" {
				list = append(list, candidate{at, d})
			}
		}
		slices.SortFunc(list, func(a, b candidate) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.Key, b.Key)) })
		kept := min(len(list), n)
		clear(list[kept:])
		list = list[:kept]
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	for _, c := range list {
		soon = append(soon, o.job(c.Definition, global, 1))
	}
	return soon, all, nil
}
