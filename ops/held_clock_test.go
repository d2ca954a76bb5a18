package ops_test

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// The clock of the node that a person uses is 200 ms behind the one that stamps commits: runs that a pause has held
// for less than that stay held for ever after it ends.
func TestResumeLetsTheNewestRunsGo(t *testing.T) {
	d := newFixture(t)
	if _, err := d.Pause(t.Context(), ann, kernel.Pause{Key: "app.work"}); err != nil {
		t.Fatal(err)
	}
	mine := d.now
	d.now = d.now.Add(200 * time.Millisecond)
	id := d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "app.work"}).ID
	d.now = mine
	if _, _, err := d.Resume(t.Context(), ann, "app.work", ops.Resumption{}); err != nil {
		t.Fatal(err)
	}
	run, err := d.Run(t.Context(), ann, id)
	if err != nil {
		t.Fatal(err)
	}
	due, _, err := d.store.Waking(t.Context(), d.now.Add(24*time.Hour), 100)
	if err != nil {
		t.Fatal(err)
	}
	if run.State == jobs.Scheduled && len(due) == 0 {
		t.Errorf("the pause has ended; the run is %s, cause %q, and nothing wakes it", run.State, run.Cause)
	}
}

// The same as a debug mode ends.
func TestTheEndOfADebugModeLetsTheNewestRunsGo(t *testing.T) {
	d := newFixture(t)
	on, off := true, false
	if _, err := d.Configure(t.Context(), ann, kernel.Configure{TriggeredDebug: &on}, ""); err != nil {
		t.Fatal(err)
	}
	mine := d.now
	d.now = d.now.Add(200 * time.Millisecond)
	id := d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "app.work"}).ID
	d.now = mine
	if _, err := d.Configure(t.Context(), ann, kernel.Configure{TriggeredDebug: &off}, ops.HeldRelease); err != nil {
		t.Fatal(err)
	}
	run, err := d.Run(t.Context(), ann, id)
	if err != nil {
		t.Fatal(err)
	}
	due, _, err := d.store.Waking(t.Context(), d.now.Add(24*time.Hour), 100)
	if err != nil {
		t.Fatal(err)
	}
	if run.State == jobs.Scheduled && len(due) == 0 {
		t.Errorf("the debug mode has ended, with its runs released; the run is %s, cause %q, and nothing wakes it", run.State, run.Cause)
	}
}
