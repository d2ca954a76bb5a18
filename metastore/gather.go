package metastore

import (
	"github.com/carillon-scheduler/carillon/jobs"
)

// An engine that cannot look up rows one by one while Apply runs (a database) loads all that a batch may touch
// before, in a few rounds: what the commands name; what those rows point to; who waits at gates that may become
// free; and what those need in turn. Gather knows which rows these are; storetest holds Apply to it.

// Wants is what an engine should load in one round.
type Wants struct {
	Refs []jobs.Ref
	// First says how many of those who wait at a gate, first ones first, are wanted as well.
	First map[jobs.Ref]int
}

// Gather calls load, round by round, with what a batch may touch and was not asked for before, and collects the
// rows that load found.
func Gather(batch []jobs.Envelope, load func(Wants) []jobs.Row) map[jobs.Ref]jobs.Row {
	g := gathering{have: map[jobs.Ref]jobs.Row{}, asked: map[jobs.Ref]bool{}, wants: Wants{First: map[jobs.Ref]int{}}, firsts: map[jobs.Ref]int{}}
	g.ref(jobs.StoreRef())
	for i := range batch {
		g.named(&batch[i])
	}
	for len(g.wants.Refs) > 0 || len(g.wants.First) > 0 {
		wants := g.wants
		g.wants = Wants{First: map[jobs.Ref]int{}}
		for _, row := range load(wants) {
			if row != nil {
				g.have[row.Ref()] = row
				g.asked[row.Ref()] = true
			}
		}
		for i := range batch {
			g.pointed(&batch[i])
		}
		for _, row := range g.have {
			if in, ok := row.(*jobs.Instance); ok && in.Waits != "" {
				g.needsOf(in)
			}
		}
	}
	return g.have
}

type gathering struct {
	have   map[jobs.Ref]jobs.Row
	asked  map[jobs.Ref]bool
	firsts map[jobs.Ref]int
	wants  Wants
}

func (g *gathering) ref(r jobs.Ref) {
	if !g.asked[r] {
		g.asked[r] = true
		g.wants.Refs = append(g.wants.Refs, r)
	}
}

// first wants n more of those who wait at a gate.
func (g *gathering) first(gate jobs.Ref, n int) {
	if g.firsts[gate] < n {
		g.firsts[gate] = n
		g.wants.First[gate] = n
	}
}

// named are the rows that a command names.
func (g *gathering) named(e *jobs.Envelope) {
	t := e.Tenant
	switch k := e.Command.(type) {
	case jobs.Create:
		g.ref(jobs.InstanceRef(t, k.ID))
		g.ref(jobs.DefinitionRef(t, k.Key))
		g.ref(jobs.GlobalRef(t))
		if k.Unique != "" {
			g.ref(jobs.UniqueRef(t, jobs.UniqueName(k.Key, k.Unique)))
		}
		if k.Idempotency != "" {
			g.ref(jobs.UniqueRef(t, jobs.IdempotencyName(k.Idempotency)))
		}
	case jobs.Fire:
		g.ref(jobs.DefinitionRef(t, k.Key))
		g.ref(jobs.GlobalRef(t))
		for _, due := range k.Due {
			g.ref(jobs.InstanceRef(t, jobs.DueID(t, k.Job, due, 0, 0)))
		}
	case jobs.Release:
		g.ref(jobs.GlobalRef(t))
		g.ref(jobs.InstanceRef(t, k.ID))
	case jobs.Claim:
		g.ref(jobs.InstanceRef(t, k.ID))
	case jobs.Finish:
		g.ref(jobs.InstanceRef(t, k.ID))
	case jobs.Returned:
		g.ref(jobs.InstanceRef(t, k.ID))
	case jobs.Checkpoint:
		g.ref(jobs.InstanceRef(t, k.ID))
	case jobs.Expire:
		g.ref(jobs.InstanceRef(t, k.ID))
	case jobs.Cancel:
		g.ref(jobs.InstanceRef(t, k.ID))
	case jobs.Register:
		g.job(t, k.Job.Key)
	case jobs.Edit:
		g.job(t, k.Key)
	case jobs.Pause:
		g.job(t, k.Key)
	case jobs.Resume:
		g.job(t, k.Key)
	case jobs.Refresh:
		g.job(t, k.Key)
	case jobs.Configure:
		g.ref(jobs.GlobalRef(t))
	case jobs.Forget:
		g.ref(jobs.UniqueRef(t, k.Name))
	case jobs.Hand:
		g.ref(jobs.GateRef(t, k.Gate))
	}
}

func (g *gathering) job(t jobs.Tenant, key jobs.Key) {
	g.ref(jobs.DefinitionRef(t, key))
	g.ref(jobs.GlobalRef(t))
}

// pointed are the rows that those a command names point to.
func (g *gathering) pointed(e *jobs.Envelope) {
	t := e.Tenant
	switch k := e.Command.(type) {
	case jobs.Create:
		g.gatesOf(t, k.Key, 1)
		for _, name := range []string{jobs.UniqueName(k.Key, k.Unique), jobs.IdempotencyName(k.Idempotency)} {
			if u, ok := g.have[jobs.UniqueRef(t, name)].(*jobs.UniqueKey); ok {
				g.ref(jobs.InstanceRef(t, u.ID))
			}
		}
	case jobs.Fire:
		g.gatesOf(t, k.Key, 1)
		if d, ok := g.have[jobs.DefinitionRef(t, k.Key)].(*jobs.Definition); ok && !d.Missed.IsZero() {
			g.ref(jobs.MissedRef(t, d.UID, d.Missed))
		}
	case jobs.Register:
		g.gatesOf(t, k.Job.Key, handPerCommand)
		for _, l := range valueOr(k.Job.Code.Limits) {
			g.gate(jobs.GateRef(t, jobs.LimitGate(l.Name)), handPerCommand)
		}
	case jobs.Edit:
		g.gatesOf(t, k.Key, handPerCommand)
		for _, l := range valueOr(k.Set.Limits) {
			g.gate(jobs.GateRef(t, jobs.LimitGate(l.Name)), handPerCommand)
		}
		if d, ok := g.have[jobs.DefinitionRef(t, k.Key)].(*jobs.Definition); ok {
			g.limitsOf(d)
		}
	case jobs.Pause:
		g.gatesOf(t, k.Key, handPerCommand)
	case jobs.Resume:
		g.gatesOf(t, k.Key, handPerCommand)
	case jobs.Refresh:
		g.gatesOf(t, k.Key, handPerCommand)
		if d, ok := g.have[jobs.DefinitionRef(t, k.Key)].(*jobs.Definition); ok {
			g.limitsOf(d)
		}
	case jobs.Hand:
		g.gate(jobs.GateRef(t, k.Gate), handPerSweep)
	default:
		if id := runOf(e.Command); !id.IsZero() {
			if in, ok := g.have[jobs.InstanceRef(t, id)].(*jobs.Instance); ok {
				g.needsOf(in)
				if in.Unique != "" {
					g.ref(jobs.UniqueRef(t, jobs.UniqueName(in.Key, in.Unique)))
				}
				for _, name := range in.Gates {
					g.gate(jobs.GateRef(t, name), handPerCommand)
				}
			}
		}
	}
}

// runOf is the run that a command of a worker, a person or a duty is about.
func runOf(k jobs.Command) jobs.ID {
	switch k := k.(type) {
	case jobs.Release:
		return k.ID
	case jobs.Claim:
		return k.ID
	case jobs.Finish:
		return k.ID
	case jobs.Returned:
		return k.ID
	case jobs.Expire:
		return k.ID
	case jobs.Cancel:
		return k.ID
	case jobs.Checkpoint:
		return k.ID
	}
	return jobs.ID{}
}

func (g *gathering) gate(ref jobs.Ref, waiters int) {
	g.ref(ref)
	g.first(ref, waiters)
}

// gatesOf are the gates that a job's policy names, as far as the job is known by now.
func (g *gathering) gatesOf(t jobs.Tenant, key jobs.Key, waiters int) {
	d, ok := g.have[jobs.DefinitionRef(t, key)].(*jobs.Definition)
	if !ok {
		return
	}
	g.gate(jobs.GateRef(t, jobs.JobGate(d.UID)), waiters)
	for _, l := range d.Policy.Limits {
		g.gate(jobs.GateRef(t, jobs.LimitGate(l.Name)), waiters)
	}
}

// limitsOf are the gates of limits that any owner of a job's settings names: clearing one shows another.
func (g *gathering) limitsOf(d *jobs.Definition) {
	global, _ := g.have[jobs.GlobalRef(d.Tenant)].(*jobs.Global)
	owners := []*jobs.Settings{&d.Code, &d.Edits}
	if global != nil {
		owners = append(owners, &global.RecurringDefaults, &global.TriggeredDefaults)
	}
	for _, s := range owners {
		for _, l := range valueOr(s.Limits) {
			g.gate(jobs.GateRef(d.Tenant, jobs.LimitGate(l.Name)), handPerCommand)
		}
	}
}

// needsOf are the gates and the job of a run that may be seated.
func (g *gathering) needsOf(in *jobs.Instance) {
	g.ref(jobs.DefinitionRef(in.Tenant, in.Key))
	for _, name := range in.Gates {
		g.gate(jobs.GateRef(in.Tenant, name), 1)
	}
}

func valueOr[T any](v *[]T) []T {
	if v == nil {
		return nil
	}
	return *v
}
