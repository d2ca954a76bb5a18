package metastore

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// What is decided before a commit, at its edge. Behind it, Apply can rely on Envelope.Check, replicas of two versions
// cannot disagree about it, and the rows need not remember all former runs.

// Checked refuses envelopes that are invalid by themselves, passes a copy of the others to apply, and puts the
// answers together again.
func Checked(batch []kernel.Envelope, apply func([]kernel.Envelope) []Result) []Result {
	return sieve(batch, checked, apply)
}

// KeepFinal is the least time for which a run that has left the live rows is known by its name, in the store's time.
// Names are forgotten at the end of a NamePeriod.
const (
	KeepFinal  = time.Minute
	NamePeriod = KeepFinal / 2
)

// Period is the number of the NamePeriod of a time.
func Period(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixNano() / int64(NamePeriod)
}

// Finished finds runs that have left the live rows.
type Finished interface {
	// Find returns a run that has left the live rows, perhaps long ago; nil if there is none.
	Find(jobs.Tenant, jobs.ID) (*kernel.Run, error)
	// Job returns the definition of a job.
	Job(jobs.Tenant, jobs.Key) (*kernel.Definition, error)
}

// Admitted is Checked for the code that commits. It also answers a Create or a Notify that is repeated after its run
// has left the live rows: an outbox that repeats a request a day later gets no second run.
func Admitted(batch []kernel.Envelope, finished Finished, apply func([]kernel.Envelope) []Result) []Result {
	return sieve(batch, func(e *kernel.Envelope) (Result, bool) {
		if answer, done := checked(e); done {
			return answer, true
		}
		var id jobs.ID
		var key jobs.Key
		switch k := e.Command.(type) {
		case kernel.Create:
			id, key = k.ID, k.Key
		case kernel.Notify:
			id, key = k.ID(e.Tenant), k.Key()
		default:
			return Result{}, false
		}
		run, err := finished.Find(e.Tenant, id)
		switch {
		case err != nil:
			return Result{Err: kernel.Refuse(jobs.Unavailable, "not done: cannot look up whether run %s exists: %v", id, err)}, true
		case run == nil:
			return Result{}, false
		}
		if err := seesFinished(e, run, finished); err != nil {
			return Result{Err: err}, true
		}
		switch {
		case run.Key != key:
			return Result{Err: kernel.Refuse(jobs.Conflict, "run %s exists and belongs to job %s, not %s", id, run.Key, key)}, true
		}
		return Result{Effect: kernel.Effect{Runs: []*kernel.Run{run}, Existing: true}}, true
	}, apply)
}

// seesFinished refuses to answer a sender with a finished run that it may not act on. A commit is not asked: it would not
// know the run.
func seesFinished(e *kernel.Envelope, run *kernel.Run, rows Finished) error {
	if e.Sender.Whole() {
		return nil
	}
	var tags []string
	app := run.App
	switch d, err := rows.Job(e.Tenant, run.Key); {
	case err == nil:
		app, tags = d.App, d.Policy.Tags
	case jobs.CodeOf(err) != jobs.NotFound:
		return kernel.Refuse(jobs.Unavailable, "not done: cannot look up job %s: %v", run.Key, err)
	}
	return e.Sender.Permits(e.Actor, run.Key, app, tags)
}

// MayBeFinished reports whether a run of this name can have left the live rows so long ago that the rules no longer
// know its name. Names carry the time of the clock that made them: one later than the names of all runs that left the
// live rows for good is new, whatever clocks are right. s is the store's row before the commit, and now the time that
// the commit is stamped with.
func MayBeFinished(s *kernel.StoreRow, now time.Time, id jobs.ID) bool {
	latest := s.NamedBefore
	if Period(now) > Period(s.At) {
		latest = max(latest, s.Named)
	}
	made, ok := kernel.MadeAt(id)
	return !ok || made.UnixMilli() <= latest
}

// Archived is Finished for a store in which looking up a finished run is slow. Most names need no look: see
// MayBeFinished. now is the time that the store stamps commits with.
func Archived(ctx context.Context, r Stated, now time.Time) Finished {
	return &archived{ctx: ctx, rows: r, now: now}
}

// Stated is a reader that knows the store's row.
type Stated interface {
	Reader
	State(context.Context) (kernel.StoreRow, error)
}

type archived struct {
	ctx   context.Context
	rows  Stated
	now   time.Time
	state *kernel.StoreRow // read on first use
}

func (a *archived) Find(tenant jobs.Tenant, id jobs.ID) (*kernel.Run, error) {
	if a.state == nil {
		s, err := a.rows.State(a.ctx)
		if err != nil {
			return nil, err
		}
		a.state = &s
	}
	if !MayBeFinished(a.state, a.now, id) {
		return nil, nil
	}
	run, err := a.rows.Run(a.ctx, tenant, id)
	if jobs.CodeOf(err) == jobs.NotFound || err == nil && !run.Settled() {
		return nil, nil
	}
	return run, err
}

func (a *archived) Job(tenant jobs.Tenant, key jobs.Key) (*kernel.Definition, error) {
	return a.rows.Definition(a.ctx, tenant, key)
}

func checked(e *kernel.Envelope) (Result, bool) {
	err := e.Check()
	return Result{Err: err}, err != nil
}

// sieve answers what settled can answer, passes a copy of the rest to apply, and puts the answers together.
func sieve(batch []kernel.Envelope, settled func(*kernel.Envelope) (Result, bool), apply func([]kernel.Envelope) []Result) []Result {
	rest := make([]kernel.Envelope, 0, len(batch))
	var places []int // of the rest, once something was answered
	var results []Result
	for i := range batch {
		if answer, done := settled(&batch[i]); done {
			if results == nil {
				results = make([]Result, len(batch))
				for j := range i {
					places = append(places, j)
				}
			}
			results[i] = answer
			continue
		}
		rest = append(rest, batch[i])
		if results != nil {
			places = append(places, i)
		}
	}
	if len(rest) == 0 {
		return results
	}
	answers := apply(rest)
	if results == nil {
		return answers
	}
	for j, i := range places {
		results[i] = answers[j]
	}
	return results
}
