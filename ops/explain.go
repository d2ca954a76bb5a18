package ops

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Explanation explains why a job runs or does not, in sentences for users: obstacles first.
type Explanation struct {
	Job     Job
	Text    []string
	Why     []string           // the part of Text that says what keeps it from running, without its pause and debug mode
	Missed  []*kernel.Missed   // the latest due times without a run, newest first
	Live    map[jobs.State]int // its unfinished runs
	Workers int                // workers that have the job
}

// explained is how many ranges of missed due times are listed.
const explained = 5

// whys are the reasons why due times have no run.
var whys = map[kernel.Reason]string{
	kernel.MissedLate: "the scheduler could not fire them in time", kernel.MissedPaused: "the job was paused",
	kernel.MissedDisabled: "the job was disabled", kernel.MissedDebug: "debug mode was on",
	kernel.MissedEdited: "the schedule was changed before they were fired", kernel.MissedCalendar: "a calendar of the job excludes them",
	kernel.MissedSuspended: "the tenant was suspended",
	kernel.MissedParents:   "jobs that it follows had no such run",
}

// Explain lists what keeps a job from running.
func (o *Ops) Explain(ctx context.Context, who Who, key jobs.Key) (Explanation, error) {
	job, err := o.Job(ctx, who, key, 1)
	if err != nil {
		return Explanation{}, err
	}
	global, err := o.store.Global(ctx, who.tenant())
	if err != nil {
		return Explanation{}, err
	}
	counts, err := o.store.Counts(ctx, metastore.CountQuery{Tenant: who.tenant(), Job: key})
	if err != nil {
		return Explanation{}, err
	}
	queued, err := o.store.Runs(ctx, metastore.RunQuery{Tenant: who.tenant(), Job: key, State: jobs.Enqueued, Limit: metastore.MaxPage})
	if err != nil {
		return Explanation{}, err
	}
	failed, err := o.store.Runs(ctx, metastore.RunQuery{Tenant: who.tenant(), Job: key, State: jobs.Failed, Limit: metastore.MaxPage})
	if err != nil {
		return Explanation{}, err
	}
	e := Explanation{Job: job, Live: counts.Live}
	if e.Missed, err = o.store.Ledger(ctx, who.tenant(), job.UID, explained); err != nil {
		return Explanation{}, err
	}
	workers := o.live.Workers(who.tenant())
	e.Workers = servers(workers, job.Definition)
	e.held(global, o.Now())
	held := len(e.Text)
	e.waiting(queued.Runs, workers)
	e.gates(queued.Runs, global)
	e.retries(failed.Runs, global)
	e.Why = e.Text[held:len(e.Text):len(e.Text)]
	e.due()
	for _, m := range e.Missed {
		e.add("%s from %s to %s passed without a run: %s.", count(int(m.Count), "due time"), clock(m.From), clock(m.To), whys[m.Reason])
	}
	return e, nil
}

func (e *Explanation) add(format string, args ...any) {
	e.Text = append(e.Text, fmt.Sprintf(format, args...))
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// held explains what users have set that keeps the job from running.
func (e *Explanation) held(g *kernel.Global, now time.Time) {
	if e.Job.Policy.Disabled {
		e.add("It is disabled: every run of it is skipped.")
	}
	if p := e.Job.Paused; p != nil && paused(e.Job.Definition, now) {
		until := "until resumed"
		if !p.Until.IsZero() {
			until = "until " + clock(p.Until)
		}
		e.add("It is paused by %s %s%s.", named(p.By), until, reason(p))
	}
	debug := g.DebugOf(e.Job.Kind)
	if debug.On {
		e.add("Debug mode of %s jobs is on, by %s: only runs started by hand run.", e.Job.Kind, named(debug.By))
	}
}

func named(actor string) string { return strings.TrimPrefix(actor, "person:") }

// reason is the reason of a pause, as the end of a sentence.
func reason(p *kernel.Held) string {
	if why := p.Why(); why != "" {
		return ": " + why
	}
	return ""
}

// waiting explains what its runs wait for.
func (e *Explanation) waiting(queued []*kernel.Run, workers []Worker) {
	if e.Job.Stopped.IsZero() {
		e.nowhere(queued, workers)
	} else {
		e.add("It is stopped since %s: no online worker of the app %s has %s any more. When one has it again, its misfire policy applies to the due times.", clock(e.Job.Stopped), e.Job.App, code(e.Job.Definition, "it"))
	}
	if why := commandless(e.Job.Definition, workers); why != "" {
		e.add("%s.", strings.ToUpper(why[:1])+why[1:])
	} else if e.Workers == 0 && e.Job.Stopped.IsZero() {
		e.add("No worker of the app %s that is online has %s.", e.Job.App, code(e.Job.Definition, "this job"))
	}
}

// nowhere explains why ready runs are not dispatched to a worker.
func (e *Explanation) nowhere(queued []*kernel.Run, workers []Worker) {
	why := map[string]int{}
	for _, run := range queued {
		if run.Waits == "" && run.Place != nil {
			why[Nowhere(run, workers)]++
		}
	}
	delete(why, "")
	for _, text := range slices.Sorted(maps.Keys(why)) {
		e.add("%s %s: %s.", count(why[text], "run"), wait(why[text]), text)
	}
}

func wait(n int) string {
	if n == 1 {
		return "waits"
	}
	return "wait"
}

// due explains when it is due next.
func (e *Explanation) due() {
	switch j := e.Job; {
	case j.Trouble != "":
		e.add("Its schedule is invalid: %s.", j.Trouble)
	case j.Kind == kernel.Triggered:
		e.add("It runs on request.")
	case j.Policy.Schedule == "":
		e.add("It has no schedule: it runs on request.")
	case j.Waits():
		e.add("Its next due time counts from the end of the current run.")
	case j.Finished:
		e.add("Its schedule is finished: no due time is left.")
	case len(j.Next) == 0:
		e.add("Its calendars exclude all next due times.")
	case j.Silent != "":
		e.add("It is due next at %s, but would not run now.", clock(j.Next[0]))
	default:
		e.add("It is due next at %s.", clock(j.Next[0]))
	}
}
