package workertest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
	"github.com/carillon-scheduler/carillon/worker/workertest"
)

var t *testing.T // of the test

// Run a handler once, and look at what it returned and reported.
func ExampleRun() {
	type order struct{ Cents int }
	charge := jobs.NewTriggered(jobs.TriggeredFunc[order](func(ctx context.Context, o order) error {
		if o.Cents <= 0 {
			return jobs.NoRetry(jobs.Fail("nothing_to_charge", errors.New("nothing to charge")))
		}
		return jobs.Result(ctx, o.Cents)
	}), jobs.Options{Key: "billing.charge"})

	a := workertest.Run(t, charge, order{Cents: 0}, workertest.Options{})
	if !a.Final || a.Code != "nothing_to_charge" {
		t.Errorf("an order of nothing: %v", a.Err)
	}
}

// Play a day of a schedule in virtual time.
func ExampleBubble() {
	workertest.Bubble(t, func(t *testing.T, c *workertest.Carillon) {
		n := 0
		c.Start(worker.Config{}, jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error {
			n++
			return nil
		}), jobs.Options{Key: "billing.remind", Cron: "0 9-17 * * *"}))
		c.Pass(24 * time.Hour)
		if n != 9 {
			t.Errorf("reminded %d times in a day, want 9", n)
		}
	})
}
