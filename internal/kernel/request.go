package kernel

import (
	"github.com/carillon-scheduler/carillon/jobs"
)

// CreateOf returns the command for a request.
func CreateOf(r jobs.Request) Create {
	return Create{ID: r.ID, Key: r.Key, Args: r.Args, Due: Instant(r.Due), Delay: r.Delay, Unique: r.Unique, UniqueFor: r.UniqueFor,
		Idempotency: r.Idempotency, Origin: FromCode, Priority: r.Priority, Retries: r.Retries, Timeout: r.Timeout, StartWithin: r.StartWithin, Pin: r.Worker, Batch: r.Batch}
}

// View returns a run as programs see it.
func (run *Run) View() jobs.Run {
	v := jobs.Run{ID: run.ID, Job: run.Key, State: run.State, Cause: string(run.Cause), Actor: run.Actor, Due: run.Due, Created: run.Created, Started: run.Started,
		Finished: run.Ended, Attempt: run.Attempt, Worker: run.Worker, Args: run.Args, Result: run.Result, Error: run.Error, Code: run.Code()}
	if n := len(run.Moves); n > 0 {
		switch last := &run.Moves[n-1]; run.State {
		case jobs.Cancelled:
			v.Error = (&jobs.CancelledError{By: last.By, Reason: run.Text(last)}).Error()
		case jobs.Skipped:
			v.Error = run.Text(last)
		}
	}
	return v
}
