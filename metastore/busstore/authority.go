package busstore

import (
	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Which role may send which command and read what. Nodes may do everything, for all tenants, and may name the person
// on whose behalf they act. A worker may do what its runs need, a client what a program that enqueues needs, both in
// their own tenant and under their own name.

// roles is a set of roles other than node.
type roles byte

const (
	nodesOnly roles = 0
	workers   roles = 1 << iota
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

// mayCommand has a row for each command. A verb without a row is refused to all but nodes; a test fails then.
var mayCommand = map[kernel.Verb]roles{
	kernel.VerbRegister:   workers,
	kernel.VerbEdit:       nodesOnly,
	kernel.VerbPause:      nodesOnly,
	kernel.VerbResume:     nodesOnly,
	kernel.VerbCreate:     workers | clients,
	kernel.VerbFire:       nodesOnly,
	kernel.VerbRelease:    nodesOnly,
	kernel.VerbStart:      nodesOnly,
	kernel.VerbUnstart:    nodesOnly,
	kernel.VerbFinish:     workers,
	kernel.VerbReturned:   workers,
	kernel.VerbCheckpoint: workers,
	kernel.VerbExpire:     nodesOnly,
	kernel.VerbCancel:     clients,
	kernel.VerbConfigure:  nodesOnly,
	kernel.VerbLead:       nodesOnly,
	kernel.VerbRefresh:    nodesOnly,
	kernel.VerbForget:     nodesOnly,
	kernel.VerbHand:       nodesOnly,
	kernel.VerbDelete:     nodesOnly,
	kernel.VerbGrant:      nodesOnly,
	kernel.VerbRevoke:     nodesOnly,
	kernel.VerbSignIn:     nodesOnly,
	kernel.VerbSignOut:    nodesOnly,
	kernel.VerbTouch:      nodesOnly,
	kernel.VerbPurgeAudit: nodesOnly,
	kernel.VerbInvite:     nodesOnly,
	kernel.VerbJoin:       nodesOnly,
	kernel.VerbMembers:    nodesOnly,
	kernel.VerbExpand:     nodesOnly,

	kernel.VerbSetCalendar:  nodesOnly,
	kernel.VerbDropCalendar: nodesOnly,
	kernel.VerbDrain:        nodesOnly,
	kernel.VerbMark:         nodesOnly,
	kernel.VerbExpect:       workers,
	kernel.VerbReport:       nodesOnly,
	kernel.VerbPurge:        nodesOnly,
	kernel.VerbBackfill:     nodesOnly,
	kernel.VerbNotify:       workers,

	kernel.VerbFinalizeUpgrade: nodesOnly,

	kernel.VerbSetTenant:     nodesOnly,
	kernel.VerbSuspendTenant: nodesOnly,
	kernel.VerbDeleteTenant:  nodesOnly,
	kernel.VerbDropTenant:    nodesOnly,
	kernel.VerbLedgerKey:     nodesOnly,

	kernel.VerbSetAlarmTarget:  nodesOnly,
	kernel.VerbDropAlarmTarget: nodesOnly,
	kernel.VerbSetAlarmRule:    nodesOnly,
	kernel.VerbDropAlarmRule:   nodesOnly,
	kernel.VerbRaiseAlarm:      nodesOnly,
	kernel.VerbEndAlarm:        nodesOnly,
	kernel.VerbSentAlarm:       nodesOnly,
	kernel.VerbPurgeAlarms:     nodesOnly,

	kernel.VerbExported: nodesOnly,
	kernel.VerbDenied:   nodesOnly,

	kernel.VerbCheckIn:    nodesOnly,
	kernel.VerbOpenBatch:  workers | clients,
	kernel.VerbCloseBatch: workers | clients,
}

// mayAsk has a row for each read. A worker reads the run it works on and the job it belongs to.
var mayAsk = map[verb]roles{
	askApply:       workers | clients,
	askDefinition:  workers | clients,
	askDefinitions: clients,
	askRun:         workers | clients,
	askRuns:        clients,
	askLedger:      clients,
	askCounts:      clients,
	askGlobal:      clients,
	askToken:       nodesOnly,
	askTokens:      nodesOnly,
	askSession:     nodesOnly,
	askSessions:    nodesOnly,
	askAudits:      nodesOnly,
	askHistory:     clients,
	askCalendars:   clients,
	askOccasions:   clients,
	askBatches:     workers | clients,
	askBrief:       workers | clients,
	askTenants:     nodesOnly,

	askAlarmSettings: nodesOnly,
	askAlarms:        nodesOnly,
}

// authorize refuses a command that from may not send, and signs one that it may: tenant, actor and origin come from
// the connection, not from the envelope. Actor is from's, named once for many commands.
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
		if k.Origin != origin { // rare; commands must stay cheap
			e.Command = k
		}
	}
	if name := workerOf(e.Command); name != "" && !from.SpeaksFor(name) {
		return kernel.Refuse(jobs.Forbidden, "%s may not speak for worker %.60q", actor, name)
	}
	return nil
}

// programs makes a run one of a program: it comes from code, or from a run that it names as its parent (see
// server.parent). Runs that people request, and runs derived from others, come from nodes.
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
	// The IDs of follow-up runs can be computed from a job or a run. A client could otherwise take one in advance.
	if kernel.IsDerived(k.ID) {
		return kernel.Refuse(jobs.Forbidden, "%s may not make run %s: IDs of version 8 are reserved for runs that Carillon derives from others; use jobs.NewID, and an idempotency key against duplicates", actor, k.ID)
	}
	return nil
}

// workerOf returns the worker on whose behalf a command acts, or "".
func workerOf(c kernel.Command) string {
	switch k := c.(type) {
	case kernel.Register:
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

// reads refuses a read that from may not do, and fills in its tenant.
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

// maxKeys is how many jobs a worker or a client may read by key at once: each match is looked up among all jobs while
// writes wait.
const maxKeys = 10_000

// visibleTo is a run as from may see it: a client has no use for the key that authenticates feedback about the run.
func visibleTo(from bus.Principal, run *kernel.Run) *kernel.Run {
	if from.Role != bus.Client || run.Feedback == nil {
		return run
	}
	seen := *run
	seen.Feedback = nil
	return &seen
}

// trim reduces an answer to what its reader may see: a worker or a client gets the run its command was about, and not
// those that took that run's slots: as a receipt, if the reader knows receipts, because whole rows cost more than the
// command itself.
//
// It builds the answer in room, which the next one reuses once this one is encoded.
func (room *room) trim(from bus.Principal, v verb, e *kernel.Effect) *kernel.Effect {
	if from.Role == bus.Node || len(e.Runs) == 0 {
		return e
	}
	run := e.Runs[0]
	room.effect = *e
	room.effect.Runs = room.list[:]
	if v == askBrief {
		room.receipt = run.Summary()
		room.effect.Runs, room.effect.Summary = nil, &room.receipt
	} else {
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
