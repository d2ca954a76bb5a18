package controlplane

import (
	"context"
	"errors"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// How much one pass decides at most: jobs in a commit, due times that become runs and due times that are looked at,
// for one job. What is left is decided in the next pass, at once.
const (
	fireJobs = 1000
	fireRuns = 1000
	fireLook = 100_000
)

// fire turns due times into runs. It sleeps until the next due time of any job, or until a definition changes.
func (cp *ControlPlane) fire(ctx context.Context, epoch uint64) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if err := cp.catalog.reload(ctx, cp.cfg.Store); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			cp.log.Error("definitions cannot be read", "err", err)
			if err := wait(ctx, time.Second); err != nil {
				return err
			}
			continue
		}
		now := time.Now()
		due, next := cp.catalog.dueBy(now, fireJobs)
		if len(due) > 0 {
			if err := cp.fireAll(ctx, due, epoch, now); err != nil {
				return err
			}
			continue
		}
		sleep := time.Second // at most: somebody may set the wall clock, and no timer tells
		if !next.IsZero() {
			sleep = min(sleep, next.Sub(now))
		}
		timer.Reset(sleep)
		select {
		case <-timer.C:
		case <-cp.catalog.changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// fireAll decides and commits the due times of some jobs.
func (cp *ControlPlane) fireAll(ctx context.Context, due []*entry, epoch uint64, now time.Time) error {
	var batch []jobs.Envelope
	owner := make([]int, 0, len(due))
	for i, e := range due {
		for _, f := range decide(e, cp.catalog.global(e.def.Tenant), now) {
			f.Epoch = epoch
			batch = append(batch, cp.envelope(e.def.Tenant, f))
			owner = append(owner, i)
		}
	}
	latest := make([]*jobs.Definition, len(due))
	refused := make([]bool, len(due))
	pause := false
	for i, r := range cp.store.Apply(ctx, batch) {
		switch e := due[owner[i]]; {
		case r.Err == nil:
			latest[owner[i]] = r.Definition()
			cp.late(r.Effect, now)
		case errors.Is(r.Err, jobs.Stale), errors.Is(r.Err, jobs.Conflict), errors.Is(r.Err, jobs.NotFound):
			refused[owner[i]] = true // the job has changed: reload it and decide again
			cp.catalog.markGlobal(e.def.Tenant)
		default:
			refused[owner[i]], pause = true, true
			cp.log.Error("due times could not be fired", "key", e.def.Key, "err", r.Err)
		}
	}
	for i, e := range due {
		if refused[i] {
			cp.catalog.back(e, nil)
			continue
		}
		cp.catalog.back(e, latest[i])
	}
	if pause {
		return wait(ctx, 200*time.Millisecond)
	}
	return ctx.Err()
}

// decide says what becomes of the due times of a job up to now: the rules of misfire, pause and debug mode.
func decide(e *entry, g *jobs.Global, now time.Time) []jobs.Fire {
	d := e.def
	f := jobs.Fire{Key: d.Key, Job: d.UID, Revision: d.Revision, Global: g.Revision, From: d.Cursor, To: d.Cursor}
	late := f
	late.Origin, f.Origin = jobs.FromMisfire, jobs.FromCron
	due, ok := e.next, !e.next.IsZero()
	var previous, last time.Time // the two due times looked at last
	for looked := 0; ok && !due.After(now) && looked < fireLook && len(f.Due)+len(late.Due) < fireRuns; looked++ {
		silent := d.Silent(g, due)
		switch {
		case silent != "" && len(f.Due) == 0:
			miss(&late, due, silent)
		case silent != "":
			// A due time that is silent after some that were not: the ranges of a Fire come before its runs, so the
			// next pass goes on from here.
			return fires(late, f)
		case now.Sub(due) <= g.Late():
			f.Due = append(f.Due, due)
		case d.Policy.Misfire == jobs.MisfireAll:
			if len(late.Missed) > 0 {
				return fires(late, f)
			}
			late.Due = append(late.Due, due)
		default:
			if len(late.Due) > 0 {
				return fires(late, f)
			}
			miss(&late, due, jobs.MissedLate)
		}
		if len(f.Due) == 0 {
			late.To = due
		}
		f.To = due
		if len(f.Due) == 0 {
			previous, last = last, due
		}
		due, ok = e.schedule.Next(due)
	}
	// fire_once: the newest due time that came too late fires after all. It is known to be the newest if a due time
	// that is not late follows it, or none.
	if n := len(late.Missed); n > 0 && d.Policy.Misfire == jobs.MisfireOnce {
		if m := &late.Missed[n-1]; m.Reason == jobs.MissedLate && (len(f.Due) > 0 || !ok || due.After(now)) {
			late.Due = append(late.Due, m.To)
			if m.Count--; m.Count == 0 {
				late.Missed = late.Missed[:n-1]
			} else {
				m.To = previous
			}
		}
	}
	return fires(late, f)
}

// fires are the commands of a decision: first what was late or silent, then what is on time.
func fires(late, f jobs.Fire) []jobs.Fire {
	var out []jobs.Fire
	if late.To.After(late.From) {
		out = append(out, late)
		f.From = late.To
	}
	if len(f.Due) > 0 {
		out = append(out, f)
	}
	return out
}

// miss adds a due time to the ranges of a fire.
func miss(f *jobs.Fire, due time.Time, why jobs.Reason) {
	if n := len(f.Missed); n > 0 && f.Missed[n-1].Reason == why {
		f.Missed[n-1].To, f.Missed[n-1].Count = due, f.Missed[n-1].Count+1
		return
	}
	f.Missed = append(f.Missed, jobs.Missed{From: due, To: due, Count: 1, Reason: why})
}

// late tells the log about due times that passed without a run.
func (cp *ControlPlane) late(e jobs.Effect, now time.Time) {
	for _, m := range e.Missed {
		if m.Reason == jobs.MissedLate {
			cp.log.Warn("due times were missed", "key", m.Key, "from", m.From, "to", m.To, "count", m.Count)
		}
	}
}
