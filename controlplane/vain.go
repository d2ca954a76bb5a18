package controlplane

import (
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// What is refused is tried again after a part of the time for which it has been refused, so that it is late by no more
// than that part once the cause is gone.
const (
	vainPart  = 8
	vainFirst = 200 * time.Millisecond
	vainLast  = 10 * time.Second
)

// vainPause returns how long not to repeat what has been refused since a time.
func vainPause(since, now time.Time) time.Duration {
	return min(max(now.Sub(since)/vainPart, vainFirst), vainLast)
}

// basis is what a decision is based on. As long as it stays, the store will answer the same.
type basis struct {
	job                               jobs.ID
	term, revision, global, calendars uint64
	cursor                            int64
}

func basisOf(f kernel.Fire, term uint64) basis {
	return basis{f.Job, term, f.Revision, f.Global, f.Calendars, nanos(f.From)}
}

// vain is a decision that the store refused, or that decided nothing.
type vain struct {
	of    basis
	since time.Time
	until int64 // 0 = it is repeated at once: what it is based on was out of date
}

// again has a job decided again: at once, or after a pause if the last decision had the same basis. It reports whether
// there is a pause.
func (c *catalog) again(e *entry, of basis, now time.Time) bool {
	c.mu.Lock()
	name, v := nameOf(e.def), vain{of: of, since: now}
	if last, ok := c.vain[name]; ok && last.of == of {
		v.since = last.since
		v.until = now.Add(vainPause(v.since, now)).UnixNano()
	}
	c.vain[name] = v
	if p := c.entries[name]; p != nil {
		c.assignOne(p)
	}
	c.mu.Unlock()
	c.back(e, nil)
	return v.until != 0
}
