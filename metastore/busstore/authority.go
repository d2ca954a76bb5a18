package busstore

import (
	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Who may say and ask what. A node may everything, for all tenants, and may name the person for whom it asks. A
// worker may do what its runs need, a client what a program that enqueues needs, both in their own tenant and
// under their own name.

// roles is a set of roles beside nodes.
type roles byte

const (
	nobody  roles = 0
	workers roles = 1 << iota
	clients
)

func (r roles) have(role bus.Role) bool {
	switch role {
	case bus.Node:
		return true
	case bus.Worker:
		return r&workers != 0
	case bus.Client:
		return r&clients != 0
	}
	return false
}

// mayCommand has a row for each command: a verb that is not in it is refused to all but nodes, and a test fails.
var mayCommand = map[kernel.Verb]roles{
	kernel.VerbRegister:   workers,
	kernel.VerbEdit:       nobody,
	kernel.VerbPause:      nobody,
	kernel.VerbResume:     nobody,
	kernel.VerbCreate:     workers | clients,
	kernel.VerbFire:       nobody,
	kernel.VerbRelease:    nobody,
	kernel.VerbClaim:      workers,
	kernel.VerbFinish:     workers,
	kernel.VerbReturned:   workers,
	kernel.VerbCheckpoint: workers,
	kernel.VerbExpire:     nobody,
	kernel.VerbCancel:     clients,
	kernel.VerbConfigure:  nobody,
	kernel.VerbLead:       nobody,
	kernel.VerbRefresh:    nobody,
	kernel.VerbForget:     nobody,
	kernel.VerbHand:       nobody,
	kernel.VerbDelete:     nobody,
	kernel.VerbGrant:      nobody,
	kernel.VerbRevoke:     nobody,
	kernel.VerbSignIn:     nobody,
	kernel.VerbSignOut:    nobody,
	kernel.VerbTrim:       nobody,
	kernel.VerbInvite:     nobody,
	kernel.VerbJoin:       nobody,
	kernel.VerbMembers:    nobody,
	kernel.VerbExpand:     nobody,

	kernel.VerbSetCalendar:  nobody,
	kernel.VerbDropCalendar: nobody,
	kernel.VerbDrain:        nobody,
	kernel.VerbMark:         nobody,
	kernel.VerbExpect:       workers,
	kernel.VerbHear:         nobody,
	kernel.VerbClean:        nobody,
	kernel.VerbBackfill:     nobody,
	kernel.VerbNotify:       workers,

	kernel.VerbFinalizeUpgrade: nobody,
}

// mayAsk has a row for each question. A worker reads the run it works on and the job it belongs to.
var mayAsk = map[verb]roles{
	askApply:       workers | clients,
	askDefinition:  workers | clients,
	askDefinitions: clients,
	askRun:         workers | clients,
	askRuns:        clients,
	askLedger:      clients,
	askCounts:      clients,
	askGlobal:      clients,
	askToken:       nobody,
	askTokens:      nobody,
	askSession:     nobody,
	askAudits:      nobody,
	askHistory:     clients,
	askCalendars:   clients,
	askBrief:       workers | clients,
}

// authorize refuses a command that from may not send, and signs one that it may: tenant, actor and origin are those of the
// connection, whatever the envelope says. Actor is from's, named once for many commands.
func authorize(from bus.Principal, actor string, e *kernel.Envelope) error {
	if from.Role == bus.Node {
		if e.Actor == "" {
			e.Actor = actor
		}
		return nil
	}
	if e.Command == nil {
		return kernel.Invalid("envelope %s carries no command", e.ID)
	}
	if v := e.Command.Verb(); !mayCommand[v].have(from.Role) {
		return kernel.Refuse(jobs.Forbidden, "%s may not send %s", actor, v)
	}
	if e.Tenant != from.Tenant {
		return kernel.Refuse(jobs.Forbidden, "%s of tenant %s may not speak for tenant %.40q", actor, from.Tenant, e.Tenant)
	}
	e.Actor = actor
	if k, ok := e.Command.(kernel.Create); ok {
		origin := k.Origin
		if err := programs(actor, &k); err != nil {
			return err
		}
		if k.Origin != origin { // which is rare, and what a command costs counts here
			e.Command = k
		}
	}
	if name := workerOf(e.Command); name != "" && !from.SpeaksFor(name) {
		return kernel.Refuse(jobs.Forbidden, "%s may not speak for worker %.60q", actor, name)
	}
	return nil
}

// programs makes a wish one of a program: it comes from code, or from a run that it names as its parent (see
// server.parent). What people ask for, and runs that are made of others, come from nodes.
func programs(actor string, k *kernel.Create) error {
	switch k.Origin {
	case "", kernel.FromCode, kernel.FromParent:
	default:
		return kernel.Refuse(jobs.Forbidden, "%s may not enqueue run %s with origin %.20q: runs that programs enqueue have the origin code or parent", actor, k.ID, string(k.Origin))
	}
	if kernel.SystemKey(k.Key) {
		return kernel.Refuse(jobs.Forbidden, "%s may not enqueue run %s of %s: only the scheduler starts system jobs", actor, k.ID, k.Key)
	}
	k.Origin = kernel.FromCode
	if !k.Parent.IsZero() {
		k.Origin = kernel.FromParent
	}
	// Whoever knows a job, or a run, can reckon the IDs of what follows from it, and would take them before it is there.
	if kernel.IsDerived(k.ID) {
		return kernel.Refuse(jobs.Forbidden, "%s may not make run %s: an ID of version 8 is one that follows from something else; name runs with jobs.NewID, and ask once with an idempotency key", actor, k.ID)
	}
	return nil
}

// workerOf is the worker that a command speaks for, or "".
func workerOf(c kernel.Command) string {
	switch k := c.(type) {
	case kernel.Register:
		return k.Worker
	case kernel.Claim:
		return k.Worker
	case kernel.Finish:
		return k.Worker
	case kernel.Returned:
		return k.Worker
	case kernel.Checkpoint:
		return k.Worker
	case kernel.Expect:
		return k.Worker
	case kernel.Notify:
		return k.Worker
	}
	return ""
}

// reads refuses a question that from may not ask, and fills in its tenant.
func reads(from bus.Principal, v verb, q *question) error {
	if q.Tenant == "" {
		q.Tenant = from.Tenant
	}
	switch {
	case !mayAsk[v].have(from.Role):
		return kernel.Refuse(jobs.Forbidden, "%s may not read %s", from.Actor(), v)
	case from.Role != bus.Node && q.Tenant != from.Tenant:
		return kernel.Refuse(jobs.Forbidden, "%s of tenant %s may not read tenant %.40q", from.Actor(), from.Tenant, q.Tenant)
	case from.Role != bus.Node && len(q.Keys) > maxKeys:
		return kernel.Invalid("%d keys are asked for at once, at most %d are allowed", len(q.Keys), maxKeys)
	}
	return nil
}

// maxKeys is how many jobs others than nodes may ask for by their keys at once: each that is found is looked for among
// them all, while nobody can write.
const maxKeys = 10_000

// toldTo is a run as somebody may see it: a client has no use for the key by which others' words about the run are known.
func toldTo(from bus.Principal, run *kernel.Run) *kernel.Run {
	if from.Role != bus.Client || run.Feedback == nil {
		return run
	}
	seen := *run
	seen.Feedback = nil
	return &seen
}

// trim makes of an answer what is the asker's business: a worker or a client sees the run it speaks of, and not
// those to which that run's slots went. Whoever claims a run is told what it takes to run it; to all else the answer
// says where the run stands: as a receipt, to those who know of them. Writing and reading the whole row would cost more
// than the command. Who wants to see it reads it.
//
// It makes its answer in room, which serves for the next one when this one has been encoded.
func (room *room) trim(from bus.Principal, v verb, c kernel.Command, e *kernel.Effect) *kernel.Effect {
	if from.Role == bus.Node || len(e.Runs) == 0 {
		return e
	}
	run := e.Runs[0]
	room.effect = *e
	room.effect.Runs = room.list[:]
	switch {
	case c.Verb() == kernel.VerbClaim:
		room.run = *run
		room.run.Moves = nil
	case v == askBrief:
		room.receipt = run.Summary()
		room.effect.Runs, room.effect.Summary = nil, &room.receipt
	default:
		room.run = kernel.Run{Tenant: run.Tenant, ID: run.ID, Job: run.Job, Key: run.Key, App: run.App, Kind: run.Kind, State: run.State, Cause: run.Cause,
			Due: run.Due, Created: run.Created, Attempt: run.Attempt, Worker: run.Worker, RetryAt: run.RetryAt, Lingering: run.Lingering}
	}
	room.list[0] = &room.run
	return &room.effect
}

type room struct {
	run     kernel.Run
	receipt kernel.Summary
	list    [1]*kernel.Run
	effect  kernel.Effect
}
