package controlplane

import (
	"strconv"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// staffed is a router with one worker that has a job, and what it knows of the job's app.
func staffed(t *testing.T, now time.Time) (*router, *app) {
	t.Helper()
	r := &router{loads: func(string, jobs.Key) (all, same int) { return 0, 0 }}
	r.init(time.Second, time.Minute)
	r.lead(true)
	r.since = now.Add(-time.Hour)
	info := &bus.WorkerInfo{Name: "a-1", Label: "a", App: "default", Slots: 10, Keys: map[jobs.Key]int{"clean": 1}}
	if known, err := r.heartbeat(bus.Principal{Tenant: "t", Name: "a"}, bus.Heartbeat{Worker: "a-1", Info: info}, now); !known {
		t.Fatal("the worker is not known:", err)
	}
	return r, r.app(bus.Lane{Tenant: "t", App: "default"})
}

// A row that was read before a commit announced the run anew does not replace what is offered: neither the broadcast
// that a part came from, nor an earlier attempt. Nor do the overtaken effects of an earlier commit.
func TestOfferIsNotOverwrittenByAnOlderRow(t *testing.T) {
	now := time.Now()
	whole := &kernel.Run{Tenant: "t", App: "default", Key: "clean", ID: kernel.DerivedID("x"), State: jobs.Enqueued, Place: &kernel.Place{Route: jobs.RouteBroadcast}}
	part := *whole
	part.Place = &kernel.Place{Route: jobs.RouteBroadcast, Total: 2, Group: whole.ID, Pin: "a-1", PinAway: jobs.PinAny}
	second := *whole
	second.Place, second.Attempt = nil, 1
	first := second
	first.Attempt = 0
	for _, c := range []struct {
		name         string
		newer, older *kernel.Run
	}{{"a part", &part, whole}, {"a second attempt", &second, &first}} {
		for how, apply := range map[string]func(r *router, a *app){
			"read":        func(r *router, a *app) { r.fill(r.short1(a), []*kernel.Run{c.older}, now) },
			"noted later": func(r *router, _ *app) { r.note(c.older, now) },
		} {
			r, a := staffed(t, now)
			a.backlog = false
			r.note(c.newer, now)
			apply(r, a)
			_, out, expand := r.ship(now)
			if len(out) != 1 || len(expand) != 0 || len(out[0].lists) != 1 || out[0].lists[0][0].Attempt != c.newer.Next() {
				t.Errorf("%s, %s: shipped %+v, to expand %+v", c.name, how, out, expand)
			}
		}
	}
}

// A broadcast that was found expanded already does not keep its place among the offers: what is there now is read
// again.
func TestBroadcastThatIsSpreadAlreadyIsReadAgain(t *testing.T) {
	now := time.Now()
	whole := &kernel.Run{Tenant: "t", App: "default", Key: "clean", ID: kernel.DerivedID("x"), State: jobs.Enqueued, Place: &kernel.Place{Route: jobs.RouteBroadcast}}
	r, a := staffed(t, now)
	r.fill(r.short1(a), []*kernel.Run{whole}, now)
	if _, out, expand := r.ship(now); len(out) != 0 || len(expand) != 1 {
		t.Fatalf("shipped %+v, to expand %+v", out, expand)
	}
	a.backlog = false
	r.expanded("t", whole)
	if !a.backlog || len(a.out) != 0 {
		t.Errorf("%d offers are out, and the store is not read again", len(a.out))
	}
}

// short1 is the shortage of an app, whether it has a backlog or not.
func (r *router) short1(a *app) shortage { return shortage{a.lane, a.window, a.turned} }

// A parked run that has ended since does not block those behind it; and entries that pile up behind one that waits for
// long are removed.
func TestNoRunWaitsBehindADeletedOne(t *testing.T) {
	now := time.Now()
	waits := func(seed string) *kernel.Run {
		return &kernel.Run{Tenant: "t", App: "default", Key: "clean", ID: kernel.DerivedID(seed), State: jobs.Enqueued, Place: &kernel.Place{Route: jobs.RouteLast}}
	}
	gone := func(run *kernel.Run) *kernel.Run {
		over := *run
		over.State = jobs.Cancelled
		return &over
	}
	r, a := staffed(t, now)
	a.backlog = false
	busy := 10
	r.loads = func(string, jobs.Key) (all, same int) { return busy, busy }
	x, y := waits("x"), waits("y")
	r.note(x, now)
	if _, out, _ := r.ship(now); len(out) != 0 || len(a.parked) != 1 {
		t.Fatalf("shipped %+v, %d are parked: the worker is full", out, len(a.parked))
	}
	r.note(gone(x), now)
	r.ship(now)
	busy = 0
	r.note(y, now)
	if _, out, _ := r.ship(now); len(out) != 1 || out[0].lists[0][0].ID != y.ID {
		t.Errorf("shipped %+v, and the worker is free", out)
	}

	busy = 10
	r.note(waits("head"), now)
	for i := range 1_000 {
		run := waits(strconv.Itoa(i))
		r.note(run, now)
		r.ship(now)
		r.note(gone(run), now)
		r.ship(now)
	}
	entries := 0
	for _, queue := range a.queues {
		entries += len(queue)
	}
	if len(a.parked) != 1 || entries > 10 {
		t.Errorf("%d are parked, in queues of %d entries", len(a.parked), entries)
	}
}

// After a standstill of this process all workers have a lease, and no more than one.
func TestWorkersAreSparedAfterAStandstill(t *testing.T) {
	now := time.Now()
	r, _ := staffed(t, now)
	later := now.Add(10 * time.Minute)
	r.spare(later)
	if lost := r.expire(later.Add(time.Minute)); len(lost) != 0 {
		t.Errorf("%q are forgotten", lost)
	}
	if lost := r.expire(later.Add(time.Minute + 1)); len(lost) != 1 {
		t.Errorf("%q are forgotten", lost)
	}
}
