// Package sabotage names mechanisms that keep guarantees, for builds in which one of them is off. Tests of the judge
// (chaos/judge) need such builds: a judge that has never found a violation proves nothing.
//
// Only a build with -tags sabotage can turn anything off, by the environment variable CARILLON_SABOTAGE, a list of
// names separated by commas. In every other build [Off] is a constant, and the compiler drops the code behind it.
package sabotage

// Mechanism is a mechanism that can be turned off.
type Mechanism string

// The mechanisms.
const (
	DueID         Mechanism = "due-id"         // a due time has one run, because the run's ID is derived from it
	CursorCompare Mechanism = "cursor-compare" // a fire is refused if its job's cursor has moved since the decision
	Cursor        Mechanism = "cursor"         // the cursor moves in the commit that creates the runs
	StaleTerm     Mechanism = "stale-term"     // a fire of a former leader is refused
	Term          Mechanism = "term"           // a leader's term is committed before its duties begin
	NotEarly      Mechanism = "not-early"      // the store refuses to fire or to release before its own clock's time
	FireAll       Mechanism = "fire-all"       // missed due times fire, if their job's misfire policy says so
	Idempotency   Mechanism = "idempotency"    // a repeated request finds the run of the first
	Start         Mechanism = "start"          // a start is refused if the run has one
	Fence         Mechanism = "fence"          // reports of an ended attempt are refused
	Lease         Mechanism = "lease"          // attempts of workers whose lease has expired are ended
	Sweep         Mechanism = "sweep"          // messages that were lost on the bus are recovered
	Gate          Mechanism = "gate"           // slots are counted
	HandOver      Mechanism = "hand-over"      // a slot that becomes free is assigned to the first waiting run

	// Rules of package internal/dispatch, each under its name there.
	FirstOnly Mechanism = "first-only"
	Fresh     Mechanism = "fresh"
	Once      Mechanism = "once"
	Repeat    Mechanism = "repeat"
	Unstart   Mechanism = "unstart"
)

// All returns all mechanisms.
func All() []Mechanism {
	return []Mechanism{DueID, CursorCompare, Cursor, StaleTerm, Term, NotEarly, FireAll, Idempotency, Start, Fence, Lease, Sweep, Gate, HandOver,
		FirstOnly, Fresh, Once, Repeat, Unstart}
}
