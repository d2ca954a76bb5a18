package busstore

import (
	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// What the connection of a sender says about it, and what it may read. Nodes may do everything, for all tenants, and may
// name the person on whose behalf they act. Which commands the others may send is decided by the rules
// (kernel.Sender), for every way to the store alike.

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

// senderOf is what the rules know about a principal; nil is a node. A worker is limited to an app by own.
func senderOf(from bus.Principal, own string) *kernel.Sender {
	switch from.Role {
	case bus.Node:
		return nil
	case bus.Worker:
		return &kernel.Sender{As: kernel.AsWorker, App: own}
	case bus.Client:
		return &kernel.Sender{As: kernel.AsProgram}
	}
	return &kernel.Sender{As: kernel.AsUnknown}
}

// sign refuses a command that speaks for others than its connection does, and signs the others: tenant, actor, sender
// and origin come from the connection, not from the envelope. Actor is from's, named once for many commands.
func sign(from bus.Principal, actor string, as *kernel.Sender, e *kernel.Envelope) error {
	if from.Role == bus.Node {
		if e.Actor == "" {
			e.Actor = actor
		}
		return nil
	}
	if e.Command == nil {
		return kernel.Invalid("envelope %s carries no command", e.ID)
	}
	if e.Tenant != from.Tenant {
		return kernel.Refuse(jobs.Forbidden, "%s of tenant %s may not speak for tenant %.40q", actor, from.Tenant, e.Tenant)
	}
	e.Actor, e.Sender = actor, as
	if k, ok := e.Command.(kernel.Create); ok { // rare; commands must stay cheap
		origin := kernel.FromCode
		if !k.Parent.IsZero() {
			origin = kernel.FromParent
		}
		if (k.Origin == "" || k.Origin == kernel.FromCode || k.Origin == kernel.FromParent) && k.Origin != origin {
			k.Origin = origin
			e.Command = k
		}
	}
	if name := workerOf(e.Command); name != "" && !from.SpeaksFor(name) {
		return kernel.Refuse(jobs.Forbidden, "%s may not speak for worker %.60q", actor, name)
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
