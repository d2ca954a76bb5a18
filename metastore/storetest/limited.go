package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// limited checks what overlap, limits and rates guarantee for all runs together, by counting runs and not by the
// gates' rows.
func limited(t *testing.T, before, after rows, at time.Time) {
	t.Helper()
	alarmed, admitted := map[kernel.Ref]bool{}, map[kernel.Ref]int{}
	for _, row := range after {
		run, ok := row.(*kernel.Run)
		if !ok || run.Settled() {
			continue
		}
		if run.Waits != "" && !run.Opens.IsZero() {
			alarmed[kernel.GateRef(run.Tenant, run.Waits)] = true
		}
		for _, name := range run.Gates {
			listed(t, run, name, after)
			if single := run.Place == nil || run.Place.Group.IsZero(); single && (run.Holds && run.Ready() || run.Reserved && kernel.Keyed(name)) {
				admitted[kernel.GateRef(run.Tenant, name)]++
			}
		}
	}
	for ref, row := range after {
		g, ok := row.(*kernel.Gate)
		if !ok {
			continue
		}
		now := under(after, g)
		if now.Throttled(at) && !now.Admits().IsZero() && waitersAt(after, ref) > 0 && !alarmed[ref] {
			t.Errorf("gate %s opens at %v (%d admitted), runs wait there, and none of them wakes", g.Name, g.Opens, g.Admitted)
		}
		if g.Admitted > admitted[ref] {
			t.Errorf("gate %s counts %d runs that have slots and have not started, there are %d", g.Name, g.Admitted, admitted[ref])
		}
		crowded(t, before, after, g)
	}
}

// crowded checks that a crowd gate lists all its runs, and no more than allowed.
func crowded(t *testing.T, before, after rows, g *kernel.Gate) {
	t.Helper()
	rest, ok := strings.CutPrefix(g.Name, "crowd/")
	if !ok {
		return
	}
	id, name, _ := strings.Cut(rest, "/")
	gate, _ := after[kernel.GateRef(g.Tenant, name)].(*kernel.Gate)
	was, _ := before[kernel.GateRef(g.Tenant, name)].(*kernel.Gate)
	old, _ := before[g.Ref()].(*kernel.Gate)
	if g.Taken == 0 && len(g.Runs) == 0 {
		t.Errorf("%s is left, and unused", g.Name)
	}
	ones := map[jobs.ID]bool{} // runs, and broadcasts
	for _, run := range g.Runs {
		r, ok := after[kernel.RunRef(g.Tenant, run)].(*kernel.Run)
		if !ok || r.State.Final() || r.Job.String() != id {
			t.Errorf("%s lists run %s, which has ended or is of another job", g.Name, run)
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
		t.Errorf("%d runs of job %s are at %s, which allows %d: the oldest should have been replaced", n, id, name, gate.Limit)
	}
	waits := 0
	for _, row := range after {
		if r, ok := row.(*kernel.Run); ok && r.Tenant == g.Tenant && r.Waits == name && r.Job.String() == id && r.Terms.Overlap == jobs.OverlapQueueOne && !r.First && !r.Late {
			waits++ // due times that were decided late, together, queue
		}
	}
	// One that waited elsewhere may be moved here, where another waits already.
	if waits > 1 && old != nil && !kernel.Keyed(name) && waits > 1+movedHere(before, after, kernel.GateRef(g.Tenant, name), id) {
		t.Errorf("%d runs of job %s wait at %s, one may", waits, id, name)
	}
}

// under is a gate with the limit of its argument. Its row follows when it is used.
func under(all rows, g *kernel.Gate) *kernel.Gate {
	if limit, _, keyed := kernel.KeyOf(g.Name); keyed {
		if b, ok := all[kernel.GateRef(g.Tenant, kernel.BoundGate(limit))].(*kernel.Gate); ok {
			return g.Under(b.Bound())
		}
	}
	return g
}

// movedHere counts runs of a job that waited at another gate before, or here already.
func movedHere(before, after rows, gate kernel.Ref, job string) int {
	n := 0
	for ref, row := range before {
		was, ok := row.(*kernel.Run)
		if !ok || was.Waits == "" || was.Job.String() != job {
			continue
		}
		if is, ok := after[ref].(*kernel.Run); ok && is.Waits != "" && kernel.GateRef(is.Tenant, is.Waits) == gate {
			n++
		}
	}
	return n
}

// listed checks that a crowd gate lists the runs that decide about others.
func listed(t *testing.T, run *kernel.Run, gate string, all rows) {
	t.Helper()
	want := run.Terms.Overlap == jobs.OverlapReplace && !run.State.Final() && run.State != jobs.Scheduled
	has := 0
	if g, ok := all[kernel.GateRef(run.Tenant, kernel.CrowdGate(gate, run.Job))].(*kernel.Gate); ok {
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
