package ops_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// A job that does not run says why in each list: the same in the job, in the filter of its state, in the forecasts and
// among the next fires.
func TestConditions(t *testing.T) {
	all := []jobs.Key{"app.nightly", "app.often", "app.work"}
	for _, c := range []struct {
		name string
		do   func(*fixture, *members)
		job  jobs.Key
		want []ops.Condition
	}{
		{"nothing", func(*fixture, *members) {}, "app.often", nil},
		{"stopped", func(d *fixture, c *members) {
			c.workers = []ops.Worker{serving("app", "app.work")}
			d.apply(kernel.Mark{Key: "app.often", Stopped: true})
		}, "app.often", []ops.Condition{ops.IsStopped}},
		{"no worker", func(_ *fixture, c *members) { c.workers = nil }, "app.work", []ops.Condition{ops.Unserved}},
		{"only a worker that leaves", func(_ *fixture, c *members) { c.workers[0].Leaving = true }, "app.work", []ops.Condition{ops.Unserved}},
		{"a worker of another app", func(_ *fixture, c *members) { c.workers = []ops.Worker{serving("mail", all...)} }, "app.work", []ops.Condition{ops.Unserved}},
		{"paused", func(d *fixture, _ *members) { d.apply(kernel.Pause{Key: "app.often"}) }, "app.often", []ops.Condition{ops.IsPaused}},
		{"a pause that has ended", func(d *fixture, _ *members) {
			d.apply(kernel.Pause{Key: "app.often", Until: d.now.Add(time.Minute)})
			d.now = d.now.Add(time.Hour)
		}, "app.often", nil},
		{"disabled, and paused", func(d *fixture, _ *members) {
			d.apply(kernel.Edit{Key: "app.often", Set: kernel.Settings{Disabled: new(true)}})
			d.apply(kernel.Pause{Key: "app.often"})
		}, "app.often", []ops.Condition{ops.IsDisabled, ops.IsPaused}},
		{"debug", func(d *fixture, _ *members) { d.apply(kernel.Configure{RecurringDebug: new(true)}) }, "app.often", []ops.Condition{ops.InDebug}},
		{"finished", func(d *fixture, _ *members) {
			once := kernel.Settings{Schedule: new("@every 1m"), End: new(d.now.Add(time.Minute))}
			d.apply(kernel.Register{App: "app", Worker: "w1", Start: true, Job: kernel.Declaration{Key: "app.once", Kind: kernel.Recurring, Code: once}})
			d.now = d.now.Add(time.Hour)
		}, "app.once", []ops.Condition{ops.Unserved, ops.IsFinished}},
		{"full", func(d *fixture, _ *members) {
			d.apply(kernel.Edit{Key: "app.work", Set: kernel.Settings{MaxConcurrency: new(1)}})
			d.run("app.work", 0)
			d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "app.work"})
		}, "app.work", []ops.Condition{ops.IsFull}},
		{"failing", func(d *fixture, _ *members) {
			d.apply(kernel.Edit{Key: "app.work", Set: kernel.Settings{Retries: new(0)}})
			for range 3 {
				d.run("app.work", kernel.OutcomeError)
			}
		}, "app.work", []ops.Condition{ops.IsFailing}},
		{"failed, and succeeded since", func(d *fixture, _ *members) {
			d.apply(kernel.Edit{Key: "app.work", Set: kernel.Settings{Retries: new(0)}})
			for range 3 {
				d.run("app.work", kernel.OutcomeError)
			}
			d.run("app.work", kernel.OutcomeSuccess)
		}, "app.work", nil},
	} {
		d := newFixture(t)
		online := &members{workers: []ops.Worker{serving("app", all...)}}
		clock := func() time.Time { return d.now }
		d.Ops = ops.New(ops.Config{Store: d.store, Logs: d.logs, Live: online, Now: clock, ForecastWork: time.Minute})
		c.do(d, online)
		job, err := d.Job(t.Context(), ops.Who{}, c.job, 1)
		if err != nil || fmt.Sprint(job.Conditions) != fmt.Sprint(c.want) {
			t.Errorf("%s: %s is %q, want %q (%v)", c.name, c.job, job.Conditions, c.want, err)
		}
		for _, state := range ops.Conditions() {
			list, _, err := d.Jobs(t.Context(), ops.Who{}, ops.JobQuery{State: state, Text: string(c.job)})
			if in := job.Is(state) || state == ops.Active && c.want == nil; err != nil || len(list) == 1 != in {
				t.Errorf("%s: %d jobs are %s (%v)", c.name, len(list), state, err)
			}
			done, err := d.ManyJobs(t.Context(), ops.Who{}, ops.ManyJobs{Action: ops.PauseJobs, Dry: true, Filter: ops.JobQuery{State: state, Text: string(c.job)}})
			if err != nil || done.Matched != len(list) {
				t.Errorf("%s: an action on all that are %s is on %d, the list has %d (%v)", c.name, state, done.Matched, len(list), err)
			}
		}
		if !job.Is(ops.IsStopped) {
			continue
		}
		soon, _, err := d.Soon(t.Context(), ops.Who{}, 10)
		for _, s := range soon {
			if s.Key == c.job || err != nil {
				t.Errorf("%s is stopped, and among the next fires (%v)", s.Key, err)
			}
		}
		if job.Silent != "stopped" {
			t.Errorf("a stopped job is silent because of %q", job.Silent)
		}
		if f, err := d.Forecast(t.Context(), ops.Who{}); err != nil || f.Jobs != 1 {
			t.Errorf("the forecast counts %d jobs (%v), want 1", f.Jobs, err)
		}
	}
	if _, _, err := newFixture(t).Jobs(t.Context(), ops.Who{}, ops.JobQuery{State: "odd"}); jobs.CodeOf(err) != jobs.BadInput {
		t.Errorf("an unknown state: %v", err)
	}
}
