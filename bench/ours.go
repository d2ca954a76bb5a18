package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// ours is Carillon.
type ours struct {
	store    string // "" = the data directory, memory, postgres, mariadb
	external bool   // NATS in a process of its own
	nodes    int    // of a cluster, each a process of its own; 0 = one server alone
	db       *server
	fixture  *fixture
	fleet    workerSet
}

func (o *ours) start(ctx context.Context, dir string, workers int) (err error) {
	on := setup{memory: o.store == "memory", external: o.external, nodes: o.nodes}
	if o.store == "postgres" || o.store == "mariadb" {
		if o.db, err = launch(ctx, o.store, dir); err != nil {
			return err
		}
		on.store = o.db.url.String()
	}
	if o.fixture, err = build(ctx, on); err != nil {
		return err
	}
	for range workers {
		if err := o.hire(ctx, order{}); err != nil {
			return err
		}
	}
	o.fixture.profile()
	return nil
}

// hire starts a worker process and waits until the server knows it.
func (o *ours) hire(ctx context.Context, what order) error {
	what.System, what.URL, what.Slots, what.Profile = "carillon", o.fixture.url(), *slots, *profile
	if err := o.fleet.hire(ctx, what); err != nil {
		return err
	}
	last := "bench.noop"
	if what.Keys > 0 {
		last = secondKey(what.First + what.Keys - 1)
	}
	for ctx.Err() == nil {
		if _, err := o.fixture.get("/api/v1/jobs/" + last); err == nil {
			if all, err := o.fixture.get("/api/v1/workers"); err == nil && strings.Count(all, `"bench-`) >= len(o.fleet.procs) {
				return nil
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("the worker did not register: %w", ctx.Err())
}

func (o *ours) batch(ctx context.Context, first, n int) error {
	list := make([]noArgs, n)
	for i := range list {
		list[i] = hundredOf(first + i)
	}
	_, err := noop.EnqueueAll(ctx, o.fixture.client, list)
	return err
}

func (o *ours) one(ctx context.Context, a noArgs) error {
	_, err := noop.Enqueue(ctx, o.fixture.client, a)
	return err
}

func (o *ours) later(ctx context.Context, due []time.Time) error {
	requests := make([]jobs.Request, len(due))
	for i, at := range due {
		a := hundredOf(i)
		a.Report = true
		request, err := noop.Request(a, jobs.At(at))
		if err != nil {
			return err
		}
		requests[i] = request
	}
	_, err := o.fixture.client.Enqueue(ctx, requests...)
	return err
}

// mostKeys is how many jobs a worker process may have.
const mostKeys = 10_000

func (o *ours) everySecond(ctx context.Context, keys int) error {
	return o.recurring(ctx, keys, "* * * * * *")
}

// recurring dismisses the workers and hires as many as it takes to have so many jobs.
func (o *ours) recurring(ctx context.Context, keys int, cron string) error {
	o.fleet.dismiss()
	for first := 0; first < keys; first += mostKeys {
		if err := o.hire(ctx, order{First: first, Keys: min(mostKeys, keys-first), Cron: cron}); err != nil {
			return err
		}
	}
	return nil
}

func (o *ours) unsettled(context.Context) (int, error) { return o.fixture.live() }

func (o *ours) workerSet() *workerSet { return &o.fleet }

func (o *ours) pids() []int {
	pids := append(o.fleet.pids(), o.fixture.server.Process.Pid)
	for _, node := range o.fixture.others {
		pids = append(pids, node.Process.Pid)
	}
	if o.fixture.bus != nil {
		pids = append(pids, o.fixture.bus.Process.Pid)
	}
	if o.db != nil {
		pids = append(pids, o.db.cmd.Process.Pid)
	}
	return pids
}

func (o *ours) stop() {
	o.fleet.dismiss()
	if o.fixture != nil {
		o.fixture.close()
	}
	o.db.stop()
}

// secondKey is the key of the kth job that is due every second.
func secondKey(k int) string { return fmt.Sprintf("bench.second-%d", k) }

// handler is a job that only counts.
func handler(t *tally, how jobs.Options) jobs.Job {
	return jobs.NewTriggered(jobs.TriggeredFunc[noArgs](func(ctx context.Context, a noArgs) error {
		var due time.Time
		if a.Report {
			due = jobs.Attempt(ctx).Due
		}
		t.ran(a, due)
		return nil
	}), how)
}

// handOurs is Carillon's worker process. The jobs that are due every second have no limit, as the peers have none.
func handOurs(ctx context.Context, o order, t *tally) (leave func(), err error) {
	var list []jobs.Job
	for k := range o.Keys {
		a := hundredOf(o.First + k)
		a.Report = true
		each := jobs.RecurringFunc(func(ctx context.Context) error {
			t.ran(a, jobs.Attempt(ctx).Due)
			return nil
		})
		list = append(list, jobs.NewRecurring(each, jobs.Options{Key: jobs.Key(secondKey(o.First + k)), Cron: o.Cron, MaxConcurrency: jobs.None}))
	}
	if o.Keys == 0 {
		list = append(list, handler(t, jobs.Options{Key: "bench.noop", KeepSucceeded: jobs.None}), handler(t, jobs.Options{Key: "bench.soak"}))
	}
	w, err := carillon.NewWorker(o.URL, worker.Config{App: "bench", Name: "bench", Slots: cmp.Or(o.Slots, worker.Unlimited)}, list...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := w.Run(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "bench worker:", err)
			os.Exit(1) // the count of the parent will differ
		}
	}()
	return func() { cancel(); <-done }, nil
}
