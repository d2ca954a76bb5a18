package controlplane_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// Whatever a run waits for, it does not begin while its job is paused or disabled, or while a debug mode is on. A run
// that has begun has its retry.
func TestNothingBeginsWhileItIsHeld(t *testing.T) {
	const until = 3 * time.Minute
	half := time.Date(2000, 1, 1, 0, 2, 30, 0, time.UTC)
	for name, comes := range map[string]struct {
		command func(jobs.Key) kernel.Command
		state   jobs.State // of a run of a due time, in the end
		cause   kernel.Cause
		begins  bool // a requested run begins in the end; otherwise it is as that of a due time
	}{
		"pause": {func(key jobs.Key) kernel.Command { return kernel.Pause{Key: key} },
			jobs.Scheduled, kernel.ByPause, false},
		"pause until": {func(key jobs.Key) kernel.Command { return kernel.Pause{Key: key, Until: half} },
			jobs.Skipped, kernel.ByPause, true},
		"disabled": {func(key jobs.Key) kernel.Command {
			return kernel.Edit{Key: key, Set: kernel.Settings{Disabled: new(true)}}
		}, jobs.Skipped, kernel.ByDisabled, false},
		"debug": {func(jobs.Key) kernel.Command {
			return kernel.Configure{RecurringDebug: new(true), TriggeredDebug: new(true)}
		}, jobs.Scheduled, kernel.ByDebug, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newFixture(t)
				defer h.close()
				var jitter, due, requested, tried atomic.Int64
				busy := func(context.Context) error { time.Sleep(30 * time.Second); return nil }
				once := jobs.Options{Cron: "0 1 0 1 1 *", Jitter: 50 * time.Second, MaxConcurrency: jobs.None}
				h.worker(worker.Config{Name: "calm", App: "calm", Slots: 9}, job("jitter", once, &jitter),
					jobs.NewTriggered(jobs.TriggeredFunc[charge](func(ctx context.Context, _ charge) error { return busy(ctx) }),
						jobs.Options{Key: "limited", MaxConcurrency: 1}),
					jobs.NewTriggered(jobs.TriggeredFunc[charge](func(context.Context, charge) error {
						tried.Add(1)
						return errors.New("no")
					}), jobs.Options{Key: "retry", Retries: 1, RetryDelay: 20 * time.Second}))
				once.Jitter = 0
				h.worker(worker.Config{Name: "busy", App: "busy", Slots: 1}, job("due", once, &due),
					jobs.NewTriggered(jobs.TriggeredFunc[charge](func(ctx context.Context, _ charge) error { return busy(ctx) }),
						jobs.Options{Key: "busy"}),
					jobs.NewTriggered(jobs.TriggeredFunc[charge](func(context.Context, charge) error {
						requested.Add(1)
						return nil
					}), jobs.Options{Key: "requested"}))
				create := func(key jobs.Key) jobs.ID {
					k := kernel.Create{ID: jobs.NewID(time.Now()), Key: key, Args: []byte(`{"Customer":"c"}`), Origin: kernel.FromCode}
					return h.must(k).Run().ID
				}
				time.Sleep(59 * time.Second)
				create("busy")
				create("limited")
				create("retry")
				time.Sleep(1500 * time.Millisecond)
				waits := []jobs.ID{create("requested"), create("limited")}
				for _, key := range []jobs.Key{"jitter", "due", "requested", "limited", "retry"} {
					h.must(comes.command(key))
				}
				time.Sleep(until - 61*time.Second)
				synctest.Wait()
				if jitter.Load()+due.Load() > 0 {
					t.Error("a run of a due time began")
				}
				for _, key := range []jobs.Key{"jitter", "due"} {
					if run := h.runs(key)[0]; run.State != comes.state || run.Cause != comes.cause || run.Attempt > 0 {
						t.Errorf("%s is %s by %q, want %s by %q", key, run.State, run.Cause, comes.state, comes.cause)
					}
				}
				for _, id := range waits {
					run := h.run(id)
					if comes.begins != (run.Attempt > 0) || !comes.begins && (run.State != comes.state || run.Cause != comes.cause) {
						t.Errorf("the requested run of %s is %s by %q after %d attempts", run.Key, run.State, run.Cause, run.Attempt)
					}
				}
				if n := tried.Load(); n != 2 {
					t.Errorf("a run that had begun had %d attempts, want 2", n)
				}
			})
		})
	}
}

// What is held costs no commit while something holds it, and none afterwards.
func TestHeldRunsCostNoCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.stop()
		commands := &counter{Full: h.full, by: map[kernel.Verb]int{}}
		h.full = commands
		h.start()
		var done atomic.Int64
		h.worker(worker.Config{Name: "w", App: "bells", Slots: 9}, jobs.NewTriggered(jobs.TriggeredFunc[charge](func(context.Context, charge) error {
			done.Add(1)
			return nil
		}), jobs.Options{Key: "paused"}))
		for _, hold := range []struct{ on, off kernel.Command }{
			{kernel.Pause{Key: "paused"}, kernel.Resume{Key: "paused"}},
			{kernel.Configure{TriggeredDebug: new(true)}, kernel.Configure{TriggeredDebug: new(false)}},
		} {
			h.must(hold.on)
			for range 5 {
				h.must(kernel.Create{ID: jobs.NewID(time.Now()), Key: "paused", Args: []byte(`{"Customer":"c"}`)})
			}
			for n, k := range []kernel.Command{nil, hold.off} {
				if k != nil {
					h.must(k)
					time.Sleep(time.Second)
				}
				commands.take()
				time.Sleep(10 * time.Minute)
				if n := commands.take()[kernel.VerbRelease]; n > 0 {
					t.Errorf("%d commands release what is held, after %v", n, k)
				}
				if ran := done.Swap(0); ran != int64(5*n) {
					t.Errorf("%d runs began, want %d", ran, 5*n)
				}
			}
		}
	})
}
