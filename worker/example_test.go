package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/membus"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/worker"
)

// trace logs when an attempt begins and how it ended. A real one would open a span, keep it in the context, and end it.
func trace(next worker.Handler) worker.Handler {
	return func(ctx context.Context, args []byte) error {
		at := jobs.Attempt(ctx)
		fmt.Printf("%s, attempt %d: begins with %s\n", at.Key, at.Number, args)
		err := next(ctx, args)
		fmt.Printf("%s, attempt %d: ends with %v\n", at.Key, at.Number, err)
		return err
	}
}

// Middleware goes around every handler of a worker: here, one that traces.
func ExampleConfig_middleware() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	hub := membus.New()
	cp, err := controlplane.New(controlplane.Config{
		Store: memstore.Open(memstore.Config{}),
		Bus:   hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "node"}),
	})
	if err != nil {
		log.Fatal(err)
	}
	go cp.Run(ctx)

	type charge struct{ Customer string }
	w, err := worker.New(worker.Config{Name: "w", Middleware: []func(worker.Handler) worker.Handler{trace}},
		cp.Store(), hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: "w"}),
		jobs.NewTriggered(jobs.TriggeredFunc[charge](func(ctx context.Context, c charge) error {
			if jobs.Attempt(ctx).Number == 1 {
				return errors.New("the bank does not answer")
			}
			return nil
		}), jobs.Options{Key: "charge", Retries: 1}))
	if err != nil {
		log.Fatal(err)
	}
	go w.Run(ctx)

	c := client.New(cp.Store(), nil, client.Config{})
	for { // until the worker has registered its jobs
		run, err := jobs.Trigger[charge]("charge").Enqueue(ctx, c, charge{"c7"})
		if errors.Is(err, jobs.NotFound) {
			time.Sleep(time.Millisecond)
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		if _, err := c.Wait(ctx, run.ID); err != nil {
			log.Fatal(err)
		}
		break
	}
	// Output:
	// charge, attempt 1: begins with {"Customer":"c7"}
	// charge, attempt 1: ends with the bank does not answer
	// charge, attempt 2: begins with {"Customer":"c7"}
	// charge, attempt 2: ends with <nil>
}
