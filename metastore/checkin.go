package metastore

import (
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// checkIn stores a run that has ended elsewhere. It needs no slots, and a pause or debug mode does not hold it: it is
// over.
func (c *change) checkIn(k kernel.CheckIn) error {
	if row := c.live(k.ID); row != nil {
		return c.made(row, k.Key)
	}
	if err := c.suspended(); err != nil {
		return err
	}
	if k.Idempotency != "" {
		before, err := c.requested(k.Idempotency, k.Digest())
		if err != nil {
			return err
		}
		if before != nil {
			return c.existing(c.known(before.ID, k.Key))
		}
	}
	d, err := c.job(k.Key)
	switch {
	case err != nil:
		return err
	case d.Kind != kernel.Triggered:
		return kernel.Refuse(jobs.Conflict, "job %s is recurring: its runs are started here; only a triggered job can check in", k.Key)
	case d.Policy.Work() != "":
		return kernel.Refuse(jobs.Conflict, "runs of job %s are started here: only a job without HTTP requests or a command can check in", k.Key)
	case d.Policy.Disabled:
		return kernel.Refuse(jobs.Conflict, "job %s is disabled", k.Key)
	}
	fresh := c.fresh(d, kernel.FromAPI)
	fresh.ID, fresh.Due, fresh.Terms.Retries = k.ID, c.at.Add(-k.Took), 0
	run, err := fresh.Begin(c.at, "", c.at)
	if err != nil {
		return err
	}
	if k.Idempotency != "" {
		c.bind(k.Idempotency, k.ID, k.Digest())
	}
	c.tally(&run)
	if run, err = run.Start(c.at, kernel.CheckInWorker); err != nil {
		return err
	}
	run.Started, run.Deadline = fresh.Due, fresh.Deadline
	if k.Failed {
		run, err = run.Fail(c.at, kernel.ByError, "", k.Error, 0, false)
	} else {
		run, err = run.Succeed(c.at, k.Result)
	}
	if err != nil {
		return err
	}
	next := c.next(&run)
	c.store(&run, jobs.Processing)
	return c.follow(&run, next)
}
