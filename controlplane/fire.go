package controlplane

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/sabotage"
	"github.com/carillon-scheduler/carillon/internal/timetable"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Limits of one pass: jobs in a commit, due times that become runs, which its jobs share, and due times that are looked
// at for one job. The rest is decided in the next pass, at once.
const (
	fireJobs = 1000
	fireRuns = 1000
	fireLook = 100_000
)

// fire turns due times into runs: all of them under the term in which this process leads, or, where several processes
// fire a share each, its own, under the store's term. It sleeps until the next due time of any job, or until a
// definition changes.
func (cp *ControlPlane) fire(ctx context.Context, term uint64) error {
	timer := time.NewTimer(cp.cfg.Watch) // set anew before each wait
	defer timer.Stop()
	d := cp.duty("fire")
	for {
		d.begin()
		err := cp.catalog.reload(ctx, cp.cfg.Store)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			cp.episodes.Failed(episode.Level(err), "", "definitions cannot be read", "err", err)
			if err := d.end(err); err != nil {
				return err
			}
			if err := wait(ctx, time.Second); err != nil {
				return err
			}
			continue
		}
		if cp.clockIsWrong() { // see skew.go
			_ = d.end(nil)
			if err := wait(ctx, time.Second/10); err != nil {
				return err
			}
			continue
		}
		if cp.cfg.Membership != nil {
			var may bool
			if term, may = cp.share.mayFire(); !may {
				_ = d.end(nil)
				if err := wait(ctx, memberLook); err != nil {
					return err
				}
				continue
			}
		}
		now := cp.cfg.Clock.Now()
		due, next := cp.catalog.dueBy(now, fireJobs)
		if len(due) > 0 {
			if due, err = cp.ours(ctx, due, now); err != nil {
				if err := d.end(err); err != nil {
					return err
				}
				continue // and read them again
			}
			if err := cp.fireAll(ctx, d, due, term, now); err != nil {
				return err
			}
			continue
		}
		_ = d.end(nil)
		sleep := cp.cfg.Watch // at most: the wall clock may be set, which no timer notices
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
func (cp *ControlPlane) fireAll(ctx context.Context, d *duty, due []*entry, term uint64, now time.Time) error {
	var batch []kernel.Envelope
	owner := make([]int, 0, len(due))
	based := make([]basis, len(due))
	idle := make([]bool, len(due)) // nothing to decide yet
	for i, e := range due {
		e.beside = len(due)
		g, calendars := cp.catalog.global(e.def.Tenant), cp.catalog.calendars(e.def.Tenant)
		based[i] = basisOf(fireOf(e.def, g, calendars), term)
		f, ok := decide(e, g, calendars, now)
		if idle[i] = !ok; !ok {
			cp.catalog.rest(e, now)
			continue
		}
		f.Term = term
		envelope := cp.envelope(e.def.Tenant, f)
		if cp.cfg.Membership != nil {
			envelope.Actor = "member:" + cp.cfg.Node
		}
		batch = append(batch, envelope)
		owner = append(owner, i)
	}
	if sabotage.Off(sabotage.Cursor) {
		cp.applyFires(ctx, batch)
	}
	latest := make([]*kernel.Definition, len(due))
	refused := make([]error, len(due))
	pause, stale := false, false
	var failed error
	for i, r := range cp.applyFires(ctx, batch) {
		switch e := due[owner[i]]; {
		case r.Err == nil:
			latest[owner[i]] = r.Definition()
			cp.late(r.Effect, now)
			f, ok := batch[i].Command.(kernel.Fire)
			if !ok || r.Existing {
				continue
			}
			cp.share.fired.Add(uint64(len(f.Due)))
			if e.foreign {
				cp.share.rescued.Add(uint64(len(f.Due)))
			}
		case errors.Is(r.Err, jobs.Conflict): // the store's clock, if it is another one, is not there yet
			refused[owner[i]] = r.Err
			cp.episodes.Failed(slog.LevelWarn, "", "the store is behind the clock of this node", "key", e.def.Key, "err", r.Err)
		case errors.Is(r.Err, jobs.Stale), errors.Is(r.Err, jobs.NotFound):
			refused[owner[i]], stale = r.Err, true // the job has changed: reload it and decide again
			cp.catalog.markGlobal(e.def.Tenant)
		default:
			refused[owner[i]], pause, failed = r.Err, pause || broken(r.Err), r.Err
			cp.episodes.Failed(episode.Level(r.Err), "", "due times could not be fired", "key", e.def.Key, "err", r.Err)
		}
	}
	for i, e := range due {
		switch {
		case idle[i]:
		case broken(refused[i]):
			cp.catalog.back(e, nil)
		case refused[i] == nil && latest[i] != nil && e.moved(latest[i]):
			cp.catalog.back(e, latest[i])
		default:
			if code := jobs.CodeOf(refused[i]); cp.catalog.again(e, based[i], now) && (refused[i] == nil || code == jobs.Stale || code == jobs.NotFound) {
				cp.episodes.Failed(slog.LevelWarn, "", "the due times of a job cannot be decided", "key", e.def.Key, "err", refused[i])
			}
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := d.end(failed); err != nil {
		return err
	}
	if stale { // or another node leads, and this one does not know yet: no reason to retry at full speed
		s, err := cp.cfg.Store.State(ctx)
		if cp.cfg.Membership != nil && err == nil {
			cp.share.under(s.Term) // any leader accepts our share
			if leads, _ := cp.Leading(); leads == 0 {
				return wait(ctx, memberLook/2) // the rows here may be a moment old
			}
		} else {
			pause = pause || err != nil || s.Term != term
		}
	}
	if pause {
		return wait(ctx, 200*time.Millisecond)
	}
	return ctx.Err()
}

// applyFires applies fires at the leader: a member may be another process.
func (cp *ControlPlane) applyFires(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	if cp.cfg.Membership == nil {
		return cp.store.Apply(ctx, batch)
	}
	// While no process leads, the due times are decided again rather than sent for as long as that takes.
	ctx, cancel := context.WithTimeout(ctx, memberLease)
	defer cancel()
	return cp.cfg.Leader.Apply(ctx, batch)
}

// decide decides the due times of a job up to now: the rules of misfire, pause and debug mode. It reports whether there
// is anything to decide.
func decide(e *entry, g *kernel.Global, c *schedule.Calendars, now time.Time) (kernel.Fire, bool) {
	d := e.def
	if len(d.Undecided) > 0 {
		return settle(d, g, c), true
	}
	f := fireOf(d, g, c)
	calendars, _ := c.Named(d.Policy.Calendars)
	by := now.Add(d.Policy.Early)
	var newest newestLate
	ahead, idle := begun(d), d.Idle(g, now)
	due, ok := e.next, !e.next.IsZero()
	looked, runs := 0, max(1, fireRuns/max(1, e.beside))
	for ; ok && !due.After(by) && len(f.Due) < runs && (looked < fireLook || newest.first()); looked++ {
		if d.FixedDelay() && len(f.Due) > 0 {
			break // the next one counts from the end of this run
		}
		silent := silence(d, g, calendars, due)
		if due.After(now) && (idle || silent != "") {
			break // what does not begin early is decided when it is due
		}
		switch {
		case ahead(due):
		case silent != "":
			miss(&f, due, silent)
		case now.Sub(due) <= g.Late():
			f.Due = append(f.Due, due)
		case d.Policy.Misfire == jobs.MisfireAll && !sabotage.Off(sabotage.FireAll):
			f.Due, f.Late = append(f.Due, due), f.Late+1
		default:
			newest.found(&f, due, looked)
			miss(&f, due, kernel.MissedLate)
		}
		f.To = due
		due, ok = e.schedule.Next(due)
	}
	all := !ok || due.After(now)
	if d.Policy.Misfire == jobs.MisfireOnce && len(f.Due) == 0 && !newest.due.IsZero() {
		newest.fire(&f, all)
	}
	if n := len(d.Silences); n > 0 && all && d.Silences[n-1].Until.After(f.To) && !d.Silences[n-1].Until.After(now) {
		f.To = d.Silences[n-1].Until // so that it can be forgotten
	}
	return f, f.To.After(f.From)
}

// begun returns which due times were decided ahead, under an earlier schedule.
func begun(d *kernel.Definition) func(due time.Time) bool {
	schedules := make([]*schedule.Schedule, len(d.Ahead))
	for i, e := range d.Ahead {
		if was := d.With(e); !was.FixedDelay() { // of which the last one was the only one
			schedules[i], _ = timetable.Schedule(was)
		}
	}
	return func(due time.Time) bool {
		for i, e := range d.Ahead {
			if due.Equal(e.Decided) {
				return true
			}
			if s := schedules[i]; s != nil && due.After(e.Until) && !due.After(e.Decided) {
				if at, ok := s.Next(due.Add(-1)); ok && at.Equal(due) {
					return true
				}
			}
		}
		return false
	}
}

// newestLate is the newest due time of a decision that comes too late: fire_once fires it after all, unless one on time
// follows.
type newestLate struct {
	due    time.Time
	place  int       // how many due times were looked at before it
	before time.Time // the one before it, or where the decision begins
	missed time.Time // the one before it in its range
	ranges int       // how many ranges the decision has with its own
}

// found notes a late due time that is about to be in the last range of a fire.
func (l *newestLate) found(f *kernel.Fire, due time.Time, place int) {
	was := l.due
	*l = newestLate{due: due, place: place, before: f.To, ranges: len(f.Missed) + 1}
	if n := len(f.Missed); n > 0 && f.Missed[n-1].Reason == kernel.MissedLate {
		l.missed, l.ranges = was, n
	}
}

// first reports whether the decision begins with it, so that nothing would be decided if it were left to the next.
func (l *newestLate) first() bool { return !l.due.IsZero() && l.place == 0 }

// fire fires the newest late due time if the decision has looked at all of them. Otherwise a newer one may follow: the
// decision ends before it, and the next one begins with it.
func (l *newestLate) fire(f *kernel.Fire, all bool) {
	if !all {
		f.Missed = f.Missed[:l.ranges]
		f.To = l.before
	} else {
		f.Due, f.Late = []time.Time{l.due}, 1
	}
	if m := &f.Missed[l.ranges-1]; m.Count > 1 {
		m.To, m.Count = l.missed, m.Count-1
	} else {
		f.Missed = slices.Delete(f.Missed, l.ranges-1, l.ranges)
	}
}

// fireOf returns a fire without decisions.
func fireOf(d *kernel.Definition, g *kernel.Global, c *schedule.Calendars) kernel.Fire {
	f := kernel.Fire{Key: d.Key, Job: d.UID, Revision: d.Revision, Global: g.Revision, From: d.Cursor, To: d.Cursor}
	if c != nil {
		f.Calendars = c.Revision
	}
	return f
}

// silence returns why a due time becomes part of a ledger range, or "".
func silence(d *kernel.Definition, g *kernel.Global, calendars []*schedule.Calendar, due time.Time) kernel.Reason {
	for _, c := range calendars {
		if _, _, is := c.Excludes(due); is {
			return kernel.MissedCalendar
		}
	}
	return d.Silent(g, due)
}

// settle puts due times of earlier schedules into the ledger that were undecided when those were changed.
func settle(d *kernel.Definition, g *kernel.Global, c *schedule.Calendars) kernel.Fire {
	f, ahead := fireOf(d, g, c), begun(d)
	looked := 0
	for _, earlier := range d.Undecided {
		was := d.With(earlier)
		was.Cursor = f.To
		calendars, _ := c.Named(was.Policy.Calendars)
		if s, _ := timetable.Schedule(was); s != nil {
			for due, ok := s.Next(was.Since()); ok && !due.After(earlier.Until); due, ok = s.Next(due) {
				if looked++; looked > fireLook {
					return f
				}
				why := kernel.MissedEdited
				if silent := silence(d, g, calendars, due); silent != "" {
					why = silent
				}
				if !ahead(due) {
					miss(&f, due, why)
				}
				if f.To = due; was.FixedDelay() {
					break // the next one would have counted from the end of a run
				}
			}
		}
		f.To = earlier.Until
	}
	return f
}

// miss adds a due time to the ranges of a fire.
func miss(f *kernel.Fire, due time.Time, why kernel.Reason) {
	n := len(f.Missed)
	if fired := len(f.Due); n > 0 && f.Missed[n-1].Reason == why && (fired == 0 || f.Due[fired-1].Before(f.Missed[n-1].From)) {
		f.Missed[n-1].To, f.Missed[n-1].Count = due, f.Missed[n-1].Count+1
		return
	}
	f.Missed = append(f.Missed, kernel.Missed{From: due, To: due, Count: 1, Reason: why})
}

// late logs due times that passed without a run.
func (cp *ControlPlane) late(e kernel.Effect, now time.Time) {
	for _, m := range e.Missed {
		if m.Reason == kernel.MissedLate {
			cp.log.Warn("due times were missed", "key", m.Key, "first", m.From, "last", m.To, "count", m.Count)
		}
	}
}
