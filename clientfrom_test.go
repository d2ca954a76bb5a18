package carillon_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// A handler finds a client in its context: it enqueues a run, as a child of its own, and waits for its result.
func TestClientInAHandler(t *testing.T) {
	_, address := serve(t)
	c, err := carillon.Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()

	child := jobs.Call[charge, string]("billing.charge")
	parent := jobs.Call[charge, string]("billing.order")
	w, err := carillon.NewWorker(address, worker.Config{App: "billing", Name: "w1", Slots: 4},
		jobs.NewTriggered(jobs.TriggeredFunc[charge](func(ctx context.Context, c charge) error {
			if c.Customer == "" {
				return jobs.NoRetry(jobs.Fail("no_customer", errors.New("no customer")))
			}
			return jobs.Result(ctx, c.Customer+" paid")
		}), jobs.Options{Key: jobs.Key(child)}),
		jobs.NewTriggered(jobs.TriggeredFunc[charge](func(ctx context.Context, c charge) error {
			paid, err := child.Do(ctx, carillon.ClientFrom(ctx), c)
			if err != nil {
				return err
			}
			return jobs.Result(ctx, "sent: "+paid)
		}), jobs.Options{Key: jobs.Key(parent), Retries: jobs.None}))
	if err != nil {
		t.Fatal(err)
	}
	background(t, w.Run)

	var got string
	for got == "" { // the worker may still be registering its jobs
		if got, err = parent.Do(ctx, c, charge{"c7"}); err != nil && (!errors.Is(err, jobs.NotFound) || ctx.Err() != nil) {
			t.Fatal(err)
		}
	}
	if got != "sent: c7 paid" {
		t.Errorf("the result is %q", got)
	}
	_, err = parent.Do(ctx, c, charge{})
	failed, ok := errors.AsType[*jobs.RunError](err)
	if !ok || failed.Run.State != jobs.Terminated || failed.Run.Job != jobs.Key(parent) {
		t.Errorf("an order without a customer: %v", err)
	}
	if _, err := carillon.ClientFrom(ctx).Enqueue(ctx, jobs.Request{Key: "billing.charge"}); !errors.Is(err, jobs.ErrNotRunning) {
		t.Errorf("outside a worker: %v", err)
	}
}
