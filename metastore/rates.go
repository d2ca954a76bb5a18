package metastore

import (
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A rate counts starts. So a run spends one when it starts, and until then it is admitted: no more runs have slots than
// the rate would let start at once. Otherwise all that pass while no worker is there would start together when one
// comes. A broadcast spends one for all its parts when it is expanded, and a part that passes again, one.

// isPart reports whether a run is a part of a broadcast.
func isPart(run *kernel.Run) bool { return run.Place != nil && !run.Place.Group.IsZero() }

// admitted reports whether a run has a slot at one of its gates and has not started.
func admitted(run *kernel.Run, name string) bool {
	return run != nil && !isPart(run) && (run.Holds && run.Ready() || run.Reserved && kernel.Keyed(name))
}

// admit keeps the count of admitted runs of a run's gates, before its own row is put.
func (c *change) admit(run *kernel.Run) {
	before := c.live(run.ID)
	for _, name := range run.Gates {
		was, is := admitted(before, name), admitted(run, name)
		if was == is {
			continue
		}
		g := *c.gate(name, run)
		if g.Rate.Max == 0 {
			continue
		}
		if is {
			g.Admitted++
		} else {
			g.Admitted = max(0, g.Admitted-1) // it may be older than the rate
		}
		c.tx.Put(&g)
	}
}

// throttled is the first gate whose rate keeps a run that has its slots from starting, or "": the rate of a retry that
// kept its slots, or one that was lowered.
func (c *change) throttled(run *kernel.Run) string {
	if isPart(run) {
		return ""
	}
	for _, name := range run.Gates {
		if !c.gate(name, run).Starts(c.at) {
			return name
		}
	}
	return ""
}

// spend takes a start of each rate of a run, or gives it back, and wakes the run that waits there for it.
func (c *change) spend(run *kernel.Run, back bool) {
	for _, name := range run.Gates {
		if c.gate(name, run).Rate.Max == 0 {
			continue
		}
		g := *c.gate(name, run)
		if back {
			g.Unspend()
		} else {
			g.Spend(c.at)
		}
		c.tx.Put(&g)
		c.alarm(g.Ref())
	}
}

// yield stores a run that has its slots and waits at a gate again, for its rate, before all that wait there. It keeps
// the slots of its arguments as any other that waits.
func (c *change) yield(full string, run *kernel.Run) {
	run.Holds, run.Waits, run.Opens, run.First = false, full, time.Time{}, true
	run.Reserved = !kernel.Keyed(full) && slices.ContainsFunc(run.Gates, kernel.Keyed)
	c.store(run, run.State)
	for _, name := range run.Gates {
		if !run.Reserved || !kernel.Keyed(name) {
			c.vacate(name, run)
		}
	}
	for _, name := range run.Gates {
		if !run.Reserved || !kernel.Keyed(name) {
			c.hand(kernel.GateRef(run.Tenant, name), handPerCommand)
		}
	}
}

// alarm wakes the first run at a gate which only its rate keeps shut, when the gate opens.
func (c *change) alarm(ref kernel.Ref) {
	first := c.tx.First(ref)
	if first == nil {
		return
	}
	g := c.gate(ref.Name, first)
	if !g.Throttled(c.at) || first.Opens.Equal(g.Admits()) {
		return
	}
	run := *first
	run.Opens = g.Admits()
	c.put(&run)
	for i, r := range c.effect.Runs {
		if r.ID == run.ID {
			c.effect.Runs[i] = &run
			return
		}
	}
	c.effect.Runs = append(c.effect.Runs, &run)
}

// opened takes a run that waits at a gate, because its rate lets another one start.
func (c *change) opened(row *kernel.Run) error {
	if row.Opens.IsZero() {
		return c.existing(row)
	}
	if row.Opens.After(c.at) {
		return kernel.Refuse(jobs.Conflict, "run %s waits at %s until %s", row.ID, row.Waits, row.Opens.Format("2006-01-02T15:04:05.000Z07:00"))
	}
	run := *row
	run.Opens = time.Time{}
	c.store(&run, run.State)
	c.hand(kernel.GateRef(run.Tenant, run.Waits), handPerCommand)
	for i, r := range c.effect.Runs { // it may have got its slots
		if r.ID == run.ID && i > 0 {
			c.effect.Runs[0] = r
			c.effect.Runs = slices.Delete(c.effect.Runs, i, i+1)
			break
		}
	}
	return nil
}
