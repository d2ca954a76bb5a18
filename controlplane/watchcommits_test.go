package controlplane_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// The leader knows at once what other processes commit to the same store: new runs start, started ones have a
// lease that expires, and leave the window, and all of it is counted.
func TestTheLeaderFollowsWhatOthersCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.stop()
		changed := make(chan struct{}, 1)
		var failed []jobs.ID
		cp, err := controlplane.New(controlplane.Config{Node: "n1", Store: h.full, Clock: h.clock,
			Bus:          h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "n1"}),
			Ended:        func(in *kernel.Run) { failed = append(failed, in.ID) },
			Sweep:        time.Hour, // nothing is found by looking now and then
			WatchCommits: func(ctx context.Context, fn func()) error { return relay(ctx, changed, fn) },
		})
		if err != nil {
			t.Fatal(err)
		}
		h.cp, h.store = cp, cp.Store()
		h.stop = h.spawn(cp.Run)
		synctest.Wait()
		others := func(k kernel.Command) {
			t.Helper()
			r := h.full.Apply(h.ctx, []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "node:n2", Command: k}})
			if r[0].Err != nil {
				t.Fatal(r[0].Err)
			}
			select {
			case changed <- struct{}{}:
			default:
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		h.worker(worker.Config{App: "bells", Slots: 1}, jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error { return nil }), jobs.Options{Key: "ring"}))
		synctest.Wait()
		time.Sleep(time.Second)

		run := jobs.NewID(time.Now())
		others(kernel.Create{ID: run, Key: "ring"})
		if in := h.run(run); in.State != jobs.Succeeded {
			t.Errorf("a run that others asked for is %v", in.State)
		}
		// A job that is changed elsewhere, and fires.
		others(kernel.Register{App: "bells", Worker: "x", Start: true, Job: kernel.Declaration{Key: "tick", Kind: kernel.Recurring, Code: kernel.Settings{Schedule: new("* * * * * *")}}})
		time.Sleep(2 * time.Second)
		if page := h.runs("tick"); len(page) == 0 {
			t.Error("a job that others made does not fire")
		}
		// Started elsewhere, by a worker that dies.
		others(kernel.Register{App: "far", Worker: "y", Start: true, Job: kernel.Declaration{Key: "far", Kind: kernel.Triggered}})
		lost, bad := jobs.NewID(time.Now()), jobs.NewID(time.Now())
		others(kernel.Create{ID: lost, Key: "far"})
		others(kernel.Create{ID: bad, Key: "far"})
		others(kernel.Start{ID: lost, Worker: "y", Attempt: 1})
		time.Sleep(40 * time.Second)
		if in := h.run(lost); in.State == jobs.Processing {
			t.Error("an attempt that others began has no lease")
		}
		others(kernel.Start{ID: bad, Worker: "y", Attempt: 1})
		others(kernel.Finish{ID: bad, Worker: "y", Attempt: 1, Outcome: kernel.OutcomeError, Error: "x"})
		if len(failed) != 1 || failed[0] != bad {
			t.Errorf("Ended was called for %v", failed)
		}
		ended := 0
		for _, m := range h.cp.Pulse(jobs.DefaultTenant) {
			ended += m.Terminated
		}
		if ended != 1 {
			t.Errorf("%d runs are counted that ended badly", ended)
		}
	})
}

// relay passes on signals of a change.
func relay(ctx context.Context, changed <-chan struct{}, fn func()) error {
	fn()
	for {
		select {
		case <-changed:
			fn()
		case <-ctx.Done():
			return nil
		}
	}
}
