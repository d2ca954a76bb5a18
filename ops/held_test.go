package ops_test

import (
	"errors"
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

// release does what the leader does about runs that nothing holds any more.
func (d *fixture) release() {
	d.t.Helper()
	for {
		due, _, err := d.store.Waking(d.t.Context(), d.now, 100)
		if err != nil {
			d.t.Fatal(err)
		}
		if len(due) == 0 {
			return
		}
		for _, run := range due {
			d.apply(kernel.Release{ID: run.ID})
		}
	}
}

// Runs that a pause holds learn of another end, and wake by it.
func TestARepeatedPauseMovesWhatItHolds(t *testing.T) {
	d := newFixture(t)
	pause := func(until time.Time) {
		t.Helper()
		if _, err := d.Pause(t.Context(), ann, kernel.Pause{Key: "app.work", Reason: "holidays", Until: until}); err != nil {
			t.Fatal(err)
		}
		d.release()
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
	d.release()
	if state, _ := d.state(id); state != jobs.Enqueued {
		t.Errorf("its run is %s", state)
	}
}

// holdTwo has a pause, or a debug mode, hold the runs of two due times of app.often: by what is done in between.
func (d *fixture) holdTwo(hold kernel.Command) (ids [2]jobs.ID) {
	d.t.Helper()
	d.apply(kernel.Lead{Term: 1, Node: "n1"})
	def, err := d.store.Definition(d.t.Context(), jobs.DefaultTenant, "app.often")
	if err != nil {
		d.t.Fatal(err)
	}
	global, err := d.store.Global(d.t.Context(), jobs.DefaultTenant)
	if err != nil {
		d.t.Fatal(err)
	}
	first, second := d.now.Add(time.Minute), d.now.Add(2*time.Minute)
	d.now = second.Add(time.Second)
	d.apply(kernel.Fire{Key: def.Key, Job: def.UID, Revision: def.Revision, Global: global.Revision, Term: 1, From: def.Cursor,
		To: second, Due: []time.Time{first, second}, Late: 1})
	d.apply(hold)
	for i, due := range []time.Time{first, second} {
		ids[i] = kernel.DueID(jobs.DefaultTenant, def.UID, due, 0, 0)
	}
	d.apply(kernel.Start{ID: ids[1], Worker: "w1", Attempt: 1})
	for _, id := range ids {
		if state, _ := d.state(id); state != jobs.Scheduled {
			d.t.Fatalf("it is %s, and its job is not to begin runs", state)
		}
	}
	return ids
}

// Missed decides about the runs of due times that a pause held, in the commit that ends the pause. Repeating it changes
// nothing.
func TestMissedDecidesAboutHeldRuns(t *testing.T) {
	for _, c := range []struct {
		missed        ops.Missed
		first, second jobs.State
		let           ops.Let
	}{
		{"", jobs.Skipped, jobs.Skipped, ops.Let{Discarded: 2}},
		{ops.MissedSkip, jobs.Skipped, jobs.Skipped, ops.Let{Discarded: 2}},
		{ops.MissedOnce, jobs.Skipped, jobs.Enqueued, ops.Let{Released: 1, Discarded: 1}},
		{ops.MissedReplay, jobs.Enqueued, jobs.Enqueued, ops.Let{Released: 2}},
	} {
		t.Run(string(c.missed), func(t *testing.T) {
			d := newFixture(t)
			ids := d.holdTwo(kernel.Pause{Key: "app.often"})
			for n, missed := range []ops.Missed{c.missed, "", ops.MissedReplay} {
				_, let, err := d.Resume(t.Context(), ann, "app.often", ops.Resumption{Missed: missed})
				if err != nil {
					t.Fatal(err)
				}
				d.release()
				if n == 0 && (let.Released != c.let.Released || let.Discarded != c.let.Discarded) {
					t.Errorf("%d released, %d discarded, want %+v", let.Released, let.Discarded, c.let)
				}
				for i, want := range []jobs.State{c.first, c.second} {
					if state, _ := d.state(ids[i]); state != want {
						t.Errorf("run %d is %s, want %s", i, state, want)
					}
				}
			}
		})
	}
}

// The end of a debug mode of recurring jobs needs a decision about what it holds, and leaves that of triggered jobs.
func TestDebugOfRecurringJobsHoldsRuns(t *testing.T) {
	d := newFixture(t)
	ids := d.holdTwo(kernel.Configure{RecurringDebug: new(true), TriggeredDebug: new(true)})
	work := d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "app.work"}).ID
	off := kernel.Configure{RecurringDebug: new(false)}
	if _, err := d.Configure(t.Context(), ann, off, ""); !errors.Is(err, jobs.Conflict) {
		t.Fatalf("without a decision: %v", err)
	}
	done, err := d.Configure(t.Context(), ann, off, ops.HeldRelease)
	if err != nil || done.Released != 2 {
		t.Fatalf("%d released: %v", done.Released, err)
	}
	d.release()
	for _, id := range ids {
		if state, _ := d.state(id); state != jobs.Enqueued {
			t.Errorf("a run of a due time is %s", state)
		}
	}
	if state, _ := d.state(work); state != jobs.Scheduled {
		t.Errorf("a run of a triggered job is %s", state)
	}
}
