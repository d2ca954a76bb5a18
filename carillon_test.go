package carillon_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/bustest/freeport"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/worker"
)

// serve is a control plane and a NATS server, and answers with the server and its address.
func serve(t *testing.T) (*embedded.Server, string) {
	t.Helper()
	// One test stops and restarts it: meanwhile no other process may take the port.
	server, err := embedded.Start(embedded.Config{Port: freeport.Port(t)})
	if err != nil {
		t.Fatal(err)
	}
	address := server.URL()
	node := bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "n1"}
	b, err := natsbus.Connect(t.Context(), address, natsbus.Config{As: node})
	if err != nil {
		t.Fatal(err)
	}
	cp, err := controlplane.New(controlplane.Config{
		Store: memstore.Open(memstore.Config{}), Bus: b,
		Serve: func(ctx context.Context, term uint64, store metastore.Store) error {
			return busstore.Serve(ctx, bus.InTerm(b, term), store, busstore.Config{})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	background(t, cp.Run, func() {
		_ = b.Close()
		_ = server.Stop()
	})
	return server, address
}

// background runs fn until the test ends, and then after.
func background(t *testing.T, fn func(context.Context) error, after ...func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- fn(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		for _, f := range after {
			f()
		}
	})
}

type charge struct{ Customer string }

var (
	chargeJob = jobs.Trigger[charge]("billing.charge")
	sleepJob  = jobs.Trigger[charge]("billing.sleep")
)

// A worker and a program, each with nothing but an address.
func TestFromAnAddress(t *testing.T) {
	_, address := serve(t)
	ticks := make(chan time.Time, 10)
	begun, stopped := make(chan bool, 1), make(chan error, 1)
	w, err := carillon.NewWorker(address, worker.Config{App: "billing", Name: "w1", Slots: 4},
		jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error {
			select {
			case ticks <- time.Now():
			default:
			}
			return nil
		}), jobs.Options{Key: "billing.tick", Every: time.Second}),
		jobs.NewTriggered(jobs.TriggeredFunc[charge](func(ctx context.Context, c charge) error {
			if jobs.Attempt(ctx).Number == 1 {
				return errors.New("once more")
			}
			return jobs.Result(ctx, c.Customer+" is charged")
		}), jobs.Options{Key: "billing.charge", Retries: 1}),
		jobs.NewTriggered(jobs.TriggeredFunc[charge](func(ctx context.Context, _ charge) error {
			begun <- true
			<-ctx.Done()
			stopped <- context.Cause(ctx)
			return ctx.Err()
		}), jobs.Options{Key: "billing.sleep"}))
	if err != nil {
		t.Fatal(err)
	}
	background(t, w.Run)
	c, err := carillon.DialAs(address, client.Config{Actor: "client:shop"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()

	<-ticks // the jobs are registered
	run, err := chargeJob.Enqueue(ctx, c, charge{"c7"}, jobs.Unique("c7"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Wait(ctx, run.ID)
	if err != nil {
		t.Fatal(err)
	}
	if r.State != jobs.Succeeded || string(r.Result) != `"c7 is charged"` || r.Attempt != 2 || r.Actor != "client:shop" {
		t.Errorf("run of %s is %s after %d attempts with %s", r.Actor, r.State, r.Attempt, r.Result)
	}

	run, err = sleepJob.Enqueue(ctx, c, charge{"c8"})
	if err != nil {
		t.Fatal(err)
	}
	<-begun // a run that is cancelled before never calls its handler
	if err = c.Cancel(ctx, run.ID, "a mistake"); err != nil {
		t.Fatal(err)
	}
	var cancelled *jobs.CancelledError
	if err := <-stopped; !errors.As(err, &cancelled) || cancelled.By != "client:shop" || cancelled.Reason != "a mistake" {
		t.Errorf("the handler's context ended by %v", err)
	}
	select {
	case <-ticks:
	case <-ctx.Done():
		t.Error("the recurring job has not come again")
	}
}

// The bus is gone for a while: a run that goes on meanwhile goes on, one that ends meanwhile is known to have ended
// when the bus is back, and neither is run twice.
func TestTheBusIsGoneForAWhile(t *testing.T) {
	server, address := serve(t)
	end := make(chan bool)
	w, err := carillon.NewWorker(address, worker.Config{Name: "w1"},
		jobs.NewTriggered(jobs.TriggeredFunc[charge](func(ctx context.Context, c charge) error {
			select {
			case <-end:
				return jobs.Result(ctx, c.Customer)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}), jobs.Options{Key: "billing.charge"}))
	if err != nil {
		t.Fatal(err)
	}
	background(t, w.Run)
	c, err := carillon.Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var runs []jobs.Receipt
	for len(runs) < 2 {
		run, err := chargeJob.Enqueue(ctx, c, charge{"c7"})
		if errors.Is(err, jobs.NotFound) {
			time.Sleep(5 * time.Millisecond) // until the worker has registered it
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	for w.Stats().Running < 2 {
		time.Sleep(5 * time.Millisecond)
	}
	port := server.Port()
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	end <- true
	time.Sleep(500 * time.Millisecond)
	if server, err = embedded.Start(embedded.Config{Port: port}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	end <- true
	for _, run := range runs {
		r, err := c.Wait(ctx, run.ID)
		if err != nil {
			t.Fatal(err)
		}
		if r.State != jobs.Succeeded || r.Attempt != 1 || string(r.Result) != `"c7"` {
			t.Errorf("run is %s after %d attempts with %s: %s", r.State, r.Attempt, r.Result, r.Error)
		}
	}
	// And new work comes as before.
	run, err := chargeJob.Enqueue(ctx, c, charge{"c8"})
	if err != nil {
		t.Fatal(err)
	}
	end <- true
	if r, err := c.Wait(ctx, run.ID); err != nil || r.State != jobs.Succeeded {
		t.Errorf("a run after the outage: %v, %v", r, err)
	}
}

func TestAddressesThatAreNone(t *testing.T) {
	tick := jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return nil }), jobs.Options{Key: "tick"})
	for _, c := range []struct{ address, want string }{
		{"", "want a URL"},
		{"postgres://user:secret@db/carillon", "want nats:// or tls://"},
		{"127.0.0.1:4222", "want a URL"},
		{"nats://user:secret@a b", "not a URL"},
		{"nats://", "has no host"},
		{"nats://127.0.0.1:4222,http://x", "want nats:// or tls://"},
		{"nats://user:secret@127.0.0.1:1", "connect to NATS"},
	} {
		_, err := carillon.NewWorker(c.address, worker.Config{}, tick)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("worker of %q: %v, want %q", c.address, err, c.want)
		}
		_, err = carillon.Dial(c.address)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("client of %q: %v, want %q", c.address, err, c.want)
		}
	}
	if _, err := carillon.NewWorker("nats://127.0.0.1:1", worker.Config{Name: "a b"}, tick); err == nil || !strings.Contains(err.Error(), "worker name") {
		t.Errorf("a bad name: %v", err)
	}
}
