package controlplane_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/timemodel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// begins checks that a run began when it was allowed to, at once if nothing was in its way, or that there is a reason why
// it did not.
func (w *lives) begins(c *citizen, life []timemodel.Event, f timemodel.Fate, run *kernel.Run) {
	complain := func(format string, args ...any) {
		w.t.Errorf("life %d, %s, the run of %s: %s", w.seed, c.key, clock(run.Due), fmt.Sprintf(format, args...))
	}
	if f.Spec == nil {
		return // no due time
	}
	var began time.Time
	for _, m := range run.Moves {
		if m.State == jobs.Processing {
			began = m.At
			break
		}
	}
	from := run.Due.Add(-f.Spec.Early)
	if from.Before(f.Decided) {
		from = f.Decided
	}
	if !began.IsZero() {
		if began.Before(from) {
			complain("it began at %s, before %s", clock(began), clock(from))
		}
		if timemodel.Held(life, began.Add(-1)) && timemodel.Held(life, began) && (!c.gone || began.Before(c.died)) {
			complain("it began at %s, when nothing of the job was to begin", clock(began))
		}
		return
	}
	during := func(is func(at time.Time) bool) bool {
		return is(run.Created) || is(run.Ended) || slices.ContainsFunc(life, func(e timemodel.Event) bool {
			return e.At.After(run.Created) && !e.At.After(run.Ended) && is(e.At)
		})
	}
	switch {
	case run.State != jobs.Skipped && run.State != jobs.Cancelled:
		if w.undisturbed(life, from, run) {
			complain("it is %s by %q since %s", run.State, run.Cause, clock(run.Moves[len(run.Moves)-1].At))
		}
	case run.Cause == kernel.ByDeadline && f.Spec.StartWithin == 0:
		complain("it is %s by %q", run.State, run.Cause)
	case (run.Cause == kernel.ByDisabled || run.Cause == kernel.ByPause) && !during(func(at time.Time) bool { return timemodel.Held(life, at.Add(-1)) }):
		complain("it is %s by %q at %s", run.State, run.Cause, clock(run.Ended))
	}
}

// undisturbed reports whether nothing was in the way of a run since it was to begin.
func (w *lives) undisturbed(life []timemodel.Event, from time.Time, run *kernel.Run) bool {
	const slack = time.Minute
	switch last := life[len(life)-1].At; {
	case run.Cause != "" || run.Waits != "", timemodel.Held(life, w.now()), from.Add(slack).After(w.now()), last.Add(slack).After(w.now()):
		return false
	}
	return !slices.ContainsFunc(w.unmanned, func(s span) bool { return s.until.Add(slack).After(from) })
}
