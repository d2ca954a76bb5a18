package kernel

import (
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// RowKind says what kind of row a Ref points to.
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
)

// Ref points to a row. Which fields are used depends on the kind; it is comparable, and so a map key.
type Ref struct {
	Kind   RowKind
	State  jobs.State  // Tally
	Tenant jobs.Tenant //
	Name   string      // Definition: its key. Gate, Unique, Calendar: their names. Token, Session: their ids.
	ID     jobs.ID     // Run: its id. Missed, Tally, History: the job's uid.
	At     int64       // Missed: From, Tally: the hour; Unix nanoseconds. Audit: its number.
}

// Row is anything a store keeps: a pointer to one of the row types of this package.
type Row interface{ Ref() Ref }

// Gate counts slots: of a job, or of a limit that jobs share.
type Gate struct {
	Tenant jobs.Tenant
	Name   string
	Limit  int // 0 = as many as like
	Taken  int // slots held
	Rate   jobs.Rate
	Opens  time.Time // when the next run may start; see Rate
	// Runs is only used by the row of a CrowdGate, which see.
	Runs []jobs.ID
}

// UniqueKey holds a name for a run: until the run is final, or until a time.
type UniqueKey struct {
	Tenant jobs.Tenant
	Name   string  // kind, job and what the enqueuer chose; see UniqueName
	ID     jobs.ID // the run
	Digest jobs.ID // of what was asked for under an idempotency key or an ID, to refuse another thing under the same one
	Until  time.Time
	Code   jobs.Code // of an AnswerName: why the request was refused; "" = it was answered with the run
}

// UniqueName is the name under which a run of a job holds a unique key.
func UniqueName(job jobs.Key, key string) string { return "run/" + string(job) + "/" + key }

// IdempotencyName is the name under which an idempotency key is remembered.
func IdempotencyName(key string) string { return "request/" + key }

// AnswerName is the name under which the answer to a request is remembered that made no run under its ID.
func AnswerName(request jobs.ID) string { return "answer/" + request.String() }

// Reason says why due times passed without a run.
type Reason string

// The reasons of a missed range.
const (
	MissedLate     Reason = "missed"   // nobody could fire them in time
	MissedPaused   Reason = "paused"   // the job was paused
	MissedDisabled Reason = "disabled" // the job was disabled
	MissedDebug    Reason = "debug"    // debug mode was on
	MissedEdited   Reason = "edited"   // the schedule was changed before somebody could fire them
	MissedCalendar Reason = "calendar" // a calendar of the job excludes them
)

// Missed is a stretch of due times that have no run: part of the ledger, in which every due time leaves one record.
type Missed struct {
	Tenant   jobs.Tenant
	Job      jobs.ID
	Key      jobs.Key
	From, To time.Time // the first and the last due time
	Count    uint64
	Reason   Reason
}

// Tally counts how many runs of a job entered a state within an hour. Putting one adds N to what is there.
type Tally struct {
	Tenant jobs.Tenant
	Job    jobs.ID
	State  jobs.State
	Hour   int64 // Unix nanoseconds of the hour's beginning
	N      int64
}

// StoreRow is the one row a store keeps about itself.
type StoreRow struct {
	Changes uint64    // number of the last change of a definition or of a Global
	Term    uint64    // of the leader whose fires count
	Leader  string    // its node
	At      time.Time // time of the last commit; none is ever earlier
	Turns   uint64    // the last Run.Turn that was given
	// The latest time in the names of runs (ID.Made, Unix milliseconds) that were asked for: in the NamePeriod of At, and
	// before it.
	Named, NamedBefore int64
	// ApplyVersion is the version of the rules that is in force: Apply follows no later one, and no command or field of a
	// later one is written. Only FinalizeUpgrade raises it. See InForce.
	ApplyVersion uint32
}

// InForce is the version of the rules that is in force: the first one in a store without a commit.
func (s *StoreRow) InForce() uint32 { return max(s.ApplyVersion, FirstApplyVersion) }

// Ref of each row.
func (d *Definition) Ref() Ref { return DefinitionRef(d.Tenant, d.Key) }

// Ref points to the run.
func (run *Run) Ref() Ref { return RunRef(run.Tenant, run.ID) }

// Ref points to the gate.
func (g *Gate) Ref() Ref { return GateRef(g.Tenant, g.Name) }

// Ref points to the unique key.
func (u *UniqueKey) Ref() Ref { return UniqueRef(u.Tenant, u.Name) }

// Ref points to the range.
func (m *Missed) Ref() Ref { return MissedRef(m.Tenant, m.Job, m.From) }

// Ref points to the tally.
func (t *Tally) Ref() Ref {
	return Ref{Kind: RowTally, Tenant: t.Tenant, ID: t.Job, State: t.State, At: t.Hour}
}

// Ref points to the tenant's Global.
func (g *Global) Ref() Ref { return GlobalRef(g.Tenant) }

// Ref points to the store's own row.
func (s *StoreRow) Ref() Ref { return StoreRef() }

// DefinitionRef points to the definition of a key.
func DefinitionRef(t jobs.Tenant, k jobs.Key) Ref {
	return Ref{Kind: RowDefinition, Tenant: t, Name: string(k)}
}

// RunRef points to a run.
func RunRef(t jobs.Tenant, id jobs.ID) Ref { return Ref{Kind: RowRun, Tenant: t, ID: id} }

// GateRef points to a gate.
func GateRef(t jobs.Tenant, name string) Ref { return Ref{Kind: RowGate, Tenant: t, Name: name} }

// UniqueRef points to a unique key.
func UniqueRef(t jobs.Tenant, name string) Ref { return Ref{Kind: RowUnique, Tenant: t, Name: name} }

// MissedRef points to a missed range by its first due time.
func MissedRef(t jobs.Tenant, job jobs.ID, from time.Time) Ref {
	return Ref{Kind: RowMissed, Tenant: t, ID: job, At: from.UnixNano()}
}

// GlobalRef points to the tenant's Global.
func GlobalRef(t jobs.Tenant) Ref { return Ref{Kind: RowGlobal, Tenant: t} }

// StoreRef points to the store's own row.
func StoreRef() Ref { return Ref{Kind: RowStore} }
