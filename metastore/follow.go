package metastore

import (
	"cmp"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Runs that follow others: "on success run X", "on failure run Y". They are made in the commit that ends their
// parent, under IDs computed from its own, so no parent ends without its children and no child is made twice. The
// job's policy at the end of the run counts. A cancelled or skipped run has no children: it neither succeeded nor
// failed.

// next returns the jobs that follow a run which has just ended, and notes missing ones in the run's last move. It is
// called before the run is stored.
func (c *change) next(run *kernel.Run) []*kernel.Definition {
	if run.State != jobs.Succeeded && run.State != jobs.Terminated {
		return nil
	}
	d := c.definition(run.Key)
	if d == nil || d.UID != run.Job {
		return nil
	}
	var next []*kernel.Definition
	var gone []string
	for _, key := range d.Policy.Follow(run.State) {
		if follower := c.definition(jobs.Key(key)); follower != nil {
			next = append(next, follower)
		} else {
			gone = append(gone, key)
		}
	}
	if len(gone) > 0 {
		last := &run.Moves[len(run.Moves)-1]
		text := "nothing follows: there is no job " + strings.Join(gone, ", ")
		if last.Text != "" {
			text = last.Text + "; " + text
		}
		last.Text = text[:min(len(text), 2048)]
	}
	return next
}

// follow begins the runs that follow one which has just ended.
func (c *change) follow(parent *kernel.Run, next []*kernel.Definition) error {
	for _, d := range next {
		if now := c.definition(d.Key); now != nil { // the end of the parent may have paused it
			d = now
		}
		args := kernel.WithParent(d.Policy.Args, kernel.ParentOf(parent))
		if err := c.child(parent, d, kernel.ChildID(parent, d.Key), args, parent.OccasionName()); err != nil {
			return err
		}
	}
	return nil
}

// child begins a run of a job that follows another run, for an occasion.
func (c *change) child(parent *kernel.Run, d *kernel.Definition, id jobs.ID, args []byte, occasion string) error {
	if c.live(id) != nil {
		return nil
	}
	run := c.fresh(d, kernel.FromParent)
	run.ID, run.Parent, run.Depth, run.Due = id, parent.ID, parent.Depth+1, c.at
	run.Actor, run.Trace, run.Occasion = "run:"+parent.ID.String(), parent.Trace, occasion
	c.gatesOf(d, withArgs(run, d.Policy.Args))
	run.Args = args
	return c.enterNew(run, d)
}

// enterNew begins a run that a commit causes, or ends it as Skipped if its job does not run now.
func (c *change) enterNew(run *kernel.Run, d *kernel.Definition) error {
	run.Place = placed(d, nil, run.Args)
	if within := d.Policy.StartWithin; within > 0 {
		run.StartBy = run.Due.Add(within)
	}
	if why := c.stopped(d, run); why != "" {
		begun, err := run.Begin(c.at, "", c.at)
		if err != nil {
			return err
		}
		c.tally(&begun)
		c.executes(d, &begun)
		if begun, err = begun.Skip(c.at, why, ""); err != nil {
			return err
		}
		c.store(&begun, jobs.Enqueued)
		return nil
	}
	cause, until := c.held(run, d)
	c.executes(d, run)
	return c.begin(run, cause, until)
}

// withArgs gives a run arguments. Only its job's gates apply to it: the parent's arguments are unknown before the
// parent ends, and a database has to know which rows a commit may touch.
func withArgs(run *kernel.Run, args []byte) *kernel.Run {
	run.Args = args
	return run
}

// stopped returns why a run that would follow another is Skipped, or "".
func (c *change) stopped(d *kernel.Definition, run *kernel.Run) kernel.Cause {
	switch {
	case run.Depth > kernel.MaxDepth:
		return kernel.ByDepth
	case d.Policy.Disabled:
		return kernel.ByDisabled
	case c.tx.Live(d.Tenant, jobs.Scheduled)+c.tx.Live(d.Tenant, jobs.Enqueued) >= cmp.Or(c.global().Tenancy.Limits.Waiting, kernel.MaxBeforeFollowers):
		return kernel.ByBacklog
	case d.Kind == kernel.Triggered: // held, see there
	case c.global().RecurringDebug.On:
		return kernel.ByDebug
	case d.Holds(c.at):
		return kernel.ByPause
	}
	return ""
}
