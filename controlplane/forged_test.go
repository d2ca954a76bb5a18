package controlplane_test

import (
	"bytes"
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

// Pushes that no leader sends now run nothing: those of a former term that come again, and those of another start of
// the worker, even from one that can send as a node.
func TestOldPushesRunNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.stop()
		tap := &tapped{Bus: h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "n1"})}
		h.restartOn(tap)
		var ran atomic.Int32
		count := jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error { ran.Add(1); return nil })
		h.worker(worker.Config{App: "billing", Name: "w1"}, jobs.NewTriggered(count, jobs.Options{Key: "charge"}))
		h.must(kernel.Create{ID: jobs.NewID(time.Now()), Key: "charge"})
		time.Sleep(time.Second)
		if n := ran.Load(); n != 1 || len(tap.seen) == 0 {
			t.Fatalf("the one that was asked for ran %d times, by %d pushes", n, len(tap.seen))
		}
		forger := h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "forger"})
		here := h.cp.Workers(jobs.DefaultTenant)
		if len(here) != 1 {
			t.Fatalf("%d workers", len(here))
		}
		to := bus.Address{Tenant: jobs.DefaultTenant, App: "billing", Worker: here[0].Name}
		again := func(push []byte, change func(*bus.Push)) {
			p, err := bus.DecodePush(push)
			if err != nil {
				t.Fatal(err)
			}
			change(&p)
			parcels, _ := p.Pack(1 << 20)
			if _, err := forger.Push(h.ctx, to, parcels[0].Bytes); err != nil {
				t.Fatal(err)
			}
		}
		again(tap.seen[0], func(*bus.Push) {})
		again(tap.seen[0], func(p *bus.Push) { p.Process++; p.Runs[0].ID = jobs.NewID(time.Now()) })
		time.Sleep(time.Minute)
		again(tap.seen[0], func(p *bus.Push) { p.Runs[0].ID = jobs.NewID(time.Now()) })
		time.Sleep(time.Minute)
		if n := ran.Load(); n != 1 {
			t.Errorf("old pushes ran %d handlers", n-1)
		}
	})
}

// tapped is a bus that keeps what is pushed.
type tapped struct {
	bus.Bus
	seen [][]byte
}

func (b *tapped) Push(ctx context.Context, to bus.Address, push []byte) ([]byte, error) {
	b.seen = append(b.seen, bytes.Clone(push))
	return b.Bus.Push(ctx, to, push)
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
