package kernel

import (
	"strings"

	"github.com/carillon-scheduler/carillon/jobs"
)

// CreateOf returns the command for a request.
func CreateOf(r jobs.Request) Create {
	return Create{ID: r.ID, Key: r.Key, Args: r.Args, Due: Instant(r.Due), Delay: r.Delay, Unique: r.Unique, UniqueFor: r.UniqueFor,
		Idempotency: r.Idempotency, Origin: FromCode, Priority: r.Priority, Retries: r.Retries, Timeout: r.Timeout, StartWithin: r.StartWithin, Pin: r.Worker, Batch: r.Batch}
}

// CheckOutboxed returns why an envelope may not be in an outbox, or nil: a program that can write to that may request
// runs, and nothing else.
func (e *Envelope) CheckOutboxed() error {
	k, ok := e.Command.(Create)
	switch {
	case !ok:
		return Refuse(jobs.Forbidden, "the outbox takes requests for runs only, not %s", e.Command.Verb())
	case k.Origin != "" && k.Origin != FromCode, !k.Parent.IsZero(), k.Total > 0, IsDerived(k.ID), e.Reason != "":
		return Refuse(jobs.Forbidden, "the outbox takes requests of programs only: their runs have no parent, no reason and an ID of their own")
	case !strings.HasPrefix(e.Actor, "client:"):
		return Refuse(jobs.Forbidden, "the outbox takes requests of programs only: the actor %.60q is not like client:shop", e.Actor)
	case SystemKey(k.Key):
		return Refuse(jobs.Forbidden, "only the scheduler starts runs of %s", k.Key)
	}
	return nil
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
