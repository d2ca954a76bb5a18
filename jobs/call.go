package jobs

import (
	"context"
	"encoding/json"
	"fmt"
)

// Call is a Trigger whose runs have a typed result: what the handler passes to [Result].
//
//	var ChargeJob = jobs.Call[ChargeArgs, Charged]("billing.charge")
//	charged, err := ChargeJob.Do(ctx, c, ChargeArgs{Customer: "c7"})
type Call[A, R any] Key

// Caller sends requests and waits for runs: a client of package client is one.
type Caller interface {
	Enqueuer
	// Wait waits until the run is finished. The error is a *RunError if it did not succeed.
	Wait(ctx context.Context, id ID) (Run, error)
}

// Enqueue requests one run, as [Trigger.Enqueue] does.
func (c Call[A, R]) Enqueue(ctx context.Context, to Enqueuer, args A, options ...EnqueueOption) (Receipt, error) {
	return Trigger[A](c).Enqueue(ctx, to, args, options...)
}

// Wait waits until a run is finished, and returns its result. The error is a *RunError if the run did not succeed.
func (c Call[A, R]) Wait(ctx context.Context, from Caller, id ID) (result R, err error) {
	run, err := from.Wait(ctx, id)
	if err != nil || len(run.Result) == 0 {
		return result, err
	}
	if err := json.Unmarshal(run.Result, &result); err != nil {
		return result, fmt.Errorf("result of run %s of %s: %w", id, run.Job, err)
	}
	return result, nil
}

// Do requests one run and waits for its result. It returns no receipt: to repeat a request under its ID after the error
// [Unknown], use Enqueue and Wait instead.
func (c Call[A, R]) Do(ctx context.Context, to Caller, args A, options ...EnqueueOption) (result R, err error) {
	receipt, err := c.Enqueue(ctx, to, args, options...)
	if err != nil {
		return result, err
	}
	return c.Wait(ctx, to, receipt.ID)
}
