package ops

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
)

const (
	// MaxBackfill is the most due times of a backfill.
	MaxBackfill = 10_000
	// backfillTries is how often a backfill is planned again because the ledger has changed meanwhile.
	backfillTries = 8
)

// Backfill requests the runs of a past period.
type Backfill struct {
	Key      jobs.Key
	From, To time.Time // start (inclusive) and end (exclusive); no To = now
	Parallel int       // max parallel runs; 0 = 1
	Priority *int      // of its runs; nil = the job's less one, so that current due times run first
	Replay   bool      // also due times that have a run
	Request  string    // idempotency key of the request; "" = none
}

// Backfilled is the result of a backfill, or of its preview.
type Backfilled struct {
	ID          jobs.ID   // the parent of its runs; zero if none were made
	Due         int       // due times in the period that its calendars do not exclude
	Runs        int       // created for them
	Had         int       // due times skipped because they have, or had, a run
	First, Last time.Time // due times of the first and the last of the runs
	Parallel    int
}

// Backfill creates runs for past due times that have none, or for all.
func (o *Ops) Backfill(ctx context.Context, who Who, b Backfill) (Backfilled, error) {
	if d, err := o.definition(ctx, who, b.Key); err != nil {
		return Backfilled{}, err
	} else if err := who.permits(d); err != nil { // also if there is nothing to fill
		return Backfilled{}, err
	}
	if b.Request == "" {
		b.Request = jobs.NewID(o.now()).String() // each try is the same backfill
	}
	for try := 1; ; try++ {
		p, err := o.planBackfill(ctx, who, &b)
		if err != nil {
			return Backfilled{}, err
		}
		done := p.before()
		err = o.fill(ctx, who, p.commands(), &done)
		if try < backfillTries && errors.Is(err, jobs.Stale) {
			continue
		}
		if done.Runs > 0 {
			err = after(err)
		}
		return done, err
	}
}

// PreviewBackfill returns what a backfill would create. Nothing is stored.
func (o *Ops) PreviewBackfill(ctx context.Context, who Who, b Backfill) (Backfilled, error) {
	p, err := o.planBackfill(ctx, who, &b)
	if err != nil {
		return Backfilled{}, err
	}
	would := p.before()
	for _, due := range p.due {
		would.made(due.At)
	}
	return would, nil
}

func (b *Backfilled) made(due time.Time) {
	if b.Runs == 0 || due.Before(b.First) {
		b.First = due
	}
	if due.After(b.Last) {
		b.Last = due
	}
	b.Runs++
}

// fill sends the parts of a backfill, one commit each.
func (o *Ops) fill(ctx context.Context, who Who, parts []kernel.Backfill, done *Backfilled) error {
	for _, part := range parts {
		r := o.gate.commit(ctx, who, []kernel.Envelope{o.envelope(who, part)})[0]
		if r.Err != nil {
			return r.Err
		}
		done.count(&part, r.Effect)
	}
	return nil
}

// count adds the result of a part.
func (b *Backfilled) count(part *kernel.Backfill, e kernel.Effect) {
	for _, run := range e.Runs {
		if run.Parent == part.ID && run.Origin == kernel.FromBackfill {
			b.ID = part.ID
			b.made(run.Due)
		}
	}
}

// filling is a planned backfill.
type filling struct {
	id       jobs.ID
	job      *kernel.Definition
	plan     *schedule.Plan
	due      []kernel.BackfillDue
	done     []time.Time // due times whose runs it has created before
	all, had int
	parallel int
	priority int
	ledger   []*kernel.Missed // oldest first
}

// before returns what the backfill has created so far.
func (f *filling) before() Backfilled {
	b := Backfilled{Due: f.all, Had: f.had, Parallel: f.parallel}
	for _, due := range f.done {
		b.ID = f.id
		b.made(due)
	}
	return b
}

// planBackfill lists the due times, and which of them have no run.
func (o *Ops) planBackfill(ctx context.Context, who Who, b *Backfill) (*filling, error) {
	f, err := o.beginFilling(ctx, who, b.Key, b.Parallel, b.Priority)
	if err != nil {
		return nil, err
	}
	now := o.Now()
	from, to := kernel.Instant(b.From), kernel.Instant(b.To)
	switch {
	case from.IsZero():
		return nil, kernel.Invalid("from is missing: set the start of the period")
	case to.IsZero():
		to = now
	case to.After(now):
		return nil, kernel.Invalid("invalid to %s: want a past time, because future due times fire by themselves", clock(to))
	}
	if !from.Before(to) {
		return nil, kernel.Invalid("invalid period: from %s is not before to %s", clock(from), clock(to))
	}
	f.id = jobs.NewID(o.now())
	if b.Request != "" {
		words := []string{"backfill", string(who.tenant()), string(f.job.UID[:]), b.Request, strconv.FormatBool(b.Replay)}
		for _, t := range []time.Time{b.From, b.To} {
			words = append(words, strconv.FormatInt(t.UnixNano(), 10))
		}
		f.id = kernel.DerivedID(words...)
	}
	for due, ok := f.plan.Next(from.Add(-1)); ok && due.Before(to) && !due.After(f.job.Cursor); due, ok = f.plan.Next(due) {
		if f.all++; f.all > MaxBackfill {
			return nil, kernel.Invalid("from %s to %s there are more than %d due times, the most of one backfill: end it before %s", clock(from), clock(to), MaxBackfill, clock(due))
		}
		if err := o.want(ctx, f, due, b.Replay); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// beginFilling reads the rows that a backfill needs.
func (o *Ops) beginFilling(ctx context.Context, who Who, key jobs.Key, parallel int, priority *int) (*filling, error) {
	d, err := o.definition(ctx, who, key)
	if err != nil {
		return nil, err
	}
	global, err := o.store.Global(ctx, who.tenant())
	if err != nil {
		return nil, err
	}
	switch {
	case d.Kind != kernel.Recurring:
		return nil, kernel.Refuse(jobs.Conflict, "job %s is triggered: it has no due times", key)
	case d.Policy.Disabled:
		return nil, kernel.Refuse(jobs.Conflict, "job %s is disabled: a run of it would only be skipped; enable it first", key)
	case d.FixedDelay():
		return nil, kernel.Refuse(jobs.Conflict, "job %s is due after the end of its last run: it has no missed due times", key)
	}
	f := &filling{job: d, parallel: max(parallel, 1), priority: max(d.Policy.Priority-1, -kernel.MaxPriority)}
	if parallel < 0 || parallel > kernel.MaxParallel {
		return nil, kernel.Invalid("invalid parallel %d: want 1 to %d", parallel, kernel.MaxParallel)
	}
	if priority != nil {
		if err := (&kernel.Settings{Priority: priority}).Check(); err != nil {
			return nil, err
		}
		f.priority = *priority
	}
	if f.plan, err = o.dueBy(d, global); err != nil {
		return nil, fmt.Errorf("read the schedule of %s: %w", key, err)
	}
	if f.plan == nil {
		return nil, kernel.Refuse(jobs.Conflict, "job %s has no schedule, and so no due times", key)
	}
	if f.ledger, err = o.ledger(ctx, d); err != nil {
		return nil, err
	}
	return f, nil
}

// want plans a due time. If the ledger does not name it and today's schedule existed then, it has had a run, even if
// that has been purged.
func (o *Ops) want(ctx context.Context, f *filling, due time.Time, replay bool) error {
	d, one := f.job, kernel.BackfillDue{At: due}
	run, err := o.found(ctx, d.Tenant, kernel.DueID(d.Tenant, d.UID, due, 0, 0))
	if err != nil {
		return err
	}
	ran := run != nil || f.missed(due) == nil && due.After(d.SetAt)
	if ran && replay && (run == nil || run.Parent != f.id) {
		one.Replay = true
		k := kernel.Backfill{ID: f.id, Job: d.UID}
		if run, err = o.found(ctx, d.Tenant, k.Run(d.Tenant, one)); err != nil {
			return err
		}
		ran = run != nil
	}
	switch {
	case !ran:
		f.due = append(f.due, one)
	case run != nil && run.Parent == f.id:
		f.done = append(f.done, due)
	default:
		f.had++
	}
	return nil
}

// found returns a run, or nil.
func (o *Ops) found(ctx context.Context, t jobs.Tenant, id jobs.ID) (*kernel.Run, error) {
	run, err := o.store.Run(ctx, t, id)
	if errors.Is(err, jobs.NotFound) {
		return nil, nil
	}
	return run, err
}
