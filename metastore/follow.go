package metastore

import (
	"strings"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Runs that follow others: "on success run X", "on failure run Y". They are made in the commit that ends their parent,
// under IDs that follow from it, so that there is no moment in which a parent has ended and its children are not there,
// and no second set of them. What the job says when the run ends counts. A run that was cancelled or skipped has no
// children: nobody can say that it did what it should, or that it could not.

// next are the jobs that follow a run which has just ended, and what is missing of them is told in its last move. It is
// asked before the run is stored.
func (c *change) next(in *jobs.Instance) []*jobs.Definition {
	if in.State != jobs.Succeeded && in.State != jobs.Terminated {
		return nil
	}
	d := c.definition(in.Key)
	if d == nil || d.UID != in.Job {
		return nil
	}
	var next []*jobs.Definition
	var gone []string
	for _, key := range d.Policy.Follow(in.State) {
		if follower := c.definition(jobs.Key(key)); follower != nil {
			next = append(next, follower)
		} else {
			gone = append(gone, key)
		}
	}
	if len(gone) > 0 {
		last := &in.Moves[len(in.Moves)-1]
		text := "nothing follows: there is no job " + strings.Join(gone, ", ")
		if last.Text != "" {
			text = last.Text + "; " + text
		}
		last.Text = text[:min(len(text), 2048)]
	}
	return next
}

// follow begins the runs that follow one which has just ended.
func (c *change) follow(parent *jobs.Instance, next []*jobs.Definition) error {
	for _, d := range next {
		if now := c.definition(d.Key); now != nil { // the end of the parent may have paused it
			d = now
		}
		in := c.fresh(d, jobs.FromParent)
		in.ID, in.Parent, in.Depth, in.Due = jobs.ChildID(parent, d.Key), parent.ID, parent.Depth+1, c.at
		in.Actor, in.Trace = "run:"+parent.ID.String(), parent.Trace
		if c.instance(in.ID) != nil {
			continue
		}
		c.gatesOf(d, withArgs(in, d.Policy.Args))
		in.Args = jobs.ParentOf(parent).In(d.Policy.Args)
		in.Place = placed(d, nil, in.Args)
		if within := d.Policy.StartWithin; within > 0 {
			in.StartBy = in.Due.Add(within)
		}
		if why := c.stopped(d, in); why != "" {
			begun, err := in.Begin(c.at, "", c.at)
			if err != nil {
				return err
			}
			c.tally(&begun)
			if begun, err = begun.Skip(c.at, why, ""); err != nil {
				return err
			}
			c.store(&begun, jobs.Enqueued)
			continue
		}
		cause, until := c.held(in, d)
		if err := c.begin(in, cause, until); err != nil {
			return err
		}
	}
	return nil
}

// withArgs gives a run arguments. Its gates go by those of its job alone: what its parent says in them is not known
// before the parent ends, and a database has to know what a commit may touch.
func withArgs(in *jobs.Instance, args []byte) *jobs.Instance {
	in.Args = args
	return in
}

// stopped says why a run that would follow another is Skipped, or "".
func (c *change) stopped(d *jobs.Definition, in *jobs.Instance) jobs.Cause {
	switch p := d.Paused; {
	case in.Depth > jobs.MaxDepth:
		return jobs.ByDepth
	case d.Policy.Disabled:
		return jobs.ByDisabled
	case d.Kind == jobs.Triggered: // held, see there
	case c.global().RecurringDebug.On:
		return jobs.ByDebug
	case p != nil && (p.Until.IsZero() || p.Until.After(c.at)):
		return jobs.ByPause
	}
	return ""
}
