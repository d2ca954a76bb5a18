package metastore

import (
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/sabotage"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A run that would begin in a pause or a debug mode is held: it is Scheduled, without slots, until Release has it go on.

// held returns why a run may not begin now, and until when (zero: until it is released). A run that is requested or
// released by hand may. d is its job, or nil: the runs of a deleted job continue.
func (c *change) held(run *kernel.Run, d *kernel.Definition) (why kernel.Cause, until time.Time) {
	if run.Origin.ByHand() || run.Forced {
		return "", time.Time{}
	}
	if d != nil && d.UID == run.Job && d.Holds(c.at) {
		return kernel.ByPause, d.Paused.Until
	}
	if c.global().DebugOf(run.Kind).On {
		return kernel.ByDebug, time.Time{}
	}
	return "", time.Time{}
}

func (c *change) release(k kernel.Release) error {
	row, err := c.run(k.ID)
	if err != nil {
		return err
	}
	run := *row
	switch {
	case run.Waits != "":
		if k.Force {
			return c.existing(row)
		}
		return c.opened(row)
	case run.State == jobs.Scheduled:
		return c.wake(row, k.Force)
	case run.State == jobs.Failed && !run.RetryAt.IsZero() && !run.Lingering:
		if run.RetryAt.After(c.at) && !k.Force {
			return kernel.Refuse(jobs.Conflict, "the retry of run %s is due at %s, not yet", run.ID, run.RetryAt.Format("2006-01-02T15:04:05.000Z07:00"))
		}
		if !k.Force && !c.budgeted(&run) {
			c.store(&run, jobs.Failed)
			return nil
		}
		run = run.Retry()
		if err := c.enter(&run, jobs.Failed); err != nil {
			return err
		}
		if k.Force && c.byPerson() {
			c.auditRun(&run, nil)
		}
		return nil
	}
	return c.existing(row)
}

// wake brings a Scheduled run to its gates, if nothing holds it. By force it comes there at once.
func (c *change) wake(row *kernel.Run, force bool) error {
	run, held := *row, row.Held()
	if at := run.Wake(); !held && !force && at.After(c.at) && !sabotage.Off(sabotage.NotEarly) {
		return kernel.Refuse(jobs.Conflict, "run %s is due at %s, not yet", run.ID, at.Format("2006-01-02T15:04:05.000Z07:00"))
	}
	run.Forced = run.Forced || force
	d := c.definition(run.Key)
	missed := held && run.Origin.Automatic() && !run.Due.After(c.at)
	why, until := c.held(&run, d)
	after := c.afterHold(&run, d)
	ended := held && run.Cause != why
	switch {
	case force:
	case ended && missed && run.Cause == kernel.ByPause && (after.From.IsZero() || run.Due.Before(after.From)):
		return c.unbegun(&run, kernel.ByPause) // as the due times of the pause
	case ended && after.Discard && !(missed && run.Cause == kernel.ByPause):
		return c.discard(&run, after.By)
	case why != "" && run.Cause == why && run.RetryAt.Equal(until):
		return c.existing(row)
	case why != "":
		run.Cause, run.RetryAt = why, until
		c.store(&run, run.State)
		return nil
	}
	if !run.StartBy.IsZero() && c.at.After(run.StartBy) {
		return c.unbegun(&run, kernel.ByDeadline)
	}
	if missed { // it makes up for its due time, and is not skipped for others that do
		run.Late = true
		if run.Terms.Overlap != jobs.OverlapReplace {
			run.Terms.Overlap = jobs.OverlapQueue
		}
	}
	if err := c.queue(&run); err != nil {
		return err
	}
	if err := c.enter(&run, jobs.Enqueued); err != nil {
		return err
	}
	if force && c.byPerson() {
		c.auditRun(&run, nil)
	}
	return nil
}

// afterHold returns what a person decided about the runs that what holds a run held.
func (c *change) afterHold(run *kernel.Run, d *kernel.Definition) kernel.AfterPause {
	switch {
	case run.Cause == kernel.ByDebug:
		mode := c.global().DebugOf(run.Kind)
		return kernel.AfterPause{Discard: mode.Discard, By: mode.By}
	case d != nil && d.UID == run.Job && d.AfterPause != nil:
		return *d.AfterPause
	}
	return kernel.AfterPause{}
}

// discard cancels a held run.
func (c *change) discard(run *kernel.Run, by string) error {
	from := run.State
	cancelled, err := run.Cancel(c.at, by, "")
	if err == nil {
		*run = cancelled
		c.leave(run, from)
	}
	return err
}

// queue makes a Scheduled run Enqueued. It counts as due the first time.
func (c *change) queue(run *kernel.Run) (err error) {
	first := run.Queued.IsZero()
	if *run, err = run.Enqueue(c.at); err == nil && first {
		c.tally(run)
	}
	return err
}

// unbegun ends a Scheduled run that never begins. No run is replaced for it.
func (c *change) unbegun(run *kernel.Run, why kernel.Cause) error {
	if err := c.queue(run); err != nil {
		return err
	}
	skipped, err := run.Skip(c.at, why, "")
	if err == nil {
		*run = skipped
		c.store(run, jobs.Enqueued)
	}
	return err
}

// hold has a run that is Enqueued wait, without slots, if it is not to begin now, and reports whether it does.
func (c *change) hold(run *kernel.Run) (bool, error) {
	if run.State != jobs.Enqueued {
		return false, nil // a run that has begun goes on
	}
	why, until := c.held(run, c.definition(run.Key))
	if why == "" {
		return false, nil
	}
	held, err := run.Hold(c.at, why, until)
	if err == nil {
		*run = held
		c.leave(run, jobs.Enqueued)
	}
	return true, err
}
