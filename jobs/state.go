package jobs

import (
	"slices"
	"strings"
)

// State is the state of a run. docs/states.md shows the permitted transitions.
type State uint8

// The states of a run.
const (
	Scheduled  State = iota + 1 // waits for its due time
	Enqueued                    // due; waits for a slot, then for a worker
	Processing                  // a worker runs it
	Succeeded                   // done
	Failed                      // an attempt failed; another follows
	Terminated                  // failed for good; other systems call it dead or discarded
	Cancelled                   // stopped by a person or a program
	Skipped                     // never started, and never will
)

var stateNames = [...]string{"New", "Scheduled", "Enqueued", "Processing", "Succeeded", "Failed", "Terminated", "Cancelled", "Skipped"}

// Final reports whether a run in s is finished: Succeeded, Terminated, Cancelled or Skipped.
func (s State) Final() bool {
	return s == Succeeded || s == Terminated || s == Cancelled || s == Skipped
}

// String is the name of a state.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "?"
}

func parseState(name string) (State, error) {
	if i := slices.Index(stateNames[:], name); i > 0 {
		return State(i), nil
	}
	return 0, invalid("state %.40q is unknown: want one of %s", name, strings.Join(stateNames[1:], ", "))
}

// MarshalText writes a state as its name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is the reverse of MarshalText.
func (s *State) UnmarshalText(b []byte) error {
	v, err := parseState(string(b))
	*s = v
	return err
}
