package worker_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/membus"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/worker"
)

// BenchmarkEmptyRuns is a run's whole way in one process, without a disk and without a network: enqueued, started,
// pushed, run, reported.
func BenchmarkEmptyRuns(b *testing.B) {
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	hub := membus.New()
	cp, err := controlplane.New(controlplane.Config{
		Store: memstore.Open(memstore.Config{}),
		Bus:   hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "node"}),
	})
	if err != nil {
		b.Fatal(err)
	}
	all.Go(func() { _ = cp.Run(ctx) })
	var runs sync.WaitGroup
	w, err := worker.New(worker.Config{Name: "w", Slots: 256}, cp.Store(),
		hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: "w"}),
		jobs.NewTriggered(jobs.TriggeredFunc[json.RawMessage](func(context.Context, json.RawMessage) error {
			runs.Done()
			return nil
		}), jobs.Options{Key: "empty"}))
	if err != nil {
		b.Fatal(err)
	}
	all.Go(func() { _ = w.Run(ctx) })
	for w.Stats().Free == 0 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond)
	c := client.New(cp.Store(), nil, client.Config{})
	b.ReportAllocs()
	b.ResetTimer()
	runs.Add(b.N)
	for left := b.N; left > 0; left -= 1000 {
		requests := make([]jobs.Request, min(left, 1000))
		for i := range requests {
			requests[i] = jobs.Request{Key: "empty"}
		}
		if _, err := c.Enqueue(ctx, requests...); err != nil {
			b.Fatal(err)
		}
	}
	runs.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
}
