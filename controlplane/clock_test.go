package controlplane_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/worker"
)

const year = 365 * 24 * time.Hour

// The leader's clock is set by a year, and back after ten seconds: nothing is early, nothing comes twice, nothing falls
// silent, no attempt runs out of time, and the log raises the alarm once.
func TestAClockThatIsSetForTenSeconds(t *testing.T) {
	for _, step := range []time.Duration{year, -year} {
		t.Run(step.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newFixture(t)
				defer h.close()
				var ticks, yearly atomic.Int64
				first := time.Now().Add(time.Second)
				long := jobs.NewTriggered(jobs.TriggeredFunc[charge](func(ctx context.Context, _ charge) error {
					select {
					case <-time.After(40 * time.Second):
						return nil
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}), jobs.Options{Key: "long", Timeout: time.Minute})
				h.worker(worker.Config{}, job("tick", jobs.Options{Every: time.Second, MaxConcurrency: jobs.None}, &ticks),
					job("yearly", jobs.Options{Cron: "0 0 0 1 6 *"}, &yearly), long)
				running := h.enqueue("long")
				request, err := jobs.Trigger[charge]("long").Request(charge{"c7"}, jobs.After(time.Hour))
				if err != nil {
					t.Fatal(err)
				}
				h.must(kernel.CreateOf(request))
				sleep := func(d time.Duration) {
					t.Helper()
					for range int(d / time.Second) {
						before := ticks.Load()
						time.Sleep(time.Second)
						synctest.Wait()
						if n := ticks.Load() - before; n != 1 {
							t.Errorf("after %v: %d runs within a second", time.Since(first), n)
						}
					}
				}
				time.Sleep(500 * time.Millisecond)
				sleep(10 * time.Second)
				h.ahead.Store(int64(step))
				sleep(10 * time.Second)
				if got := h.cp.ClockStep(); got != step {
					t.Errorf("ClockStep returns %v", got)
				}
				again, err := jobs.Trigger[charge]("long").Request(charge{"c8"}, jobs.After(10*time.Minute))
				if err != nil {
					t.Fatal(err)
				}
				if run := h.must(kernel.CreateOf(again)).Run(); time.Until(run.Due) > 11*time.Minute || time.Until(run.Due) < 9*time.Minute {
					t.Errorf("in ten minutes is %v", run.Due)
				}
				h.ahead.Store(0)
				sleep(30 * time.Second)
				h.covered("tick", first, time.Now(), time.Second)
				if yearly.Load() != 0 {
					t.Error("a yearly job ran before its time")
				}
				if run := h.run(request.ID); run.State != jobs.Scheduled {
					t.Errorf("a run that is due in an hour is %s", run.State)
				}
				if run := h.run(running); run.State != jobs.Succeeded {
					t.Errorf("a run that was under way is %s (%s)", run.State, run.Cause)
				}
				if n, m := h.logged.count("the clock was set"), h.logged.count("the clock is followed again"); n != 1 || m != 1 {
					t.Errorf("the alarm was raised %d times and ended %d times", n, m)
				}
			})
		})
	}
}

// A step that lasts is followed. The due times that it jumped over are missed, by the job's policy, and those that come
// a second time are not due again: the ledger is complete either way.
func TestAClockThatIsSetForGood(t *testing.T) {
	tests.Long(t)
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newFixture(t)
				defer h.close()
				var n atomic.Int64
				first := time.Now().Add(time.Minute)
				h.worker(worker.Config{}, job("tick", jobs.Options{Cron: "0 * * * * *", MaxConcurrency: jobs.None}, &n))
				time.Sleep(5*time.Minute + time.Second)
				h.ahead.Store(int64(step))
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				now := time.Now().Add(step)
				runs, missed := h.covered("tick", first, now, time.Minute)
				// The last minute that was jumped over is not late yet, so none of those that are runs beside it.
				want, over := 5+1+120, 59
				if step < 0 {
					want, over = 65, 0 // none until the clock is where it was
				}
				if runs != want || missed != over || int(n.Load()) != runs {
					t.Errorf("%d runs, %d handlers and %d missed, want %d and %d", runs, n.Load(), missed, want, over)
				}
			})
		})
	}
}

// baton is held by the node that leads; yield passes it on.
type baton struct {
	store metastore.Agenda
	pass  chan struct{}
	yield chan struct{}
	led   atomic.Int64
}

func (b *baton) Lead(ctx context.Context, lead func(context.Context, uint64) error) error {
	for {
		select {
		case <-b.pass:
		case <-ctx.Done():
			return ctx.Err()
		}
		s, err := b.store.State(ctx)
		if err != nil {
			return err
		}
		b.led.Add(1)
		inner, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- lead(inner, s.Term+1) }()
		select {
		case <-b.yield:
			cancel()
			<-ended
			b.pass <- struct{}{} // to a waiting node, which this one is not
		case err := <-ended:
			cancel()
			return err
		}
	}
}

func (b *baton) Confirmed(uint64) time.Time { return time.Now() }

func (b *baton) Yield() error { b.yield <- struct{}{}; return nil }

func TestALeaderWhoseClockIsSetHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.stop()
		var ahead atomic.Int64
		pass := make(chan struct{})
		var nodes [2]*baton
		for i, clock := range []*metastore.Clock{{Wall: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }}, {}} {
			name := []string{"n1", "n2"}[i]
			nodes[i] = &baton{store: h.full, pass: pass, yield: make(chan struct{})}
			cp, err := controlplane.New(controlplane.Config{Node: name, Store: h.full, Clock: clock, Elector: nodes[i],
				Bus:    h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: name}),
				Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
			if err != nil {
				t.Fatal(err)
			}
			h.spawn(cp.Run)
			if i == 0 {
				h.use(cp)
				pass <- struct{}{}
			}
			synctest.Wait()
		}
		var n atomic.Int64
		first := time.Now().Add(time.Second)
		h.worker(worker.Config{}, job("tick", jobs.Options{Every: time.Second, MaxConcurrency: jobs.None}, &n))
		time.Sleep(10 * time.Second)
		ahead.Store(int64(year))
		time.Sleep(10*time.Second + 500*time.Millisecond)
		synctest.Wait()
		if nodes[0].led.Load() != 1 || nodes[1].led.Load() != 1 {
			t.Errorf("the nodes led %d and %d times", nodes[0].led.Load(), nodes[1].led.Load())
		}
		if s, _ := h.full.State(h.ctx); s.Leader != "n2" {
			t.Errorf("%s leads", s.Leader)
		}
		h.covered("tick", first, time.Now(), time.Second)
	})
}

// The clock of a database is two seconds behind the leader's: a due time fires when both are there, and the leader
// does not beat upon the store meanwhile.
func TestAStoreWhoseClockIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.stop()
		h.full = &metastore.Local{Engine: memstore.New(memstore.Config{}), Now: func() time.Time { return time.Now().Add(-2 * time.Second) }}
		h.start()
		var n atomic.Int64
		h.worker(worker.Config{}, job("tick", jobs.Options{Cron: "0 * * * * *"}, &n))
		time.Sleep(10*time.Minute + 10*time.Second)
		synctest.Wait()
		runs := h.runs("tick")
		for _, run := range runs {
			if late := run.Created.Sub(run.Due); late < 0 || late > 300*time.Millisecond {
				t.Errorf("the run of %v was made %v after it was due, by the store's clock", run.Due, late)
			}
		}
		if len(runs) != 11 || n.Load() != 11 {
			t.Errorf("%d runs, and the handler ran %d times, want 11: midnight is ahead, by the clock of the store", len(runs), n.Load())
		}
		if early := h.logged.count("is behind the clock"); early < 11 || early > 11*11 {
			t.Errorf("the store was asked %d times too early", early)
		}
	})
}
