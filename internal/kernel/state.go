package kernel

import (
	"slices"

	"github.com/carillon-scheduler/carillon/jobs"
)

// New is the state of a run that does not exist yet.
const New jobs.State = 0

// edges holds every step a run may take. Final states are those without a way out.
var edges = [...][]jobs.State{
	New:             {jobs.Scheduled, jobs.Enqueued},
	jobs.Scheduled:  {jobs.Enqueued, jobs.Cancelled},
	jobs.Enqueued:   {jobs.Processing, jobs.Scheduled, jobs.Skipped, jobs.Cancelled},
	jobs.Processing: {jobs.Succeeded, jobs.Failed, jobs.Cancelled},
	jobs.Failed:     {jobs.Processing, jobs.Terminated, jobs.Cancelled},
	jobs.Succeeded:  nil,
	jobs.Terminated: nil,
	jobs.Cancelled:  nil,
	jobs.Skipped:    nil,
}

// StateCount is the number of states, with New.
const StateCount = len(edges)

// States lists all states but New, in the order of the table.
func States() (list []jobs.State) {
	for s := range jobs.State(StateCount) {
		if s != New {
			list = append(list, s)
		}
	}
	return list
}

// LiveStates lists the states of unfinished runs, and FinalStates the others.
func LiveStates() []jobs.State { return slices.DeleteFunc(States(), jobs.State.Final) }

// FinalStates lists the states of finished runs.
func FinalStates() []jobs.State {
	return slices.DeleteFunc(States(), func(s jobs.State) bool { return !s.Final() })
}

// NextStates lists the states that can follow s.
func NextStates(s jobs.State) []jobs.State {
	if int(s) >= len(edges) {
		return nil
	}
	return slices.Clone(edges[s])
}

// May reports whether a run may go from s to t in one step.
func May(s, t jobs.State) bool { return int(s) < len(edges) && slices.Contains(edges[s], t) }

// ValidState reports whether s is one of States.
func ValidState(s jobs.State) bool { return s > New && int(s) < len(edges) }

// ParseState reads the name of a state, as String writes it.
func ParseState(name string) (s jobs.State, err error) {
	err = s.UnmarshalText([]byte(name))
	return s, err
}

// Cause is why a run is in its state. Most states need none.
type Cause string

// The causes.
const (
	ByError    Cause = "error"          // Failed, Terminated: the handler returned an error or panicked
	ByTimeout  Cause = "timeout"        // Failed, Terminated: the attempt took longer than its timeout
	ByLoss     Cause = "lost"           // Failed, Terminated: the worker was lost
	ByPoison   Cause = "poison"         // Terminated: lost once too often
	ByHandback Cause = "handback"       // Failed: the worker was stopping and released the run
	BySnooze   Cause = "snooze"         // Failed: the handler asked to be called later
	ByOverlap  Cause = "overlap"        // Skipped: no free slot, and overlap is skip
	ByDeadline Cause = "start deadline" // Skipped: not started in time
	ByDisabled Cause = "disabled"       // Skipped: the job is disabled
	ByDebug    Cause = "debug"          // Scheduled: held until debug mode ends. Skipped: it would follow another run
	ByPause    Cause = "paused"         // Scheduled: held until the job is resumed. Skipped: its due time is of a pause
	ByPerson   Cause = "request"        // Cancelled: on request
	ByNoWorker Cause = "no worker"      // Skipped: a broadcast, and no worker was online that may take it
	ByJitter   Cause = "jitter"         // Scheduled: due, and its start is spread
	ByReplaced Cause = "replaced"       // Cancelled, Skipped: a newer run of the job replaced it
	ByDepth    Cause = "depth"          // Skipped: the chain of parent runs is too long
	ByBacklog  Cause = "backlog"        // Skipped: it would follow another, and too many runs of the tenant wait
)
