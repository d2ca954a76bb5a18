package controlplane_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
	"github.com/carillon-scheduler/carillon/worker"
)

// stroke is how long a handler takes.
type stroke struct{ For time.Duration }

// A leader that is frozen still receives requests, and never answers. Clients that know the next one ask that alone:
// runs begin at once, and those of a worker that dies are retried as ever.
func TestAFrozenLeaderSwallowsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		wires := map[string]*cable{}
		defer func() {
			h.close()
			for _, w := range wires {
				_ = w.Close()
			}
			time.Sleep(time.Minute) // what is repeated for half a minute
		}()
		h.stop()
		frozen := h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "n0"})
		var swallowed atomic.Int64
		for _, service := range []string{bus.ServiceStore, bus.ServiceHeartbeat} {
			if err := bus.InTerm(frozen, 1).Serve(h.ctx, service, func(ctx context.Context, _ bus.Principal, _ []byte) ([]byte, error) {
				swallowed.Add(1)
				<-ctx.Done()
				return nil, ctx.Err()
			}); err != nil {
				t.Fatal(err)
			}
		}
		end := h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "n1"})
		cp, err := controlplane.New(controlplane.Config{Node: "n1", Store: h.full, Clock: h.clock, Bus: end,
			Serve: func(ctx context.Context, term uint64, store metastore.Store) error {
				return busstore.Serve(ctx, bus.InTerm(end, term), store, busstore.Config{})
			}})
		if err != nil {
			t.Fatal(err)
		}
		h.use(cp)
		h.spawn(cp.Run)

		began := make(chan string, 100)
		for _, name := range []string{"w1", "w2"} {
			as := bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: name}
			wires[name] = &cable{Bus: h.hub.As(as)}
			b := busstore.Heed(wires[name], as)
			work := jobs.TriggeredFunc[stroke](func(ctx context.Context, s stroke) error {
				began <- name
				select {
				case <-time.After(s.For):
				case <-ctx.Done():
				}
				return nil
			})
			w, err := worker.New(worker.Config{App: "bells", Name: name, Slots: 4}, busstore.New(b, as), b, jobs.NewTriggered(work, jobs.Options{Key: "ring"}))
			if err != nil {
				t.Fatal(err)
			}
			h.spawn(w.Run)
		}
		time.Sleep(time.Minute) // requests were swallowed until the new leader called
		before := swallowed.Load()
		ask := func(args string, within time.Duration) (name string, took time.Duration) {
			t.Helper()
			at := time.Now()
			h.must(kernel.Create{ID: jobs.NewID(time.Now()), Key: "ring", Args: []byte(args)})
			select {
			case name = <-began:
			case <-time.After(within):
				t.Fatalf("a run did not begin within %v", within)
			}
			return name, time.Since(at)
		}
		for range 20 {
			ask("{}", 500*time.Millisecond)
			time.Sleep(time.Second)
		}
		first, _ := ask(`{"For": 3600000000000}`, 500*time.Millisecond)
		wires[first].cut.Store(true)
		select {
		case <-began:
		case <-time.After(40 * time.Second): // a lease, and more
			t.Error("the run of a worker that is gone is not taken up again")
		}
		if n := swallowed.Load() - before; n != 0 {
			t.Errorf("%d calls went to the leader that is frozen", n)
		}
	})
}
