// Package sabotage names mechanisms that keep promises, so that builds can be made in which one of them is off. Tests
// of the judge (chaos/judge) need such builds: a judge that has never caught anybody proves nothing.
//
// Only a build with -tags sabotage can turn anything off, by the environment variable CARILLON_SABOTAGE, which holds
// names with commas between them. In every other build [Off] is a constant, and the compiler leaves out what hangs on
// it.
package sabotage

// Mechanism is something that can be turned off.
type Mechanism string

// The mechanisms.
const (
	DueID         Mechanism = "due-id"         // a due time has one run, because the run's ID follows from it
	CursorCompare Mechanism = "cursor-compare" // a fire is refused if its job's cursor is not where it was decided from
	Cursor        Mechanism = "cursor"         // the cursor moves in the commit that makes the runs
	StaleTerm     Mechanism = "stale-term"     // a fire of a leader that is none any more is refused
	Term          Mechanism = "term"           // a leader's term is committed before its duties begin
	NotEarly      Mechanism = "not-early"      // the store refuses to fire or to release before its own clock says so
	FireAll       Mechanism = "fire-all"       // due times that were missed fire, if their job says so
	Idempotency   Mechanism = "idempotency"    // a request that is made again finds the run of the first
	Claim         Mechanism = "claim"          // a claim is refused if somebody else has the run
	Fence         Mechanism = "fence"          // what an attempt says that is over is refused
	Lease         Mechanism = "lease"          // attempts of workers that fell silent are ended
	Sweep         Mechanism = "sweep"          // what got lost on the bus is looked for
	Gate          Mechanism = "gate"           // slots are counted
	HandOver      Mechanism = "hand-over"      // a slot that becomes free is given to the first who waits
)

// All are all of them.
func All() []Mechanism {
	return []Mechanism{DueID, CursorCompare, Cursor, StaleTerm, Term, NotEarly, FireAll, Idempotency, Claim, Fence, Lease, Sweep, Gate, HandOver}
}
