package storetest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// rows are all rows of a store by their place; nil if they cannot be seen.
type rows map[kernel.Ref]kernel.Row

func rowsOf(h Harness) rows {
	if h.Rows == nil {
		return nil
	}
	all := rows{}
	for r := range h.Rows() {
		all[r.Ref()] = r
	}
	return all
}

// same checks that two states of a store are equal, except for the time of the last commit.
func same(t *testing.T, what string, a, b rows) {
	t.Helper()
	for _, d := range differences(a, b) {
		t.Errorf("%s: %s", what, d)
	}
}

func differences(a, b rows) []string {
	var found []string
	for ref, row := range a {
		if other, ok := b[ref]; !ok {
			found = append(found, fmt.Sprintf("%s is gone", say(row)))
		} else if ref.Kind != kernel.RowStore && !equal(row, other) {
			found = append(found, fmt.Sprintf("%s\n became %s", say(row), say(other)))
		} else if s, ok := row.(*kernel.StoreRow); ok {
			now := *other.(*kernel.StoreRow)
			if now.At = s.At; !reflect.DeepEqual(now, *s) {
				found = append(found, fmt.Sprintf("%+v became %+v", *s, now))
			}
		}
	}
	for ref, row := range b {
		if _, ok := a[ref]; !ok && ref.Kind != kernel.RowStore {
			found = append(found, fmt.Sprintf("%s is new", say(row)))
		}
	}
	return found
}

func equal(a, b kernel.Row) bool {
	return string(kernel.AppendRow(nil, a)) == string(kernel.AppendRow(nil, b))
}

func say(r kernel.Row) string {
	switch r := r.(type) {
	case *kernel.Run:
		return fmt.Sprintf("run %+v", *r)
	case *kernel.Definition:
		return fmt.Sprintf("job %s revision %d cursor %v", r.Key, r.Revision, r.Cursor)
	case *kernel.Gate:
		return fmt.Sprintf("gate %s %d of %d", r.Name, r.Taken, r.Limit)
	}
	return fmt.Sprintf("%+v", r)
}

// crowd is how many waiters at a gate may be more than the commands of one batch look at, and so stay at a gate that
// has room, until a Hand (see metastore/gates.go).
const crowd = 8

// invariants checks what is true after every commit. before is the state one commit earlier.
func invariants(t *testing.T, before, after rows) {
	t.Helper()
	taken, late, waiting := map[kernel.Ref]int{}, map[kernel.Ref]int{}, map[kernel.Ref]int{}
	at := timeOf(after)
	for ref, row := range after {
		switch row := row.(type) {
		case *kernel.Run:
			sound(t, row)
			gates(t, row, after, taken, late, waiting)
			if old, ok := before[ref].(*kernel.Run); ok {
				grown(t, old, row)
			}
		case *kernel.UniqueKey:
			if strings.HasPrefix(row.Name, kernel.TokenName("")) {
				continue // see access
			}
			run, ok := after[kernel.RunRef(row.Tenant, row.ID)].(*kernel.Run)
			if row.Until.IsZero() && (!ok || run.Unique == "" || run.State.Final()) {
				t.Errorf("unique key %s is held by run %s, which has ended", row.Name, row.ID)
			}
		case *kernel.Definition:
			if old, ok := before[ref].(*kernel.Definition); ok && (row.Revision < old.Revision || row.Change < old.Change || row.UID != old.UID && row.Revision == old.Revision) {
				t.Errorf("job %s went from revision %d to %d, change %d to %d", row.Key, old.Revision, row.Revision, old.Change, row.Change)
			}
			decided := row.Cursor
			for _, e := range row.Undecided {
				if !decided.Before(e.Until) || row.SetAt.Before(e.Until) {
					t.Errorf("job %s has a schedule that ended at %v, but all is decided until %v", row.Key, e.Until, decided)
				}
				decided = e.Until
			}
		case *kernel.StoreRow:
			if old, ok := before[ref].(*kernel.StoreRow); ok && (row.At.Before(old.At) || row.Changes < old.Changes || row.Term < old.Term) {
				t.Errorf("the store went back from %+v to %+v", *old, *row)
			}
		}
	}
	for ref, row := range after {
		g, ok := row.(*kernel.Gate)
		if !ok {
			continue
		}
		if g.Taken != taken[ref] || g.Late != late[ref] {
			t.Errorf("gate %s counts %d slots, %d of late runs; %d and %d are held", g.Name, g.Taken, g.Late, taken[ref], late[ref])
		}
		if limit, _, keyed := kernel.KeyOf(g.Name); keyed {
			bound := kernel.GateRef(g.Tenant, kernel.BoundGate(limit))
			if old, ok := before[ref].(*kernel.Gate); ok && old.Limit != g.Limit || before[bound] != after[bound] {
				continue // it has just got a new limit; the next run that leaves passes its slot on
			}
			if !under(after, g).Free(at) {
				continue
			}
		}
		if waiting[ref] > 0 && g.Free(at) && !(waitersAt(before, ref) > 0 && before[ref].(*kernel.Gate).Free(at)) && waitersAt(before, ref) <= crowd {
			t.Errorf("gate %s has a free slot (%d of %d) and %d waiting", g.Name, g.Taken, g.Limit, waiting[ref])
		}
	}
	access(t, after)
	batches(t, after)
	chained(t, after)
	kept(t, after, waiting)
	limited(t, before, after, at)
	begun(t, before, after, at)
	for ref, n := range taken {
		if after[ref] == nil && n > 0 {
			t.Errorf("gate %s has no row, and %d slots are held", ref.Name, n)
		}
	}
}

// begun checks that no run has begun that something held, before the commit and after it.
func begun(t *testing.T, before, after rows, at time.Time) {
	t.Helper()
	for ref, row := range after {
		run, ok := row.(*kernel.Run)
		if !ok || run.State != jobs.Processing || run.Origin.ByHand() || run.Forced {
			continue
		}
		if old, ok := before[ref].(*kernel.Run); ok && !old.Waiting() {
			continue // it goes on
		}
		job := kernel.DefinitionRef(run.Tenant, run.Key)
		was, ok := before[job].(*kernel.Definition)
		if is, still := after[job].(*kernel.Definition); ok && still && was.UID == run.Job && is.UID == run.Job && was.Paused == is.Paused && is.Holds(at) {
			t.Errorf("run %s of %s began, and its job is paused", run.ID, run.Key)
		}
		g, ok := before[kernel.GlobalRef(run.Tenant)].(*kernel.Global)
		if is, still := after[kernel.GlobalRef(run.Tenant)].(*kernel.Global); ok && still && g.DebugOf(run.Kind).On && g.DebugOf(run.Kind) == is.DebugOf(run.Kind) {
			t.Errorf("run %s of %s began, and a debug mode is on", run.ID, run.Key)
		}
	}
}

// timeOf is the time of the last commit.
func timeOf(all rows) time.Time {
	if s, ok := all[kernel.StoreRef()].(*kernel.StoreRow); ok {
		return s.At
	}
	return time.Time{}
}

func waitersAt(all rows, gate kernel.Ref) int {
	n := 0
	for _, row := range all {
		if run, ok := row.(*kernel.Run); ok && run.Waits != "" && kernel.GateRef(run.Tenant, run.Waits) == gate {
			n++
		}
	}
	return n
}

// sound checks a run by itself.
func sound(t *testing.T, run *kernel.Run) {
	t.Helper()
	bad := func(what string) { t.Errorf("run %s (%s) %s: %+v", run.ID, run.State, what, *run) }
	switch {
	case !kernel.ValidState(run.State):
		bad("is in no state")
	case run.Ready() != (run.Turn > 0) && run.State != jobs.Processing:
		bad("is ready and has no turn, or the other way round")
	case run.Settled():
		return // a stub: it knows little
	case run.Reserved && (run.Holds || run.Waits == "" || kernel.Keyed(run.Waits)):
		bad("keeps slots of its arguments while it waits for nothing else")
	case !run.Opens.IsZero() && run.Waits == "":
		bad("wakes for a gate at which it does not wait")
	case run.Holds && run.Waits != "":
		bad("holds its slots and waits for them")
	case run.Waits != "" && run.State != jobs.Enqueued && run.State != jobs.Failed:
		bad("waits")
	case run.Ready() && !run.Holds && len(run.Gates) > 0:
		bad("is ready without its slots")
	case run.State == jobs.Scheduled && run.Holds:
		bad("holds slots")
	case run.State == jobs.Failed && !run.RetryAt.IsZero() && run.Holds && !run.Lingering:
		bad("keeps its slots while it waits for its retry")
	case !run.RetryAt.IsZero() && run.State != jobs.Failed && run.Cause != kernel.ByPause && run.Cause != kernel.ByJitter:
		bad("waits for a time that it no longer waits for")
	case run.State == jobs.Processing && (run.Worker == "" || run.Attempt == 0):
		bad("runs nowhere")
	case run.State == jobs.Processing && !run.Holds && len(run.Gates) > 0:
		bad("runs without its slots")
	case run.State.Final() && run.Ended.IsZero():
		bad("never ended")
	case run.Lingering && run.Worker == "":
		bad("lingers nowhere")
	}
	last := kernel.New
	for i, m := range run.Moves {
		if i > 0 && !kernel.May(last, m.State) && len(run.Moves) < 100 { // long histories leave out their middle
			t.Errorf("run %s went from %s to %s", run.ID, last, m.State)
		}
		last = m.State
	}
	if last != run.State {
		t.Errorf("run %s is %s, its history ends with %s", run.ID, run.State, last)
	}
}

// gates counts what a run holds and waits for.
func gates(t *testing.T, run *kernel.Run, all rows, taken, late, waiting map[kernel.Ref]int) {
	t.Helper()
	if run.Settled() {
		return
	}
	if run.Waits != "" {
		if o := run.Terms.Overlap; o == jobs.OverlapQueueOne || o == jobs.OverlapReplace {
			taken[kernel.GateRef(run.Tenant, kernel.CrowdGate(run.Waits, run.Job))]++
		}
		ref := kernel.GateRef(run.Tenant, run.Waits)
		waiting[ref]++
		if !slices.Contains(run.Gates, run.Waits) || all[ref] == nil {
			t.Errorf("run %s waits at %s, which is none of its gates or has no row", run.ID, run.Waits)
		}
	}
	if run.Holds {
		if p := run.Place; p != nil && !p.Group.IsZero() && len(run.Gates) > 0 {
			parts := kernel.GateRef(run.Tenant, kernel.PartsGate(p.Group))
			if taken[parts]++; taken[parts] > 1 {
				return // a broadcast counts once
			}
		}
	}
	for _, name := range run.Gates {
		if run.Holds || run.Reserved && kernel.Keyed(name) {
			taken[kernel.GateRef(run.Tenant, name)]++
			if run.Late {
				late[kernel.GateRef(run.Tenant, name)]++
			}
		}
	}
}

// grown checks the change of a run.
func grown(t *testing.T, old, now *kernel.Run) {
	t.Helper()
	switch {
	case now.Attempt < old.Attempt || now.Attempt > old.Attempt+8: // a batch may hold several starts
		t.Errorf("run %s went from attempt %d to %d", now.ID, old.Attempt, now.Attempt)
	case old.State.Final() && now.State != old.State:
		t.Errorf("run %s was %s and became %s", now.ID, old.State, now.State)
	case old.Settled() && !equal(old, now):
		t.Errorf("run %s had ended and changed", now.ID)
	case !old.Settled() && !now.Settled() && (now.Job != old.Job || now.Key != old.Key || !slices.Equal(now.Gates, old.Gates) || !now.Created.Equal(old.Created)):
		t.Errorf("run %s became another", now.ID)
	}
}
