package controlplane_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// A job that is due each ten minutes and starts up to eight minutes early is changed in that time: each due time has
// one run or one reason, and which.
func TestEarlyAndChanges(t *testing.T) {
	type step struct {
		at time.Duration
		k  kernel.Command
	}
	pause, resume := kernel.Pause{Key: "report"}, kernel.Resume{Key: "report"}
	for _, tt := range []struct {
		name  string
		steps []step
		runs  map[string]string // due time to start
		why   string
	}{
		{name: "an edit after it began", steps: []step{
			{3 * time.Minute, kernel.Edit{Key: "report", Set: kernel.Settings{Schedule: new("0 6 0 * * *")}}},
		}, runs: map[string]string{"00:10": "00:02", "00:06": "00:03"}},
		{name: "an edit that keeps the due time", steps: []step{
			{3 * time.Minute, kernel.Edit{Key: "report", Set: kernel.Settings{Schedule: new("0 6,10 0 * * *")}}},
		}, runs: map[string]string{"00:10": "00:02", "00:06": "00:03"}},
		{name: "a pause that ends before the due time", steps: []step{{time.Minute, pause}, {5 * time.Minute, resume}},
			runs: map[string]string{"00:10": "00:05"}},
		{name: "a pause until before the due time", steps: []step{{time.Minute, kernel.Pause{Key: "report", Until: time.Date(2000, 1, 1, 0, 5, 0, 0, time.UTC)}}},
			runs: map[string]string{"00:10": "00:05"}},
		{name: "a pause over the due time", steps: []step{{time.Minute, pause}, {11 * time.Minute, resume}}, runs: map[string]string{}, why: "paused"},
		{name: "a pause after it began", steps: []step{{3 * time.Minute, pause}, {11 * time.Minute, resume}}, runs: map[string]string{"00:10": "00:02"}},
		{name: "a debug mode over the due time", steps: []step{{time.Minute, kernel.Configure{RecurringDebug: new(true)}},
			{11 * time.Minute, kernel.Configure{RecurringDebug: new(false)}}}, runs: map[string]string{}, why: "debug"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newFixture(t)
				defer h.close()
				h.worker(worker.Config{Slots: 9}, jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return nil }),
					jobs.Options{Key: "report", Cron: "0 10 0 * * *", Early: 8 * time.Minute}))
				began := time.Now()
				for _, s := range tt.steps {
					time.Sleep(s.at - time.Since(began))
					h.must(s.k)
				}
				time.Sleep(12*time.Minute - time.Since(began))
				runs, ranges := h.runs("report"), h.ledger("report")
				for _, run := range runs {
					if due, start := run.Due.Format("15:04"), run.Started.Format("15:04"); tt.runs[due] != start {
						t.Errorf("the run of %s started at %s, want %q", due, start, tt.runs[due])
					}
				}
				if len(runs) != len(tt.runs) || len(ranges) > 1 || (len(ranges) == 1) != (tt.why != "") || len(ranges) == 1 && string(ranges[0].Reason) != tt.why {
					t.Errorf("%d runs, ledger %v; want %v and %q", len(runs), ranges, tt.runs, tt.why)
				}
			})
		})
	}
}

// A run that began early ends, and an edit has the next due time, which counts from that, come at the one of the run: by
// another delay, or by cron. It has its record: a pause over it adds none.
func TestEarlyAndAnotherDelay(t *testing.T) {
	for to, want := range map[string]time.Duration{"86s after end": 22*time.Second + 2*86*time.Second, "48 1-59 * * * *": 168 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			h := newFixture(t)
			defer h.close()
			began := time.Now().UTC()
			h.worker(worker.Config{Slots: 9}, jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { time.Sleep(9 * time.Second); return nil }),
				jobs.Options{Key: "report", Every: 108 * time.Second, AfterEnd: true, Early: 95 * time.Second}))
			time.Sleep(30 * time.Second) // the run of 00:01:48 has ended after 22 s, and the next one is due at 00:02:10
			h.must(kernel.Pause{Key: "report"})
			h.must(kernel.Edit{Key: "report", Set: kernel.Settings{Schedule: &to, Early: new(time.Duration(0))}})
			time.Sleep(82 * time.Second)
			h.must(kernel.Resume{Key: "report"})
			time.Sleep(want - 111*time.Second)
			runs, ranges := h.records("report")
			if len(runs) != 2 || len(ranges) != 0 || runs[began.Add(108*time.Second)] == nil || runs[began.Add(want)] == nil {
				t.Errorf("%s: runs %v, %d ranges; want those of 00:01:48 and of %v", to, slices.Collect(maps.Keys(runs)), len(ranges), want)
			}
		})
	}
}

// No node leads for half an hour, in which the job is paused, resumed, disabled and enabled again.
func TestPausesWhileNothingIsDecidedAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.calm()
		work := jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return nil }),
			jobs.Options{Key: "tick", Cron: "0 * * * * *", Misfire: jobs.MisfireAll, MaxConcurrency: jobs.None})
		leave := h.worker(worker.Config{Slots: 9}, work)
		first := time.Now().Add(time.Minute)
		time.Sleep(30 * time.Second)
		leave()
		h.stop()
		for _, k := range []kernel.Command{nil, kernel.Pause{Key: "tick"}, kernel.Resume{Key: "tick"}, nil, kernel.Pause{Key: "tick", Until: first.Add(21*time.Minute + 30*time.Second)},
			nil, kernel.Pause{Key: "tick"}, kernel.Resume{Key: "tick"}} {
			if k != nil {
				if r := h.full.Apply(h.ctx, []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "person:ann", Command: k}})[0]; r.Err != nil {
					t.Fatal(r.Err)
				}
			}
			time.Sleep(5 * time.Minute)
		}
		h.start()
		h.worker(worker.Config{Slots: 9}, work)
		time.Sleep(2 * time.Minute)
		// Paused from 5 to 10 minutes, from 20 to 22 and from 30 to 35.
		if runs, missed := h.covered("tick", first, time.Now(), time.Minute); missed != 5+2+5 || runs != 42-12 {
			t.Errorf("%d runs and %d missed, want 30 and 12", runs, missed)
		}
		for _, m := range h.ledger("tick") {
			if m.Reason != kernel.MissedPaused {
				t.Errorf("%d due times from %v are %s", m.Count, m.From, m.Reason)
			}
		}
		d, err := h.store.Definition(h.ctx, jobs.DefaultTenant, "tick")
		if err != nil || len(d.Silences) > 0 {
			t.Errorf("%v are remembered although all is decided (%v)", d.Silences, err)
		}
	})
}
