package worker

import (
	"errors"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// The row of a run is shared with the store when the worker is embedded, and so is the room behind its history.
func TestLastLeavesTheRowAlone(t *testing.T) {
	history := []kernel.Move{{State: jobs.Enqueued}, {State: jobs.Processing, Attempt: 1}}
	room := append(make([]kernel.Move, 0, 4), history...)
	l := &lent{attempt: &attempt{in: &kernel.Run{State: jobs.Processing, Attempt: 1, Moves: room}}}
	if !l.Last(errors.New("no")) {
		t.Error("a run without retries has an attempt after its last")
	}
	for i, m := range room[:cap(room)][len(room):] {
		if m != (kernel.Move{}) {
			t.Errorf("behind the history of the store's row is move %d now: %+v", i, m)
		}
	}
}
