package ops_test

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// The end of a pause or a debug mode releases all runs that it held, also those of the last 200 ms if the clock of the
// node that a person uses is that far behind the one that stamps commits.
func TestTheEndOfAHoldReleasesTheNewestRuns(t *testing.T) {
	on, off := true, false
	for what, hold := range map[string]struct{ begin, end func(*fixture) error }{
		"pause": {
			func(d *fixture) error {
				_, err := d.Pause(t.Context(), ann, kernel.Pause{Key: "app.work"})
				return err
			},
			func(d *fixture) error {
				_, _, err := d.Resume(t.Context(), ann, "app.work", ops.Resumption{})
				return err
			},
		},
		"debug mode": {
			func(d *fixture) error {
				_, err := d.Configure(t.Context(), ann, kernel.Configure{TriggeredDebug: &on}, "")
				return err
			},
			func(d *fixture) error {
				_, err := d.Configure(t.Context(), ann, kernel.Configure{TriggeredDebug: &off}, ops.HeldRelease)
				return err
			},
		},
	} {
		t.Run(what, func(t *testing.T) {
			d := newFixture(t)
			if err := hold.begin(d); err != nil {
				t.Fatal(err)
			}
			behind := d.now
			d.now = d.now.Add(200 * time.Millisecond)
			id := d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "app.work"}).ID
			d.now = behind
			if err := hold.end(d); err != nil {
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
				t.Errorf("the run is %s, cause %q, and nothing wakes it", run.State, run.Cause)
			}
		})
	}
}
