package controlplane_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/worker"
)

// covered checks the promise of the ledger: each due time of (from, to] that a job's schedule names has exactly one
// run, or lies in exactly one missed range, and the ranges' counts add up. every is the job's interval.
func (h *fixture) covered(key jobs.Key, first, last time.Time, every time.Duration) (runs, missed int) {
	h.t.Helper()
	seen := map[int64]int{}
	for _, run := range h.runs(key) {
		if run.Origin.Automatic() {
			seen[run.Due.UnixNano()]++
			runs++
		}
	}
	ranges := h.ledger(key)
	total := 0
	for due := first; !due.After(last); due = due.Add(every) {
		total++
		in := 0
		for _, m := range ranges {
			if !due.Before(m.From) && !due.After(m.To) {
				in++
			}
		}
		if n := seen[due.UnixNano()]; n+in != 1 {
			h.t.Errorf("%s of %s: %d runs and %d ranges", due.Format(time.TimeOnly), key, n, in)
		}
	}
	for _, m := range ranges {
		missed += int(m.Count)
	}
	if runs+missed != total {
		h.t.Errorf("%s: %d due times, but %d runs and %d missed", key, total, runs, missed)
	}
	return runs, missed
}

func job(key jobs.Key, o jobs.Options, n *atomic.Int64) jobs.Job {
	o.Key = key
	return jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { n.Add(1); return nil }), o)
}

// bubble starts at midnight UTC of 2000-01-01: minutes are whole.
func TestDueTimesMissedByTheControlPlaneFollowThePolicy(t *testing.T) {
	for _, tt := range []struct {
		policy       jobs.Misfire
		runs, missed int
	}{{jobs.MisfireOnce, 10 + 1, 9}, {jobs.MisfireAll, 20, 0}, {jobs.MisfireSkip, 10, 10}} {
		t.Run(string(tt.policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newFixture(t)
				defer h.close()
				first := time.Now().Add(time.Minute)
				var n atomic.Int64
				h.worker(worker.Config{}, job("tick", jobs.Options{Cron: "0 * * * * *", Misfire: tt.policy, MaxConcurrency: jobs.None}, &n))
				time.Sleep(5*time.Minute + 10*time.Second)
				h.stop()
				time.Sleep(10*time.Minute + 30*time.Second) // no node leads
				h.start()
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				runs, missed := h.covered("tick", first, time.Now(), time.Minute)
				if runs != tt.runs || missed != tt.missed {
					t.Errorf("%d runs and %d missed, want %d and %d", runs, missed, tt.runs, tt.missed)
				}
				if int(n.Load()) != runs {
					t.Errorf("the handler ran %d times for %d runs", n.Load(), runs)
				}
			})
		})
	}
}

func TestALongSilenceOfABusyJobIsCaughtUpInPasses(t *testing.T) {
	tests.Long(t)
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		first := time.Now().Add(time.Second)
		var n atomic.Int64
		h.worker(worker.Config{}, job("tick", jobs.Options{Every: time.Second, MaxConcurrency: jobs.None}, &n))
		time.Sleep(10*time.Second + time.Millisecond)
		h.stop()
		time.Sleep(60 * time.Hour) // 216,000 due times: more than one pass looks at
		h.start()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		last := time.Now()
		ranges := h.ledger("tick")
		if len(ranges) != 1 || ranges[0].Reason != kernel.MissedLate {
			t.Fatalf("the ledger has %d ranges, want one that was extended in place", len(ranges))
		}
		d, _ := h.store.Definition(h.ctx, jobs.DefaultTenant, "tick")
		total := int(last.Sub(first)/time.Second) + 1
		if got := int(ranges[0].Count) + int(n.Load()); got != total || !d.Cursor.Equal(last.Truncate(time.Second)) {
			t.Errorf("%d due times are accounted for, %d have passed; the cursor is at %v", got, total, d.Cursor)
		}
	})
}

func TestPausedAndDisabledAndDebugLeaveRanges(t *testing.T) {
	yes, no := true, false
	for _, tt := range []struct {
		why     kernel.Reason
		off, on kernel.Command
	}{
		{kernel.MissedPaused, kernel.Pause{Key: "tick", Reason: "holiday"}, kernel.Resume{Key: "tick"}},
		{kernel.MissedDisabled, kernel.Edit{Key: "tick", Set: kernel.Settings{Disabled: &yes}}, kernel.Edit{Key: "tick", Set: kernel.Settings{Disabled: &no}}},
		{kernel.MissedDebug, kernel.Configure{RecurringDebug: &yes}, kernel.Configure{RecurringDebug: &no}},
	} {
		t.Run(string(tt.why), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newFixture(t)
				defer h.close()
				first := time.Now().Add(time.Minute)
				var n atomic.Int64
				h.worker(worker.Config{}, job("tick", jobs.Options{Cron: "0 * * * * *"}, &n))
				time.Sleep(3*time.Minute + time.Second)
				h.must(tt.off)
				time.Sleep(4 * time.Minute)
				synctest.Wait()
				if n.Load() != 3 {
					t.Errorf("ran %d times, and not one more than 3 was allowed", n.Load())
				}
				if tt.why != kernel.MissedDisabled { // manually, always
					h.must(kernel.Create{ID: jobs.NewID(time.Now()), Key: "tick", Origin: kernel.FromPerson})
					time.Sleep(time.Second)
					if n.Load() != 4 {
						t.Error("a person could not run it manually")
					}
				}
				h.must(tt.on)
				before := n.Load()
				time.Sleep(3 * time.Minute)
				synctest.Wait()
				if n.Load() != before+3 {
					t.Errorf("ran %d times after it was switched on again, want 3", n.Load()-before)
				}
				if _, missed := h.covered("tick", first, time.Now(), time.Minute); missed != 4 {
					t.Errorf("%d due times in the ledger, want 4", missed)
				}
				if m := h.ledger("tick"); len(m) != 1 || m[0].Reason != tt.why {
					t.Errorf("ledger: %d ranges", len(m))
				}
			})
		})
	}
}

// What kept a job from running counts for the due times in that time, also if it ended before they were decided, because
// no node led meanwhile.
func TestSilencesThatEndBeforeADecision(t *testing.T) {
	for why, c := range map[kernel.Reason]struct {
		on, off       kernel.Command
		fired, silent []int // hours of due times
	}{
		kernel.MissedPaused: {kernel.Pause{Key: "tick"}, kernel.Resume{Key: "tick"}, []int{1, 2, 5}, []int{3, 4}},
		kernel.MissedDisabled: {kernel.Edit{Key: "tick", Set: kernel.Settings{Disabled: new(true)}},
			kernel.Edit{Key: "tick", Set: kernel.Settings{Disabled: new(false)}}, []int{5}, []int{1, 2, 3, 4}},
		kernel.MissedDebug:     {kernel.Configure{RecurringDebug: new(true)}, kernel.Configure{RecurringDebug: new(false)}, []int{1, 2, 5}, []int{3, 4}},
		kernel.MissedSuspended: {kernel.SuspendTenant{Name: "acme", On: true}, kernel.SuspendTenant{Name: "acme"}, []int{1, 2, 5}, []int{3, 4}},
	} {
		t.Run(string(why), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newFixture(t)
				defer h.close()
				h.must(kernel.SetTenant{Name: "acme", Create: true})
				acme := in{h, "acme"}
				var n atomic.Int64
				hourly := jobs.Options{Cron: "0 0 * * * *", Misfire: jobs.MisfireAll, MaxConcurrency: jobs.None}
				acme.worker("w", job("tick", hourly, &n))
				do := func(k kernel.Command) {
					t.Helper()
					tenant := acme.tenant
					if _, all := k.(kernel.SuspendTenant); all {
						tenant = jobs.DefaultTenant
					}
					if r := h.full.Apply(h.ctx, []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: tenant, Actor: "person:ann", Command: k}})[0]; r.Err != nil {
						t.Fatal(r.Err)
					}
				}
				time.Sleep(30 * time.Minute)
				h.stop()
				time.Sleep(2 * time.Hour)
				do(c.on)
				time.Sleep(time.Hour)
				do(c.off) // twice, with nothing due in between
				do(c.on)
				time.Sleep(time.Hour)
				do(c.off)
				time.Sleep(70 * time.Minute)
				h.start()
				time.Sleep(15 * time.Minute)
				d, err := h.store.Definition(h.ctx, acme.tenant, "tick")
				if err != nil {
					t.Fatal(err)
				}
				ranges, err := h.store.Ledger(h.ctx, acme.tenant, d.UID, 100)
				if err != nil {
					t.Fatal(err)
				}
				var silent, fired []int
				for _, m := range ranges {
					for at := m.From; !at.After(m.To); at = at.Add(time.Hour) {
						silent = append(silent, at.Hour())
					}
					if m.Reason != why {
						t.Errorf("%s to %s are %s", m.From, m.To, m.Reason)
					}
				}
				page, err := h.store.Runs(h.ctx, metastore.RunQuery{Tenant: acme.tenant, Job: "tick", Limit: 50})
				if err != nil {
					t.Fatal(err)
				}
				for _, run := range page.Runs {
					fired = append(fired, run.Due.Hour())
				}
				slices.Sort(silent)
				slices.Sort(fired)
				if !slices.Equal(fired, c.fired) || !slices.Equal(silent, c.silent) || int(n.Load()) != len(fired) {
					t.Errorf("%v were fired, and %v were not; want %v and %v", fired, silent, c.fired, c.silent)
				}
			})
		})
	}
}

func TestPauseEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		first := time.Now().Add(time.Minute)
		var n atomic.Int64
		h.worker(worker.Config{}, job("tick", jobs.Options{Cron: "0 * * * * *"}, &n))
		h.must(kernel.Pause{Key: "tick", Until: time.Now().Add(5*time.Minute + time.Second)})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if _, missed := h.covered("tick", first, time.Now(), time.Minute); missed != 5 || n.Load() != 5 {
			t.Errorf("%d missed, %d ran; want 5 and 5", missed, n.Load())
		}
	})
}

func TestAnEditIsObeyedByTheVeryNextFire(t *testing.T) {
	for _, quiet := range []bool{false, true} {
		t.Run(fmt.Sprintf("signal lost %v", quiet), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newFixture(t)
				defer h.close()
				var n atomic.Int64
				h.worker(worker.Config{}, job("tick", jobs.Options{Cron: "0 * * * * *"}, &n))
				time.Sleep(2*time.Minute + 59*time.Second + 999*time.Millisecond) // a millisecond before the third
				cron := "30 * * * * *"
				edit := kernel.Edit{Key: "tick", Set: kernel.Settings{Schedule: &cron}}
				if quiet { // another process writes to the store, unsignalled
					r := h.full.Apply(h.ctx, []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "person:ann", Command: edit}})
					if r[0].Err != nil {
						t.Fatal(r[0].Err)
					}
				} else {
					h.must(edit)
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if n.Load() != 2 {
					t.Errorf("ran %d times: the old schedule fired after the edit was acknowledged", n.Load())
				}
				time.Sleep(50 * time.Second)
				synctest.Wait()
				if n.Load() != 3 {
					t.Errorf("ran %d times: the new schedule did not fire", n.Load())
				}
				runs := h.runs("tick")
				if s := runs[0].Due.Second(); s != 30 {
					t.Errorf("the newest run is due at second %d", s)
				}
				if runs[0].Revision == runs[1].Revision {
					t.Error("runs before and after the edit carry the same revision")
				}
			})
		})
	}
}

// A pause that another process wrote, without a signal to the leader, applies from its acknowledgement on: the revision
// in the fire is compared when it commits.
func TestAPauseThatWasNotSignalledHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		var n atomic.Int64
		h.worker(worker.Config{}, job("tick", jobs.Options{Cron: "0 * * * * *"}, &n))
		time.Sleep(2*time.Minute + 59*time.Second + 999*time.Millisecond)
		r := h.full.Apply(h.ctx, []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "person:ann", Command: kernel.Pause{Key: "tick"}}})
		if r[0].Err != nil {
			t.Fatal(r[0].Err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n.Load() != 2 {
			t.Errorf("ran %d times: it fired after the pause was acknowledged", n.Load())
		}
	})
}

func TestTriggeredDebugHoldsScheduledRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		var mu sync.Mutex
		var order []string
		ran := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(order)
		}
		h.worker(worker.Config{Slots: 1}, jobs.NewTriggered(jobs.TriggeredFunc[charge](func(_ context.Context, a charge) error {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, a.Customer)
			return nil
		}), jobs.Options{Key: "charge", MaxConcurrency: 1}))
		yes, no := true, false
		trigger := func(customer string, how ...jobs.EnqueueOption) jobs.ID {
			w, err := jobs.Trigger[charge]("charge").Request(charge{customer}, how...)
			if err != nil {
				t.Fatal(err)
			}
			h.must(kernel.CreateOf(w))
			return w.ID
		}
		trigger("delayed", jobs.After(time.Minute))
		h.must(kernel.Configure{TriggeredDebug: &yes})
		held := trigger("held")
		later := trigger("due when debug mode is off", jobs.After(20*time.Minute))
		h.must(kernel.Create{ID: jobs.NewID(time.Now()), Key: "charge", Args: []byte(`{"customer":"manual"}`), Origin: kernel.FromPerson})
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := ran(); !slices.Equal(got, []string{"manual"}) {
			t.Errorf("ran %v while debug mode was on", got)
		}
		if run := h.run(held); run.State != jobs.Scheduled || run.Cause != kernel.ByDebug {
			t.Errorf("a held run is %s (%s)", run.State, run.Cause)
		}
		h.must(kernel.Configure{TriggeredDebug: &no})
		for _, run := range h.runs("charge") {
			if run.Cause == kernel.ByDebug {
				h.must(kernel.Release{ID: run.ID, Force: true})
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := ran(); len(got) != 3 {
			t.Errorf("after the release %v have run", got)
		}
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if run := h.run(later); run.State != jobs.Succeeded {
			t.Errorf("a run that became due after debug mode was switched off is %s (%s)", run.State, run.Cause)
		}
	})
}

// A job is deleted through the leader, or behind its back: it fires no more, its runs end, and made again under the
// same key it begins anew, with no due time counted twice.
func TestADeletedJobFiresNoMore(t *testing.T) {
	for _, signalled := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			h := newFixture(t)
			defer h.close()
			h.calm()
			var n atomic.Int64
			finish := make(chan struct{})
			report := jobs.NewRecurring(jobs.RecurringFunc(func(ctx context.Context) error {
				n.Add(1)
				select {
				case <-finish:
				case <-ctx.Done():
				}
				return nil
			}), jobs.Options{Key: "report", Cron: "0 * * * * *", MaxConcurrency: 2, Overlap: jobs.OverlapQueue})
			stop := h.worker(worker.Config{Name: "w1", Slots: 9}, report)
			time.Sleep(3*time.Minute + 30*time.Second)
			synctest.Wait()
			first, err := h.store.Definition(h.ctx, jobs.DefaultTenant, "report")
			if err != nil || n.Load() != 2 {
				t.Fatalf("%d runs began: %v", n.Load(), err)
			}
			gone := kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "person:ann", Command: kernel.Delete{Key: "report"}}
			st := h.store
			if !signalled {
				st = h.full
			}
			if r := st.Apply(h.ctx, []kernel.Envelope{gone})[0]; r.Err != nil {
				t.Fatal(r.Err)
			}
			time.Sleep(30 * time.Minute)
			if all := h.runs("report"); len(all) != 3 {
				t.Errorf("half an hour later there are %d runs, want the 3 of before", len(all))
			}
			// The third waited for a slot, and takes it although its job is deleted.
			close(finish)
			time.Sleep(time.Minute)
			for _, run := range h.runs("report") {
				if run.State != jobs.Succeeded || run.Job != first.UID {
					t.Errorf("run of %v is %s, of %s", run.Due, run.State, run.Job)
				}
			}
			stop()
			h.worker(worker.Config{Name: "w2", Slots: 9}, report)
			again := time.Now()
			time.Sleep(10 * time.Minute)
			second, err := h.store.Definition(h.ctx, jobs.DefaultTenant, "report")
			if err != nil || second.UID == first.UID {
				t.Fatalf("the job that was made again is %v, %v", second, err)
			}
			due := map[time.Time]int{}
			for _, run := range h.runs("report") {
				due[run.Due]++
				if late := run.Due.After(again); late != (run.Job == second.UID) {
					t.Errorf("run of %v belongs to %s", run.Due, run.Job)
				}
			}
			if len(due) != 3+10 {
				t.Errorf("%d due times became runs, want 13", len(due))
			}
			for at, n := range due {
				if n != 1 {
					t.Errorf("%v is counted %d times", at, n)
				}
			}
		})
	}
}

// A pause holds the new runs of a triggered job and releases them when it ends, by itself. Extended, it holds longer.
func TestAPauseHoldsTriggeredRunsUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		var n atomic.Int64
		work := jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error { n.Add(1); return nil }), jobs.Options{Key: "work"})
		h.worker(worker.Config{Slots: 4}, work)
		h.must(kernel.Pause{Key: "work", Until: time.Now().Add(10 * time.Minute)})
		now, later := jobs.NewID(time.Now()), jobs.NewID(time.Now())
		h.must(kernel.Create{ID: now, Key: "work"})
		h.must(kernel.Create{ID: later, Key: "work", Delay: 5 * time.Minute})
		time.Sleep(9 * time.Minute)
		for _, id := range []jobs.ID{now, later} {
			if run := h.run(id); run.State != jobs.Scheduled || run.Cause != kernel.ByPause {
				t.Errorf("a run of a paused job is %s by %q", run.State, run.Cause)
			}
		}
		h.must(kernel.Create{ID: jobs.NewID(time.Now()), Key: "work", Origin: kernel.FromPerson})
		time.Sleep(time.Second)
		if n.Load() != 1 {
			t.Errorf("%d runs began, want the one that a person asked for", n.Load())
		}
		h.must(kernel.Pause{Key: "work", Until: time.Now().Add(10 * time.Minute)})
		time.Sleep(9 * time.Minute)
		if n.Load() != 1 {
			t.Errorf("%d runs began while the pause was put off", n.Load())
		}
		time.Sleep(time.Minute + 10*time.Millisecond)
		if n.Load() != 3 {
			t.Errorf("%d runs began by the end of the pause, want 3", n.Load())
		}
	})
}
