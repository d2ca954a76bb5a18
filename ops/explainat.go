package ops

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
)

// causes are the texts of why a run is in its state. Add a new cause here.
var causes = map[kernel.Cause]string{
	kernel.ByError: "its handler failed", kernel.ByTimeout: "an attempt took longer than its timeout", kernel.ByLoss: "the lease of its worker expired",
	kernel.ByPoison: "its workers were lost once too often", kernel.ByHandback: "its worker was stopping and released it",
	kernel.BySnooze: "its handler asked to be called again later", kernel.ByOverlap: "there was no free slot, and its overlap policy does not let it wait",
	kernel.ByReplaced: "a newer run of the job took its place",
	kernel.ByDeadline: "it could not start in time", kernel.ByDisabled: "the job was disabled", kernel.ByDebug: "debug mode holds it",
	kernel.ByPause: "the job is paused", kernel.ByPerson: "it was requested", kernel.ByJitter: "starts of the job are spread",
	kernel.ByDepth:    "the chain of parent runs is too long",
	kernel.ByBacklog:  "too many runs of the tenant waited",
	kernel.ByNoWorker: "no worker was online that may take it",
}

// ledgerLook is how many ranges of a job's ledger are searched for a time.
const ledgerLook = 1000

// ExplainAt explains why a job ran, did not run or will not run at a time: one sentence, then the obstacles. For a past
// time, the obstacles are those of that time; those of the present follow, marked as such.
func (o *Ops) ExplainAt(ctx context.Context, who Who, key jobs.Key, at time.Time) (Explanation, error) {
	e, err := o.Explain(ctx, who, key)
	if err != nil {
		return Explanation{}, err
	}
	global, err := o.store.Global(ctx, who.tenant())
	if err != nil {
		return Explanation{}, err
	}
	at, now := kernel.Instant(at), o.Now()
	says, passed, err := o.dueAt(ctx, e.Job.Definition, global, at, now)
	if err != nil {
		return Explanation{}, err
	}
	if at.After(now) {
		e.Text = append([]string{says}, e.Text...)
		return e, nil
	}
	e.Text, e.Missed = []string{says}, nil
	if passed != nil {
		e.Missed = []*kernel.Missed{passed}
	}
	p, err := o.pauseAt(ctx, e.Job.Definition, at)
	if err != nil {
		return Explanation{}, err
	}
	e.heldThen(p, global, at, now)
	return e, nil
}

// dueAt explains in one sentence what happened, or will happen, at a due time; with the ledger range that has it.
func (o *Ops) dueAt(ctx context.Context, d *kernel.Definition, global *kernel.Global, at, now time.Time) (string, *kernel.Missed, error) {
	run, err := o.store.Run(ctx, d.Tenant, kernel.DueID(d.Tenant, d.UID, at, 0, 0))
	if err == nil {
		says := fmt.Sprintf("The run of %s is %s", clock(at), run.State)
		if why := because(run, &d.Policy, global); why != "" {
			says += ", because " + why
		}
		if run.Origin == kernel.FromBackfill {
			says += "; " + strings.TrimPrefix(run.Actor, "person:") + " requested it by a backfill at " + clock(run.Created)
		}
		return says + ".", nil, nil
	}
	if jobs.CodeOf(err) != jobs.NotFound {
		return "", nil, err
	}
	ranges, err := o.store.Ledger(ctx, d.Tenant, d.UID, ledgerLook)
	if err != nil {
		return "", nil, err
	}
	for _, m := range ranges {
		if !at.Before(m.From) && !at.After(m.To) {
			return fmt.Sprintf("It did not run at %s: %s.", clock(at), whys[m.Reason]), m, nil
		}
	}
	says, err := o.planned(d, global, at, now)
	return says, nil, err
}

// planned explains a due time that has neither a run nor a range in the ledger.
func (o *Ops) planned(d *kernel.Definition, global *kernel.Global, at, now time.Time) (string, error) {
	past := !at.After(now)
	if past && at.Before(d.Created) {
		return fmt.Sprintf("The job was created at %s, after %s.", clock(d.Created), clock(at)), nil
	}
	when, err := o.dueBy(d, global)
	switch {
	case err != nil:
		return fmt.Sprintf("Its schedule is invalid: %v.", err), nil
	case when == nil:
		return "It has no schedule: it runs on request.", nil
	case past && !at.After(d.SetAt):
		return fmt.Sprintf("It has no recorded run or missed due time at %s; its present schedule was set later, at %s.", clock(at), clock(d.SetAt)), nil
	}
	if d.FixedDelay() {
		if says, whole := o.afterEnd(d, when, at); whole {
			return says, nil
		}
	}
	next, ok := when.Schedule.Next(at.Add(-1))
	calendar, rule, excluded := when.Excludes(at)
	stopped := fmt.Sprintf("stopped since %s, because no worker of the app %s has %s any more", clock(d.Stopped), d.App, code(d, "it"))
	switch {
	case !ok:
		return finished(when, at), nil
	case !next.Equal(at) && past:
		return notDue(d, when, at, "was"), nil
	case !next.Equal(at):
		return notDue(d, when, at, "is") + startsAround(d, when, at), nil
	case excluded:
		return fmt.Sprintf("The calendar %s excludes %s (%s).", calendar, clock(at), rule), nil
	case past && !d.Stopped.IsZero():
		return fmt.Sprintf("It was due at %s, which is undecided: the job is %s.", clock(at), stopped), nil
	case past:
		return fmt.Sprintf("It was due at %s, which is undecided, or too old to be recorded.", clock(at)), nil
	}
	if silent := d.Silent(global, at); silent != "" {
		return fmt.Sprintf("It would not run at %s: %s.", clock(at), whysAhead[silent]), nil
	}
	if !d.Stopped.IsZero() {
		return fmt.Sprintf("It would not run at %s: it is %s.", clock(at), stopped), nil
	}
	if start := d.Starts(at); !start.Equal(at) {
		return fmt.Sprintf("It is due at %s and will start at %s.", clock(at), exactly(start)), nil
	}
	return fmt.Sprintf("It is due at %s.", clock(at)), nil
}

// whysAhead are the reasons why future due times will have no run.
var whysAhead = map[kernel.Reason]string{
	kernel.MissedPaused: "the job is paused", kernel.MissedDisabled: "the job is disabled", kernel.MissedDebug: "debug mode is on",
	kernel.MissedSuspended: "the tenant is suspended",
}

// notDue names the due times next to a time that is none. Those before the schedule was set do not count.
func notDue(d *kernel.Definition, when *schedule.Plan, at time.Time, be string) string {
	before, after := around(when.Schedule.Next, at)
	if !before.After(d.SetAt) {
		return fmt.Sprintf("It %s not due at %s; the first due time is %s.", be, clock(at), clock(after))
	}
	return fmt.Sprintf("It %s not due at %s; the nearest due times are %s and %s.", be, clock(at), clock(before), clock(after))
}
