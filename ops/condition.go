package ops

import (
	"context"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Condition is why a job does not run as its settings say, in one word for lists; Explain has the sentence.
type Condition string

// The conditions, most important first. A job may be in several.
const (
	BadSchedule Condition = "trouble"   // its schedule is invalid
	IsDisabled  Condition = "disabled"  // each run is skipped
	IsSuspended Condition = "suspended" // its tenant is
	IsPaused    Condition = "paused"    // now
	InDebug     Condition = "debug"     // debug mode holds its runs
	IsStopped   Condition = "stopped"   // it was registered, and no online worker of its app has it any more
	Unserved    Condition = "no_worker" // no online worker has it
	IsFull      Condition = "full"      // a run waits for a slot or for a rate
	IsFailing   Condition = "failing"   // its last runs failed for good, or one fails again and again
	IsFinished  Condition = "finished"  // its schedule has no due time left
)

// Active is the state of a job in no condition.
const Active Condition = "active"

// Conditions lists the conditions, and then Active: the states that a list of jobs can be filtered by.
func Conditions() []Condition {
	return []Condition{BadSchedule, IsDisabled, IsSuspended, IsPaused, InDebug, IsStopped, Unserved, IsFull, IsFailing, IsFinished, Active}
}

// State is the most important of a job's conditions, or Active.
func (j *Job) State() Condition {
	if len(j.Conditions) > 0 {
		return j.Conditions[0]
	}
	return Active
}

// Is reports whether a job is in a condition.
func (j *Job) Is(c Condition) bool { return slices.Contains(j.Conditions, c) }

// conditionPages is how many pages of waiting runs, and of runs that failed, are read for the conditions of jobs.
const conditionPages = 10

// ailing is the jobs of a tenant whose runs wait for a slot, or fail.
type ailing struct{ full, failing map[jobs.ID]bool }

// conditioner finds the conditions of jobs of a tenant.
type conditioner struct {
	o       *Ops
	global  *kernel.Global
	workers []Worker
	ailing
}

func (o *Ops) conditioner(ctx context.Context, who Who, g *kernel.Global) (*conditioner, error) {
	sick, err := o.ailing.look(who.tenant(), func() (ailing, error) { return o.ails(ctx, who) })
	return &conditioner{o: o, global: g, workers: o.live.Workers(who.tenant()), ailing: sick}, err
}

// of lists the conditions of a job.
func (c *conditioner) of(d *kernel.Definition) (list []Condition) {
	now := c.o.Now()
	next, trouble := c.o.next(d, c.global, now)
	scheduled := d.Kind == kernel.Recurring && d.Policy.Schedule != ""
	for _, is := range []struct {
		Condition
		true bool
	}{
		{BadSchedule, trouble != nil},
		{IsDisabled, d.Policy.Disabled},
		{IsSuspended, c.global.Tenancy.Suspended.On},
		{IsPaused, paused(d, now)},
		{InDebug, c.global.DebugOf(d.Kind).On},
		{IsStopped, !d.Stopped.IsZero()},
		{Unserved, d.Stopped.IsZero() && !c.served(d)},
		{IsFull, c.full[d.UID]},
		{IsFailing, c.failing[d.UID]},
		{IsFinished, scheduled && trouble == nil && next.IsZero() && !d.Waits() && len(d.Undecided) == 0},
	} {
		if is.true {
			list = append(list, is.Condition)
		}
	}
	return list
}

// served reports whether an online worker has the job.
func (c *conditioner) served(d *kernel.Definition) bool { return servers(c.workers, d) > 0 }

// servers counts the online workers that have a job.
func servers(workers []Worker, d *kernel.Definition) (n int) {
	for _, w := range workers {
		if w.App == d.App && !w.Leaving && w.Serves(d) {
			n++
		}
	}
	return n
}

// ails reads a few pages of runs. What is beyond them is not seen.
func (o *Ops) ails(ctx context.Context, who Who) (ailing, error) {
	a := ailing{full: map[jobs.ID]bool{}, failing: map[jobs.ID]bool{}}
	err := o.eachRun(ctx, who, jobs.Enqueued, func(run *kernel.Run) bool {
		if run.Waits != "" {
			a.full[run.Job] = true
		}
		return true
	})
	if err != nil {
		return a, err
	}
	err = o.eachRun(ctx, who, jobs.Failed, func(run *kernel.Run) bool {
		if run.Failures >= inARow {
			a.failing[run.Job] = true
		}
		return true
	})
	if err != nil {
		return a, err
	}
	var ended []*kernel.Run
	since := o.Now().Add(-recently)
	err = o.eachRun(ctx, who, jobs.Terminated, func(run *kernel.Run) bool {
		ended = append(ended, run)
		return run.Ended.After(since)
	})
	for _, of := range grouped(ended, func(run *kernel.Run) bool { return run.Ended.After(since) }) {
		if len(of) < inARow || err != nil {
			continue
		}
		if of, err = o.sinceSuccess(ctx, who, of); len(of) >= inARow {
			a.failing[of[0].Job] = true
		}
	}
	return a, err
}

// eachRun calls fn with runs in a state, of some pages, until it returns false.
func (o *Ops) eachRun(ctx context.Context, who Who, state jobs.State, fn func(*kernel.Run) bool) error {
	q := metastore.RunQuery{Tenant: who.tenant(), State: state, Limit: metastore.MaxPage}
	for range conditionPages {
		page, err := o.store.Runs(ctx, q)
		if err != nil {
			return err
		}
		for _, run := range page.Runs {
			if !fn(run) {
				return nil
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return nil
		}
	}
	return nil
}

// sinceSuccess leaves of runs of one job, last ended first, those that ended after its last success within a day.
func (o *Ops) sinceSuccess(ctx context.Context, who Who, of []*kernel.Run) ([]*kernel.Run, error) {
	good, err := o.store.Runs(ctx, metastore.RunQuery{Tenant: who.tenant(), Job: of[0].Key, State: jobs.Succeeded,
		From: o.Now().Add(-recently), Limit: 1})
	if err != nil || len(good.Runs) == 0 {
		return of, err
	}
	return slices.DeleteFunc(slices.Clone(of), func(run *kernel.Run) bool { return !run.Ended.After(good.Runs[0].Ended) }), nil
}
