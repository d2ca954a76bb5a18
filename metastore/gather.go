package metastore

import (
	"encoding/json"
	"slices"
	"strings"

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
		args: map[jobs.Tenant][]json.RawMessage{}, apps: map[jobs.Tenant][]string{}, moved: map[jobs.Tenant][]string{},
		deleted: map[jobs.Ref]bool{}, ending: map[jobs.Ref]bool{}, follow: map[jobs.Tenant][]string{},
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
		for _, ref := range g.gates {
			g.gate(ref)
		}
		for i := range batch {
			g.pointed(&batch[i])
		}
		for _, row := range g.have {
			switch row := row.(type) {
			case *jobs.Run:
				if row.Waits != "" {
					g.needsOf(row)
				}
			case *jobs.Gate:
				g.crowd(row)
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
	args   map[jobs.Tenant][]json.RawMessage
	apps   map[jobs.Tenant][]string // that get a limit
	moved  map[jobs.Tenant][]string // that get a job
	gates  []jobs.Ref               // of commands that name one
	// deleted are jobs that a command of the batch takes away.
	deleted map[jobs.Ref]bool
	// ending are runs that a command of the batch may end, and follow are jobs that may follow one, as far as earlier
	// commands say so.
	ending map[jobs.Ref]bool
	follow map[jobs.Tenant][]string
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
	g.bounded(ref)
	g.waiters[ref] += 0
}

// freed wants a gate at which a command may let n in.
func (g *gathering) freed(ref jobs.Ref, n int) {
	g.bounded(ref)
	g.waiters[ref] += n
}

// bounded wants a gate, and what holds for it if that stands elsewhere.
func (g *gathering) bounded(ref jobs.Ref) {
	g.ref(ref)
	if limit, _, keyed := jobs.KeyOf(ref.Name); keyed {
		g.ref(jobs.GateRef(ref.Tenant, jobs.BoundGate(limit)))
	}
}

// named are the rows that a command names.
func (g *gathering) named(e *jobs.Envelope) {
	t := e.Tenant
	switch k := e.Command.(type) {
	case jobs.Create:
		g.ref(jobs.RunRef(t, k.ID))
		g.ref(jobs.UniqueRef(t, jobs.AnswerName(k.ID)))
		g.ref(jobs.DefinitionRef(t, k.Key))
		g.ref(jobs.GlobalRef(t))
		if k.Unique != "" {
			g.ref(jobs.UniqueRef(t, jobs.UniqueName(k.Key, k.Unique)))
		}
		if k.Idempotency != "" {
			g.ref(jobs.UniqueRef(t, jobs.IdempotencyName(k.Idempotency)))
		}
	case jobs.Notify:
		g.ref(jobs.RunRef(t, k.Run))
		g.ref(jobs.RunRef(t, k.ID(t)))
		g.job(t, k.Key())
	case jobs.Fire:
		g.ref(jobs.DefinitionRef(t, k.Key))
		g.ref(jobs.GlobalRef(t))
		for _, due := range k.Due {
			g.ref(jobs.RunRef(t, jobs.DueID(t, k.Job, due, 0, 0)))
		}
	case jobs.Release:
		g.ref(jobs.GlobalRef(t))
		g.ref(jobs.RunRef(t, k.ID))
	case jobs.Claim:
		g.ref(jobs.RunRef(t, k.ID))
	case jobs.Finish:
		g.ref(jobs.RunRef(t, k.ID))
		if k.Outcome != jobs.OutcomeSuccess {
			g.ref(jobs.GlobalRef(t))
		}
	case jobs.Returned:
		g.ref(jobs.RunRef(t, k.ID))
	case jobs.Checkpoint:
		g.ref(jobs.RunRef(t, k.ID))
	case jobs.Expect:
		g.ref(jobs.RunRef(t, k.ID))
	case jobs.Hear:
		g.ref(jobs.RunRef(t, k.ID))
	case jobs.Expire:
		g.ref(jobs.RunRef(t, k.ID))
		g.ref(jobs.GlobalRef(t))
	case jobs.Cancel:
		g.ref(jobs.RunRef(t, k.ID))
		g.ref(jobs.GlobalRef(t))
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
	case jobs.Configure, jobs.FinalizeUpgrade:
		g.ref(jobs.GlobalRef(t))
	case jobs.Forget:
		g.ref(jobs.UniqueRef(t, k.Name))
		if gate, ok := idleGate(k.Name); ok {
			g.gates = append(g.gates, jobs.GateRef(t, gate))
		}
	case jobs.Hand:
		g.ref(jobs.GateRef(t, k.Gate))
	case jobs.Delete:
		g.job(t, k.Key)
	case jobs.Grant:
		g.ref(jobs.TokenRef(t, k.Token.ID))
		g.ref(jobs.UniqueRef(t, jobs.TokenName(k.Token.Name)))
		g.ref(jobs.GlobalRef(t))
	case jobs.Revoke:
		g.ref(jobs.TokenRef(t, k.ID))
		g.ref(jobs.GlobalRef(t))
	case jobs.Invite:
		g.ref(jobs.UniqueRef(t, jobs.InvitationName(k.Name)))
		g.ref(jobs.GlobalRef(t))
	case jobs.Join:
		g.ref(jobs.UniqueRef(t, jobs.InvitationName(k.Name)))
		g.ref(jobs.GlobalRef(t))
	case jobs.Members:
		g.ref(jobs.UniqueRef(t, jobs.MembersName(k.ID)))
		g.ref(jobs.GlobalRef(t))
	case jobs.SignIn:
		g.ref(jobs.SessionRef(t, k.Session.ID))
		g.ref(jobs.TokenRef(t, k.Session.Token))
		g.ref(jobs.GlobalRef(t))
	case jobs.SignOut:
		g.ref(jobs.SessionRef(t, k.ID))
		g.ref(jobs.GlobalRef(t))
	case jobs.Drain:
		g.ref(jobs.GlobalRef(t))
	case jobs.Mark:
		g.job(t, k.Key)
	case jobs.Clean:
		g.ref(jobs.GlobalRef(t))
		if k.Key != "" {
			g.job(t, k.Key)
		}
	case jobs.Backfill:
		g.job(t, k.Key)
		for _, due := range k.Due {
			g.ref(jobs.RunRef(t, k.Run(t, due)))
		}
		for _, m := range k.Take {
			g.ref(jobs.MissedRef(t, k.Job, m.From))
		}
	case jobs.Expand:
		g.ref(jobs.RunRef(t, k.ID))
	case jobs.SetCalendar:
		g.ref(jobs.CalendarRef(t, k.Name))
		g.ref(jobs.GlobalRef(t))
	case jobs.DropCalendar:
		g.ref(jobs.CalendarRef(t, k.Name))
		g.ref(jobs.GlobalRef(t))
	case jobs.Trim:
		for _, ref := range k.Refs {
			ref.Tenant = t
			g.ref(ref)
		}
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
		g.says(t, &k.Job.Code)
		g.moved[t] = append(g.moved[t], k.App)
	case jobs.Finish:
		g.ending[jobs.RunRef(t, k.ID)] = true
	case jobs.Expire:
		g.ending[jobs.RunRef(t, k.ID)] = true
	case jobs.Delete:
		g.deleted[jobs.DefinitionRef(t, k.Key)] = true
	case jobs.Edit:
		g.says(t, &k.Set)
	case jobs.Configure:
		for _, s := range []*jobs.Settings{k.RecurringDefaults, k.TriggeredDefaults} {
			if s != nil {
				g.says(t, s)
			}
		}
		for _, l := range valueOr(k.AppLimits) {
			g.apps[t] = append(g.apps[t], l.Name)
		}
	}
}

// pointed are the rows that those a command names point to.
func (g *gathering) pointed(e *jobs.Envelope) {
	t := e.Tenant
	if global, ok := g.have[jobs.GlobalRef(t)].(*jobs.Global); ok && manual(e) {
		g.ref(jobs.AuditRef(t, global.Audits))
	}
	switch k := e.Command.(type) {
	case jobs.Create:
		g.gatesOf(t, k.Key, k.Args, g.gate)
		g.followers(&jobs.Run{Tenant: t, ID: k.ID, Key: k.Key})
		for _, name := range []string{jobs.UniqueName(k.Key, k.Unique), jobs.IdempotencyName(k.Idempotency), jobs.AnswerName(k.ID)} {
			if u, ok := g.have[jobs.UniqueRef(t, name)].(*jobs.UniqueKey); ok {
				g.ref(jobs.RunRef(t, u.ID))
			}
		}
	case jobs.Notify:
		if of, ok := g.have[jobs.RunRef(t, k.Run)].(*jobs.Run); ok {
			g.gatesOf(t, k.Key(), k.Args(of), g.gate)
		}
		g.followers(&jobs.Run{Tenant: t, ID: k.ID(t), Key: k.Key()})
	case jobs.Fire:
		g.gatesOf(t, k.Key, nil, g.gate)
		for _, due := range k.Due {
			g.followers(&jobs.Run{Tenant: t, ID: jobs.DueID(t, k.Job, due, 0, 0), Key: k.Key})
		}
		if d, ok := g.have[jobs.DefinitionRef(t, k.Key)].(*jobs.Definition); ok && !d.Missed.IsZero() {
			g.ref(jobs.MissedRef(t, d.UID, d.Missed))
		}
	case jobs.Backfill:
		g.gatesOf(t, k.Key, nil, g.gate)
		g.gate(jobs.GateRef(t, jobs.BackfillGate(k.ID, k.Parallel)))
		for _, due := range k.Due {
			g.followers(&jobs.Run{Tenant: t, ID: k.Run(t, due), Key: k.Key})
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
	case jobs.Delete:
		g.redefined(t, k.Key)
	case jobs.Revoke:
		if row, ok := g.have[jobs.TokenRef(t, k.ID)].(*jobs.Token); ok {
			g.ref(jobs.UniqueRef(t, jobs.TokenName(row.Name)))
		}
	case jobs.SignOut:
		if row, ok := g.have[jobs.SessionRef(t, k.ID)].(*jobs.Session); ok {
			g.ref(jobs.TokenRef(t, row.Token))
		}
	case jobs.Hand:
		g.freed(jobs.GateRef(t, k.Gate), handPerSweep)
	case jobs.Configure:
		if global, ok := g.have[jobs.GlobalRef(t)].(*jobs.Global); ok && k.AppLimits != nil {
			for _, l := range global.AppLimits {
				g.freed(jobs.GateRef(t, jobs.AppGate(l.Name)), handPerCommand)
			}
		}
		for _, l := range valueOr(k.AppLimits) {
			g.freed(jobs.GateRef(t, jobs.AppGate(l.Name)), handPerCommand)
		}
	default:
		if id := runOf(e.Command); !id.IsZero() {
			if run, ok := g.have[jobs.RunRef(t, id)].(*jobs.Run); ok {
				g.ends(run)
				g.followers(run)
				g.partsOf(run, e.Command)
				if fails(e.Command) {
					g.ref(jobs.GateRef(t, jobs.RetryGate(run.Job)))
					g.ref(jobs.GateRef(t, jobs.RetryGate(jobs.ID{})))
				}
			}
		}
	}
}

// fails says that a command may end an attempt badly, or begin the next one.
func fails(k jobs.Command) bool {
	switch k := k.(type) {
	case jobs.Finish:
		return k.Outcome != jobs.OutcomeSuccess
	case jobs.Expire, jobs.Release:
		return true
	}
	return false
}

// ends wants what a run needs that may give up its slots.
func (g *gathering) ends(run *jobs.Run) {
	g.needsOf(run)
	for _, name := range run.Gates {
		g.freed(jobs.GateRef(run.Tenant, name), handPerCommand)
	}
}

// followers are the runs that may follow one which a command of the batch may end, and what those need.
func (g *gathering) followers(run *jobs.Run) {
	t := run.Tenant
	if !g.ending[run.Ref()] {
		return
	}
	keys := g.follow[t]
	if d, ok := g.have[jobs.DefinitionRef(t, run.Key)].(*jobs.Definition); ok {
		keys = slices.Concat(keys, d.Policy.OnSuccess, d.Policy.OnFailure, d.Code.Follow(), d.Edits.Follow())
	}
	if global, ok := g.have[jobs.GlobalRef(t)].(*jobs.Global); ok {
		keys = slices.Concat(keys, global.RecurringDefaults.Follow(), global.TriggeredDefaults.Follow())
	}
	for _, name := range keys {
		key := jobs.Key(name)
		child := &jobs.Run{Tenant: t, ID: jobs.ChildID(run, key), Key: key}
		g.job(t, key)
		g.ref(child.Ref())
		g.gatesOf(t, key, nil, g.gate)
		g.followers(child) // if a later command of the batch ends it
	}
}

// crowd are the runs that a crowd gate lists: a new run may take their place.
func (g *gathering) crowd(gate *jobs.Gate) {
	for _, id := range gate.Runs {
		ref := jobs.RunRef(gate.Tenant, id)
		g.ref(ref)
		if run, ok := g.have[ref].(*jobs.Run); ok {
			g.ends(run)
		}
	}
}

// says notes what settings may mean for commands that follow in the batch.
func (g *gathering) says(t jobs.Tenant, s *jobs.Settings) {
	g.limits[t] = append(g.limits[t], valueOr(s.Limits)...)
	g.follow[t] = append(g.follow[t], s.Follow()...)
	if s.Args != nil {
		g.args[t] = append(g.args[t], *s.Args)
	}
}

// manual says that a person did something to a run, which is audited, perhaps in one line with what he did before.
func manual(e *jobs.Envelope) bool {
	switch k := e.Command.(type) {
	case jobs.Create:
		return jobs.IsPerson(e.Actor) || k.Origin == jobs.FromPerson || k.Origin == jobs.FromAPI
	case jobs.Release, jobs.Cancel:
		return jobs.IsPerson(e.Actor)
	}
	return false
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
	case jobs.Expect:
		return k.ID
	case jobs.Hear:
		return k.ID
	case jobs.Checkpoint:
		return k.ID
	case jobs.Expand:
		return k.ID
	}
	return jobs.ID{}
}

// partsOf are the runs that a broadcast becomes, if the command expands it.
func (g *gathering) partsOf(run *jobs.Run, c jobs.Command) {
	k, ok := c.(jobs.Expand)
	if !ok || !run.Place.Unexpanded() {
		return
	}
	g.ref(jobs.GateRef(run.Tenant, jobs.PartsGate(run.ID))) // later commands of the batch look at it
	for n := range k.Workers {
		part := &jobs.Run{Tenant: run.Tenant, ID: jobs.PartID(run, uint32(n)), Key: run.Key}
		g.ref(part.Ref())
		g.followers(part)
	}
}

// redefined are the gates of a job whose policy a command lays anew, and its history.
func (g *gathering) redefined(t jobs.Tenant, key jobs.Key) {
	g.gatesOf(t, key, nil, func(ref jobs.Ref) { g.freed(ref, handPerCommand) })
	ref := jobs.DefinitionRef(t, key)
	if d, ok := g.have[ref].(*jobs.Definition); ok {
		g.ref(jobs.HistoryRef(t, d.UID))
	}
	for _, uid := range g.uids[ref] {
		g.ref(jobs.HistoryRef(t, uid))
	}
}

// gatesOf are the gates that a job's policy names, or may name by the time its turn comes: limits of any owner,
// because a change of one shows another, and what earlier commands of the batch may define.
func (g *gathering) gatesOf(t jobs.Tenant, key jobs.Key, args []byte, want func(jobs.Ref)) {
	names, again, app := map[string]bool{}, true, "" // another job may begin under the key
	ref := jobs.DefinitionRef(t, key)
	owners := []*jobs.Settings{{Limits: new(g.limits[t])}}
	for _, app := range g.apps[t] {
		names[jobs.AppGate(app)] = true
	}
	if d, ok := g.have[ref].(*jobs.Definition); ok {
		names[jobs.JobGate(d.UID)], app = true, d.App
		owners = append(owners, &d.Code, &d.Edits, &jobs.Settings{Limits: &d.Policy.Limits, Args: &d.Policy.Args})
		again = d.Gone() || g.deleted[ref]
	}
	if again {
		for _, uid := range g.uids[ref] {
			names[jobs.JobGate(uid)] = true
		}
	}
	if global, ok := g.have[jobs.GlobalRef(t)].(*jobs.Global); ok {
		owners = append(owners, &global.RecurringDefaults, &global.TriggeredDefaults)
		for _, l := range global.AppLimits {
			if l.Name == app || slices.Contains(g.moved[t], l.Name) {
				names[jobs.AppGate(l.Name)] = true
			}
		}
	}
	said := []json.RawMessage{args}
	if len(args) == 0 { // the default ones, of whichever owner by then
		said = append(said, g.args[t]...)
		for _, s := range owners {
			if s.Args != nil {
				said = append(said, *s.Args)
			}
		}
	}
	for _, s := range owners {
		for _, l := range valueOr(s.Limits) {
			for _, args := range said {
				names[jobs.GateOf(&l, args)] = true
			}
		}
	}
	uids := g.uids[ref]
	if d, ok := g.have[ref].(*jobs.Definition); ok {
		uids = append(slices.Clip(uids), d.UID)
	}
	for name := range names {
		want(jobs.GateRef(t, name))
		for _, uid := range uids {
			g.ref(jobs.GateRef(t, jobs.CrowdGate(name, uid)))
		}
	}
}

// needsOf are the gates, the job and the unique key of a run that may be let in, or be skipped instead.
func (g *gathering) needsOf(run *jobs.Run) {
	g.ref(jobs.DefinitionRef(run.Tenant, run.Key))
	if run.Unique != "" {
		g.ref(jobs.UniqueRef(run.Tenant, jobs.UniqueName(run.Key, run.Unique)))
	}
	for _, name := range run.Gates {
		if crowds(run) {
			g.ref(jobs.GateRef(run.Tenant, jobs.CrowdGate(name, run.Job)))
		}
		if run.Reserved && jobs.Keyed(name) {
			g.freed(jobs.GateRef(run.Tenant, name), handPerCommand)
		} else {
			g.gate(jobs.GateRef(run.Tenant, name))
		}
		if strings.HasPrefix(name, jobs.AppGate("")) {
			g.ref(jobs.GlobalRef(run.Tenant))
		}
	}
	if p := run.Place; p != nil && !p.Group.IsZero() && len(run.Gates) > 0 {
		g.ref(jobs.GateRef(run.Tenant, jobs.PartsGate(p.Group)))
	}
}

func valueOr[T any](v *[]T) []T {
	if v == nil {
		return nil
	}
	return *v
}
