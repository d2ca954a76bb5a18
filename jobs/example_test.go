package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Charge is a job with arguments. What it needs beside them would be in its fields.
type Charge struct{}

type ChargeArgs struct {
	Customer string `json:"customer" carillon:"search"` // its runs are found by args.customer = c7
	Cents    int    `json:"cents" jsonschema:"how much, in cents"`
}

func (Charge) Run(ctx context.Context, a ChargeArgs) error {
	if a.Cents <= 0 {
		return jobs.NoRetry(fmt.Errorf("cannot charge %d cents", a.Cents)) // another attempt would fail, too
	}
	jobs.Log(ctx).Info("charging", "customer", a.Customer)
	return jobs.Result(ctx, map[string]int{"charged": a.Cents})
}

var ChargeJob = jobs.Trigger[ChargeArgs]("billing.charge")

// A job with typed arguments, and runs of it: one that succeeds, one that fails for good, and one for later.
func ExampleTrigger() {
	ctx := context.Background()
	s, err := embed.Start(ctx, embed.Config{},
		jobs.NewTriggered(Charge{}, jobs.Options{Key: jobs.Key(ChargeJob), Retries: 3, RetryDelay: time.Second}))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Stop()
	c := s.Client() // or carillon.Dial, from another program

	for _, cents := range []int{990, -5} {
		receipt, err := ChargeJob.Enqueue(ctx, c, ChargeArgs{Customer: "c7", Cents: cents})
		if err != nil {
			log.Fatal(err)
		}
		run, err := c.Wait(ctx, receipt.ID)
		if err != nil && !errors.As(err, new(*jobs.RunError)) {
			log.Fatal(err)
		}
		fmt.Printf("%v after attempt %d: %s%s\n", run.State, run.Attempt, run.Result, run.Error)
	}
	for range 2 {
		later, err := ChargeJob.Enqueue(ctx, c, ChargeArgs{Customer: "c7", Cents: 990}, jobs.After(time.Hour), jobs.Unique("c7-2026-11"))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(later.State, later.Duplicate)
	}
	// Output:
	// Succeeded after attempt 1: {"charged":990}
	// Terminated after attempt 1: cannot charge -5 cents
	// Scheduled false
	// Scheduled true
}

// A handler that keeps where it is: the next attempt goes on there.
func ExampleSave() {
	done, attempts := 0, 0
	send := jobs.RecurringFunc(func(ctx context.Context) error {
		attempts++
		var next int
		if _, err := jobs.Load(ctx, &next); err != nil {
			return err
		}
		for ; next < 4; next++ {
			if next == 2 && jobs.Attempt(ctx).Number == 1 {
				return errors.New("the line is busy")
			}
			done++
			jobs.Progress(ctx, int64(next+1), 4, "letters")
			if err := jobs.Save(ctx, next+1); err != nil {
				return err
			}
		}
		return nil
	})
	ctx := context.Background()
	s, err := embed.Start(ctx, embed.Config{}, jobs.NewRecurring(send, jobs.Options{Key: "letters", Cron: "0 8 29 2 *", TimeZone: "Europe/Berlin", Retries: 1}))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Stop()
	run, err := s.Client().Enqueue(ctx, jobs.Request{Key: "letters"}) // not waiting for a leap day
	if err != nil {
		log.Fatal(err)
	}
	if _, err := s.Client().Wait(ctx, run[0].ID); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d letters in %d attempts\n", done, attempts)
	// Output: 4 letters in 2 attempts
}

// Why a handler's context has ended.
func ExampleErrTimeout() {
	_ = func(ctx context.Context) error {
		<-ctx.Done()
		var cancelled *jobs.CancelledError
		switch cause := context.Cause(ctx); {
		case errors.As(cause, &cancelled):
			jobs.Log(ctx).Info("stopped", "by", cancelled.By, "reason", cancelled.Reason)
		case errors.Is(cause, jobs.ErrTimeout), errors.Is(cause, jobs.ErrLeaseLost), errors.Is(cause, jobs.ErrShutdown):
			// What the next attempt should know is still kept, in spite of the ended context.
			return errors.Join(cause, jobs.Save(context.WithoutCancel(ctx), "where it was"))
		}
		return context.Cause(ctx)
	}
}

// Charged is the result of a charge.
type Charged struct {
	Charged int `json:"charged"`
}

// A typed result, and the error of a run that failed for good.
func ExampleCall() {
	ctx := context.Background()
	charge := jobs.Call[ChargeArgs, Charged]("billing.charge")
	s, err := embed.Start(ctx, embed.Config{}, jobs.NewTriggered(Charge{}, jobs.Options{Key: jobs.Key(charge)}))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Stop()

	result, err := charge.Do(ctx, s.Client(), ChargeArgs{Customer: "c7", Cents: 990})
	fmt.Println(result.Charged, err)

	_, err = charge.Do(ctx, s.Client(), ChargeArgs{Customer: "c7", Cents: -5})
	if failed, ok := errors.AsType[*jobs.RunError](err); ok {
		fmt.Println(failed.Run.State, "after attempt", failed.Run.Attempt, "with", failed.Run.Error)
	}
	// Output:
	// 990 <nil>
	// Terminated after attempt 1 with cannot charge -5 cents
}
