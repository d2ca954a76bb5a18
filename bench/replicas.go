package main

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker"
)

// replicas is Carillon in the processes of one program that share a database, as River's clients do: this process
// enqueues, and leads because it was there first; the worker processes are replicas, too.
type replicas struct {
	db    *server
	here  *embed.Scheduler
	fleet workerSet
}

func (r *replicas) start(ctx context.Context, dir string, workers int) (err error) {
	if r.db, err = launch(ctx, "postgres", dir); err != nil {
		return err
	}
	if r.here, err = embed.Start(ctx, replica(r.db.url.String(), "enqueues")); err != nil {
		return err
	}
	for range workers {
		if err := r.fleet.hire(ctx, order{System: "replicas", URL: r.db.url.String(), Slots: *slots, Profile: *profile}); err != nil {
			return err
		}
	}
	for ctx.Err() == nil {
		if len(r.here.Ops().Workers(ctx, ops.Who{})) >= workers {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return context.Cause(ctx)
}

// replica configures a process of the program.
func replica(url, node string) embed.Config {
	return embed.Config{Database: url, Node: node, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))}
}

func (r *replicas) batch(ctx context.Context, first, n int) error {
	list := make([]noArgs, n)
	for i := range list {
		list[i] = hundredOf(first + i)
	}
	_, err := noop.EnqueueAll(ctx, r.here.Client(), list)
	return err
}

func (r *replicas) one(ctx context.Context, a noArgs) error {
	_, err := noop.Enqueue(ctx, r.here.Client(), a)
	return err
}

func (r *replicas) later(context.Context, []time.Time) error { return errNone }

func (r *replicas) everySecond(context.Context, int) error { return errNone }

func (r *replicas) unsettled(ctx context.Context) (n int, err error) {
	o, err := r.here.Ops().Overview(ctx, ops.Who{})
	for _, k := range o.Live {
		n += k
	}
	return n, err
}

func (r *replicas) workerSet() *workerSet { return &r.fleet }

func (r *replicas) pids() []int { return append(r.fleet.pids(), r.db.cmd.Process.Pid) }

func (r *replicas) stop() {
	r.fleet.dismiss()
	if r.here != nil {
		_ = r.here.Stop()
	}
	r.db.stop()
}

// handReplica is a worker process that is a replica.
func handReplica(ctx context.Context, o order, t *tally) (leave func(), err error) {
	c := replica(o.URL, "works")
	c.Worker = worker.Config{App: "bench", Name: "bench", Slots: cmp.Or(o.Slots, worker.Unlimited)}
	s, err := embed.Start(ctx, c, handler(t, jobs.Options{Key: "bench.noop", KeepSucceeded: jobs.None}))
	if err != nil {
		return nil, err
	}
	return func() { _ = s.Stop() }, nil
}
