package metastore

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// An engine that cannot read single rows while Apply runs (a database) loads all rows that a batch may touch before,
// in a few rounds: the rows that commands name; those that these point to; runs that wait at gates that may become
// free; and what those need in turn. Gather knows which rows these are; storetest checks Apply against it.

// Wants is what an engine should load in one round.
type Wants struct {
	Refs []kernel.Ref
	// First is how many of the runs that wait at a gate, first ones first, are wanted as well. A later round may
	// raise it.
	First map[kernel.Ref]int
}

// Gather calls load, round by round, with the rows that a batch may touch and that were not loaded before, and
// collects what load found.
func Gather(batch []kernel.Envelope, load func(Wants) []kernel.Row) map[kernel.Ref]kernel.Row {
	g := gathering{
		have: map[kernel.Ref]kernel.Row{}, asked: map[kernel.Ref]bool{}, firsts: map[kernel.Ref]int{},
		uids: map[kernel.Ref][]jobs.ID{}, limits: map[jobs.Tenant][]jobs.Limit{},
		args: map[jobs.Tenant][]json.RawMessage{}, apps: map[jobs.Tenant][]string{}, moved: map[jobs.Tenant][]string{},
		deleted: map[kernel.Ref]bool{}, ending: map[kernel.Ref]bool{}, follow: map[jobs.Tenant][]string{},
	}
	g.ref(kernel.StoreRef())
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
		g.waiters = map[kernel.Ref]int{}
		for _, ref := range g.gates {
			g.gate(ref)
		}
		for i := range batch {
			g.pointed(&batch[i])
		}
		for _, row := range g.have {
			switch row := row.(type) {
			case *kernel.Run:
				if row.Waits != "" {
					g.needsOf(row)
				}
			case *kernel.Gate:
				g.crowd(row)
			}
		}
	}
}

type gathering struct {
	have    map[kernel.Ref]kernel.Row
	asked   map[kernel.Ref]bool
	refs    []kernel.Ref       // wanted in the next round
	waiters map[kernel.Ref]int // by gate, how many the whole batch may look at, as far as is known
	firsts  map[kernel.Ref]int // by gate, how many were asked for

	// What earlier commands of a batch may define for later ones: jobs, by their place, and limits.
	uids   map[kernel.Ref][]jobs.ID
	limits map[jobs.Tenant][]jobs.Limit
	args   map[jobs.Tenant][]json.RawMessage
	apps   map[jobs.Tenant][]string // that get a limit
	moved  map[jobs.Tenant][]string // that get a job
	gates  []kernel.Ref             // of commands that name one
	// deleted are jobs that a command of the batch deletes.
	deleted map[kernel.Ref]bool
	// ending are runs that a command of the batch may end, and follow are jobs that may follow one, as far as earlier
	// commands define that.
	ending map[kernel.Ref]bool
	follow map[jobs.Tenant][]string
}

// likely bounds how many waiters of a gate a large batch loads. A command may look at handPerCommand of them, and
// mostly starts one; if a batch needs more, the sweep does the rest with Hand.
const likely = 16 * handPerCommand

// round is the rows that are wanted and not yet loaded.
func (g *gathering) round() Wants {
	w := Wants{Refs: g.refs, First: map[kernel.Ref]int{}}
	g.refs = nil
	for gate, n := range g.waiters {
		n = min(n, likely+n/handPerCommand) + 1 // and one more, which a newcomer must not overtake
		if n > g.firsts[gate] {
			g.firsts[gate], w.First[gate] = n, n
		}
	}
	return w
}

func (g *gathering) ref(r kernel.Ref) {
	if !g.asked[r] {
		g.asked[r] = true
		g.refs = append(g.refs, r)
	}
}

// gate wants a gate, and to know whether any run waits there.
func (g *gathering) gate(ref kernel.Ref) {
	g.bounded(ref)
	g.waiters[ref] += 0
}

// freed wants a gate at which a command may start n runs.
func (g *gathering) freed(ref kernel.Ref, n int) {
	g.bounded(ref)
	g.waiters[ref] += n
}

// bounded wants a gate, and its limit if that is in another row.
func (g *gathering) bounded(ref kernel.Ref) {
	g.ref(ref)
	if limit, _, keyed := kernel.KeyOf(ref.Name); keyed {
		g.ref(kernel.GateRef(ref.Tenant, kernel.BoundGate(limit)))
	}
}

// named are the rows that a command names.
func (g *gathering) named(e *kernel.Envelope) {
	t := e.Tenant
	switch k := e.Command.(type) {
	case kernel.Create:
		g.ref(kernel.RunRef(t, k.ID))
		g.ref(kernel.UniqueRef(t, kernel.AnswerName(k.ID)))
		g.ref(kernel.DefinitionRef(t, k.Key))
		g.ref(kernel.GlobalRef(t))
		if k.Unique != "" {
			g.ref(kernel.UniqueRef(t, kernel.UniqueName(k.Key, k.Unique)))
		}
		if k.Idempotency != "" {
			g.ref(kernel.UniqueRef(t, kernel.IdempotencyName(k.Idempotency)))
		}
	case kernel.Notify:
		g.ref(kernel.RunRef(t, k.Run))
		g.ref(kernel.RunRef(t, k.ID(t)))
		g.job(t, k.Key())
	case kernel.Fire:
		g.ref(kernel.DefinitionRef(t, k.Key))
		g.ref(kernel.GlobalRef(t))
		for _, due := range k.Due {
			g.ref(kernel.RunRef(t, kernel.DueID(t, k.Job, due, 0, 0)))
		}
	case kernel.Release:
		g.ref(kernel.GlobalRef(t))
		g.ref(kernel.RunRef(t, k.ID))
	case kernel.Start:
		g.ref(kernel.RunRef(t, k.ID))
	case kernel.Unstart:
		g.ref(kernel.RunRef(t, k.ID))
	case kernel.Finish:
		g.ref(kernel.RunRef(t, k.ID))
		if k.Outcome != kernel.OutcomeSuccess {
			g.ref(kernel.GlobalRef(t))
		}
	case kernel.Returned:
		g.ref(kernel.RunRef(t, k.ID))
	case kernel.Checkpoint:
		g.ref(kernel.RunRef(t, k.ID))
	case kernel.Expect:
		g.ref(kernel.RunRef(t, k.ID))
	case kernel.Report:
		g.ref(kernel.RunRef(t, k.ID))
	case kernel.Expire:
		g.ref(kernel.RunRef(t, k.ID))
		g.ref(kernel.GlobalRef(t))
	case kernel.Cancel:
		g.ref(kernel.RunRef(t, k.ID))
		g.ref(kernel.GlobalRef(t))
	case kernel.Register:
		g.job(t, k.Job.Key)
	case kernel.Edit:
		g.job(t, k.Key)
	case kernel.Pause:
		g.job(t, k.Key)
	case kernel.Resume:
		g.job(t, k.Key)
	case kernel.Refresh:
		g.job(t, k.Key)
	case kernel.Configure, kernel.FinalizeUpgrade:
		g.ref(kernel.GlobalRef(t))
	case kernel.Forget:
		g.ref(kernel.UniqueRef(t, k.Name))
		if gate, ok := idleGate(k.Name); ok {
			g.gates = append(g.gates, kernel.GateRef(t, gate))
		}
	case kernel.Hand:
		g.ref(kernel.GateRef(t, k.Gate))
	case kernel.Delete:
		g.job(t, k.Key)
	case kernel.Grant:
		g.ref(kernel.TokenRef(t, k.Token.ID))
		g.ref(kernel.UniqueRef(t, kernel.TokenName(k.Token.Name)))
		g.ref(kernel.GlobalRef(t))
	case kernel.Revoke:
		g.ref(kernel.TokenRef(t, k.ID))
		g.ref(kernel.GlobalRef(t))
	case kernel.Invite:
		g.ref(kernel.UniqueRef(t, kernel.InvitationName(k.Name)))
		g.ref(kernel.GlobalRef(t))
	case kernel.Join:
		g.ref(kernel.UniqueRef(t, kernel.InvitationName(k.Name)))
		g.ref(kernel.GlobalRef(t))
	case kernel.Members:
		g.ref(kernel.UniqueRef(t, kernel.MembersName(k.ID)))
		g.ref(kernel.GlobalRef(t))
	case kernel.SignIn:
		g.ref(kernel.SessionRef(t, k.Session.ID))
		g.ref(kernel.TokenRef(t, k.Session.Token))
		g.ref(kernel.GlobalRef(t))
	case kernel.SignOut:
		g.ref(kernel.SessionRef(t, k.ID))
		g.ref(kernel.GlobalRef(t))
	case kernel.Drain:
		g.ref(kernel.GlobalRef(t))
	case kernel.Mark:
		g.job(t, k.Key)
	case kernel.Purge:
		g.ref(kernel.GlobalRef(t))
		if k.Key != "" {
			g.job(t, k.Key)
		}
	case kernel.Backfill:
		g.job(t, k.Key)
		for _, due := range k.Due {
			g.ref(kernel.RunRef(t, k.Run(t, due)))
		}
		for _, m := range k.Take {
			g.ref(kernel.MissedRef(t, k.Job, m.From))
		}
	case kernel.Expand:
		g.ref(kernel.RunRef(t, k.ID))
	case kernel.SetCalendar:
		g.ref(kernel.CalendarRef(t, k.Name))
		g.ref(kernel.GlobalRef(t))
	case kernel.DropCalendar:
		g.ref(kernel.CalendarRef(t, k.Name))
		g.ref(kernel.GlobalRef(t))
	case kernel.PurgeAudit:
		for _, ref := range k.Refs {
			ref.Tenant = t
			g.ref(ref)
		}
	}
}

func (g *gathering) job(t jobs.Tenant, key jobs.Key) {
	g.ref(kernel.DefinitionRef(t, key))
	g.ref(kernel.GlobalRef(t))
}

// defined is what a command may define for later ones in the batch.
func (g *gathering) defined(e *kernel.Envelope) {
	t := e.Tenant
	switch k := e.Command.(type) {
	case kernel.Register:
		ref := kernel.DefinitionRef(t, k.Job.Key)
		g.uids[ref] = append(g.uids[ref], definitionID(e, k.Job.Key))
		g.says(t, &k.Job.Code)
		g.moved[t] = append(g.moved[t], k.App)
	case kernel.Finish:
		g.ending[kernel.RunRef(t, k.ID)] = true
	case kernel.Expire:
		g.ending[kernel.RunRef(t, k.ID)] = true
	case kernel.Delete:
		g.deleted[kernel.DefinitionRef(t, k.Key)] = true
	case kernel.Edit:
		g.says(t, &k.Set)
	case kernel.Configure:
		for _, l := range valueOr(k.AppLimits) {
			g.apps[t] = append(g.apps[t], l.Name)
		}
	}
}

// pointed are the rows that those a command names point to.
func (g *gathering) pointed(e *kernel.Envelope) {
	t := e.Tenant
	if global, ok := g.have[kernel.GlobalRef(t)].(*kernel.Global); ok && (manual(e) || e.Command.Verb() == kernel.VerbDrain) {
		g.ref(kernel.AuditRef(t, global.Audits))
	}
	switch k := e.Command.(type) {
	case kernel.Create:
		g.gatesOf(t, k.Key, k.Args, g.gate)
		g.followers(&kernel.Run{Tenant: t, ID: k.ID, Key: k.Key})
		for _, name := range []string{kernel.UniqueName(k.Key, k.Unique), kernel.IdempotencyName(k.Idempotency), kernel.AnswerName(k.ID)} {
			if u, ok := g.have[kernel.UniqueRef(t, name)].(*kernel.UniqueKey); ok {
				g.ref(kernel.RunRef(t, u.ID))
			}
		}
	case kernel.Notify:
		if of, ok := g.have[kernel.RunRef(t, k.Run)].(*kernel.Run); ok {
			g.gatesOf(t, k.Key(), k.Args(of), g.gate)
		}
		g.followers(&kernel.Run{Tenant: t, ID: k.ID(t), Key: k.Key()})
	case kernel.Fire:
		g.gatesOf(t, k.Key, nil, g.gate)
		for _, due := range k.Due {
			g.followers(&kernel.Run{Tenant: t, ID: kernel.DueID(t, k.Job, due, 0, 0), Key: k.Key})
		}
		if d, ok := g.have[kernel.DefinitionRef(t, k.Key)].(*kernel.Definition); ok && !d.Missed.IsZero() {
			g.ref(kernel.MissedRef(t, d.UID, d.Missed))
		}
	case kernel.Backfill:
		g.gatesOf(t, k.Key, nil, g.gate)
		g.gate(kernel.GateRef(t, kernel.BackfillGate(k.ID, k.Parallel)))
		for _, due := range k.Due {
			g.followers(&kernel.Run{Tenant: t, ID: k.Run(t, due), Key: k.Key})
		}
	case kernel.Register:
		g.redefined(t, k.Job.Key)
	case kernel.Edit:
		g.redefined(t, k.Key)
	case kernel.Pause:
		g.redefined(t, k.Key)
	case kernel.Resume:
		g.redefined(t, k.Key)
	case kernel.Refresh:
		g.redefined(t, k.Key)
	case kernel.Delete:
		g.redefined(t, k.Key)
	case kernel.Revoke:
		if row, ok := g.have[kernel.TokenRef(t, k.ID)].(*kernel.Token); ok {
			g.ref(kernel.UniqueRef(t, kernel.TokenName(row.Name)))
		}
	case kernel.SignOut:
		if row, ok := g.have[kernel.SessionRef(t, k.ID)].(*kernel.Session); ok {
			g.ref(kernel.TokenRef(t, row.Token))
		}
	case kernel.Hand:
		g.freed(kernel.GateRef(t, k.Gate), handPerSweep)
	case kernel.Configure:
		if global, ok := g.have[kernel.GlobalRef(t)].(*kernel.Global); ok && (k.AppLimits != nil || slices.Contains(k.Reset, kernel.FieldAppLimits)) {
			for _, l := range global.AppLimits {
				g.freed(kernel.GateRef(t, kernel.AppGate(l.Name)), handPerCommand)
			}
		}
		for _, l := range valueOr(k.AppLimits) {
			g.freed(kernel.GateRef(t, kernel.AppGate(l.Name)), handPerCommand)
		}
	default:
		if id := runOf(e.Command); !id.IsZero() {
			if run, ok := g.have[kernel.RunRef(t, id)].(*kernel.Run); ok {
				g.ends(run)
				g.followers(run)
				g.partsOf(run, e.Command)
				if fails(e.Command) {
					g.ref(kernel.GateRef(t, kernel.RetryGate(run.Job)))
					g.ref(kernel.GateRef(t, kernel.RetryGate(jobs.ID{})))
				}
			}
		}
	}
}

// fails reports whether a command may end an attempt badly, or begin the next one.
func fails(k kernel.Command) bool {
	switch k := k.(type) {
	case kernel.Finish:
		return k.Outcome != kernel.OutcomeSuccess
	case kernel.Expire, kernel.Release:
		return true
	}
	return false
}

// ends wants the rows for a run that may give up its slots.
func (g *gathering) ends(run *kernel.Run) {
	g.needsOf(run)
	for _, name := range run.Gates {
		g.freed(kernel.GateRef(run.Tenant, name), handPerCommand)
	}
}

// followers are the runs that may follow one which a command of the batch may end, and what those need.
func (g *gathering) followers(run *kernel.Run) {
	t := run.Tenant
	if !g.ending[run.Ref()] {
		return
	}
	keys := g.follow[t]
	if d, ok := g.have[kernel.DefinitionRef(t, run.Key)].(*kernel.Definition); ok {
		keys = slices.Concat(keys, d.Policy.OnSuccess, d.Policy.OnFailure, d.Code.Follow(), d.Edits.Follow())
	}
	for _, name := range keys {
		key := jobs.Key(name)
		child := &kernel.Run{Tenant: t, ID: kernel.ChildID(run, key), Key: key}
		g.job(t, key)
		g.ref(child.Ref())
		g.gatesOf(t, key, nil, g.gate)
		g.followers(child) // if a later command of the batch ends it
	}
}

// crowd are the runs that a crowd gate lists: a new run may take their place.
func (g *gathering) crowd(gate *kernel.Gate) {
	for _, id := range gate.Runs {
		ref := kernel.RunRef(gate.Tenant, id)
		g.ref(ref)
		if run, ok := g.have[ref].(*kernel.Run); ok {
			g.ends(run)
		}
	}
}

// says notes what settings may mean for later commands in the batch.
func (g *gathering) says(t jobs.Tenant, s *kernel.Settings) {
	g.limits[t] = append(g.limits[t], valueOr(s.Limits)...)
	g.follow[t] = append(g.follow[t], s.Follow()...)
	if s.Args != nil {
		g.args[t] = append(g.args[t], *s.Args)
	}
}

// manual reports whether a person did something to a run, which is audited, perhaps in one line with earlier changes.
func manual(e *kernel.Envelope) bool {
	switch k := e.Command.(type) {
	case kernel.Create:
		return kernel.IsPerson(e.Actor) || k.Origin == kernel.FromPerson || k.Origin == kernel.FromAPI
	case kernel.Release, kernel.Cancel:
		return kernel.IsPerson(e.Actor)
	}
	return false
}

// runOf is the run that a command of a worker, a person or a duty is about.
func runOf(k kernel.Command) jobs.ID {
	switch k := k.(type) {
	case kernel.Release:
		return k.ID
	case kernel.Start:
		return k.ID
	case kernel.Unstart:
		return k.ID
	case kernel.Finish:
		return k.ID
	case kernel.Returned:
		return k.ID
	case kernel.Expire:
		return k.ID
	case kernel.Cancel:
		return k.ID
	case kernel.Expect:
		return k.ID
	case kernel.Report:
		return k.ID
	case kernel.Checkpoint:
		return k.ID
	case kernel.Expand:
		return k.ID
	}
	return jobs.ID{}
}

// partsOf are the runs that a broadcast becomes, if the command expands it.
func (g *gathering) partsOf(run *kernel.Run, c kernel.Command) {
	k, ok := c.(kernel.Expand)
	if !ok || !run.Place.Unexpanded() {
		return
	}
	g.ref(kernel.GateRef(run.Tenant, kernel.PartsGate(run.ID))) // later commands of the batch look at it
	for n := range k.Workers {
		part := &kernel.Run{Tenant: run.Tenant, ID: kernel.PartID(run, uint32(n)), Key: run.Key}
		g.ref(part.Ref())
		g.followers(part)
	}
}

// redefined are the gates of a job whose policy a command lays anew, and its history.
func (g *gathering) redefined(t jobs.Tenant, key jobs.Key) {
	g.gatesOf(t, key, nil, func(ref kernel.Ref) { g.freed(ref, handPerCommand) })
	ref := kernel.DefinitionRef(t, key)
	if d, ok := g.have[ref].(*kernel.Definition); ok {
		g.ref(kernel.HistoryRef(t, d.UID))
	}
	for _, uid := range g.uids[ref] {
		g.ref(kernel.HistoryRef(t, uid))
	}
}

// gatesOf are the gates that a job's policy names, or may name by then: limits of any owner, because a change of one
// shows another, and those that earlier commands of the batch may define.
func (g *gathering) gatesOf(t jobs.Tenant, key jobs.Key, args []byte, want func(kernel.Ref)) {
	names, again, app := map[string]bool{}, true, "" // another job may begin under the key
	ref := kernel.DefinitionRef(t, key)
	owners := []*kernel.Settings{{Limits: new(g.limits[t])}}
	for _, app := range g.apps[t] {
		names[kernel.AppGate(app)] = true
	}
	if d, ok := g.have[ref].(*kernel.Definition); ok {
		names[kernel.JobGate(d.UID)], app = true, d.App
		owners = append(owners, &d.Code, &d.Edits, &kernel.Settings{Limits: &d.Policy.Limits, Args: &d.Policy.Args})
		again = d.Gone() || g.deleted[ref]
	}
	if again {
		for _, uid := range g.uids[ref] {
			names[kernel.JobGate(uid)] = true
		}
	}
	if global, ok := g.have[kernel.GlobalRef(t)].(*kernel.Global); ok {
		for _, l := range global.AppLimits {
			if l.Name == app || slices.Contains(g.moved[t], l.Name) {
				names[kernel.AppGate(l.Name)] = true
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
				names[kernel.GateOf(&l, args)] = true
			}
		}
	}
	uids := g.uids[ref]
	if d, ok := g.have[ref].(*kernel.Definition); ok {
		uids = append(slices.Clip(uids), d.UID)
	}
	for name := range names {
		want(kernel.GateRef(t, name))
		for _, uid := range uids {
			g.ref(kernel.GateRef(t, kernel.CrowdGate(name, uid)))
		}
	}
}

// needsOf are the gates, the job and the unique key of a run that may get its slots, or be skipped instead.
func (g *gathering) needsOf(run *kernel.Run) {
	g.ref(kernel.DefinitionRef(run.Tenant, run.Key))
	if run.Unique != "" {
		g.ref(kernel.UniqueRef(run.Tenant, kernel.UniqueName(run.Key, run.Unique)))
	}
	for _, name := range run.Gates {
		if crowds(run) {
			g.ref(kernel.GateRef(run.Tenant, kernel.CrowdGate(name, run.Job)))
		}
		if run.Reserved && kernel.Keyed(name) {
			g.freed(kernel.GateRef(run.Tenant, name), handPerCommand)
		} else {
			g.gate(kernel.GateRef(run.Tenant, name))
		}
		if strings.HasPrefix(name, kernel.AppGate("")) {
			g.ref(kernel.GlobalRef(run.Tenant))
		}
	}
	if p := run.Place; p != nil && !p.Group.IsZero() && len(run.Gates) > 0 {
		g.ref(kernel.GateRef(run.Tenant, kernel.PartsGate(p.Group)))
	}
}

func valueOr[T any](v *T) (none T) {
	if v == nil {
		return none
	}
	return *v
}
