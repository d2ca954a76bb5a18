package ops_test

import (
	"cmp"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

func TestExplain(t *testing.T) {
	for _, c := range []struct {
		name string
		key  jobs.Key
		do   func(*fixture, *members)
		want string
	}{
		{"all is well", "app.nightly", func(*fixture, *members) {}, "It is due next at 2026-11-22T01:30:00Z."},
		{"triggered", "app.work", func(*fixture, *members) {}, "It runs on request."},
		{"disabled", "app.work", func(d *fixture, _ *members) {
			d.apply(kernel.Edit{Key: "app.work", Set: kernel.Settings{Disabled: new(true)}})
		},
			"It is disabled: every run of it is skipped. It runs on request."},
		{"paused", "app.nightly", func(d *fixture, _ *members) {
			d.Pause(d.t.Context(), ann, kernel.Pause{Key: "app.nightly", Reason: "stocktaking"})
		},
			"It is paused by ann until resumed: stocktaking. It is due next at 2026-11-22T01:30:00Z, but would not run now."},
		{"a pause that is over", "app.work", func(d *fixture, _ *members) {
			d.apply(kernel.Pause{Key: "app.work", Until: d.now.Add(time.Hour)})
			d.now = d.now.Add(2 * time.Hour)
		}, "It runs on request."},
		{"debug mode", "app.work", func(d *fixture, _ *members) {
			d.Configure(d.t.Context(), ann, kernel.Configure{TriggeredDebug: new(true)}, "")
		},
			"Debug mode of triggered jobs is on, by ann: only runs started by hand run. It runs on request."},
		{"debug mode of the others", "app.work", func(d *fixture, _ *members) { d.apply(kernel.Configure{RecurringDebug: new(true)}) }, "It runs on request."},
		{"no worker", "app.work", func(_ *fixture, c *members) {
			c.workers = []ops.Worker{serving("app", "app.often"), serving("other", "app.work")}
		},
			"No worker of the app app that is online has this job. It runs on request."},
		{"slots", "app.work", func(d *fixture, _ *members) {
			d.apply(kernel.Edit{Key: "app.work", Set: kernel.Settings{MaxConcurrency: new(1), Limits: &[]jobs.Limit{{Name: "db", Max: 9}}}})
			for range 3 {
				d.now = d.now.Add(time.Second)
				d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "app.work"})
			}
		}, "2 runs wait for a slot: at most 1 may run at once, and 0 do. It runs on request."},
		{"a limit by argument, and one of the app", "app.work", func(d *fixture, _ *members) {
			d.apply(kernel.Configure{AppLimits: &[]jobs.Limit{{Name: "app", Max: 1}}})
			d.apply(kernel.Edit{Key: "app.work", Set: kernel.Settings{Limits: &[]jobs.Limit{{Name: "tenant", Max: 1, By: "args.customer"}}}})
			for _, who := range []string{"a", "a", "b"} {
				d.now = d.now.Add(time.Second)
				d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "app.work", Args: []byte(`{"customer":"` + who + `"}`)})
			}
		}, `1 run waits for a slot of the app app, of which there are 1. 1 run waits for a slot of the limit tenant for customer "a", of which there are 1. It runs on request.`},
		{"a rate", "app.work", func(d *fixture, _ *members) {
			d.apply(kernel.Edit{Key: "app.work", Set: kernel.Settings{Rate: &jobs.Rate{Max: 1, Per: time.Hour}}})
			var id jobs.ID
			for range 3 {
				id = cmp.Or(id, d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "app.work"}).ID)
			}
			d.apply(kernel.Start{ID: id, Worker: "w1", Attempt: 1})
		}, "2 runs wait: the rate limit of the job is 1/h, and the next may start at 2026-11-21T13:00:00Z. It runs on request."},
		{"a rate and no start yet", "app.work", func(d *fixture, _ *members) {
			d.apply(kernel.Edit{Key: "app.work", Set: kernel.Settings{Rate: &jobs.Rate{Max: 1, Per: time.Hour}}})
			d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "app.work"})
			d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "app.work"})
		}, "1 run waits for the rate limit of the job, 1/h: as many as may start at once have slots and have not started. It runs on request."},
		{"retries that wait, some for a budget", "app.work", func(d *fixture, _ *members) {
			d.apply(kernel.Edit{Key: "app.work", Set: kernel.Settings{Retries: new(3), RetryDelay: new(time.Duration(0)), RetryBudget: &jobs.Rate{Max: 1, Per: time.Hour}}})
			at := d.now
			for range 3 {
				d.now = at
				id := d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "app.work"}).ID
				d.apply(kernel.Start{ID: id, Worker: "w1", Attempt: 1})
				d.apply(kernel.Finish{ID: id, Worker: "w1", Attempt: 1, Outcome: kernel.OutcomeError, Error: "no"})
			}
			d.apply(kernel.Edit{Key: "app.work", Set: kernel.Settings{RetryDelay: new(time.Minute), RetryJitter: new(jobs.JitterNone)}})
			id := d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "app.work"}).ID
			d.apply(kernel.Start{ID: id, Worker: "w1", Attempt: 1})
			d.apply(kernel.Finish{ID: id, Worker: "w1", Attempt: 1, Outcome: kernel.OutcomeError, Error: "no"})
		}, "1 run failed and waits for the next attempt, the first until 2026-11-21T12:01:00Z. 2 runs failed and wait for the next attempt, the first until 2026-11-21T13:00:00Z: its retry budget is 1/h. It runs on request."},
		{"the end", "app.nightly", func(d *fixture, _ *members) {
			d.apply(kernel.Edit{Key: "app.nightly", Set: kernel.Settings{End: new(d.now)}})
		}, "Its schedule is finished: no due time is left."},
		{"trouble", "app.nightly", func(d *fixture, _ *members) {
			d.apply(kernel.Edit{Key: "app.nightly", Set: kernel.Settings{Schedule: new("never ever")}})
		}, "Its schedule is invalid: "},
		{"missed", "app.often", func(d *fixture, _ *members) { d.miss("app.often", 3, kernel.MissedLate) },
			"3 due times from 2026-11-21T12:01:00Z to 2026-11-21T12:03:00Z passed without a run: the scheduler could not fire them in time."},
	} {
		d, members := newFixture(t), &members{workers: []ops.Worker{serving("app", "app.nightly", "app.often", "app.work")}}
		d.Ops = ops.New(ops.Config{Store: d.store, Live: members, Now: func() time.Time { return d.now }})
		c.do(d, members)
		e, err := d.Explain(t.Context(), ann, c.key)
		got, fits := strings.Join(e.Text, " "), false
		switch c.name {
		case "trouble": // the schedule engine says the rest
			fits = strings.HasPrefix(got, c.want)
		case "missed": // what comes next is not the matter
			fits = strings.HasSuffix(got, c.want)
		default:
			fits = got == c.want
		}
		if err != nil || !fits {
			t.Errorf("%s: %s (%v)\nwant %s", c.name, got, err, c.want)
		}
	}
	if _, err := newFixture(t).Explain(t.Context(), ann, "app.nothing"); !errors.Is(err, jobs.NotFound) {
		t.Errorf("of nothing: %v", err)
	}
}
