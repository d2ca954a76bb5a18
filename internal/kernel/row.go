package kernel

import (
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// RowKind is the kind of row of a Ref.
type RowKind uint8

// The kinds of row. The numbers are part of the wire: add at the end.
const (
	RowDefinition RowKind = 1
	RowRun        RowKind = 2
	RowGate       RowKind = 3
	RowUnique     RowKind = 4
	RowMissed     RowKind = 5
	RowTally      RowKind = 6
	RowGlobal     RowKind = 7
	RowStore      RowKind = 8
	RowToken      RowKind = 9
	RowSession    RowKind = 10
	RowAudit      RowKind = 11
	RowHistory    RowKind = 12
	RowCalendar   RowKind = 13
	RowParcel     RowKind = 14

	RowAlarmSettings RowKind = 15
	RowAlarm         RowKind = 16

	RowFollowers RowKind = 20
	RowOccasion  RowKind = 21
	RowBatch     RowKind = 22
)

var rowKinds = [...]string{RowDefinition: "jobs", RowRun: "runs", RowGate: "limits in use", RowUnique: "unique keys", RowMissed: "missed ranges",
	RowTally: "tallies", RowGlobal: "tenants' settings", RowStore: "store states", RowToken: "tokens", RowSession: "sessions",
	RowAudit: "audits", RowHistory: "earlier settings of jobs", RowCalendar: "calendars", RowParcel: "packed rows",
	RowAlarmSettings: "rules of alarms", RowAlarm: "alarms", RowFollowers: "followers of jobs", RowOccasion: "open occasions", RowBatch: "batches"}

// String names the rows of a kind, for users.
func (k RowKind) String() string {
	if int(k) < len(rowKinds) && rowKinds[k] != "" {
		return rowKinds[k]
	}
	return fmt.Sprintf("rows of the unknown kind %d", uint8(k))
}

// Ref identifies a row. Which fields are used depends on the kind; it is comparable, and so a map key.
type Ref struct {
	Kind   RowKind
	Span   Span        // Tally
	Tenant jobs.Tenant //
	// Name is the key of a definition, and of its followers; the name of a gate, a unique key, a calendar and an occasion;
	// the id of a token and a session; the rule and job of an alarm that is open.
	Name string
	ID   jobs.ID // Run, Batch: its id. Missed, Tally, History, Occasion: the job's uid.
	At   int64   // Missed: From, Tally: its start; Unix nanoseconds. Audit: its number, and that of an alarm that has ended.
}

// Row is anything a store keeps: a pointer to one of the row types of this package.
type Row interface{ Ref() Ref }

// Gate counts slots: of a job, or of a limit that jobs share.
type Gate struct {
	Tenant jobs.Tenant
	Name   string
	Limit  int // 0 = no limit
	Taken  int // slots held
	Late   int // slots of them that late runs hold; see Run.Late
	Rate   jobs.Rate
	Opens  time.Time // when the next run may start; see Rate
	// Admitted counts the runs that have a slot and have not started. Only a gate with a rate counts them.
	Admitted int
	// Runs is only used by the row of a CrowdGate, which see.
	Runs []jobs.ID
}

// UniqueKey reserves a name for a run: until the run is final, or until a time.
type UniqueKey struct {
	Tenant jobs.Tenant
	Name   string  // kind, job and what the enqueuer chose; see UniqueName
	ID     jobs.ID // the run
	Digest jobs.ID // of the request under an idempotency key or an ID, to refuse a different one
	Until  time.Time
	Code   jobs.Code // for an AnswerName: why the request was refused; "" = it returned the run
}

// UniqueName returns the name of a run's unique key.
func UniqueName(job jobs.Key, key string) string { return "run/" + string(job) + "/" + key }

// IdempotencyName returns the name of an idempotency key.
func IdempotencyName(key string) string { return "request/" + key }

// AnswerName returns the name of the stored result of a request that created no run under its ID.
func AnswerName(request jobs.ID) string { return "answer/" + request.String() }

// Reason is why due times passed without a run.
type Reason string

// The reasons of a missed range.
const (
	MissedLate     Reason = "missed"   // the scheduler could not fire them in time
	MissedPaused   Reason = "paused"   // the job was paused
	MissedDisabled Reason = "disabled" // the job was disabled
	MissedDebug    Reason = "debug"    // debug mode was on
	MissedEdited   Reason = "edited"   // the schedule was changed before they were fired
	MissedCalendar Reason = "calendar" // a calendar of the job excludes them

	MissedSuspended Reason = "suspended" // the tenant was suspended

	MissedParents Reason = "parents" // of a job that follows others: an occasion ended without all of them; see Missed.Parents
)

// Missed is a range of due times that have no run: part of the ledger, which records every due time once.
type Missed struct {
	Tenant   jobs.Tenant
	Job      jobs.ID
	Key      jobs.Key
	From, To time.Time // the first and the last due time
	Count    uint64
	Reason   Reason
	Parents  []Ended // MissedParents: those that were missing. From is the occasion's time
}

// StoreRow is the one row of a store about itself.
type StoreRow struct {
	Changes uint64    // number of the last change of a definition or of a Global
	Term    uint64    // the term of the leader whose fires are accepted
	Leader  string    // its node
	At      time.Time // time of the last commit; none is ever earlier
	Turns   uint64    // the last Run.Turn that was assigned
	Version uint64    // the last Run.Version that was assigned
	// The latest creation time in requested run IDs (ID.Made, Unix milliseconds): in the NamePeriod of At, and before
	// it.
	Named, NamedBefore int64
	// ApplyVersion is the version of the rules in force: Apply follows no later one, and no command or field of a later
	// one is written. Only FinalizeUpgrade raises it. See InForce.
	ApplyVersion uint32
	// LedgerSeed is the seed of the Ed25519 key that signs exported ledgers; nil until the first export. Secret.
	LedgerSeed []byte
}

// InForce returns the version of the rules in force: the first one in a store without a commit.
func (s *StoreRow) InForce() uint32 { return max(s.ApplyVersion, FirstApplyVersion) }

// Ref returns the reference of each row.
func (d *Definition) Ref() Ref { return DefinitionRef(d.Tenant, d.Key) }

// Ref returns the reference of the run.
func (run *Run) Ref() Ref { return RunRef(run.Tenant, run.ID) }

// Ref returns the reference of the gate.
func (g *Gate) Ref() Ref { return GateRef(g.Tenant, g.Name) }

// Ref returns the reference of the unique key.
func (u *UniqueKey) Ref() Ref { return UniqueRef(u.Tenant, u.Name) }

// Ref returns the reference of the range.
func (m *Missed) Ref() Ref { return MissedRef(m.Tenant, m.Job, m.From) }

// Ref returns the reference of the tenant's Global.
func (g *Global) Ref() Ref { return GlobalRef(g.Tenant) }

// Ref returns the reference of the store's own row.
func (s *StoreRow) Ref() Ref { return StoreRef() }

// DefinitionRef returns the reference of the definition of a key.
func DefinitionRef(t jobs.Tenant, k jobs.Key) Ref {
	return Ref{Kind: RowDefinition, Tenant: t, Name: string(k)}
}

// RunRef returns the reference of a run.
func RunRef(t jobs.Tenant, id jobs.ID) Ref { return Ref{Kind: RowRun, Tenant: t, ID: id} }

// GateRef returns the reference of a gate.
func GateRef(t jobs.Tenant, name string) Ref { return Ref{Kind: RowGate, Tenant: t, Name: name} }

// UniqueRef returns the reference of a unique key.
func UniqueRef(t jobs.Tenant, name string) Ref { return Ref{Kind: RowUnique, Tenant: t, Name: name} }

// MissedRef returns the reference of a missed range by its first due time.
func MissedRef(t jobs.Tenant, job jobs.ID, from time.Time) Ref {
	return Ref{Kind: RowMissed, Tenant: t, ID: job, At: from.UnixNano()}
}

// GlobalRef returns the reference of the tenant's Global.
func GlobalRef(t jobs.Tenant) Ref { return Ref{Kind: RowGlobal, Tenant: t} }

// StoreRef returns the reference of the store's own row.
func StoreRef() Ref { return Ref{Kind: RowStore} }
