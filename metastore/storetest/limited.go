package storetest

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// limited checks what overlap, limits and rates promise of all runs together, by counting runs and not by what gates say.
func limited(t *testing.T, before, after rows, at time.Time) {
	t.Helper()
	alarmed := map[jobs.Ref]bool{}
	for _, row := range after {
		in, ok := row.(*jobs.Instance)
		if !ok || in.Settled() {
			continue
		}
		if in.Waits != "" && !in.Opens.IsZero() {
			alarmed[jobs.GateRef(in.Tenant, in.Waits)] = true
		}
		for _, name := range in.Gates {
			listed(t, in, name, after)
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
		waits, runs, told := map[jobs.ID]int{}, map[jobs.ID]int{}, map[jobs.ID]bool{}
		for _, id := range g.Runs {
			in, ok := after[jobs.InstanceRef(g.Tenant, id)].(*jobs.Instance)
			if !ok || in.State.Final() {
				t.Errorf("gate %s keeps run %s, which is over", g.Name, id)
				continue
			}
			one := in.ID
			if in.Place != nil && !in.Place.Group.IsZero() {
				one = in.Place.Group
			}
			if in.Terms.Overlap == jobs.OverlapReplace && !in.First && !told[one] {
				told[one] = true
				runs[in.Job]++
			}
			if in.Terms.Overlap == jobs.OverlapQueueOne && !in.First {
				waits[in.Job]++
			}
		}
		old, _ := before[ref].(*jobs.Gate)
		for job, n := range waits {
			// One that waited elsewhere may be moved here, where another waits already.
			if n > 1 && old != nil && !jobs.Keyed(g.Name) && n > 1+movedHere(before, after, ref, job) {
				t.Errorf("%d runs of job %s wait at %s, one may", n, job, g.Name)
			}
		}
		for job, n := range runs {
			if g.Limit > 0 && n > g.Limit && old != nil && old.Limit == g.Limit && len(old.Runs) <= g.Limit {
				t.Errorf("%d runs of job %s are at %s, which lets %d in: the oldest should have been replaced", n, job, g.Name, g.Limit)
			}
		}
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
func movedHere(before, after rows, gate jobs.Ref, job jobs.ID) int {
	n := 0
	for ref, row := range before {
		was, ok := row.(*jobs.Instance)
		if !ok || was.Waits == "" || was.Job != job {
			continue
		}
		if is, ok := after[ref].(*jobs.Instance); ok && is.Waits != "" && jobs.GateRef(is.Tenant, is.Waits) == gate {
			n++
		}
	}
	return n
}

// listed checks that a gate keeps the runs that decide about others.
func listed(t *testing.T, in *jobs.Instance, gate string, all rows) {
	t.Helper()
	want := false
	switch in.Terms.Overlap {
	case jobs.OverlapQueueOne:
		want = in.Waits == gate
	case jobs.OverlapReplace:
		want = !in.State.Final() && in.State != jobs.Scheduled
	}
	g, _ := all[jobs.GateRef(in.Tenant, gate)].(*jobs.Gate)
	has := 0
	if g != nil {
		for _, id := range g.Runs {
			if id == in.ID {
				has++
			}
		}
	}
	if has > 1 || (has == 1) != want {
		t.Errorf("gate %s keeps run %s (%s, %s) %d times", gate, in.ID, in.State, in.Terms.Overlap, has)
	}
}
