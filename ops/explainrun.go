package ops

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// RunExplanation explains the state of a run.
type RunExplanation struct {
	Run *kernel.Run
	Why string // one sentence
}

// ExplainRun explains why a run waits, or how it ended.
func (o *Ops) ExplainRun(ctx context.Context, who Who, id jobs.ID) (RunExplanation, error) {
	run, err := o.Run(ctx, who, id)
	if err != nil {
		return RunExplanation{}, err
	}
	why, err := o.whyRun(ctx, who, run)
	if whence := whence(run); err == nil && whence != "" {
		why += " " + whence
	}
	return RunExplanation{Run: run, Why: why}, err
}

// whence names the parent run, or the user who requested a backfill; "" for other runs.
func whence(run *kernel.Run) string {
	switch run.Origin {
	case kernel.FromParent:
		if strings.HasPrefix(run.Actor, "run:") {
			return fmt.Sprintf("It follows run %s, by the settings of that job.", run.Parent)
		}
		return fmt.Sprintf("The handler of run %s enqueued it.", run.Parent)
	case kernel.FromBackfill:
		return fmt.Sprintf("Its due time, %s, is past: %s requested it by a backfill.", clock(run.Due), strings.TrimPrefix(run.Actor, "person:"))
	}
	return ""
}

func (o *Ops) whyRun(ctx context.Context, who Who, run *kernel.Run) (string, error) {
	because := ""
	if text := CauseText(run.Cause); text != "" {
		because = ", because " + text
	}
	if e := firstOf(run.Problem()); e != "" && !strings.Contains(because, e) {
		because += " (" + e + ")"
	}
	switch {
	case run.State.Final() && run.Lingering:
		return fmt.Sprintf("It is %s%s; its handler on %s has not returned yet, and keeps its slots until then.", run.State, because, run.Worker), nil
	case run.State.Final():
		return fmt.Sprintf("It is %s since %s%s%s.", run.State, clock(run.Ended), because, chosen(run)), nil
	case run.State == jobs.Processing && o.unconfirmed(run):
		return fmt.Sprintf("It was sent to %s at %s, as attempt %d, and is not confirmed: the worker has not answered yet%s.", run.Worker, clock(run.Started), run.Attempt, chosen(run)), nil
	case run.State == jobs.Processing:
		return fmt.Sprintf("It runs on %s since %s, as attempt %d%s.", run.Worker, clock(run.Started), run.Attempt, chosen(run)), nil
	case run.State == jobs.Scheduled && run.Cause == "":
		return fmt.Sprintf("It waits for its due time, %s.", clock(run.Due)), nil
	case run.State == jobs.Scheduled && run.Cause == kernel.ByJitter:
		return fmt.Sprintf("It is due at %s, and waits until %s, because %s.", clock(run.Due), clock(run.RetryAt), CauseText(run.Cause)), nil
	case run.State == jobs.Scheduled && run.Cause == kernel.ByPause:
		return o.whyPaused(ctx, who, run)
	case run.State == jobs.Scheduled:
		return fmt.Sprintf("It is held%s, until that ends.", because), nil
	case run.Lingering:
		return fmt.Sprintf("Its retry waits for the handler of attempt %d on %s, which has not returned yet.", run.Attempt, run.Worker), nil
	case run.Waits != "":
		return o.whyWaits(ctx, who, run)
	case run.State == jobs.Failed && run.Budgeted > 0 && !run.RetryAt.IsZero():
		return fmt.Sprintf("Attempt %d failed%s; the retry budget delays the next one to %s.", run.Attempt, because, clock(run.RetryAt)), nil
	case run.State == jobs.Failed && run.Cause == kernel.BySnooze && !run.RetryAt.IsZero():
		return fmt.Sprintf("Attempt %d was postponed%s; the next one is due at %s.", run.Attempt, because, clock(run.RetryAt)), nil
	case run.State == jobs.Failed && !run.RetryAt.IsZero():
		return fmt.Sprintf("Attempt %d failed%s; the next one is due at %s.", run.Attempt, because, clock(run.RetryAt)), nil
	case !o.live.Leader().Known():
		return "It is ready, and there is no leader to dispatch it.", nil
	}
	if why := Nowhere(run, o.Workers(ctx, who)); why != "" {
		return fmt.Sprintf("It waits: %s.", why), nil
	}
	return "It is ready, and is being dispatched.", nil
}

// unconfirmed reports whether a run was sent to its worker, which has not said yet that it began.
func (o *Ops) unconfirmed(run *kernel.Run) bool {
	now, known := o.live.Attempt(run.Tenant, run.ID)
	return known && now.Unconfirmed
}

// chosen explains why its worker was chosen, as the end of a sentence; "" = any may have it, or none has.
func chosen(run *kernel.Run) string {
	if run.Place == nil || run.Worker == "" {
		return ""
	}
	return "; " + run.Worker + " was chosen as " + run.Place.Words()
}

func (o *Ops) whyPaused(ctx context.Context, who Who, run *kernel.Run) (string, error) {
	until := "until resumed"
	if !run.RetryAt.IsZero() {
		until = "until " + clock(run.RetryAt)
	}
	by := ""
	d, err := o.definition(ctx, who, run.Key)
	if err != nil && !errors.Is(err, jobs.NotFound) {
		return "", err
	}
	if err == nil && d.Paused != nil {
		by = " by " + strings.TrimPrefix(d.Paused.By, "person:")
		if reason := d.Paused.Why(); reason != "" {
			by += " (" + reason + ")"
		}
	}
	return fmt.Sprintf("It is held, because the job is paused%s, %s.", by, until), nil
}

// whyWaits explains which limit a run waits for: a slot, or a rate.
func (o *Ops) whyWaits(ctx context.Context, who Who, run *kernel.Run) (string, error) {
	what := kernel.GateText(run.Waits)
	if !run.Opens.IsZero() {
		return fmt.Sprintf("It is the first that waits for the rate limit of %s, which lets it start at %s.", what, clock(run.Opens)), nil
	}
	global, err := o.store.Global(ctx, who.tenant())
	if err != nil {
		return "", err
	}
	d, err := o.definition(ctx, who, run.Key)
	if err != nil && !errors.Is(err, jobs.NotFound) {
		return "", err
	}
	why := "other runs hold all of them"
	switch l := limitAt(run, d, global); {
	case l.Max > 0 && l.Rate.Max > 0:
		why = fmt.Sprintf("at most %d may run at once, and %s may start", l.Max, l.Rate)
	case l.Max > 0:
		why = fmt.Sprintf("at most %d may run at once", l.Max)
	case l.Rate.Max > 0:
		return fmt.Sprintf("It waits behind others for the rate limit of %s, %s.", what, l.Rate), nil
	}
	return fmt.Sprintf("It waits for a slot of %s: %s.", what, why), nil
}

// limitAt returns the limit at the gate where a run waits, if its job has it; d may be nil.
func limitAt(run *kernel.Run, d *kernel.Definition, g *kernel.Global) jobs.Limit {
	if n, ok := kernel.BackfillOf(run.Waits); ok {
		return jobs.Limit{Max: n}
	}
	for _, l := range g.AppLimits {
		if run.Waits == kernel.AppGate(l.Name) {
			return l
		}
	}
	if d == nil {
		return jobs.Limit{}
	}
	if run.Waits == kernel.JobGate(d.UID) {
		return jobs.Limit{Max: d.Policy.MaxConcurrency, Rate: d.Policy.Rate}
	}
	for _, l := range d.Policy.Limits {
		if run.Waits == kernel.GateOf(&l, run.Args) {
			return l
		}
	}
	return jobs.Limit{}
}

// CauseText returns a cause as the end of a sentence about a run's state; "" where the state needs none.
func CauseText(c kernel.Cause) string { return causes[c] }

// ReasonText returns why due times have no run, as the end of a sentence.
func ReasonText(r kernel.Reason) string { return whys[r] }

func firstOf(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	if r := []rune(text); len(r) > 200 {
		text = string(r[:200]) + "…"
	}
	return text
}

// around returns the last due time before a time and the next one after; zero = there is none.
func around(next func(time.Time) (time.Time, bool), at time.Time) (before, after time.Time) {
	for back := time.Minute; back < 30*366*24*time.Hour; back *= 4 {
		due, ok := next(at.Add(-back))
		for ok && due.Before(at) {
			before = due
			due, ok = next(due)
		}
		if !before.IsZero() {
			break
		}
	}
	after, ok := next(at)
	if !ok {
		after = time.Time{}
	}
	return before, after
}
