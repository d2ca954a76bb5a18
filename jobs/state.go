package jobs

import "slices"

// State is where a run stands. docs/states.md draws the table below; a test compares the two.
type State uint8

// The states of a run. New is that of a run which does not exist yet.
const (
	New        State = iota
	Scheduled        // waits for its due time
	Enqueued         // due; waits for a slot, then for a worker
	Processing       // a worker runs it
	Succeeded        // done
	Failed           // an attempt failed; another follows
	Terminated       // failed for good
	Cancelled        // somebody stopped it
	Skipped          // never started, and never will
)

var stateNames = [...]string{"New", "Scheduled", "Enqueued", "Processing", "Succeeded", "Failed", "Terminated", "Cancelled", "Skipped"}

// edges holds every step a run may take. Final states are those without a way out.
var edges = [...][]State{
	New:        {Scheduled, Enqueued},
	Scheduled:  {Enqueued, Cancelled},
	Enqueued:   {Processing, Skipped, Cancelled},
	Processing: {Succeeded, Failed, Cancelled},
	Failed:     {Processing, Terminated, Cancelled},
	Succeeded:  nil,
	Terminated: nil,
	Cancelled:  nil,
	Skipped:    nil,
}

// States lists all states but New, in the order of the table.
func States() []State {
	return []State{Scheduled, Enqueued, Processing, Succeeded, Failed, Terminated, Cancelled, Skipped}
}

// Next lists the states that can follow s.
func (s State) Next() []State {
	if int(s) >= len(edges) {
		return nil
	}
	return slices.Clone(edges[s])
}

// May says whether a run may go from s to t in one step.
func (s State) May(t State) bool { return int(s) < len(edges) && slices.Contains(edges[s], t) }

// Final says that there is no way out of s.
func (s State) Final() bool { return s != New && int(s) < len(edges) && len(edges[s]) == 0 }

// Valid says that s is one of the eight states.
func (s State) Valid() bool { return s > New && int(s) < len(edges) }

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "?"
}

// ParseState reads the name of a state, as String writes it.
func ParseState(name string) (State, error) {
	if i := slices.Index(stateNames[:], name); i > 0 {
		return State(i), nil
	}
	return New, Invalid("state %.40q is none of Scheduled, Enqueued, Processing, Succeeded, Failed, Terminated, Cancelled, Skipped", name)
}

// MarshalText carries a state by its name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is the reverse of MarshalText.
func (s *State) UnmarshalText(b []byte) error {
	v, err := ParseState(string(b))
	*s = v
	return err
}

// Cause says why a run is in its state, in a word. Most states need none.
type Cause string

// The causes.
const (
	ByError    Cause = "error"          // Failed, Terminated: the handler returned an error or panicked
	ByTimeout  Cause = "timeout"        // Failed, Terminated: the attempt took longer than its timeout
	ByLoss     Cause = "lost"           // Failed, Terminated: the worker stopped answering
	ByPoison   Cause = "poison"         // Terminated: lost once too often
	ByHandback Cause = "handback"       // Failed: the worker is stopping and gave the run back
	BySnooze   Cause = "snooze"         // Failed: the handler asked to be called later
	ByOverlap  Cause = "overlap"        // Skipped: no free slot, and overlap is skip
	ByDeadline Cause = "start deadline" // Skipped: not started in time
	ByDisabled Cause = "disabled"       // Skipped: the job is disabled
	ByDebug    Cause = "debug"          // Scheduled: held until debug mode ends
	ByPause    Cause = "paused"         // Scheduled: held until the job is resumed
	ByPerson   Cause = "request"        // Cancelled: somebody asked
	ByNobody   Cause = "no worker"      // Skipped: a broadcast, and no worker was there that may take it
	ByJitter   Cause = "jitter"         // Scheduled: due, and its start is spread
	ByReplaced Cause = "replaced"       // Cancelled, Skipped: a newer run of the job took its place
	ByDepth    Cause = "depth"          // Skipped: too many runs have brought each other about
)
