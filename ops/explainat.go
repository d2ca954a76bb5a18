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
	kernel.ByNoWorker: "no worker was online that may take it",
}

// ledgerLook is how many ranges of a job's ledger are searched for a time.
const ledgerLook = 1000

// ExplainAt explains in one sentence why a job ran, did not run or will not run at a due time.
func (o *Ops) ExplainAt(ctx context.Context, who Who, key jobs.Key, at time.Time) (string, error) {
	d, err := o.definition(ctx, who, key)
	if err != nil {
		return "", err
	}
	global, err := o.store.Global(ctx, who.tenant())
	if err != nil {
		return "", err
	}
	run, err := o.store.Run(ctx, d.Tenant, kernel.DueID(d.Tenant, d.UID, at, 0, 0))
	if err == nil {
		says := fmt.Sprintf("The run of %s is %s", clock(at), run.State)
		if why := because(run, &d.Policy, global); why != "" {
			says += ", because " + why
		}
		if run.Origin == kernel.FromBackfill {
			says += "; " + strings.TrimPrefix(run.Actor, "person:") + " requested it by a backfill at " + clock(run.Created)
		}
		return says + ".", nil
	}
	if jobs.CodeOf(err) != jobs.NotFound {
		return "", err
	}
	ranges, err := o.store.Ledger(ctx, d.Tenant, d.UID, ledgerLook)
	if err != nil {
		return "", err
	}
	for _, m := range ranges {
		if !at.Before(m.From) && !at.After(m.To) {
			return fmt.Sprintf("It did not run at %s: %s.", clock(at), whys[m.Reason]), nil
		}
	}
	when, err := o.dueBy(d, global)
	switch {
	case err != nil:
		return fmt.Sprintf("Its schedule is invalid: %v.", err), nil
	case when == nil:
		return "It has no schedule: it runs on request.", nil
	}
	if d.FixedDelay() {
		if says, whole := o.afterEnd(d, when, at); whole {
			return says, nil
		}
	}
	next, ok := when.Schedule.Next(at.Add(-1))
	calendar, rule, excluded := when.Excludes(at)
	switch {
	case !ok:
		return finished(when, at), nil
	case !next.Equal(at):
		return notDue(when, at) + startsAround(d, when, at), nil
	case excluded:
		return fmt.Sprintf("The calendar %s excludes %s (%s).", calendar, clock(at), rule), nil
	case !at.After(d.Anchor):
		return fmt.Sprintf("Its schedule was written at %s and does not cover %s.", clock(d.Anchor), clock(at)), nil
	case !at.After(o.Now()) && !d.Stopped.IsZero():
		return fmt.Sprintf("It was due at %s, which is undecided: the job is stopped since %s, because no worker of the app %s has it any more.", clock(at), clock(d.Stopped), d.App), nil
	case !at.After(o.Now()):
		return fmt.Sprintf("It was due at %s, which is undecided, or too old to be recorded.", clock(at)), nil
	}
	if silent := d.Silent(global, at); silent != "" {
		return fmt.Sprintf("It would not run at %s: %s.", clock(at), whys[silent]), nil
	}
	if !d.Stopped.IsZero() {
		return fmt.Sprintf("It would not run at %s: it is stopped since %s, because no worker of the app %s has it any more.", clock(at), clock(d.Stopped), d.App), nil
	}
	if start := d.Starts(at); !start.Equal(at) {
		return fmt.Sprintf("It is due at %s and will start at %s.", clock(at), exactly(start)), nil
	}
	return fmt.Sprintf("It is due at %s.", clock(at)), nil
}

// notDue names the due times next to a time that is none.
func notDue(when *schedule.Plan, at time.Time) string {
	before, after := around(when.Schedule.Next, at)
	if before.IsZero() {
		return fmt.Sprintf("It is not due at %s; the first due time is %s.", clock(at), clock(after))
	}
	return fmt.Sprintf("It is not due at %s; the nearest due times are %s and %s.", clock(at), clock(before), clock(after))
}
