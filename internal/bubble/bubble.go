// Package bubble runs a whole Carillon in memory and in virtual time, for tests: worker/workertest shows its users a
// part of it. It is not promised.
package bubble

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/membus"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker"
)

// System is a whole Carillon in memory and in virtual time: a control plane, a store, a bus, and the workers that the
// test starts. Its Client enqueues, waits and cancels.
type System struct {
	*client.Client
	Store metastore.Store // what the control plane has committed; writing to it is announced as usual

	t     *testing.T
	hub   *membus.Hub
	logs  metastore.Logs
	begin func() // begins the control plane, once
}

// In virtual time no worker dies and no message is lost, so monitoring may be slow. That makes days pass faster.
const (
	heartbeatEvery = 10 * time.Minute
	lease          = 5 * heartbeatEvery
	sweep          = 30 * time.Second
)

// Run calls fn in a bubble of virtual time (see testing/synctest), which begins at midnight UTC of 2000-01-01 and
// passes only while every goroutine waits; a week of it in which little happens takes a fraction of a second. The control plane begins with the
// first worker. When fn returns, the workers drain and all of it is torn down; handlers must have returned by then.
func Run(t *testing.T, fn func(t *testing.T, c *System)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &System{t: t, hub: membus.New(), logs: memstore.NewLogs(0)}
		node := c.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "node"})
		cp, err := controlplane.New(controlplane.Config{Store: memstore.Open(memstore.Config{}), Bus: node, Logs: c.logs,
			HeartbeatEvery: heartbeatEvery, Lease: lease, Sweep: sweep, Watch: heartbeatEvery})
		if err != nil {
			t.Fatal(err)
		}
		c.Store = cp.Store()
		caller := c.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Client, Name: "test"})
		c.Client = client.New(c.Store, caller, client.Config{Actor: "client:test"})
		// Torn down in the reverse order: workers, which Start adds later, go first.
		t.Cleanup(func() { _, _ = caller.Close(), node.Close() })
		t.Cleanup(func() { _ = c.Client.Close() })
		c.begin = sync.OnceFunc(func() {
			t.Cleanup(c.spawn(cp.Run))
			synctest.Wait()
		})
		fn(t, c)
	})
}

// Start starts a worker and waits until it is at work. stop ends it, as a deployment would: it drains.
func (c *System) Start(cfg worker.Config, js ...jobs.Job) (stop func()) {
	c.t.Helper()
	c.begin()
	if cfg.HeartbeatEvery == 0 && cfg.Lease == 0 {
		cfg.HeartbeatEvery, cfg.Lease = heartbeatEvery, lease
	}
	as, err := cfg.Principal()
	if err != nil {
		c.t.Fatal(err)
	}
	end := c.hub.As(as)
	mine := client.New(c.Store, end, client.Config{Tenant: as.Tenant, Actor: as.Actor()})
	cfg.Middleware = append([]func(worker.Handler) worker.Handler{client.Wrap[worker.Handler](mine)}, cfg.Middleware...)
	w, err := worker.New(cfg, c.Store, end, js...)
	if err != nil {
		c.t.Fatal(err)
	}
	drain := c.spawn(w.Run)
	stop = sync.OnceFunc(func() {
		drain()
		_ = mine.Close()
		_ = end.Close()
	})
	c.t.Cleanup(stop)
	synctest.Wait()
	return stop
}

// spawn runs fn in the background. stop ends it and waits until it has.
func (c *System) spawn(fn func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- fn(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			c.t.Error(err)
		}
	})
}

// Pass lets time pass, and then waits until everything that is due by then has been begun.
func (c *System) Pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// PassUntil is Pass until a time.
func (c *System) PassUntil(at time.Time) { c.Pass(time.Until(at)) }

// Do applies a command as a person would: kernel.Pause, kernel.Edit, kernel.Configure and so on. A refusal fails the
// test.
func (c *System) Do(k kernel.Command) kernel.Effect {
	c.t.Helper()
	r := c.Store.Apply(c.t.Context(), []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "person:test", Command: k}})[0]
	if r.Err != nil {
		c.t.Fatalf("%s: %v", k.Verb(), r.Err)
	}
	synctest.Wait()
	return r.Effect
}

// Resume ends a pause, as the button of the page does.
func (c *System) Resume(key jobs.Key) {
	c.t.Helper()
	who := ops.Who{Actor: "person:test", Role: ops.Operator}
	if _, _, err := ops.New(ops.Config{Store: c.Store}).Resume(c.t.Context(), who, key, ops.Resumption{}); err != nil {
		c.t.Fatalf("resume %s: %v", key, err)
	}
	synctest.Wait()
}

// Runs returns all runs of a job, by due time.
func (c *System) Runs(key jobs.Key) []*kernel.Run {
	c.t.Helper()
	var all []*kernel.Run
	q := metastore.RunQuery{Tenant: jobs.DefaultTenant, Job: key, Limit: metastore.MaxPage}
	for {
		p, err := c.Store.Runs(c.t.Context(), q)
		if err != nil {
			c.t.Fatal(err)
		}
		all = append(all, p.Runs...)
		if p.Next == "" {
			break
		}
		q.Cursor = p.Next
	}
	slices.SortStableFunc(all, func(a, b *kernel.Run) int { return a.Due.Compare(b.Due) })
	return all
}

// Missed returns the due times of a job that have no run, as ranges, oldest first.
func (c *System) Missed(key jobs.Key) []*kernel.Missed {
	c.t.Helper()
	d, err := c.Store.Definition(c.t.Context(), jobs.DefaultTenant, key)
	if err != nil {
		c.t.Fatal(err)
	}
	ranges, err := c.Store.Ledger(c.t.Context(), jobs.DefaultTenant, d.UID, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	slices.Reverse(ranges)
	return ranges
}

// Logs returns what all handlers have logged.
func (c *System) Logs() metastore.Logs { return c.logs }

// Log returns what the handlers of a run have logged, a line each: INFO begun customer=c7. Lines of the last quarter of
// a second may still be on their way.
func (c *System) Log(run jobs.ID) []string {
	c.t.Helper()
	lines, err := c.logs.Read(c.t.Context(), jobs.DefaultTenant, run, metastore.LogPosition{}, 10_000)
	if err != nil {
		c.t.Fatal(err)
	}
	text := make([]string, len(lines))
	for i, l := range lines {
		text[i] = l.Level + " " + l.Text
	}
	return text
}
