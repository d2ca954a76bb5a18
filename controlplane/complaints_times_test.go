package controlplane_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/internal/timetable"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker"
)

// summers lives through the two nights of the year 2000 in which clocks in Berlin change, in a cluster for each, from
// midnight on.
func summers(t *testing.T, lasts time.Duration, check func(spring bool, h *fixture, from time.Time), list ...jobs.Options) {
	t.Helper()
	for _, spring := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			h := newFixture(t)
			defer h.close()
			h.stop()
			from := time.Date(2000, 3, 25, 23, 0, 0, 0, time.UTC) // midnight of the 26th, in Berlin
			if !spring {
				from = time.Date(2000, 10, 28, 22, 0, 0, 0, time.UTC)
			}
			time.Sleep(time.Until(from) - time.Minute)
			h.start()
			var n atomic.Int64
			var js []jobs.Job
			for _, o := range list {
				js = append(js, job(o.Key, o, &n))
			}
			h.worker(worker.Config{}, js...)
			time.Sleep(time.Minute + lasts)
			synctest.Wait()
			check(spring, h, from)
			total := 0
			for _, o := range list {
				total += len(h.runs(o.Key))
				if ranges := h.ledger(o.Key); len(ranges) > 0 {
					t.Errorf("%s: %d ranges passed without a run", o.Key, len(ranges))
				}
			}
			if int(n.Load()) != total {
				t.Errorf("handlers were called %d times for %d runs", n.Load(), total)
			}
		})
	}
}

// At a change of clocks a job ran not at all, once or twice, and that could not be configured. Here the job defines it,
// for the time that does not exist and for the one that comes twice.
func TestTemporal8205(t *testing.T) {
	tests.Long(t)
	const zone = "Europe/Berlin"
	at := func(h, m float64) float64 { return h*3600 + m*60 } // since midnight, in time that passes
	summers(t, 4*time.Hour, func(spring bool, h *fixture, from time.Time) {
		for key, want := range map[jobs.Key][2][]float64{ // in spring, in autumn
			"plain":  {{at(2, 0)}, {at(2, 30)}},
			"before": {{at(2, 0) - 1}, {at(2, 30)}},
			"skip":   {nil, {at(2, 30)}},
			"second": {{at(2, 0)}, {at(3, 30)}},
			"both":   {{at(2, 0)}, {at(2, 30), at(3, 30)}},
		} {
			want := want[map[bool]int{true: 0, false: 1}[spring]]
			if got := h.dues(key, from); !slices.Equal(got, want) {
				h.t.Errorf("%s, spring %v: due %v s after midnight, want %v", key, spring, got, want)
			}
		}
	},
		jobs.Options{Key: "plain", Cron: "0 30 2 * * *", TimeZone: zone},
		jobs.Options{Key: "before", Cron: "0 30 2 * * *", TimeZone: zone, Gap: jobs.GapBefore},
		jobs.Options{Key: "skip", Cron: "0 30 2 * * *", TimeZone: zone, Gap: jobs.GapSkip},
		jobs.Options{Key: "second", Cron: "0 30 2 * * *", TimeZone: zone, Twice: jobs.TwiceSecond},
		jobs.Options{Key: "both", Cron: "0 30 2 * * *", TimeZone: zone, Twice: jobs.TwiceBoth})
}

// A daily job was left out in spring, ran twice in autumn, or an hour early for half a year; those by an interval, too.
func TestGocron911(t *testing.T) {
	tests.Long(t)
	const zone = "Europe/Berlin"
	summers(t, 5*time.Hour+30*time.Minute, func(spring bool, h *fixture, from time.Time) {
		four, early, even := 3.0, 2.0, []float64{1, 3, 5} // hours after midnight
		if !spring {
			four, early, even = 5, 2.25, []float64{0, 2, 4}
		}
		for key, want := range map[jobs.Key][]float64{
			"daily": {four}, "early": {early}, "hourly": {0, 1, 2, 3, 4, 5}, "interval": even, "day": nil,
		} {
			for i := range want {
				want[i] *= 3600
			}
			if got := h.dues(key, from); !slices.Equal(got, want) {
				h.t.Errorf("%s, spring %v: due %v s after midnight, want %v", key, spring, got, want)
			}
		}
		d, err := h.store.Definition(h.ctx, jobs.DefaultTenant, "day")
		if err != nil {
			h.t.Fatal(err)
		}
		s, err := timetable.Schedule(d)
		if err != nil {
			h.t.Fatal(err)
		}
		next, _ := s.Next(time.Now())
		if local := next.In(d.Anchor.Location()); local.Sub(d.Anchor) != map[bool]time.Duration{true: 23 * time.Hour, false: 25 * time.Hour}[spring] {
			h.t.Errorf("a day after %v is %v", d.Anchor, next)
		}
	},
		jobs.Options{Key: "daily", Cron: "0 0 4 * * *", TimeZone: zone},
		jobs.Options{Key: "early", Cron: "0 15 2 * * *", TimeZone: zone},
		jobs.Options{Key: "hourly", Cron: "@hourly", TimeZone: zone},
		jobs.Options{Key: "interval", Cron: "@every 2h", First: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), TimeZone: zone},
		jobs.Options{Key: "day", Cron: "P1D", TimeZone: zone})
}

// A change of clocks made one schedule fail, and with it no job ran for days. Here a schedule that cannot be read is
// that of one job, which reports it; the others continue, and so does it once it is corrected.
func TestHangfire529(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		var c calls
		first := time.Now().Add(time.Minute)
		h.worker(worker.Config{}, c.job(jobs.Options{Key: "bad", Cron: "0 * * * * *"}), c.job(jobs.Options{Key: "good", Cron: "0 * * * * *"}))
		time.Sleep(5*time.Minute + time.Second)
		// Past the checks that would have refused it: an edition of the time zones that this program does not know.
		h.must(kernel.Edit{Key: "bad", Set: kernel.Settings{Zone: new("Europe/Nowhere")}})
		time.Sleep(5 * time.Minute)
		h.stop()
		h.start() // who reads it from the start
		time.Sleep(5 * time.Minute)
		e, err := ops.New(ops.Config{Store: h.store, Live: planeLive{h}}).Explain(h.ctx, ops.Who{}, "bad")
		if err != nil || !strings.Contains(strings.Join(e.Text, " "), "Its schedule is invalid") {
			t.Errorf("it says %q, %v", e.Text, err)
		}
		h.must(kernel.Edit{Key: "bad", Set: kernel.Settings{Zone: new("UTC")}})
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		good, missed := h.covered("good", first, time.Now(), time.Minute)
		if missed != 0 || good != 20 {
			t.Errorf("the other job has %d runs, and %d due times were missed", good, missed)
		}
		if n := len(h.runs("bad")); n != 10 {
			t.Errorf("it ran %d times, want 5 times before and 5 times after", n)
		}
		c.once(t, good+10)
	})
}

// To change a job's times ran it at once. Here no edit fires anything, while the job runs by its times, while it is
// paused, and when it is resumed.
func TestHangfire366(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		h.calm()
		var c calls
		from := time.Now()
		h.worker(worker.Config{}, c.job(jobs.Options{Key: "report", Cron: "0 40 0 * * *"}))
		verbs := ops.New(ops.Config{Store: h.store})
		ann := ops.Who{Actor: "person:ann", Role: ops.Admin}
		edit := func(set kernel.Settings) {
			t.Helper()
			if _, err := verbs.Edit(h.ctx, ann, kernel.Edit{Key: "report", Set: set}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Second)
		}
		edits := []kernel.Settings{{Schedule: new("0 5 0 * * *")}, {Schedule: new("0 45 0 * * *")}, {Zone: new("Asia/Shanghai")}, {Zone: new("UTC")},
			{Retries: new(3)}, {Start: new(from.Add(-48 * time.Hour))}, {Misfire: new(jobs.MisfireAll)}, {Schedule: new("0 1 * * * *")}, {Schedule: new("0 50 0 * * *")}}
		time.Sleep(10 * time.Minute)
		for _, set := range edits {
			edit(set)
		}
		if _, err := verbs.Pause(h.ctx, ann, kernel.Pause{Key: "report"}); err != nil {
			t.Fatal(err)
		}
		for _, set := range edits {
			edit(set)
		}
		if d, err := h.store.Definition(h.ctx, jobs.DefaultTenant, "report"); err != nil || d.Paused == nil {
			t.Errorf("an edit has ended the pause: %+v, %v", d.Paused, err)
		}
		if _, _, err := verbs.Resume(h.ctx, ann, "report", ops.Resumption{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := len(h.runs("report")); n != 0 {
			t.Errorf("%d runs before it was due", n)
		}
		time.Sleep(40 * time.Minute)
		synctest.Wait()
		if got, want := h.dues("report", from), []float64{50 * 60}; !slices.Equal(got, want) {
			t.Errorf("due at %v, want %v", got, want)
		}
		c.once(t, 1)
	})
}

// A monthly job ran on the 19th; its users suspect that a clock had jumped. Here a clock that is wrong for a moment
// makes nothing due, and a leader's due times are compared with the time when they are written.
func TestHangfire1929(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		var c calls
		h.worker(worker.Config{}, c.job(jobs.Options{Key: "monthly", Cron: "0 0 0 1 * *"}))
		for _, jump := range []time.Duration{13 * 24 * time.Hour, 45 * 24 * time.Hour, -20 * 24 * time.Hour} {
			time.Sleep(time.Minute)
			h.ahead.Store(int64(jump))
			time.Sleep(5 * time.Second)
			h.ahead.Store(0)
			time.Sleep(time.Minute)
		}
		d, err := h.store.Definition(h.ctx, jobs.DefaultTenant, "monthly")
		if err != nil {
			t.Fatal(err)
		}
		s, _ := h.full.State(h.ctx)
		g, err := h.store.Global(h.ctx, jobs.DefaultTenant)
		if err != nil {
			t.Fatal(err)
		}
		due := time.Date(2000, 2, 1, 0, 0, 0, 0, time.UTC)
		fire := kernel.Fire{Key: "monthly", Job: d.UID, Revision: d.Revision, Global: g.Revision, Term: s.Term, From: d.Cursor, To: due, Due: []time.Time{due}}
		if r := h.full.Apply(h.ctx, []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "node:n1", Command: fire}})[0]; jobs.CodeOf(r.Err) != jobs.Conflict {
			t.Errorf("a fire of %v at %v is answered with %v", due, time.Now(), r.Err)
		}
		if n := len(h.runs("monthly")); n != 0 {
			t.Errorf("%d runs before it was due", n)
		}
		if n := len(h.ledger("monthly")); n != 0 {
			t.Errorf("%d ranges in the ledger", n)
		}
	})
}

// While a job was put back into the queue after it had fired it could not be found, and clients made it a second time.
// Here a definition is there all the time, at any due time.
func TestGoQuartz119(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		var c calls
		tick := c.job(jobs.Options{Key: "tick", Cron: "* * * * * *", MaxConcurrency: jobs.None})
		h.worker(worker.Config{}, tick)
		first := time.Now().Truncate(time.Second).Add(time.Second)
		ctx, cancel := context.WithCancel(h.ctx)
		var looked atomic.Int64
		var looks sync.WaitGroup
		for range 4 {
			looks.Go(func() {
				for ctx.Err() == nil {
					list, err := h.store.Definitions(h.ctx, metastore.DefinitionQuery{Tenant: jobs.DefaultTenant})
					if err != nil || len(list) != 1 {
						t.Errorf("there are %d jobs, %v", len(list), err)
						return
					}
					looked.Add(1)
					time.Sleep(3 * time.Millisecond)
				}
			})
		}
		for range 10 {
			stop := h.worker(worker.Config{Name: "w2"}, tick) // registers it again
			time.Sleep(1300 * time.Millisecond)
			stop()
		}
		cancel()
		looks.Wait()
		if looked.Load() < 1000 {
			t.Errorf("it was looked for %d times only", looked.Load())
		}
		synctest.Wait()
		runs, missed := h.covered("tick", first, time.Now(), time.Second)
		if missed != 0 {
			t.Errorf("%d due times were missed", missed)
		}
		c.once(t, runs)
	})
}

// Skipped and missed schedules were counted for all of them together. Here each due time without a run is reported with
// the job's key, is in the job's ledger with its reason, and has an explanation.
func TestTemporal8087(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		called(h, kernel.AlarmRule{Name: "missed", Kind: kernel.AlarmMissed})
		first := time.Now().Add(time.Minute)
		var n atomic.Int64
		long := jobs.NewRecurring(jobs.RecurringFunc(func(ctx context.Context) error {
			select {
			case <-time.After(150 * time.Second):
			case <-ctx.Done():
			}
			return nil
		}), jobs.Options{Key: "long", Cron: "0 * * * * *"})
		h.worker(worker.Config{Slots: 9}, job("once", jobs.Options{Cron: "0 * * * * *"}, &n), job("never", jobs.Options{Cron: "0 * * * * *", Misfire: jobs.MisfireSkip}, &n), long)
		time.Sleep(3*time.Minute + 10*time.Second)
		h.stop()
		time.Sleep(10 * time.Minute)
		h.start()
		time.Sleep(30 * time.Second)
		counts := map[jobs.Key]uint64{}
		for _, a := range h.alarms(metastore.OpenAlarm) {
			counts[a.Job] += a.Count
		}
		if counts["once"] != 9 || counts["never"] != 9 {
			t.Errorf("reported %v, want 9 of once and of never: the last minute is not late, and runs instead of a late one", counts)
		}
		verbs := ops.New(ops.Config{Store: h.store, Live: planeLive{h}})
		for at, want := range map[time.Duration]string{
			0:                "The run of 2000-01-01T00:01:00Z is Succeeded.",
			time.Minute:      "The run of 2000-01-01T00:02:00Z is Skipped, because there was no free slot",
			5 * time.Minute:  "It did not run at 2000-01-01T00:06:00Z: the scheduler could not fire them in time.",
			30 * time.Second: "It was not due at 2000-01-01T00:01:30Z",
		} {
			if why, err := verbs.ExplainAt(h.ctx, ops.Who{}, "long", first.Add(at)); err != nil || !strings.HasPrefix(why.Text[0], want) {
				t.Errorf("%v: %q, %v, want %q", at, why.Text, err, want)
			}
		}
		for _, key := range []jobs.Key{"once", "never", "long"} {
			h.covered(key, first, time.Now(), time.Minute)
		}
	})
}
