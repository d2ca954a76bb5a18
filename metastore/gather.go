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
	// First says how many of those who wait at a gate, first ones first, are wanted as well. It can be said again of
	// a gate, with a higher number.
	First map[jobs.Ref]int
}

// Gather calls load, round by round, with what a batch may touch and was not asked for before, and collects the
// rows that load found.
func Gather(batch []jobs.Envelope, load func(Wants) []jobs.Row) map[jobs.Ref]jobs.Row {
	g := gathering{
		have: map[jobs.Ref]jobs.Row{}, asked: map[jobs.Ref]bool{}, firsts: map[jobs.Ref]int{},
		uids: map[jobs.Ref][]jobs.ID{}, limits: map[jobs.Tenant][]jobs.Limit{},
	}
	g.ref(jobs.StoreRef())
	for i := range batch {
		g.named(&batch[i])
		g.defined(&batch[i])
	}
	for {
		wants := g.round()
		if len(wants.Refs) == 0 && len(wants.First) == 0 {
			return g.have
		}
		for _, row := range load(wants) {
			if row != nil {
				g.have[row.Ref()] = row
				g.asked[row.Ref()] = true
			}
		}
		g.waiters = map[jobs.Ref]int{}
		for i := range batch {
			g.pointed(&batch[i])
		}
		for _, row := range g.have {
			if in, ok := row.(*jobs.Instance); ok && in.Waits != "" {
				g.needsOf(in)
			}
		}
	}
}

type gathering struct {
	have    map[jobs.Ref]jobs.Row
	asked   map[jobs.Ref]bool
	refs    []jobs.Ref       // wanted in the next round
	waiters map[jobs.Ref]int // by gate, how many the whole batch may look at, as far as is known
	firsts  map[jobs.Ref]int // by gate, how many were asked for

	// What earlier commands of a batch may define for later ones: jobs, by their place, and limits.
	uids   map[jobs.Ref][]jobs.ID
	limits map[jobs.Tenant][]jobs.Limit
}

// likely bounds how many waiters of a gate a large batch loads. A command may look at handPerCommand of them, and
// mostly lets in one; if a batch needs more, the sweep does the rest with Hand.
const likely = 16 * handPerCommand

// round is what is wanted and was not asked for.
func (g *gathering) round() Wants {
	w := Wants{Refs: g.refs, First: map[jobs.Ref]int{}}
	g.refs = nil
	for gate, n := range g.waiters {
		n = min(n, likely+n/handPerCommand) + 1 // and one more, whom a newcomer must not overtake
		if n > g.firsts[gate] {
			g.firsts[gate], w.First[gate] = n, n
		}
	}
	return w
}

func (g *gathering) ref(r jobs.Ref) {
	if !g.asked[r] {
		g.asked[r] = true
		g.refs = append(g.refs, r)
	}
}

// gate wants a gate, and to know whether anybody waits there.
func (g *gathering) gate(ref jobs.Ref) {
	g.ref(ref)
	g.waiters[ref] += 0
}

// freed wants a gate at which a command may let n in.
func (g *gathering) freed(ref jobs.Ref, n int) {
	g.ref(ref)
	g.waiters[ref] += n
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

// defined is what a command may define for those that follow in the batch.
func (g *gathering) defined(e *jobs.Envelope) {
	t := e.Tenant
	switch k := e.Command.(type) {
	case jobs.Register:
		ref := jobs.DefinitionRef(t, k.Job.Key)
		g.uids[ref] = append(g.uids[ref], definitionID(e, k.Job.Key))
		g.limits[t] = append(g.limits[t], valueOr(k.Job.Code.Limits)...)
	case jobs.Edit:
		g.limits[t] = append(g.limits[t], valueOr(k.Set.Limits)...)
	case jobs.Configure:
		for _, s := range []*jobs.Settings{k.RecurringDefaults, k.TriggeredDefaults} {
			if s != nil {
				g.limits[t] = append(g.limits[t], valueOr(s.Limits)...)
			}
		}
	}
}

// pointed are the rows that those a command names point to.
func (g *gathering) pointed(e *jobs.Envelope) {
	t := e.Tenant
	switch k := e.Command.(type) {
	case jobs.Create:
		g.gatesOf(t, k.Key, g.gate)
		for _, name := range []string{jobs.UniqueName(k.Key, k.Unique), jobs.IdempotencyName(k.Idempotency)} {
			if u, ok := g.have[jobs.UniqueRef(t, name)].(*jobs.UniqueKey); ok {
				g.ref(jobs.InstanceRef(t, u.ID))
			}
		}
	case jobs.Fire:
		g.gatesOf(t, k.Key, g.gate)
		if d, ok := g.have[jobs.DefinitionRef(t, k.Key)].(*jobs.Definition); ok && !d.Missed.IsZero() {
			g.ref(jobs.MissedRef(t, d.UID, d.Missed))
		}
	case jobs.Register:
		g.redefined(t, k.Job.Key)
	case jobs.Edit:
		g.redefined(t, k.Key)
	case jobs.Pause:
		g.redefined(t, k.Key)
	case jobs.Resume:
		g.redefined(t, k.Key)
	case jobs.Refresh:
		g.redefined(t, k.Key)
	case jobs.Hand:
		g.freed(jobs.GateRef(t, k.Gate), handPerSweep)
	default:
		if id := runOf(e.Command); !id.IsZero() {
			if in, ok := g.have[jobs.InstanceRef(t, id)].(*jobs.Instance); ok {
				g.needsOf(in)
				for _, name := range in.Gates {
					g.freed(jobs.GateRef(t, name), handPerCommand)
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

// redefined are the gates of a job whose policy a command lays anew.
func (g *gathering) redefined(t jobs.Tenant, key jobs.Key) {
	g.gatesOf(t, key, func(ref jobs.Ref) { g.freed(ref, handPerCommand) })
}

// gatesOf are the gates that a job's policy names, or may name by the time its turn comes: limits of any owner,
// because a change of one shows another, and what earlier commands of the batch may define.
func (g *gathering) gatesOf(t jobs.Tenant, key jobs.Key, want func(jobs.Ref)) {
	names := map[string]bool{}
	ref := jobs.DefinitionRef(t, key)
	owners := []*jobs.Settings{{Limits: new(g.limits[t])}}
	if d, ok := g.have[ref].(*jobs.Definition); ok {
		names[jobs.JobGate(d.UID)] = true
		owners = append(owners, &d.Code, &d.Edits, &jobs.Settings{Limits: &d.Policy.Limits})
	} else {
		for _, uid := range g.uids[ref] {
			names[jobs.JobGate(uid)] = true
		}
	}
	if global, ok := g.have[jobs.GlobalRef(t)].(*jobs.Global); ok {
		owners = append(owners, &global.RecurringDefaults, &global.TriggeredDefaults)
	}
	for _, s := range owners {
		for _, l := range valueOr(s.Limits) {
			names[jobs.LimitGate(l.Name)] = true
		}
	}
	for name := range names {
		want(jobs.GateRef(t, name))
	}
}

// needsOf are the gates, the job and the unique key of a run that may be let in, or be skipped instead.
func (g *gathering) needsOf(in *jobs.Instance) {
	g.ref(jobs.DefinitionRef(in.Tenant, in.Key))
	if in.Unique != "" {
		g.ref(jobs.UniqueRef(in.Tenant, jobs.UniqueName(in.Key, in.Unique)))
	}
	for _, name := range in.Gates {
		g.gate(jobs.GateRef(in.Tenant, name))
	}
}

func valueOr[T any](v *[]T) []T {
	if v == nil {
		return nil
	}
	return *v
}
