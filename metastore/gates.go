package metastore

import (
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/sabotage"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Slots. A run takes one at each of its gates when it becomes Enqueued, all or none; where a gate is full its overlap
// decides whether it is Skipped or waits there. The command that frees a slot gives it to the first run that waits.
// So "how many run at once" is a number in a row, and no command counts runs.
//
// Gates of arguments come first: a run that waits at another gate keeps its slots there meanwhile. So of each value
// only as many runs wait for shared limits as may be under way, and a customer with ten thousand runs is one among
// others. No run that has a slot waits for a gate of arguments, so there are no deadlocks.

// The number of slots that one command passes on is limited; the sweep does the rest with Hand.
const (
	handPerCommand = 16
	handPerSweep   = 256
)

// gate is the row of a gate. One that was never used is made of the job's policy. Gates of arguments follow the
// policy when they are used, since no row lists them.
func (c *change) gate(name string, run *kernel.Run) *kernel.Gate {
	g, ok := c.tx.Get(kernel.GateRef(run.Tenant, name)).(*kernel.Gate)
	if ok && !kernel.Keyed(name) {
		return g
	}
	limit, known := c.bound(name, run)
	switch {
	case !ok:
		return &kernel.Gate{Tenant: run.Tenant, Name: name, Limit: limit.Max, Rate: limit.Rate}
	case known:
		return g.Under(limit)
	}
	return g
}

// bound is the current limit of a gate of a run, and whether any policy sets one.
func (c *change) bound(name string, run *kernel.Run) (jobs.Limit, bool) {
	if app, ok := strings.CutPrefix(name, kernel.AppGate("")); ok {
		return limitOfApp(c.global(), app), true
	}
	if n, ok := kernel.BackfillOf(name); ok {
		return jobs.Limit{Max: n}, true
	}
	if key, _, keyed := kernel.KeyOf(name); keyed {
		g, ok := c.tx.Get(kernel.GateRef(run.Tenant, kernel.BoundGate(key))).(*kernel.Gate)
		if !ok {
			return jobs.Limit{}, false
		}
		return g.Bound(), true
	}
	switch d := c.row(run.Key); {
	case d == nil:
	case name == kernel.JobGate(run.Job): // of the job, or of a later one under its key
		return jobs.Limit{Max: d.Policy.MaxConcurrency, Rate: d.Policy.Rate}, true
	case d.UID == run.Job:
		for _, l := range d.Policy.Limits {
			if l.By == "" && name == kernel.LimitGate(l.Name) {
				return l, true
			}
		}
	}
	return jobs.Limit{}, false
}

func limitOfApp(g *kernel.Global, app string) jobs.Limit {
	for _, l := range g.AppLimits {
		if l.Name == app {
			return l
		}
	}
	return jobs.Limit{}
}

// gatesOf are the gates of a new run of a job, in the order of their names.
func (c *change) gatesOf(d *kernel.Definition, run *kernel.Run) {
	p := &d.Policy
	if p.MaxConcurrency > 0 || p.Rate.Max > 0 {
		run.Gates = append(run.Gates, kernel.JobGate(d.UID))
	}
	for i := range p.Limits {
		run.Gates = append(run.Gates, kernel.GateOf(&p.Limits[i], run.Args))
	}
	if g := c.global(); len(g.AppLimits) > 0 && limitOfApp(g, run.App).Name != "" {
		run.Gates = append(run.Gates, kernel.AppGate(run.App))
	}
	slices.Sort(run.Gates)
	run.Gates = slices.Compact(run.Gates)
}

// full is the first gate at which a run finds no slot, or "". A gate at which others wait is full for newcomers.
func (c *change) full(run *kernel.Run, newcomer bool) string {
	if sabotage.Off(sabotage.Gate) {
		return ""
	}
	if g := c.parts(run); g != nil && g.Taken > 0 {
		return "" // the other parts have the slots
	}
	for _, keyed := range [...]bool{true, false} {
		if keyed && run.Reserved {
			continue
		}
		for _, name := range run.Gates {
			if kernel.Keyed(name) != keyed {
				continue
			}
			g := c.gate(name, run)
			if !g.Free(c.at) || newcomer && c.tx.First(g.Ref()) != nil {
				return name
			}
		}
	}
	return ""
}

// take gives a run its slots at all gates.
func (c *change) take(run *kernel.Run) {
	reserved := run.Reserved
	run.Holds, run.Reserved, run.Waits, run.Opens = len(run.Gates) > 0, false, "", time.Time{}
	if c.partIn(run) {
		return
	}
	for _, name := range run.Gates {
		if !reserved || !kernel.Keyed(name) {
			c.occupy(name, run)
		}
	}
}

func (c *change) occupy(name string, run *kernel.Run) {
	g := *c.gate(name, run)
	if g.Taken++; isPart(run) {
		g.Spend(c.at)
	}
	if run.Late {
		g.Late++
	}
	c.tx.Put(&g)
}

// wait has a run wait at a gate. It keeps the slots of its arguments from then on, unless it is a part of a
// broadcast.
func (c *change) wait(full string, run *kernel.Run) {
	run.Waits, run.Opens = full, time.Time{}
	c.touch(full, run)
	if kernel.Keyed(full) || run.Reserved || c.parts(run) != nil {
		return
	}
	for _, name := range run.Gates {
		if kernel.Keyed(name) {
			c.occupy(name, run)
			run.Reserved = true
		}
	}
}

// enter brings a run that has just become due to its gates, and stores it.
func (c *change) enter(run *kernel.Run, from jobs.State) error {
	before := len(c.effect.Runs)
	if run.Terms.Overlap == jobs.OverlapReplace && !run.First {
		if err := c.supersede(run); err != nil {
			return err
		}
	}
	switch full := c.full(run, !run.First); {
	case full == "":
		c.take(run)
	case run.First:
		c.wait(full, run)
	case c.behind(full, run):
		run.First = !run.Late
		c.wait(full, run)
	case !c.blocked(full, run):
		run.First = run.Origin == kernel.FromCron && c.misfires
		c.wait(full, run)
	default:
		skipped, err := run.Skip(c.at, kernel.ByOverlap, full)
		if err != nil {
			return err
		}
		*run = skipped
	}
	c.store(run, from)
	if all := c.effect.Runs[before:]; len(all) > 1 { // the run itself comes first, then those it has replaced
		copy(all[1:], all[:len(all)-1])
		all[0] = run
	}
	if run.Waits != "" {
		c.alarm(kernel.GateRef(run.Tenant, run.Waits))
	}
	return nil
}

// behind reports whether a due time finds a gate full only because of late runs: it would have a slot there without
// them. So it waits, before those that wait, and is never skipped for one of them.
func (c *change) behind(full string, run *kernel.Run) bool {
	if !run.Origin.Automatic() {
		return false
	}
	g, first := c.gate(full, run), c.tx.First(kernel.GateRef(run.Tenant, full))
	if g.Limit > 0 && g.Taken-g.Late >= g.Limit || g.Late == 0 && first == nil {
		return false
	}
	return first == nil || first.Late
}

// blocked reports whether a new run is skipped at a full gate.
func (c *change) blocked(full string, run *kernel.Run) bool {
	switch run.Terms.Overlap {
	case jobs.OverlapSkip:
		return true
	case jobs.OverlapQueueOne:
		return c.crowdAt(full, run).Taken > 0
	}
	return false
}

// supersede stops the oldest runs of a job until there is a place for a new one at each of its gates. A run that is
// stopped while its handler runs keeps its slots until that has returned; the new run waits for them.
func (c *change) supersede(r *kernel.Run) error {
	for _, name := range r.Gates {
		g := c.gate(name, r)
		if g.Limit == 0 {
			continue
		}
		var mine []jobs.ID // runs, and broadcasts as one each
		those := map[jobs.ID][]*kernel.Run{}
		for _, id := range c.crowdAt(name, r).Runs {
			if other := c.live(id); other != nil && !other.State.Final() {
				one := groupOf(other)
				if those[one] == nil {
					mine = append(mine, one)
				}
				those[one] = append(those[one], other)
			}
		}
		for ; len(mine) >= g.Limit; mine = mine[1:] {
			for _, run := range those[mine[0]] {
				// It may have got the slots of the runs before it.
				if run = c.live(run.ID); run == nil || run.State.Final() {
					continue
				}
				old, err := run.Replace(c.at, r.ID)
				if err != nil {
					return err
				}
				if old.Lingering {
					c.store(&old, run.State)
				} else {
					c.leave(&old, run.State)
				}
			}
		}
	}
	return nil
}

// groupOf is the ID under which a run counts: its own, or its broadcast's.
func groupOf(run *kernel.Run) jobs.ID {
	if run.Place != nil && !run.Place.Group.IsZero() {
		return run.Place.Group
	}
	return run.ID
}

// unlimitedCrowd is how many runs are listed at a gate without a number of slots, where none is replaced. At any
// other, runs are replaced so that no more are listed than there are slots.
const unlimitedCrowd = 100

// crowds reports whether a run decides what becomes of newer ones of its job.
func crowds(run *kernel.Run) bool {
	return run.Terms.Overlap == jobs.OverlapQueueOne || run.Terms.Overlap == jobs.OverlapReplace
}

// crowdAt is the row of a CrowdGate of a run's job.
func (c *change) crowdAt(gate string, run *kernel.Run) kernel.Gate {
	name := kernel.CrowdGate(gate, run.Job)
	if g, ok := c.tx.Get(kernel.GateRef(run.Tenant, name)).(*kernel.Gate); ok {
		return *g
	}
	return kernel.Gate{Tenant: run.Tenant, Name: name}
}

// crowd updates the rows of a run's crowd gates, before its own row is put.
func (c *change) crowd(run *kernel.Run) {
	before := c.live(run.ID)
	for _, name := range run.Gates {
		waited, waits := before != nil && before.Waits == name, run.Waits == name
		was, is := before != nil && listed(before), listed(run)
		if waited == waits && was == is {
			continue
		}
		g := c.crowdAt(name, run)
		if waited && !waits {
			g.Taken--
		} else if waits && !waited {
			g.Taken++
		}
		if was && !is {
			g.Runs = slices.DeleteFunc(slices.Clone(g.Runs), func(id jobs.ID) bool { return id == run.ID })
		} else if is && !was {
			g.Runs = append(slices.Clip(g.Runs), run.ID)
			if n := len(g.Runs); n > unlimitedCrowd && c.gate(name, run).Limit == 0 {
				g.Runs = g.Runs[n-unlimitedCrowd:]
			}
		}
		if g.Taken == 0 && len(g.Runs) == 0 {
			c.tx.Delete(g.Ref())
		} else {
			c.tx.Put(&g)
		}
	}
}

// listed reports whether a crowd gate lists a run.
func listed(run *kernel.Run) bool {
	return run.Terms.Overlap == jobs.OverlapReplace && !run.State.Final() && run.State != jobs.Scheduled
}

// touch makes sure that a gate with waiting runs has a row.
func (c *change) touch(name string, run *kernel.Run) {
	if c.tx.Get(kernel.GateRef(run.Tenant, name)) == nil {
		c.tx.Put(c.gate(name, run))
	}
}

// vacate gives up a run's slot at a gate.
func (c *change) vacate(name string, run *kernel.Run) {
	g := *c.gate(name, run)
	g.Taken = max(0, g.Taken-1)
	if run.Late {
		g.Late = max(0, g.Late-1)
	}
	c.tx.Put(&g)
}

// leave stores a run that gives up its slots, and passes them on.
func (c *change) leave(run *kernel.Run, from jobs.State) {
	held, reserved, waited := run.Holds, run.Reserved, run.Waits
	run.Holds, run.Reserved, run.Waits, run.Opens = false, false, "", time.Time{}
	c.store(run, from)
	if held && c.partOut(run) {
		return
	}
	for _, name := range run.Gates {
		if held || reserved && kernel.Keyed(name) {
			c.vacate(name, run)
		}
	}
	for _, name := range run.Gates {
		if held || reserved && kernel.Keyed(name) {
			c.hand(kernel.GateRef(run.Tenant, name), handPerCommand)
		}
	}
	if waited != "" {
		c.alarm(kernel.GateRef(run.Tenant, waited))
	}
	c.unused(run)
}

// unused drops unused gates of a run: those of its arguments and of its backfill, and that of its job if the job was
// deleted. A later run makes them again.
func (c *change) unused(run *kernel.Run) {
	if len(run.Gates) == 0 {
		return // as mostly: not even a name is made
	}
	for _, name := range run.Gates {
		if _, backfill := kernel.BackfillOf(name); backfill || kernel.Keyed(name) {
			c.vacant(kernel.GateRef(run.Tenant, name))
		}
	}
	name := kernel.JobGate(run.Job)
	if !slices.Contains(run.Gates, name) {
		return
	}
	if d := c.definition(run.Key); d != nil && d.UID == run.Job {
		return
	}
	c.vacant(kernel.GateRef(run.Tenant, name))
}

// vacant drops a gate if it is unused. One whose rate still counts stays until that is forgotten, by a key that
// expires then.
func (c *change) vacant(ref kernel.Ref) {
	g, _ := c.tx.Get(ref).(*kernel.Gate)
	if g == nil || g.Taken > 0 || c.tx.First(ref) != nil {
		return
	}
	if full := g.Full(); kernel.Keyed(ref.Name) && full.After(c.at) {
		c.tx.Put(&kernel.UniqueKey{Tenant: ref.Tenant, Name: idleName(ref.Name), Until: full})
		return
	}
	c.tx.Delete(ref)
}

// idleName is the name of the key that expires when a gate has nothing more to count.
func idleName(gate string) string { return "gate/" + gate }

// idleGate is the gate of a key of that name.
func idleGate(key string) (string, bool) { return strings.CutPrefix(key, "gate/") }

// hand gives the free slots of a gate to runs that wait at it: at most tries of them. A run that another gate stops
// moves there.
func (c *change) hand(ref kernel.Ref, tries int) {
	if sabotage.Off(sabotage.HandOver) {
		return
	}
	for ; tries > 0; tries-- {
		first := c.tx.First(ref)
		if first == nil {
			return
		}
		if !c.gate(ref.Name, first).Free(c.at) {
			break
		}
		run := *first
		if late := !run.StartBy.IsZero() && c.at.After(run.StartBy); late && run.State == jobs.Enqueued {
			if skipped, err := run.Skip(c.at, kernel.ByDeadline, ref.Name); err == nil {
				c.leave(&skipped, jobs.Enqueued)
				continue
			}
		}
		if held, err := c.hold(&run); held && err == nil {
			continue
		}
		if full := c.full(&run, false); full != "" {
			c.wait(full, &run)
		} else {
			c.take(&run)
		}
		c.store(&run, run.State)
		if run.Waits != "" {
			c.alarm(kernel.GateRef(run.Tenant, run.Waits))
		}
	}
	c.alarm(ref)
}

func (c *change) handOn(k kernel.Hand) error {
	c.hand(kernel.GateRef(c.env.Tenant, k.Gate), handPerSweep)
	if run := c.effect.Run(); run != nil {
		c.unused(run)
	}
	c.effect.Existing = len(c.effect.Runs) == 0
	return nil
}

// limits updates gates in use after a change of a job's policy. Those of arguments change when they are used, or when
// the sweep finds room for runs that wait (see Agenda.Unserved): no row lists them.
func (c *change) limits(d, before *kernel.Definition) {
	c.limit(d.Tenant, kernel.JobGate(d.UID), jobs.Limit{Max: d.Policy.MaxConcurrency, Rate: d.Policy.Rate})
	// Several jobs may name one limit: the last change wins. Pausing a job does not change its limits.
	anew := before == nil || !sameLimits(d.Code.Limits, before.Code.Limits) || !sameLimits(d.Edits.Limits, before.Edits.Limits)
	for _, l := range d.Policy.Limits {
		changed := anew || !slices.Contains(before.Policy.Limits, l)
		if l.By == "" {
			if changed {
				c.limit(d.Tenant, kernel.LimitGate(l.Name), l)
			}
			continue
		}
		bound := &kernel.Gate{Tenant: d.Tenant, Name: kernel.BoundGate(l.Name), Limit: l.Max, Rate: l.Rate}
		if g, ok := c.tx.Get(bound.Ref()).(*kernel.Gate); !ok || changed && (g.Limit != l.Max || g.Rate != l.Rate) {
			c.tx.Put(bound)
		}
	}
}

// sameLimits compares settings. A row that was stored meanwhile has no list where another one has an empty one.
func sameLimits(a, b *[]jobs.Limit) bool {
	return a == b || a != nil && b != nil && slices.Equal(*a, *b)
}

func (c *change) limit(tenant jobs.Tenant, name string, l jobs.Limit) {
	ref := kernel.GateRef(tenant, name)
	g, _ := c.tx.Get(ref).(*kernel.Gate)
	if g == nil || g.Under(l) == g {
		return
	}
	c.tx.Put(g.Under(l))
	c.hand(ref, handPerCommand)
}
