package metastore

import (
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

func (c *change) expect(k kernel.Expect) error {
	row, err := c.own(k.ID, k.Worker, k.Attempt)
	if err != nil {
		return err
	}
	switch f := row.Feedback; {
	case row.State != jobs.Processing:
		return kernel.Refuse(jobs.Conflict, "run %s is %s: attempt %d has ended", row.ID, row.State, k.Attempt)
	case f != nil && f.Attempt == k.Attempt && string(f.Key) == string(k.Key):
		return c.existing(row)
	}
	run := row.Expect(k)
	c.store(&run, run.State)
	return nil
}

// notify begins the run that delivers a notification. It is the only way to a run of a system job.
func (c *change) notify(k kernel.Notify) error {
	of, err := c.own(k.Run, k.Worker, k.Attempt)
	if err != nil {
		return err
	}
	if of.Settled() { // the stub that remains would not do
		return kernel.Refuse(jobs.Conflict, "run %s is %s: its notifications come before its end", of.ID, of.State)
	}
	if of.App != k.App {
		return kernel.Refuse(jobs.Forbidden, "run %s is of app %s, not %s", of.ID, of.App, k.App)
	}
	id := k.ID(c.env.Tenant)
	if run := c.live(id); run != nil {
		return c.made(run, k.Key())
	}
	return c.ask(kernel.Create{ID: id, Key: k.Key(), Args: k.Args(of), Origin: kernel.FromParent, Parent: of.ID})
}

func (c *change) report(k kernel.Report) error {
	row, err := c.run(k.ID)
	if jobs.CodeOf(err) == jobs.NotFound && err != nil {
		return kernel.ErrNotSigned // an unauthorized sender learns nothing about runs
	}
	if err != nil {
		return err
	}
	run, again, err := row.Report(k)
	if err != nil {
		return err
	}
	if again {
		return c.existing(row)
	}
	c.store(&run, run.State)
	return nil
}
