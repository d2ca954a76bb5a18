package metastore

import (
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Broadcasts. A run of a broadcast passes its gates as one, and when it can be claimed the leader names the workers, of
// which only it knows: then it becomes one run for each. Its slots are held until the last of those has given them up;
// a row counts how many have not.

// placed says which worker a new run may go to.
func placed(d *jobs.Definition, k *jobs.Create, args []byte) *jobs.Place {
	at := jobs.PlaceOf(d, args)
	if k == nil || k.Pin == "" && k.Shards == 0 {
		return at
	}
	p := jobs.Place{Route: jobs.RouteAny, PinAway: jobs.PinWait}
	if at != nil {
		p = *at
	}
	switch {
	case k.Shards > 0:
		p.Route, p.Shard, p.Shards, p.PinAway = jobs.RouteBroadcast, k.Shard, k.Shards, jobs.PinAny
	case p.Route == jobs.RouteBroadcast:
		p.Route = jobs.RouteAny // somebody wants it on this worker alone
	}
	if k.Pin != "" {
		p.Pin = k.Pin
	}
	return &p
}

func (c *change) spread(k jobs.Spread) error {
	row, err := c.run(k.ID)
	if err != nil {
		return err
	}
	if !row.Place.Unspread() {
		return c.existing(row)
	}
	if !row.Offerable() {
		return jobs.Refuse(jobs.Conflict, "run %s is %s and cannot be spread", row.ID, row.State)
	}
	in := *row
	if len(k.Workers) == 0 {
		if in, err = in.Skip(c.at, jobs.ByNobody, ""); err != nil {
			return err
		}
		c.leave(&in, jobs.Enqueued)
		return nil
	}
	shard := func(n int) *jobs.Place {
		p := *row.Place
		p.Shard, p.Shards, p.Group, p.Pin, p.PinAway = uint32(n), uint32(len(k.Workers)), row.ID, k.Workers[n], jobs.PinAny
		return &p
	}
	in.Place = shard(0)
	c.store(&in, jobs.Enqueued)
	holding := 1
	for n := 1; n < len(k.Workers); n++ {
		s := *row
		s.ID, s.Place, s.Parent, s.Unique = jobs.ShardID(row, uint32(n)), shard(n), row.ID, ""
		if c.instance(s.ID) != nil {
			continue
		}
		s.State, s.Moves, s.Created = jobs.New, nil, c.at
		if s, err = s.Enqueue(c.at); err != nil {
			return err
		}
		c.store(&s, jobs.New)
		holding++
	}
	if row.Holds {
		c.tx.Put(&jobs.Gate{Tenant: row.Tenant, Name: jobs.ShardsGate(row.ID), Taken: holding})
	}
	return nil
}

// shards is how many shards of a run's broadcast hold its slots; nil = it is no shard, or its job has no gates.
func (c *change) shards(in *jobs.Instance) *jobs.Gate {
	if in.Place == nil || in.Place.Group.IsZero() || len(in.Gates) == 0 {
		return nil
	}
	name := jobs.ShardsGate(in.Place.Group)
	if g, ok := c.tx.Get(jobs.GateRef(in.Tenant, name)).(*jobs.Gate); ok {
		return new(*g)
	}
	return &jobs.Gate{Tenant: in.Tenant, Name: name}
}

// shardIn counts a shard that gets slots, and says whether the others hold them already.
func (c *change) shardIn(in *jobs.Instance) bool {
	g := c.shards(in)
	if g == nil {
		return false
	}
	g.Taken++
	c.tx.Put(g)
	return g.Taken > 1
}

// shardOut counts a shard that gives up its slots, and says whether others go on holding them.
func (c *change) shardOut(in *jobs.Instance) bool {
	g := c.shards(in)
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

// drain writes who had a worker take nothing new. How it stands, it says itself.
func (c *change) drain(k jobs.Drain) error {
	c.audit("worker "+k.Worker, fields{"drained": !k.On}, fields{"drained": k.On})
	return nil
}

// mark notes that no worker has a job any more, or that one has it again. What holds for it stays as it is.
func (c *change) mark(k jobs.Mark) error {
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
