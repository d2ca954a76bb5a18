package ops

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Missed is what happens to due times of a recurring job that passed during a pause, and to its runs that would have
// begun meanwhile.
type Missed string

// The choices. The default is to skip them.
const (
	MissedSkip   Missed = "skip"   // no run: the ledger shows that the job was paused
	MissedOnce   Missed = "once"   // the newest of them gets its run
	MissedReplay Missed = "replay" // each of them gets its run
)

// Resumption is how a pause ends.
type Resumption struct {
	Held     Held   // for the requested runs that waited
	Missed   Missed // for the due times of a recurring job that passed
	Parallel int    // max parallel runs of these; 0 = 1
}

func (r *Resumption) check() error {
	switch r.Missed {
	case "", MissedSkip, MissedOnce, MissedReplay:
		return r.Held.check()
	}
	return kernel.Invalid("invalid missed %.20q: want one of %q", string(r.Missed), []Missed{MissedSkip, MissedOnce, MissedReplay})
}

// Let is what happened to runs that were held back, and to due times that passed.
type Let struct {
	Released, Discarded int
	Backfilled          Backfilled
}

// Resume ends a pause. The requested runs that it held back start, oldest first, or are discarded; the default is to
// start them. Missed decides about those of due times. The commit that ends the pause has all of this, and the leader
// carries it out.
func (o *Ops) Resume(ctx context.Context, who Who, key jobs.Key, r Resumption) (Job, Let, error) {
	if err := r.check(); err != nil {
		return Job{}, Let{}, err
	}
	if r.Missed == MissedOnce || r.Missed == MissedReplay {
		return o.resumeMissed(ctx, who, key, r)
	}
	d, err := o.definition(ctx, who, key)
	if err != nil {
		return Job{}, Let{}, err
	}
	end, let, err := o.ending(ctx, who, d, r)
	if err != nil {
		return Job{}, Let{}, err
	}
	job, err := o.change(ctx, who, end)
	if err != nil {
		let = Let{}
	}
	return job, let, err
}

// ending returns the command that ends the pause of a job, and what becomes of the runs that it holds now.
func (o *Ops) ending(ctx context.Context, who Who, d *kernel.Definition, r Resumption) (kernel.Resume, Let, error) {
	end := kernel.Resume{Key: d.Key, Discard: r.Held == HeldDiscard}
	if d.Paused == nil {
		return end, Let{}, nil
	}
	rows, err := o.heldBy(ctx, who, kernel.ByPause, d.Key)
	if err != nil {
		return end, Let{}, err
	}
	var missed []time.Time
	others, now := 0, o.Now()
	for _, run := range rows {
		switch {
		case run.Job != d.UID: // of a deleted job
		case run.Origin.Automatic() && !run.Due.After(now):
			missed = append(missed, run.Due)
		default:
			others++
		}
	}
	slices.SortFunc(missed, time.Time.Compare)
	starts := 0
	switch {
	case r.Missed == MissedReplay:
		starts, end.From = len(missed), d.Created
	case r.Missed == MissedOnce && len(missed) > 0:
		starts, end.From = 1, missed[len(missed)-1]
	}
	let := Let{Released: starts, Discarded: len(missed) - starts}
	if end.Discard {
		let.Discarded += others
	} else {
		let.Released += others
	}
	return end, let, nil
}

// resumeMissed ends the pause of a recurring job and creates runs for missed due times, the first part in the same
// commit. If it is interrupted, the rest stays in the ledger.
func (o *Ops) resumeMissed(ctx context.Context, who Who, key jobs.Key, r Resumption) (Job, Let, error) {
	var let Let
	was, err := o.definition(ctx, who, key)
	if err != nil {
		return Job{}, let, err
	}
	f, err := o.planMissed(ctx, who, was, r)
	if err != nil {
		return Job{}, let, err
	}
	global, err := o.store.Global(ctx, who.tenant()) // before, so that a command that succeeded is not reported as failed
	if err != nil {
		return Job{}, let, err
	}
	standing, err := o.conditioner(ctx, who, global)
	if err != nil {
		return Job{}, let, err
	}
	ends := r
	if f.all > 0 && r.Missed == MissedOnce {
		ends.Missed = MissedSkip // a due time of the ledger is the newest
	}
	end, let, err := o.ending(ctx, who, was, ends)
	if err != nil {
		return Job{}, Let{}, err
	}
	batch := []kernel.Envelope{o.envelope(who, end)}
	let.Backfilled = f.before()
	parts := f.commands()
	if len(parts) > 0 {
		batch = append(batch, o.envelope(who, parts[0]))
	}
	results := o.gate.commit(ctx, who, batch)
	if err := results[0].Err; err != nil {
		return Job{}, Let{}, err
	}
	job := o.job(results[0].Definition(), global, 1)
	job.Conditions, job.Known = standing.of(job.Definition), true
	if err := o.warnFamily(ctx, &job); err != nil || len(parts) == 0 {
		return job, let, after(err)
	}
	if err = results[1].Err; err == nil {
		let.Backfilled.count(&parts[0], results[1].Effect)
		err = o.fill(ctx, who, parts[1:], &let.Backfilled)
	}
	for try := 1; try < backfillTries && errors.Is(err, jobs.Stale); try++ { // the ledger has grown while we looked
		if f, err = o.planMissed(ctx, who, was, r); err == nil {
			let.Backfilled = f.before()
			err = o.fill(ctx, who, f.commands(), &let.Backfilled)
		}
	}
	return job, let, after(err)
}

// planMissed lists the due times that have passed since a job was paused. Those of a schedule before an edit are left
// out: an edit never fires for the past. Without a pause there are none.
func (o *Ops) planMissed(ctx context.Context, who Who, d *kernel.Definition, r Resumption) (*filling, error) {
	if d.Kind == kernel.Triggered {
		return nil, kernel.Refuse(jobs.Conflict, "job %s is triggered and has no due times: leave missed out", d.Key)
	}
	f, err := o.beginFilling(ctx, who, d.Key, r.Parallel, nil)
	if err != nil || d.Paused == nil {
		return f, err
	}
	f.id = kernel.DerivedID("resume", string(d.Tenant), string(d.UID[:]), strconv.FormatInt(d.Paused.At.UnixNano(), 10))
	since := d.Paused.At
	if f.job.SetAt.After(since) {
		since = f.job.SetAt
	}
	var due []time.Time
	for _, m := range f.ledger {
		if m.Reason != kernel.MissedPaused || !m.To.After(since) {
			continue
		}
		from := since
		if m.From.After(since) {
			from = m.From.Add(-1)
		}
		for at, ok := f.plan.Next(from); ok && !at.After(m.To); at, ok = f.plan.Next(at) {
			if due = append(due, at); r.Missed == MissedOnce && len(due) > 1 {
				due = due[1:]
			}
			if len(due) > MaxBackfill {
				return nil, kernel.Invalid("more than %d due times have passed since %s: resume with missed skip, and backfill parts of them", MaxBackfill, clock(since))
			}
		}
	}
	for _, at := range due {
		f.all++
		if err := o.want(ctx, f, at, false); err != nil {
			return nil, err
		}
	}
	return f, nil
}
