package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// limited checks what overlap, limits and rates promise of all runs together, by counting runs and not by what gates say.
func limited(t *testing.T, before, after rows, at time.Time) {
	t.Helper()
	alarmed := map[jobs.Ref]bool{}
	for _, row := range after {
		run, ok := row.(*jobs.Run)
		if !ok || run.Settled() {
			continue
		}
		if run.Waits != "" && !run.Opens.IsZero() {
			alarmed[jobs.GateRef(run.Tenant, run.Waits)] = true
		}
		for _, name := range run.Gates {
			listed(t, run, name, after)
		}
	}
	for ref, row := range after {
		g, ok := row.(*jobs.Gate)
		if !ok {
			continue
		}
		if under(after, g).Shut(at) && waitersAt(after, ref) > 0 && !alarmed[ref] {
			t.Errorf("gate %s opens at %v, runs wait there, and none of them wakes", g.Name, g.Opens)
		}
		crowded(t, before, after, g)
	}
}

// crowded checks that a crowd gate lists what is there, and that no more are there than may be.
func crowded(t *testing.T, before, after rows, g *jobs.Gate) {
	t.Helper()
	rest, ok := strings.CutPrefix(g.Name, "crowd/")
	if !ok {
		return
	}
	id, name, _ := strings.Cut(rest, "/")
	gate, _ := after[jobs.GateRef(g.Tenant, name)].(*jobs.Gate)
	was, _ := before[jobs.GateRef(g.Tenant, name)].(*jobs.Gate)
	old, _ := before[g.Ref()].(*jobs.Gate)
	if g.Taken == 0 && len(g.Runs) == 0 {
		t.Errorf("%s is left, and nobody uses it", g.Name)
	}
	ones := map[jobs.ID]bool{} // runs, and broadcasts
	for _, run := range g.Runs {
		r, ok := after[jobs.RunRef(g.Tenant, run)].(*jobs.Run)
		if !ok || r.State.Final() || r.Job.String() != id {
			t.Errorf("%s lists run %s, which is over or of another job", g.Name, run)
			continue
		}
		one := r.ID
		if r.Place != nil && !r.Place.Group.IsZero() {
			one = r.Place.Group
		}
		if !r.First {
			ones[one] = true
		}
	}
	if n := len(ones); gate != nil && was != nil && old != nil && gate.Limit > 0 && gate.Limit == was.Limit && n > gate.Limit && len(old.Runs) <= gate.Limit {
		t.Errorf("%d runs of job %s are at %s, which lets %d in: the oldest should have been replaced", n, id, name, gate.Limit)
	}
	waits := 0
	for _, row := range after {
		if r, ok := row.(*jobs.Run); ok && r.Tenant == g.Tenant && r.Waits == name && r.Job.String() == id && r.Terms.Overlap == jobs.OverlapQueueOne && !r.First {
			waits++
		}
	}
	// One that waited elsewhere may be moved here, where another waits already.
	if waits > 1 && old != nil && !jobs.Keyed(name) && waits > 1+movedHere(before, after, jobs.GateRef(g.Tenant, name), id) {
		t.Errorf("%d runs of job %s wait at %s, one may", waits, id, name)
	}
}

// under is a gate as it holds to the limit of its argument. Its row follows when it is used.
func under(all rows, g *jobs.Gate) *jobs.Gate {
	if limit, _, keyed := jobs.KeyOf(g.Name); keyed {
		if b, ok := all[jobs.GateRef(g.Tenant, jobs.BoundGate(limit))].(*jobs.Gate); ok {
			return g.Under(b.Bound())
		}
	}
	return g
}

// movedHere counts runs of a job that waited at another gate before, or here already.
func movedHere(before, after rows, gate jobs.Ref, job string) int {
	n := 0
	for ref, row := range before {
		was, ok := row.(*jobs.Run)
		if !ok || was.Waits == "" || was.Job.String() != job {
			continue
		}
		if is, ok := after[ref].(*jobs.Run); ok && is.Waits != "" && jobs.GateRef(is.Tenant, is.Waits) == gate {
			n++
		}
	}
	return n
}

// listed checks that a crowd gate lists the runs that decide about others.
func listed(t *testing.T, run *jobs.Run, gate string, all rows) {
	t.Helper()
	want := run.Terms.Overlap == jobs.OverlapReplace && !run.State.Final() && run.State != jobs.Scheduled
	has := 0
	if g, ok := all[jobs.GateRef(run.Tenant, jobs.CrowdGate(gate, run.Job))].(*jobs.Gate); ok {
		for _, id := range g.Runs {
			if id == run.ID {
				has++
			}
		}
	}
	if has > 1 || (has == 1) != want {
		t.Errorf("gate %s lists run %s (%s, %s) %d times", gate, run.ID, run.State, run.Terms.Overlap, has)
	}
}
