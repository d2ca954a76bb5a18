package ops_test

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// state is where a run stands, and until when it is held.
func (d *fixture) state(id jobs.ID) (jobs.State, time.Time) {
	d.t.Helper()
	run, err := d.store.Run(d.t.Context(), jobs.DefaultTenant, id)
	if err != nil {
		d.t.Fatal(err)
	}
	return run.State, run.RetryAt
}

// Runs that a pause holds learn of another end, and wake by it.
func TestARepeatedPauseMovesWhatItHolds(t *testing.T) {
	d := newFixture(t)
	pause := func(until time.Time) {
		t.Helper()
		if _, err := d.Pause(t.Context(), ann, kernel.Pause{Key: "app.work", Reason: "holidays", Until: until}); err != nil {
			t.Fatal(err)
		}
	}
	id := jobs.NewID(d.now)
	pause(time.Time{})
	d.apply(kernel.Create{ID: id, Key: "app.work"})
	for _, until := range []time.Time{d.now.Add(time.Hour), d.now.Add(time.Minute), {}, d.now.Add(2 * time.Hour)} {
		pause(until)
		if state, at := d.state(id); state != jobs.Scheduled || !at.Equal(until) {
			t.Errorf("paused until %v, a run is %s until %v", until, state, at)
		}
	}
	due, next, err := d.store.Waking(t.Context(), d.now, 10)
	if err != nil || len(due) > 0 || !next.Equal(d.now.Add(2*time.Hour)) {
		t.Errorf("it wakes at %v: %v, %v", next, due, err)
	}
}

// A pause of a deleted job cannot be ended: its runs continue.
func TestADeletedJobHoldsNothing(t *testing.T) {
	d := newFixture(t)
	if _, err := d.Pause(t.Context(), ann, kernel.Pause{Key: "app.work"}); err != nil {
		t.Fatal(err)
	}
	id := jobs.NewID(d.now)
	d.apply(kernel.Create{ID: id, Key: "app.work"})
	if _, err := d.Delete(t.Context(), ann, kernel.Delete{Key: "app.work"}, ops.FinishLiveRuns); err != nil {
		t.Fatal(err)
	}
	if state, _ := d.state(id); state != jobs.Enqueued {
		t.Errorf("its run is %s", state)
	}
}
