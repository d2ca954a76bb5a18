package ops_test

import (
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// An explanation of a past time has what was recorded of that time. Present facts are marked as such, and those that
// change by the minute are left out: no worker is online in this test.
func TestExplainAtOfThePast(t *testing.T) {
	d, bob := newFixture(t), ops.Who{Actor: "person:bob", Role: ops.Admin}
	d.Ops = ops.New(ops.Config{Store: d.store, Live: &members{}, Now: func() time.Time { return d.now }})
	at := func(clock string) time.Time {
		t.Helper()
		when, err := time.Parse(time.DateTime, "2026-11-21 "+clock)
		if err != nil {
			t.Fatal(err)
		}
		return when
	}
	explains := func(key jobs.Key, clock string, missed int, want ...string) {
		t.Helper()
		e, err := d.ExplainAt(t.Context(), ann, key, at(clock))
		if err != nil || !slices.Equal(e.Text, want) || len(e.Missed) != missed {
			t.Errorf("%s at %s, with %d missed ranges (%v):\n got %q\nwant %q", key, clock, len(e.Missed), err, e.Text, want)
		}
	}
	pause := func(who ops.Who, p kernel.Pause) {
		t.Helper()
		if _, err := d.Pause(t.Context(), who, p); err != nil {
			t.Fatal(err)
		}
	}
	const late = "It did not run at 2026-11-21T12:02:00Z: the scheduler could not fire them in time."
	d.miss("app.often", 3, kernel.MissedLate)
	explains("app.often", "12:02:00", 1, late)

	pause(ann, kernel.Pause{Key: "app.often", Reason: "stocktaking"}) // 12:03:01
	d.now = at("12:10:00")
	explains("app.often", "12:02:00", 1, late, "It is paused now, by ann since 2026-11-21T12:03:01Z, after that time: stocktaking.")
	explains("app.often", "12:05:00", 0, "It was due at 2026-11-21T12:05:00Z, which is undecided, or too old to be recorded.",
		"It was paused at that time and still is, by ann since 2026-11-21T12:03:01Z: stocktaking.")
	explains("app.often", "11:00:00", 0, "The job was created at 2026-11-21T12:00:00Z, after 2026-11-21T11:00:00Z.",
		"It is paused now, by ann since 2026-11-21T12:03:01Z, after that time: stocktaking.")

	d.miss("app.often", 5, kernel.MissedPaused)
	if _, _, err := d.Resume(t.Context(), bob, "app.often", ops.Resumption{}); err != nil { // 12:15:01
		t.Fatal(err)
	}
	d.now = at("12:20:00")
	pause(bob, kernel.Pause{Key: "app.often", Until: at("12:25:00")})
	d.now = at("12:22:00")
	const once = "It was paused at that time, by ann since 2026-11-21T12:03:01Z, until bob resumed it at 2026-11-21T12:15:01Z: stocktaking."
	explains("app.often", "12:12:00", 1, "It did not run at 2026-11-21T12:12:00Z: the job was paused.", once,
		"It is paused now, by bob since 2026-11-21T12:20:00Z, after that time.")
	explains("app.often", "12:18:30", 0, "It was not due at 2026-11-21T12:18:30Z; the nearest due times are 2026-11-21T12:18:00Z and 2026-11-21T12:19:00Z.",
		"It is paused now, by bob since 2026-11-21T12:20:00Z, after that time.")

	d.now = at("13:00:00")
	d.apply(kernel.Edit{Key: "app.often", Set: kernel.Settings{Disabled: new(true)}})
	d.apply(kernel.Configure{RecurringDebug: new(true)})
	const disabled, debug = "It is disabled now.", "Debug mode of recurring jobs is on now, by test since 2026-11-21T13:00:00Z, after that time."
	explains("app.often", "12:12:00", 1, "It did not run at 2026-11-21T12:12:00Z: the job was paused.", once, disabled, debug)
	explains("app.often", "12:24:00", 0, "It was due at 2026-11-21T12:24:00Z, which is undecided, or too old to be recorded.",
		"It was paused at that time, by bob since 2026-11-21T12:20:00Z, until 2026-11-21T12:25:00Z.", disabled, debug)
	explains("app.often", "12:30:00", 0, "It was due at 2026-11-21T12:30:00Z, which is undecided, or too old to be recorded.", disabled, debug)

	d.apply(kernel.Edit{Key: "app.often", Set: kernel.Settings{Schedule: new("0 0 * * * *")}})
	explains("app.often", "12:29:00", 0, "It has no recorded run or missed due time at 2026-11-21T12:29:00Z; its present schedule was set later, at 2026-11-21T13:00:00Z.", disabled, debug)

	// A pause of a deleted job is not one of the new job with its key.
	d.now = at("13:10:00")
	pause(ann, kernel.Pause{Key: "app.nightly"})
	d.apply(kernel.Delete{Key: "app.nightly"})
	d.now = at("13:20:00")
	d.recurring(jobs.Options{Key: "app.nightly", Cron: "@hourly"})
	d.now = at("13:30:00")
	explains("app.nightly", "13:15:00", 0, "The job was created at 2026-11-21T13:20:00Z, after 2026-11-21T13:15:00Z.", debugThen)
	explains("app.nightly", "13:25:00", 0, "It was not due at 2026-11-21T13:25:00Z; the first due time is 2026-11-21T14:00:00Z.", debugThen)

	// Of a future time, the present matters.
	e, err := d.ExplainAt(t.Context(), ann, "app.often", at("14:00:00"))
	if err != nil || len(e.Text) < 3 || e.Text[0] != "It would not run at 2026-11-21T14:00:00Z: the job is disabled." ||
		!slices.Contains(e.Text, "No worker of the app app that is online has this job.") {
		t.Errorf("a future time: %q, %v", e.Text, err)
	}
}

const debugThen = "Debug mode of recurring jobs was on at that time, by test since 2026-11-21T13:00:00Z."
