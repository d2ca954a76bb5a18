package controlplane_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/worker"
)

// sum adds minutes up.
func sum(minutes []controlplane.Minute) (all controlplane.Minute) {
	for _, m := range minutes {
		all.Started += m.Started
		all.Succeeded += m.Succeeded
		all.Failed += m.Failed
		all.Terminated += m.Terminated
		all.Cancelled += m.Cancelled
		all.Skipped += m.Skipped
		all.LateP50, all.LateP99, all.LateMax = max(all.LateP50, m.LateP50), max(all.LateP99, m.LateP99), max(all.LateMax, m.LateMax)
	}
	return all
}

func count(h metastore.Histogram) (n uint64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// The leader counts what happens to runs, each step once, with all that its commits bring along.
func TestPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.calm()
		began := time.Now()
		release := make(chan struct{})
		h.worker(worker.Config{Slots: 10},
			jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(ctx context.Context, _ struct{}) error { return nil }), jobs.Options{Key: "good"}),
			jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(ctx context.Context, _ struct{}) error { return errors.New("no") }),
				jobs.Options{Key: "bad", Retries: 2, RetryDelay: jobs.None}),
			// One whose context ends long before it returns.
			jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(ctx context.Context, _ struct{}) error { <-release; return ctx.Err() }),
				jobs.Options{Key: "deaf", Timeout: 10 * time.Second, MaxConcurrency: 1}),
			jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(ctx context.Context, _ struct{}) error { <-ctx.Done(); return ctx.Err() }),
				jobs.Options{Key: "one", MaxConcurrency: 1, Overlap: jobs.OverlapSkip}))
		create := func(key jobs.Key, after time.Duration) jobs.ID {
			id := jobs.NewID(time.Now())
			h.must(kernel.Create{ID: id, Key: key, Delay: after})
			synctest.Wait()
			return id
		}
		look := func(want controlplane.Minute) {
			t.Helper()
			synctest.Wait()
			got := sum(h.cp.Pulse(jobs.DefaultTenant))
			got.LateP50, got.LateP99, got.LateMax = 0, 0, 0
			if got != want {
				t.Errorf("seen %+v\nwant %+v", got, want)
			}
		}
		for range 3 {
			create("good", time.Second)
		}
		time.Sleep(2 * time.Second)
		look(controlplane.Minute{Started: 3, Succeeded: 3})

		create("bad", 0)
		look(controlplane.Minute{Started: 6, Succeeded: 3, Failed: 3, Terminated: 1})

		first := create("one", 0)
		create("one", 0)
		h.must(kernel.Cancel{ID: first})
		h.must(kernel.Cancel{ID: first}) // sent twice
		time.Sleep(3 * time.Second)
		look(controlplane.Minute{Started: 7, Succeeded: 3, Failed: 3, Terminated: 1, Cancelled: 1, Skipped: 1})

		// The attempt ends long before its handler returns, and then frees the slot for the next.
		slow := create("deaf", 0)
		create("deaf", 0)
		time.Sleep(11 * time.Second)
		look(controlplane.Minute{Started: 8, Succeeded: 3, Failed: 4, Terminated: 2, Cancelled: 1, Skipped: 1})
		if run := h.run(slow); !run.Lingering {
			t.Fatalf("the run is %+v", run)
		}
		close(release)
		time.Sleep(time.Second)
		look(controlplane.Minute{Started: 9, Succeeded: 4, Failed: 4, Terminated: 2, Cancelled: 1, Skipped: 1})

		late := sum(h.cp.Pulse(jobs.DefaultTenant))
		if late.LateMax < 10*time.Second || late.LateMax > 13*time.Second || late.LateP50 > time.Second || late.LateP99 != late.LateMax {
			t.Errorf("late by %v, %v, %v: the second deaf run waited for the first", late.LateP50, late.LateP99, late.LateMax)
		}
		if n := len(h.cp.Pulse("another")); n == 0 || sum(h.cp.Pulse("another")) != (controlplane.Minute{}) {
			t.Error("another tenant has minutes of its own, and nothing in them")
		}

		// The totals show the same, by tenant and kind.
		all := h.cp.Totals()
		if got := all.Runs[controlplane.Class{Tenant: jobs.DefaultTenant, Kind: kernel.Triggered}]; got != (controlplane.Steps{Created: 8, Started: 9,
			Error: 3, Timeout: 1, Ended: [kernel.StateCount]uint64{jobs.Succeeded: 4, jobs.Terminated: 2, jobs.Cancelled: 1, jobs.Skipped: 1}}) {
			t.Errorf("in all %+v", got)
		}
		if got := all.Took[kernel.Triggered]; got.Sum < 10 || got.Sum > 12 || count(got) != 8 {
			t.Errorf("attempts took %+v", got)
		}
		if got := all.Late[kernel.Triggered]; count(got) != 7 {
			t.Errorf("attempts were late by %+v", got)
		}
		if all.Commands[kernel.VerbCreate] != 8 || all.Refused[jobs.NotFound] != 0 || all.Pushed == 0 || all.Heartbeats == 0 || all.Leases != 0 {
			t.Errorf("in all %+v", all)
		}
		h.apply(kernel.Create{ID: jobs.NewID(time.Now()), Key: "unheard-of"})
		if all = h.cp.Totals(); all.Refused[jobs.NotFound] != 1 {
			t.Errorf("refused %v", all.Refused)
		}

		// A past minute goes down the list, and off it after an hour.
		minutes := h.cp.Pulse(jobs.DefaultTenant)
		if !minutes[0].At.Equal(began.Truncate(time.Minute)) || len(minutes) > 2 {
			t.Errorf("%d minutes from %v on", len(minutes), minutes[0].At)
		}
		time.Sleep(30 * time.Minute)
		if minutes = h.cp.Pulse(jobs.DefaultTenant); len(minutes) < 31 || sum(minutes[:2]).Started != 9 || sum(minutes[2:]).Started != 0 {
			t.Errorf("half an hour later: %+v", minutes)
		}
		create("good", 0)
		time.Sleep(45 * time.Minute)
		if minutes = h.cp.Pulse(jobs.DefaultTenant); len(minutes) != 60 || sum(minutes).Started != 1 {
			t.Errorf("an hour later: %d minutes, %+v", len(minutes), sum(minutes))
		}
	})
}

// A node that leads again keeps what it saw; one that does not lead shows nothing.
func TestPulseOfATerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.worker(worker.Config{}, jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(ctx context.Context, _ struct{}) error { return nil }), jobs.Options{Key: "good"}))
		h.must(kernel.Create{ID: jobs.NewID(time.Now()), Key: "good"})
		synctest.Wait()
		h.stop()
		if seen := h.cp.Pulse(jobs.DefaultTenant); seen != nil {
			t.Errorf("without a leader: %+v", seen)
		}
		h.stop = h.spawn(h.cp.Run)
		synctest.Wait()
		if got := sum(h.cp.Pulse(jobs.DefaultTenant)); got.Succeeded != 1 {
			t.Errorf("seen %+v", got)
		}
	})
}

// A failure that is announced once while the handler still runs, and again when it has returned, is one failure.
func TestPulseCountsAnEndOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.worker(worker.Config{}, jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(ctx context.Context, _ struct{}) error { return nil }), jobs.Options{Key: "good", Retries: 3}))()
		id := jobs.NewID(time.Now())
		h.must(kernel.Create{ID: id, Key: "good"})
		h.must(kernel.Start{ID: id, Worker: "w9", Attempt: 1})
		h.must(kernel.Checkpoint{ID: id, Worker: "w9", Attempt: 1, Data: []byte("1")})
		end := kernel.Finish{ID: id, Worker: "w9", Attempt: 1, Outcome: kernel.OutcomeTimeout, Running: true}
		h.must(end)
		h.must(end)
		end.Running = false
		if r := h.must(end); r.Existing {
			t.Fatal("the return was not news")
		}
		if got := sum(h.cp.Pulse(jobs.DefaultTenant)); got.Started != 1 || got.Failed != 1 {
			t.Errorf("seen %+v", got)
		}
	})
}

// Due times are counted: those that became runs, and those that did not, by why.
func TestTotalsOfDueTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.worker(worker.Config{}, jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return nil }), jobs.Options{Key: "tick", Cron: "0 * * * * *"}))
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		h.must(kernel.Pause{Key: "tick"})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		all := h.cp.Totals()
		if all.Fired != 3 || all.Missed[kernel.MissedPaused] != 2 || all.Runs[controlplane.Class{Tenant: jobs.DefaultTenant, Kind: kernel.Recurring}].Created != 3 {
			t.Errorf("fired %d, missed %v, created %+v", all.Fired, all.Missed, all.Runs)
		}
	})
}
