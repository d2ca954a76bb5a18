package jobs

import "slices"

// State is where a run stands. docs/states.md draws the table below; a test compares the two.
type State uint8

// The states of a run.
const (
	Scheduled  State = iota + 1 // waits for its due time
	Enqueued                    // due; waits for a slot, then for a worker
	Processing                  // a worker runs it
	Succeeded                   // done
	Failed                      // an attempt failed; another follows
	Terminated                  // failed for good; others call it dead or discarded
	Cancelled                   // stopped by a person or a program
	Skipped                     // never started, and never will
)

// New is the state of a run that does not exist yet.
const New State = 0

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

// NextStates lists the states that can follow s.
func NextStates(s State) []State {
	if int(s) >= len(edges) {
		return nil
	}
	return slices.Clone(edges[s])
}

// May reports whether a run may go from s to t in one step.
func May(s, t State) bool { return int(s) < len(edges) && slices.Contains(edges[s], t) }

// Final reports whether a run in s is finished: it Succeeded, was Terminated, Cancelled or Skipped.
func (s State) Final() bool {
	return s == Succeeded || s == Terminated || s == Cancelled || s == Skipped
}

// ValidState reports whether s is one of the eight states.
func ValidState(s State) bool { return s > New && int(s) < len(edges) }

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "?"
}

// ParseState reads the name of a state, as String writes it.
func ParseState(name string) (s State, err error) {
	err = s.UnmarshalText([]byte(name))
	return s, err
}

func parseState(name string) (State, error) {
	if i := slices.Index(stateNames[:], name); i > 0 {
		return State(i), nil
	}
	return 0, invalid("state %.40q is none of Scheduled, Enqueued, Processing, Succeeded, Failed, Terminated, Cancelled, Skipped", name)
}

// MarshalText carries a state by its name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is the reverse of MarshalText.
func (s *State) UnmarshalText(b []byte) error {
	v, err := parseState(string(b))
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
