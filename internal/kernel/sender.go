package kernel

import (
	"strings"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Which sender may send which command. The door that authenticates a sender (the bus, the HTTP API, the pages, the
// outbox) only names it in the envelope; what follows from that is here, and, where rows matter, in the commit
// (metastore/sender.go). So a command is refused alike, whatever its way to the store, and no edit can come between the
// check and the change.

// Sender is what is known about the sender of a command. A nil Sender is the scheduler itself: a node or its leader.
type Sender struct {
	As    SentAs
	Home  jobs.Tenant // where its rights are; "" = in the envelope's tenant
	App   string      // of a worker: the only app that it may act for; "" = any
	Scope Scope       // of an operator or a client: the jobs that it may act on
}

// SentAs is the kind of a sender. The numbers are part of the wire.
type SentAs uint8

// The kinds of senders.
const (
	AsUnknown  SentAs = 0 // may send nothing
	AsWorker   SentAs = 1 // on the bus; an HTTP worker has a connection of its own
	AsProgram  SentAs = 2 // a client on the bus
	AsOutbox   SentAs = 3 // a program's transaction
	AsClient   SentAs = 4 // a program with a token of the role client, in the HTTP API
	AsViewer   SentAs = 5
	AsOperator SentAs = 6
	AsAdmin    SentAs = 7
	AsCallback SentAs = 8 // a signed report of an asynchronous HTTP job
)

// sentAs are the kinds of senders by number.
var sentAs = [...]string{"unknown", RoleWorker, "program", "outbox", RoleClient, RoleViewer, RoleOperator, RoleAdmin, "callback"}

func (a SentAs) String() string {
	if int(a) < len(sentAs) {
		return sentAs[a]
	}
	return "?"
}

// senders is a set of kinds of senders.
type senders uint16

const (
	nodesOnly senders = 0
	workers   senders = 1 << AsWorker
	programs  senders = 1 << AsProgram
	outboxes  senders = 1 << AsOutbox
	clients   senders = 1 << AsClient
	callbacks senders = 1 << AsCallback

	// Of people, each role includes those before it.
	admins    senders = 1 << AsAdmin
	operators         = admins | 1<<AsOperator
	viewers           = operators | 1<<AsViewer
)

// maySend has a row for each command: who may send it, beside the scheduler itself.
var maySend = map[Verb]senders{
	VerbCreate:     workers | programs | outboxes | clients | operators,
	VerbCancel:     programs | operators,
	VerbOpenBatch:  workers | programs | operators,
	VerbCloseBatch: workers | programs | operators,
	VerbRegister:   workers | admins,

	VerbFinish:     workers,
	VerbReturned:   workers,
	VerbCheckpoint: workers,
	VerbExpect:     workers,
	VerbNotify:     workers,
	VerbReport:     callbacks,

	VerbSignIn:    viewers,
	VerbTouch:     viewers,
	VerbSignOut:   viewers,
	VerbLedgerKey: viewers,

	VerbRelease:  operators,
	VerbPause:    operators,
	VerbResume:   operators,
	VerbBackfill: operators,
	VerbCheckIn:  operators,
	VerbDrain:    operators,
	VerbEndAlarm: operators,

	VerbEdit:            admins,
	VerbDelete:          admins,
	VerbConfigure:       admins,
	VerbPurge:           admins,
	VerbGrant:           admins,
	VerbRevoke:          admins,
	VerbSetCalendar:     admins,
	VerbDropCalendar:    admins,
	VerbSetAlarmTarget:  admins,
	VerbDropAlarmTarget: admins,
	VerbSetAlarmRule:    admins,
	VerbDropAlarmRule:   admins,
	VerbSetTenant:       admins,
	VerbSuspendTenant:   admins,
	VerbDeleteTenant:    admins,
	VerbFinalizeUpgrade: admins,

	VerbFire:        nodesOnly,
	VerbStart:       nodesOnly,
	VerbUnstart:     nodesOnly,
	VerbExpire:      nodesOnly,
	VerbExpand:      nodesOnly,
	VerbMark:        nodesOnly,
	VerbLead:        nodesOnly,
	VerbRefresh:     nodesOnly,
	VerbForget:      nodesOnly,
	VerbHand:        nodesOnly,
	VerbInvite:      nodesOnly, // and others that change the nodes: ops.Ops passes them to the cluster
	VerbJoin:        nodesOnly,
	VerbMembers:     nodesOnly,
	VerbDropTenant:  nodesOnly,
	VerbRaiseAlarm:  nodesOnly,
	VerbSentAlarm:   nodesOnly,
	VerbPurgeAlarms: nodesOnly,
	VerbPurgeAudit:  nodesOnly,
	VerbExported:    nodesOnly,
	VerbDenied:      nodesOnly,
}

// ErrStartsOnly is why a client of the HTTP API may not do something.
var ErrStartsOnly = Refuse(jobs.Forbidden, "the role client may only start runs")

// Whole reports whether the sender may act on all jobs of its tenant.
func (s *Sender) Whole() bool { return s == nil || s.App == "" && s.Scope.All() }

// check refuses what the sender may not send, whatever the rows are.
func (s *Sender) check(e *Envelope) error {
	if s == nil {
		return nil
	}
	if err := s.valid(); err != nil {
		return err
	}
	verb := e.Command.Verb()
	switch may := maySend[verb]&(1<<s.As) != 0; {
	case may:
	case s.As == AsClient:
		return ErrStartsOnly
	case s.As == AsOutbox:
		return Refuse(jobs.Forbidden, "the outbox takes requests for runs only, not %s", verb)
	default:
		return Refuse(jobs.Forbidden, "%s may not send %s", e.Actor, verb)
	}
	if err := s.abroad(e); err != nil {
		return err
	}
	switch k := e.Command.(type) {
	case Create:
		return s.creates(e, &k)
	case Register:
		if (s.As == AsWorker) == (k.Worker == NoWorker) {
			return Refuse(jobs.Forbidden, "%s may not register jobs for worker %.60q", e.Actor, k.Worker)
		}
	}
	return nil
}

// valid refuses rights that no sender of this kind has.
func (s *Sender) valid() error {
	switch {
	case s.As == AsUnknown || int(s.As) >= len(sentAs):
		return Refuse(jobs.Forbidden, "a sender of the kind %q may send nothing", s.As.String())
	case s.App != "" && s.As != AsWorker:
		return Invalid("app %.60q: only a worker is limited to an app, not a sender of the kind %s", s.App, s.As)
	}
	return s.Scope.Check(s.As.String())
}

// abroad refuses commands in another tenant than the sender's own. An administrator of the server, an admin of the
// default tenant, gives a tenant tokens. Sessions may have rights in several tenants: an admin of
// one of them may end such a session (see metastore/sender.go).
func (s *Sender) abroad(e *Envelope) error {
	if s.Home == "" || s.Home == e.Tenant {
		return nil
	}
	switch e.Command.(type) {
	case SignOut:
		if s.As == AsAdmin {
			return nil
		}
	case Grant:
		if s.As == AsAdmin && s.Home == jobs.DefaultTenant {
			return nil
		}
	}
	return Refuse(jobs.Forbidden, "%s of tenant %s may not speak for tenant %.40q", e.Actor, s.Home, e.Tenant)
}

// creates refuses runs that the sender may not request: those of programs come from code, or from a run that they name
// as their parent; those that people request, and those derived from other runs, do not.
func (s *Sender) creates(e *Envelope, k *Create) error {
	code := k.Origin == "" || k.Origin == FromCode
	switch s.As {
	case AsClient:
		if k.Origin != FromAPI {
			return ErrStartsOnly
		}
		return nil
	case AsOutbox:
		switch {
		case !code, !k.Parent.IsZero(), k.Total > 0, IsDerived(k.ID), e.Reason != "":
			return Refuse(jobs.Forbidden, "the outbox takes requests of programs only: their runs have no parent, no reason and an ID of their own")
		case !strings.HasPrefix(e.Actor, "client:"):
			return Refuse(jobs.Forbidden, "the outbox takes requests of programs only: the actor %.60q is not like client:shop", e.Actor)
		}
		return nil
	case AsWorker, AsProgram:
	default:
		return nil
	}
	if !code && k.Origin != FromParent {
		return Refuse(jobs.Forbidden, "%s may not enqueue run %s with origin %.20q: runs that programs enqueue have the origin code or parent", e.Actor, k.ID, string(k.Origin))
	}
	// The IDs of follow-up runs can be computed from a job or a run. A client could otherwise take one in advance.
	if IsDerived(k.ID) {
		return Refuse(jobs.Forbidden, "%s may not make run %s: IDs of version 8 are reserved for runs that Carillon derives from others; use jobs.NewID, and an idempotency key against duplicates", e.Actor, k.ID)
	}
	return nil
}

// Target is what a command acts on, as far as senders may be limited to a part of it.
type Target struct {
	Job   jobs.Key
	Run   jobs.ID
	Batch jobs.ID
	App   string // of Job, if that may have been deleted
	Own   bool   // something of the sender itself
}

// TargetOf returns what a command acts on. The zero Target is more than one job.
func TargetOf(c Command) Target {
	switch k := c.(type) {
	case SignIn, Touch, SignOut, LedgerKey:
		return Target{Own: true}
	case Create:
		return Target{Job: k.Key, Batch: k.Batch}
	case Register:
		return Target{Job: k.Job.Key}
	case Pause:
		return Target{Job: k.Key}
	case Resume:
		return Target{Job: k.Key}
	case Backfill:
		return Target{Job: k.Key}
	case CheckIn:
		return Target{Job: k.Key}
	case OpenBatch:
		return Target{Job: k.Then}
	case CloseBatch:
		return Target{Batch: k.ID}
	case EndAlarm:
		return Target{Job: k.Job, App: k.App}
	case Cancel:
		return Target{Run: k.ID}
	case Release:
		return Target{Run: k.ID}
	case Finish:
		return Target{Run: k.ID}
	case Returned:
		return Target{Run: k.ID}
	case Checkpoint:
		return Target{Run: k.ID}
	case Expect:
		return Target{Run: k.ID}
	case Notify:
		return Target{Run: k.Run}
	}
	return Target{}
}

// Permits returns why a sender may not act on a job, or nil.
func (s *Sender) Permits(actor string, key jobs.Key, app string, tags []string) error {
	switch {
	case s == nil:
		return nil
	case s.App != "" && s.App != app:
		return Refuse(jobs.Forbidden, "%s belongs to app %s: job %s is of another", actor, s.App, key)
	case s.Scope.Has(key, app, tags):
		return nil
	case s.As == AsClient:
		return Refuse(jobs.Forbidden, "job %s is not in your scope (%s)", key, &s.Scope)
	}
	return Refuse(jobs.Forbidden, "job %s is not in your scope (%s): you may read it, but not act on it", key, &s.Scope)
}

// PermitsAll returns why a sender may not act on more than one job, or nil.
func (s *Sender) PermitsAll() error {
	switch {
	case s.Whole():
		return nil
	case s.App != "":
		return Refuse(jobs.Forbidden, "this acts on more than the jobs of your app (%s)", s.App)
	}
	return Refuse(jobs.Forbidden, "this acts on more than the jobs in your scope (%s)", &s.Scope)
}

func (s *Sender) same(o *Sender) bool {
	return s == o || s != nil && o != nil && s.As == o.As && s.Home == o.Home && s.App == o.App && s.Scope.Same(&o.Scope)
}

func wireSender(c *coder, s *Sender) {
	number(c, &s.As)
	word(c, &s.Home)
	word(c, &s.App)
	wireScope(c, &s.Scope)
}
