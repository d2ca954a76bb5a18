package assign

import (
	"fmt"
	"testing"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/dispatch"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// small are bounds with which few runs are many.
var small = bounds{ready: 32, held: 200, cut: 8}

// Whatever keeps workers from taking the runs of a job now, and however many there are: other jobs of the app start, and
// those of the same job that a worker can take, and the board holds no more than its bounds. Once a worker can take
// what waited, all of it starts, in its order.
func TestABacklogThatNoWorkerTakesDelaysNoOtherJob(t *testing.T) {
	pin := func(pin string, slots int) func(*kernel.Run) {
		return placed(kernel.Place{Route: jobs.RouteAny, Pin: pin, PinAway: jobs.PinWait, Slots: slots})
	}
	n := 0
	for name, c := range map[string]struct {
		blocked func(*kernel.Run)
		began   int                   // of them that start all the same
		helps   func(*bus.WorkerInfo) // makes a worker that can take the others
	}{
		"no worker has the job": {func(run *kernel.Run) { run.Key = "missing" }, 0,
			func(i *bus.WorkerInfo) { i.Keys = map[jobs.Key]int{"missing": 1} }},
		"no worker has the job, each with another priority": {func(run *kernel.Run) { run.Key = "missing"; n++; run.Priority = n % 7 }, 0,
			func(i *bus.WorkerInfo) { i.Keys = map[jobs.Key]int{"missing": 1} }},
		"slots: 1, and each worker has one":  {placed(kernel.Place{Route: jobs.RouteAny, Slots: 1}), 2, nil},
		"a pin to a worker that is away":     {pin("gone", 0), 0, func(i *bus.WorkerInfo) { i.Label = "gone" }},
		"a pin to a worker that has one":     {pin("w", 1), 1, nil},
		"pins to many workers that are away": {func(run *kernel.Run) { n++; pin(fmt.Sprint("gone", n%20), 0)(run) }, 0, nil},
		"needs that no worker has": {placed(kernel.Place{Route: jobs.RouteAny, Needs: []string{"gpu"}}), 0,
			func(i *bus.WorkerInfo) { i.Tags = []string{"gpu"} }},
		"a version that no worker has": {placed(kernel.Place{Route: jobs.RouteAny, Version: 2}), 0,
			func(i *bus.WorkerInfo) { i.Keys = map[jobs.Key]int{"job": 2} }},
		"route idle": {placed(kernel.Place{Route: jobs.RouteIdle}), 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.b.most = small
			s.worker("w", 9)
			s.worker("x", 9)
			fill := func() (starts int) {
				for range 30 {
					starts += len(s.starts())
					if a := s.b.apps[app1]; len(a.all) > small.held+small.ready {
						t.Fatalf("%d runs are held", len(a.all))
					}
				}
				return starts
			}
			const many = 2000
			s.ready(many/2, c.blocked)
			began := fill()
			s.ready(many/2, c.blocked) // behind those that are held, and behind those that are not
			began += fill()
			if began != c.began {
				t.Errorf("%d of those that no worker takes have started, want %d", began, c.began)
			}
			s.ready(2, priority(-1))
			s.ready(2, func(run *kernel.Run) { run.Key = "job" })
			if n := fill(); n != 4 {
				t.Errorf("%d of 4 runs start that workers can take", n)
			}
			if c.helps == nil {
				return
			}
			s.worker("help", 1, c.helps)
			var last rank
			for started := range many {
				s.fill()
				list := s.b.Starts(9, s.now)
				if len(list) != 1 {
					t.Fatalf("%d starts on the worker that can take them, after %d of %d", len(list), started, many)
				}
				run := s.rows[list[0].ID]
				if at := (rank{run.Priority, run.Turn}); started > 0 && at.before(last) {
					t.Fatalf("run %v starts after %v", at, last)
				} else {
					last = at
				}
				s.commit(list[0])
				s.answer(list[0].Attempt, dispatch.Worker{Tenant: "t", Name: "help"})
				s.end(list[0].ID)
			}
		})
	}
}

// A refused start of a cut queue is tried again, too.
func TestARefusedStartOfACutQueue(t *testing.T) {
	s := newStage(t)
	s.b.most = small
	s.worker("w", 9)
	s.ready(1000, placed(kernel.Place{Route: jobs.RouteAny, Slots: 1}))
	s.want(s.starts(), "w")
	for range 10 {
		s.fill()
	}
	a := s.b.apps[app1]
	if len(a.cuts) != 1 {
		t.Fatalf("%d queues are cut, want 1", len(a.cuts))
	}
	began := s.each()[0]
	s.end(began.ID)
	s.fill()
	list := s.b.Starts(1, s.now)
	if len(list) != 1 {
		t.Fatal("nothing starts in the free slot")
	}
	s.b.Withdraw(list[0])
	var order []jobs.ID
	for range 3 {
		s.fill() // with Reread
		again := s.b.Starts(1, s.now)
		if len(again) != 1 {
			t.Fatalf("%d starts", len(again))
		}
		order = append(order, again[0].ID)
		s.commit(again[0])
		s.answer(again[0].Attempt, dispatch.Worker{Tenant: "t", Name: "w"})
		s.end(again[0].ID)
	}
	if n := len(a.all); n > small.held+8*small.cut {
		t.Errorf("%d are held", n)
	}
	found := false
	for _, id := range order {
		found = found || id == list[0].ID
	}
	if !found {
		t.Error("the refused run has not started")
	}
}
