package metastore

import (
	"github.com/carillon-scheduler/carillon/jobs"
)

// Slots. A run takes one at each of its gates when it becomes Enqueued, all or none; where a gate is full its
// overlap decides whether it is Skipped or waits there. A slot that becomes free is handed to the first who waits,
// in the command that frees it. So "how many run at once" is a number in a row, and nobody ever counts.

// Handing on is bounded, so that one command stays small; the sweep sees to the rest with Hand.
const (
	handPerCommand = 16
	handPerSweep   = 256
)

// gate is the row of a gate. One that was never used is made of the job's policy.
func (c *change) gate(name string, in *jobs.Instance) *jobs.Gate {
	if g, ok := c.tx.Get(jobs.GateRef(in.Tenant, name)).(*jobs.Gate); ok {
		return g
	}
	g := &jobs.Gate{Tenant: in.Tenant, Name: name}
	if d := c.definition(in.Key); d != nil && d.UID == in.Job {
		g.Limit = limitOf(d, name)
	}
	return g
}

// limitOf is what a job's policy says about a gate; 0 = no limit.
func limitOf(d *jobs.Definition, gate string) int {
	if gate == jobs.JobGate(d.UID) {
		return d.Policy.MaxConcurrency
	}
	for _, l := range d.Policy.Limits {
		if gate == jobs.LimitGate(l.Name) {
			return l.Max
		}
	}
	return 0
}

func free(g *jobs.Gate) bool { return g.Limit == 0 || g.Taken < g.Limit }

// full is the first gate at which a run finds no slot, or "". A gate at which others wait is full for newcomers.
func (c *change) full(in *jobs.Instance, newcomer bool) string {
	for _, name := range in.Gates {
		g := c.gate(name, in)
		if !free(g) || newcomer && c.tx.First(g.Ref()) != nil {
			return name
		}
	}
	return ""
}

func (c *change) take(in *jobs.Instance) {
	for _, name := range in.Gates {
		g := *c.gate(name, in)
		g.Taken++
		c.tx.Put(&g)
	}
	in.Holds, in.Waits = len(in.Gates) > 0, ""
}

// enter brings a run that has just become due to its gates, and stores it.
func (c *change) enter(in *jobs.Instance, from jobs.State) error {
	full := c.full(in, !in.First)
	switch {
	case full == "":
		c.take(in)
	case in.First || in.Terms.Overlap != jobs.OverlapSkip:
		in.Waits = full
		c.touch(full, in)
	default:
		skipped, err := in.Skip(c.at, jobs.ByOverlap, "no free slot at "+full)
		if err != nil {
			return err
		}
		*in = skipped
	}
	c.store(in, from)
	return nil
}

// touch makes sure that a gate somebody waits at has a row.
func (c *change) touch(name string, in *jobs.Instance) {
	if c.tx.Get(jobs.GateRef(in.Tenant, name)) == nil {
		c.tx.Put(c.gate(name, in))
	}
}

// leave stores a run that gives up its slots, and hands them on.
func (c *change) leave(in *jobs.Instance, from jobs.State) {
	held := in.Holds
	in.Holds, in.Waits = false, ""
	c.store(in, from)
	if !held {
		return
	}
	for _, name := range in.Gates {
		g := *c.gate(name, in)
		g.Taken = max(0, g.Taken-1)
		c.tx.Put(&g)
	}
	for _, name := range in.Gates {
		c.hand(jobs.GateRef(in.Tenant, name), handPerCommand)
	}
}

// hand gives the free slots of a gate to those who wait at it: at most tries of them. One for whom another gate is
// full moves there.
func (c *change) hand(ref jobs.Ref, tries int) {
	for ; tries > 0; tries-- {
		g, _ := c.tx.Get(ref).(*jobs.Gate)
		if g == nil || !free(g) {
			return
		}
		first := c.tx.First(ref)
		if first == nil {
			return
		}
		in := *first
		if late := !in.StartBy.IsZero() && c.at.After(in.StartBy); late && in.State == jobs.Enqueued {
			if skipped, err := in.Skip(c.at, jobs.ByDeadline, "no free slot by its start deadline"); err == nil {
				skipped.Waits = ""
				c.store(&skipped, jobs.Enqueued)
				continue
			}
		}
		if full := c.full(&in, false); full != "" {
			in.Waits = full
			c.touch(full, &in)
		} else {
			c.take(&in)
		}
		c.store(&in, in.State)
	}
}

func (c *change) handOn(k jobs.Hand) error {
	c.hand(jobs.GateRef(c.env.Tenant, k.Gate), handPerSweep)
	c.effect.Existing = len(c.effect.Instances) == 0
	return nil
}

// limits lets gates that are in use follow a job's policy.
func (c *change) limits(d *jobs.Definition) {
	c.limit(d.Tenant, jobs.JobGate(d.UID), d.Policy.MaxConcurrency)
	for _, l := range d.Policy.Limits {
		c.limit(d.Tenant, jobs.LimitGate(l.Name), l.Max)
	}
}

func (c *change) limit(tenant jobs.Tenant, name string, most int) {
	ref := jobs.GateRef(tenant, name)
	g, _ := c.tx.Get(ref).(*jobs.Gate)
	if g == nil || g.Limit == most {
		return
	}
	now := *g
	now.Limit = most
	c.tx.Put(&now)
	c.hand(ref, handPerCommand)
}
