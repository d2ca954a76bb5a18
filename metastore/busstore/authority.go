package busstore

import (
	"github.com/carillon-scheduler/carillon/bus"
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
var mayCommand = map[jobs.Verb]roles{
	jobs.VerbRegister:   workers,
	jobs.VerbEdit:       nobody,
	jobs.VerbPause:      nobody,
	jobs.VerbResume:     nobody,
	jobs.VerbCreate:     workers | clients,
	jobs.VerbFire:       nobody,
	jobs.VerbRelease:    nobody,
	jobs.VerbClaim:      workers,
	jobs.VerbFinish:     workers,
	jobs.VerbReturned:   workers,
	jobs.VerbCheckpoint: workers,
	jobs.VerbExpire:     nobody,
	jobs.VerbCancel:     clients,
	jobs.VerbConfigure:  nobody,
	jobs.VerbLead:       nobody,
	jobs.VerbRefresh:    nobody,
	jobs.VerbForget:     nobody,
	jobs.VerbHand:       nobody,
}

// mayAsk has a row for each question. A worker reads the run it works on and the job it belongs to.
var mayAsk = map[verb]roles{
	askApply:       workers | clients,
	askDefinition:  workers | clients,
	askDefinitions: clients,
	askInstance:    workers | clients,
	askInstances:   clients,
	askLedger:      clients,
	askCounts:      clients,
	askGlobal:      clients,
}

// authorize refuses a command that from may not send, and signs one that it may: tenant and actor are those of the
// connection, whatever the envelope says.
func authorize(from bus.Principal, e *jobs.Envelope) error {
	if from.Role == bus.Node {
		if e.Actor == "" {
			e.Actor = from.Actor()
		}
		return nil
	}
	if e.Command == nil {
		return jobs.Invalid("envelope %s carries no command", e.ID)
	}
	if v := e.Command.Verb(); !mayCommand[v].have(from.Role) {
		return jobs.Refuse(jobs.Forbidden, "%s may not send %s", from.Actor(), v)
	}
	if e.Tenant != from.Tenant {
		return jobs.Refuse(jobs.Forbidden, "%s of tenant %s may not speak for tenant %.40q", from.Actor(), from.Tenant, e.Tenant)
	}
	e.Actor = from.Actor()
	if k, ok := e.Command.(jobs.Create); ok && k.Origin == jobs.FromPerson {
		return jobs.Refuse(jobs.Forbidden, "%s may not say that a person asked", from.Actor())
	}
	if name := workerOf(e.Command); name != "" && !from.SpeaksFor(name) {
		return jobs.Refuse(jobs.Forbidden, "%s may not speak for worker %.60q", from.Actor(), name)
	}
	return nil
}

// workerOf is the worker that a command speaks for, or "".
func workerOf(c jobs.Command) string {
	switch k := c.(type) {
	case jobs.Register:
		return k.Worker
	case jobs.Claim:
		return k.Worker
	case jobs.Finish:
		return k.Worker
	case jobs.Returned:
		return k.Worker
	case jobs.Checkpoint:
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
		return jobs.Refuse(jobs.Forbidden, "%s may not read %s", from.Actor(), v)
	case from.Role != bus.Node && q.Tenant != from.Tenant:
		return jobs.Refuse(jobs.Forbidden, "%s of tenant %s may not read tenant %.40q", from.Actor(), from.Tenant, q.Tenant)
	}
	return nil
}

// trim makes of an answer what is the asker's business: a worker or a client sees the run it speaks of, and not
// those to which that run's slots went. Whoever claims a run is told what it takes to run it; to all else the answer
// is a receipt, which says where the run stands. Decoding the whole row would cost a worker more than sending the
// command. Who wants to see it reads it.
func trim(from bus.Principal, c jobs.Command, e jobs.Effect) jobs.Effect {
	if from.Role == bus.Node || len(e.Instances) == 0 {
		return e
	}
	in := e.Instances[0]
	seen := &jobs.Instance{Tenant: in.Tenant, ID: in.ID, Job: in.Job, Key: in.Key, App: in.App, Kind: in.Kind, State: in.State, Cause: in.Cause,
		Due: in.Due, Created: in.Created, Attempt: in.Attempt, Worker: in.Worker, RetryAt: in.RetryAt, Lingering: in.Lingering}
	if c.Verb() == jobs.VerbClaim {
		*seen = *in
		seen.Moves = nil
	}
	e.Instances = []*jobs.Instance{seen}
	return e
}
