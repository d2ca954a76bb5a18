package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/worker"
)

// Offers are hints: forged ones, of runs that are not there, not this tenant's, not at this attempt, or over, and old
// ones that come again, run nothing.
func TestForgedOffersRunNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		var ran atomic.Int32
		count := jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error { ran.Add(1); return nil })
		h.worker(worker.Config{App: "billing", Name: "w1"}, jobs.NewTriggered(count, jobs.Options{Key: "charge"}))
		h.must(kernel.Register{App: "other", Worker: "w9", Start: true, Job: kernel.Declaration{Key: "foreign", Kind: kernel.Triggered}})
		over := jobs.NewID(time.Now())
		h.must(kernel.Create{ID: over, Key: "charge"})
		time.Sleep(5 * time.Second)
		if n := ran.Load(); n != 1 {
			t.Fatalf("the one that was asked for ran %d times", n)
		}
		acme := jobs.NewID(time.Now())
		waiting := jobs.NewID(time.Now()) // of an app that this worker is not of
		h.must(kernel.Create{ID: waiting, Key: "foreign"})
		later := jobs.NewID(time.Now())
		h.must(kernel.Create{ID: later, Key: "charge", Delay: time.Hour})
		for _, r := range h.full.Apply(h.ctx, []kernel.Envelope{
			{ID: jobs.NewID(time.Now()), Tenant: "acme", Actor: "person:ann", Command: kernel.Register{App: "billing", Worker: "w1", Start: true, Job: kernel.Declaration{Key: "charge", Kind: kernel.Triggered}}},
			{ID: jobs.NewID(time.Now()), Tenant: "acme", Actor: "person:ann", Command: kernel.Create{ID: acme, Key: "charge"}},
		}) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		var list []bus.Offer
		for _, id := range []jobs.ID{over, acme, later, jobs.NewID(time.Now()), {}} {
			for attempt := range uint32(4) {
				list = append(list, bus.Offer{ID: id, Attempt: attempt, Key: "charge"}, bus.Offer{ID: id, Attempt: attempt, Key: "none"})
			}
		}
		forger := h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "forger"})
		here := h.cp.Workers(jobs.DefaultTenant)
		if len(here) != 1 {
			t.Fatalf("%d workers", len(here))
		}
		for range 100 { // by a forger that can even send as a node
			if err := forger.Hand(h.ctx, bus.Lane{Tenant: jobs.DefaultTenant, App: "billing", Worker: here[0].Name}, list); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if n := ran.Load(); n != 1 {
			t.Errorf("forged offers ran %d handlers", n-1)
		}
		if run, err := h.full.Run(h.ctx, "acme", acme); err != nil || run.State != jobs.Enqueued {
			t.Errorf("another tenant's run is %v, %v", run, err)
		}
		if run := h.run(later); run.State != jobs.Scheduled {
			t.Errorf("a run that is not due is %s", run.State)
		}
	})
}

// reads counts the reads of one key of a store.
type reads struct {
	metastore.Full
	definitions atomic.Int64
}

func (r *reads) Definition(ctx context.Context, tenant jobs.Tenant, key jobs.Key) (*kernel.Definition, error) {
	r.definitions.Add(1)
	return r.Full.Definition(ctx, tenant, key)
}

func (r *reads) Definitions(ctx context.Context, q metastore.DefinitionQuery) ([]*kernel.Definition, error) {
	r.definitions.Add(int64(len(q.Keys)))
	return r.Full.Definitions(ctx, q)
}

// Workers and clients that signal that jobs have changed are refused, and cost the store nothing.
func TestForgedChangesAreNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.stop()
		counted := &reads{Full: h.full}
		h.full = counted
		h.start()
		before := counted.definitions.Load()
		keys := make([]jobs.Key, 500)
		for i := range keys {
			keys[i] = jobs.Key(fmt.Sprintf("forged.%d", i))
		}
		for _, role := range []bus.Role{bus.Worker, bus.Client} {
			b := h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: role, Name: "x"})
			if err := b.Signal(h.ctx, bus.Signal{Topic: bus.TopicChanged, Data: bus.Encode(bus.Changes{Keys: keys})}); !errors.Is(err, jobs.Forbidden) {
				t.Errorf("a %s signals changes: %v", role, err)
			}
		}
		time.Sleep(30 * time.Second)
		if n := counted.definitions.Load() - before; n > 100 {
			t.Errorf("%d jobs were read", n)
		}
	})
}

// Two workers under one name and one token, a copied virtual machine for example, are two workers: each start has a
// name of its own, and a run is one's.
func TestTwoWorkersOfOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		var ran [2]atomic.Int32
		for i := range ran {
			h.worker(worker.Config{App: "billing", Name: "w1", Slots: 2}, jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error {
				time.Sleep(time.Second)
				ran[i].Add(1)
				return nil
			}), jobs.Options{Key: "charge"}))
		}
		here := h.cp.Workers(jobs.DefaultTenant)
		if len(here) != 2 || here[0].Name == here[1].Name {
			t.Fatalf("workers %+v", here)
		}
		for range 20 {
			h.must(kernel.Create{ID: jobs.NewID(time.Now()), Key: "charge"})
		}
		time.Sleep(time.Minute)
		if a, b := ran[0].Load(), ran[1].Load(); a+b != 20 || a == 0 || b == 0 {
			t.Errorf("they ran %d and %d", a, b)
		}
		for _, run := range h.runs("charge") {
			if run.State != jobs.Succeeded || run.Attempt != 1 {
				t.Errorf("run %s is %s after %d attempts", run.ID, run.State, run.Attempt)
			}
		}
	})
}
