package ops

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// gates explains which limits runs of the job wait for.
func (e *Explanation) gates(queued []*kernel.Run, g *kernel.Global) {
	at, opens := map[string]int{}, map[string]time.Time{}
	for _, run := range queued {
		if run.Waits == "" {
			continue
		}
		at[run.Waits]++
		if !run.Opens.IsZero() {
			opens[run.Waits] = run.Opens
		}
	}
	own := kernel.JobGate(e.Job.UID)
	names := slices.SortedFunc(maps.Keys(at), func(a, b string) int {
		if (a == own) != (b == own) {
			return map[bool]int{true: -1, false: 1}[a == own]
		}
		return cmp.Compare(a, b)
	})
	for _, name := range names {
		n := at[name]
		what, l := gateWords(name, &e.Job.Policy, g)
		switch {
		case !opens[name].IsZero():
			e.add("%s %s: the rate limit of %s is %s, and the next may start at %s.", count(n, "run"), wait(n), what, l.Rate, clock(opens[name]))
		case l.Max == 0 && l.Rate.Max > 0:
			e.add("%s %s for the rate limit of %s, %s: as many as may start at once have slots and have not started.",
				count(n, "run"), wait(n), what, l.Rate)
		case name == own:
			e.add("%s %s for a slot: at most %d may run at once, and %d do.", count(n, "run"), wait(n), e.Job.Policy.MaxConcurrency, e.Live[jobs.Processing])
		case l.Max == 0:
			e.add("%s %s for a slot of %s.", count(n, "run"), wait(n), what)
		default:
			e.add("%s %s for a slot of %s, of which there are %d.", count(n, "run"), wait(n), what, l.Max)
		}
	}
}

// gateWords returns the name and the limit of a gate, as far as the job or the settings know it.
func gateWords(name string, p *kernel.Policy, g *kernel.Global) (string, jobs.Limit) {
	if app, ok := strings.CutPrefix(name, kernel.AppGate("")); ok {
		i := slices.IndexFunc(g.AppLimits, func(l jobs.Limit) bool { return l.Name == app })
		if i < 0 {
			return "the app " + app, jobs.Limit{}
		}
		return "the app " + app, g.AppLimits[i]
	}
	if n, ok := kernel.BackfillOf(name); ok {
		return "a backfill", jobs.Limit{Max: n}
	}
	limit, value, keyed := kernel.KeyOf(name)
	for _, l := range p.Limits {
		switch {
		case keyed && l.Name == limit && l.By != "":
			return fmt.Sprintf("the limit %s for %s %q", l.Name, strings.TrimPrefix(l.By, "args."), value), l
		case !keyed && l.By == "" && name == kernel.LimitGate(l.Name):
			return "the limit " + l.Name, l
		}
	}
	if strings.HasPrefix(name, kernel.JobGate(jobs.ID{})[:4]) {
		return "the job", jobs.Limit{Max: p.MaxConcurrency, Rate: p.Rate}
	}
	if keyed {
		return fmt.Sprintf("the limit %s for %q", limit, value), jobs.Limit{}
	}
	return "the limit " + strings.TrimPrefix(name, kernel.LimitGate("")), jobs.Limit{}
}

// retries explains which runs wait for their next attempt, and whether a retry budget delays them.
func (e *Explanation) retries(failed []*kernel.Run, g *kernel.Global) {
	var n [3]int // by delay, by the job's budget, by that of all jobs
	var first [3]time.Time
	for _, run := range failed {
		if at := run.RetryAt; !at.IsZero() {
			why := min(int(run.Budgeted), 2)
			if n[why]++; first[why].IsZero() || at.Before(first[why]) {
				first[why] = at
			}
		}
	}
	for why, words := range []string{"", ": its retry budget is " + e.Job.Policy.RetryBudget.String(), ": the retry budget of all jobs is " + g.Budget().String()} {
		if k := n[why]; k > 0 {
			e.add("%s failed and %s for the next attempt, the first until %s%s.", count(k, "run"), wait(k), clock(first[why]), words)
		}
	}
}

// because returns why a run is in its state, as text, or "".
func because(run *kernel.Run, p *kernel.Policy, g *kernel.Global) string {
	switch {
	case run.Waits != "":
		what, _ := gateWords(run.Waits, p, g)
		if !run.Opens.IsZero() {
			return "the rate limit of " + what + " lets the next start at " + clock(run.Opens)
		}
		return "it waits for a slot of " + what
	case run.Cause == kernel.ByOverlap:
		return "there was no free slot, and overlap is " + string(run.Terms.Overlap)
	}
	return causes[run.Cause]
}
