package metastore

import (
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Broadcasts. A run of a broadcast passes its gates as one run. When it is ready the leader names the workers,
// which only the leader knows: then it becomes one run for each. Its slots are taken until the last of those has
// given them up; a row counts the rest.

// placed returns the worker that a new run is for, if any.
func placed(d *kernel.Definition, k *kernel.Create, args []byte) *kernel.Place {
	at := kernel.PlaceOf(d, args)
	if k == nil || k.Pin == "" && k.Total == 0 {
		return at
	}
	p := kernel.Place{Route: jobs.RouteAny, PinAway: jobs.PinWait}
	if at != nil {
		p = *at
	}
	switch {
	case k.Total > 0:
		p.Route, p.Index, p.Total, p.PinAway = jobs.RouteBroadcast, k.Index, k.Total, jobs.PinAny
	case p.Route == jobs.RouteBroadcast:
		p.Route = jobs.RouteAny // the request names this worker alone
	}
	if k.Pin != "" {
		p.Pin = k.Pin
	}
	return &p
}

func (c *change) expand(k kernel.Expand) error {
	row, err := c.run(k.ID)
	if err != nil {
		return err
	}
	if !row.Place.Unexpanded() || row.Held() {
		return c.existing(row)
	}
	if !row.Ready() {
		return kernel.Refuse(jobs.Conflict, "run %s is %s and cannot be expanded", row.ID, row.State)
	}
	run := *row
	if held, err := c.hold(&run); held || err != nil {
		return err
	}
	if len(k.Workers) == 0 {
		if run, err = run.Skip(c.at, kernel.ByNoWorker, ""); err != nil {
			return err
		}
		c.leave(&run, jobs.Enqueued)
		return nil
	}
	part := func(n int) *kernel.Place {
		p := *row.Place
		p.Index, p.Total, p.Group, p.Pin, p.PinAway = uint32(n), uint32(len(k.Workers)), row.ID, k.Workers[n], jobs.PinAny
		return &p
	}
	run.Place = part(0)
	c.store(&run, jobs.Enqueued)
	c.spend(&run, false)
	holding := 1
	for n := 1; n < len(k.Workers); n++ {
		s := *row
		s.ID, s.Place, s.Parent, s.Unique = kernel.PartID(row, uint32(n)), part(n), row.ID, ""
		if c.live(s.ID) != nil {
			continue
		}
		s.State, s.Moves, s.Created = kernel.New, nil, c.at
		if s, err = s.Enqueue(c.at); err != nil {
			return err
		}
		c.addTo(c.batch(s.Batch))
		c.store(&s, kernel.New)
		holding++
	}
	if row.Holds {
		c.tx.Put(&kernel.Gate{Tenant: row.Tenant, Name: kernel.PartsGate(row.ID), Taken: holding})
	}
	return nil
}

// parts is how many parts of a run's broadcast have its slots; nil = it is no part, or its job has no gates.
func (c *change) parts(run *kernel.Run) *kernel.Gate {
	if run.Place == nil || run.Place.Group.IsZero() || len(run.Gates) == 0 {
		return nil
	}
	name := kernel.PartsGate(run.Place.Group)
	if g, ok := c.tx.Get(kernel.GateRef(run.Tenant, name)).(*kernel.Gate); ok {
		return new(*g)
	}
	return &kernel.Gate{Tenant: run.Tenant, Name: name}
}

// partIn counts a part that gets slots, and reports whether the others have them already.
func (c *change) partIn(run *kernel.Run) bool {
	g := c.parts(run)
	if g == nil {
		return false
	}
	g.Taken++
	c.tx.Put(g)
	return g.Taken > 1
}

// partOut counts a part that gives up its slots, and reports whether others still have them.
func (c *change) partOut(run *kernel.Run) bool {
	g := c.parts(run)
	if g == nil {
		return false
	}
	if g.Taken--; g.Taken > 0 {
		c.tx.Put(g)
		return true
	}
	c.tx.Delete(g.Ref())
	return false
}

// drain writes who drained a worker. The worker reports its own state, so the last audit shows whether the command is
// repeated.
func (c *change) drain(k kernel.Drain) error {
	target, is := "worker "+k.Worker, fields{"drained": k.On}
	if a := c.lastAudit(); a != nil && a.Verb == k.Verb().String() && a.Target == target && a.Actor == c.env.Actor && string(a.After) == string(is.json()) {
		c.effect.Existing = true
		return nil
	}
	c.audit(target, fields{"drained": !k.On}, is)
	return nil
}

// mark notes that no worker serves a job any more, or that one does again. The job's settings stay.
func (c *change) mark(k kernel.Mark) error {
	row, err := c.job(k.Key)
	if err != nil {
		return err
	}
	if row.Stopped.IsZero() != k.Stopped {
		return c.same(row)
	}
	d := *row
	d.Stopped = time.Time{}
	if k.Stopped {
		d.Stopped = c.at
	}
	d.Change = c.number()
	c.tx.Put(&d)
	c.effect.Definitions = append(c.effect.Definitions, &d)
	c.audit(jobTarget(k.Key), fields{"stopped": !k.Stopped}, fields{"stopped": k.Stopped})
	return nil
}
