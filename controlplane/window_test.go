package controlplane_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// counted is a bus that counts pushes.
type counted struct {
	bus.Bus
	messages atomic.Int64
}

func (c *counted) Push(ctx context.Context, to bus.Address, push []byte) ([]byte, error) {
	c.messages.Add(1)
	return c.Bus.Push(ctx, to, push)
}

func (h *fixture) flood(key jobs.Key, n int) {
	h.t.Helper()
	batch := make([]kernel.Envelope, n)
	for i := range batch {
		batch[i] = kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "client:test",
			Command: kernel.Create{ID: jobs.NewID(time.Now()), Key: key, Args: []byte(`{"Customer":"c7"}`)}}
	}
	for _, r := range h.store.Apply(h.ctx, batch) {
		if r.Err != nil {
			h.t.Fatal(r.Err)
		}
	}
}

func TestWaitingRunsDoNotBecomeMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.stop()
		c := &counted{Bus: h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "n1"})}
		h.restartOn(c)
		var n atomic.Int64
		var first atomic.Int64
		work := jobs.NewTriggered(jobs.TriggeredFunc[charge](func(context.Context, charge) error {
			first.CompareAndSwap(0, time.Now().UnixNano())
			n.Add(1)
			return nil
		}), jobs.Options{Key: "charge"})
		stop := h.worker(worker.Config{Slots: 8}, work) // registers
		stop()
		c.messages.Store(0)
		many := tests.Size(20_000, 20_000, 100_000)
		for range many / 5000 {
			h.flood("charge", 5000)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if m := c.messages.Load(); m > 0 {
			t.Errorf("%d messages were sent for runs that no worker can take", m)
		}
		begin := time.Now()
		h.worker(worker.Config{Slots: 8, Name: "w2"}, work)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if d := time.Unix(0, first.Load()).Sub(begin); d > time.Second {
			t.Errorf("the first run started %v after the worker", d)
		}
		if int(n.Load()) != many {
			t.Errorf("%d of %d have run", n.Load(), many)
		}
	})
}

func TestAThousandRunsThroughOneSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		var j journal
		h.worker(worker.Config{}, j.work("one", 0, true, jobs.Options{MaxConcurrency: 1}))
		h.flood("one", 1000)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if len(j.ends()) != 1000 || j.peak() != 1 {
			t.Errorf("%d of 1000 have run, %d at a time", len(j.ends()), j.peak())
		}
	})
}

func TestRecurringOverlapIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.worker(worker.Config{}, jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error {
			time.Sleep(90 * time.Second)
			return nil
		}), jobs.Options{Key: "slow", Cron: "0 * * * * *"}))
		time.Sleep(6*time.Minute + 10*time.Second) // the last handler ends within the grace of its worker
		synctest.Wait()
		skipped, ran := 0, 0
		for _, run := range h.runs("slow") {
			switch run.State {
			case jobs.Skipped:
				skipped++
				if run.Cause != kernel.ByOverlap {
					t.Errorf("skipped by %s", run.Cause)
				}
			case jobs.Succeeded, jobs.Processing:
				ran++
			}
		}
		if skipped != 3 || ran != 3 {
			t.Errorf("%d skipped and %d ran of 6 due times, want 3 and 3", skipped, ran)
		}
	})
}

func TestPriorityGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		var order []string
		h.worker(worker.Config{Slots: 1}, jobs.NewTriggered(jobs.TriggeredFunc[charge](func(_ context.Context, a charge) error {
			order = append(order, a.Customer)
			time.Sleep(time.Second)
			return nil
		}), jobs.Options{Key: "charge", MaxConcurrency: 1}))
		for _, p := range []struct {
			name     string
			priority int
		}{{"first", 0}, {"low", -5}, {"normal", 0}, {"high", 9}} {
			w, _ := jobs.Trigger[charge]("charge").Request(charge{p.name}, jobs.WithPriority(p.priority))
			h.must(kernel.CreateOf(w))
			synctest.Wait()
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if !equal(order, []string{"first", "high", "normal", "low"}) {
			t.Errorf("ran %v", order)
		}
	})
}

// A job that only some workers of the app have goes to those.
func TestAKeyThatOnlySomeServeReachesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		var j journal
		both := j.work("both", 0, true, jobs.Options{})
		h.worker(worker.Config{Name: "w1"}, both)
		h.worker(worker.Config{Name: "w2"}, both, j.work("new", 0, true, jobs.Options{}))
		for range 20 {
			h.enqueue("new")
			h.enqueue("both")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(j.ends()) != 40 {
			t.Errorf("%d of 40 have run", len(j.ends()))
		}
		for _, a := range j.started {
			if a.Key == "new" && a.Worker[:2] != "w2" {
				t.Errorf("%s ran on %s", a.Key, a.Worker)
			}
		}
	})
}
