package controlplane_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// Due times that a calendar excludes leave a range; a change of the calendar applies from then on, and fires nothing.
// The bubble begins on Saturday, 2000-01-01.
func TestCalendarExcludesDueTimes(t *testing.T) {
	tests.Long(t)
	tests.WithoutRace(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.must(kernel.SetCalendar{Name: "weekend", Rules: []string{"SAT,SUN # closed"}})
		first := time.Now().Add(time.Hour)
		var n atomic.Int64
		h.worker(worker.Config{}, job("tick", jobs.Options{Cron: "@hourly", Calendars: []string{"weekend"}, MaxConcurrency: jobs.None}, &n))
		time.Sleep(48*time.Hour + 30*time.Minute) // Monday, 00:30
		synctest.Wait()
		if n.Load() != 1 {
			t.Errorf("it ran %d times at the weekend and once after it", n.Load())
		}
		ranges := h.ledger("tick")
		if len(ranges) != 1 || ranges[0].Reason != kernel.MissedCalendar || ranges[0].Count != 47 || !ranges[0].From.Equal(first) {
			t.Errorf("the ledger is %+v, want one range of 47", ranges)
		}
		h.must(kernel.SetCalendar{Name: "weekend", Rules: []string{"SAT,SUN", "MON 06:00-12:00"}})
		time.Sleep(12 * time.Hour) // Monday, 12:30
		synctest.Wait()
		if n.Load() != 7 {
			t.Errorf("it ran %d times, want 7: at 0 to 5 and at 12", n.Load())
		}
		h.must(kernel.DropCalendar{Name: "weekend"})
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if n.Load() != 7+24 {
			t.Errorf("it ran %d times, want %d: nothing is excluded any more", n.Load(), 7+24)
		}
		h.covered("tick", first, time.Now(), time.Hour)
	})
}

// A due time that was excluded when it passed does not fire because the calendar, or the job, is edited before a leader
// has looked at it.
func TestEditOfACalendarDoesNotFireThePast(t *testing.T) {
	tests.Long(t)
	for name, edit := range map[string]kernel.Command{
		"the calendar": kernel.SetCalendar{Name: "holidays", Rules: []string{"12-25"}},
		"the job":      kernel.Edit{Key: "tick", Set: kernel.Settings{Calendars: new([]string{})}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newFixture(t)
				defer h.close()
				h.must(kernel.SetCalendar{Name: "holidays", Rules: []string{"2000-01-01 03:00-04:00"}})
				var n atomic.Int64
				first := time.Now().Add(time.Hour)
				h.worker(worker.Config{}, job("tick", jobs.Options{Cron: "@hourly", Calendars: []string{"holidays"}, Misfire: jobs.MisfireAll}, &n))
				time.Sleep(2*time.Hour + 30*time.Minute)
				before := n.Load()
				h.stop()
				time.Sleep(time.Hour) // past 03:00
				h.must(edit)
				time.Sleep(10 * time.Minute)
				h.start()
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if n.Load() != before {
					t.Errorf("it ran %d times for a due time that was excluded", n.Load()-before)
				}
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				if n.Load() != before+2 {
					t.Errorf("it ran %d times afterwards, want 2", n.Load()-before)
				}
				ranges := h.ledger("tick")
				if len(ranges) != 1 || ranges[0].Count != 1 || ranges[0].Reason != kernel.MissedCalendar {
					t.Errorf("the ledger is %+v, want one due time that the calendar excluded", ranges)
				}
				h.covered("tick", first, time.Now(), time.Hour)
			})
		})
	}
}

// Starts are spread over the jitter, the same for the same due time; the ledger keeps the due time.
func TestJitterSpreadsStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.calm()
		var n atomic.Int64
		from := time.Now()
		keys := []jobs.Key{"a", "b", "c", "d", "e", "f", "g", "h"}
		var list []jobs.Job
		for _, key := range keys {
			list = append(list, job(key, jobs.Options{Cron: "@hourly", Jitter: 10 * time.Minute, StartWithin: time.Minute}, &n))
		}
		h.worker(worker.Config{}, list...)
		time.Sleep(time.Hour + time.Second)
		waiting := 0
		for _, key := range keys {
			for _, run := range h.runs(key) {
				if run.State == jobs.Scheduled && run.Cause == kernel.ByJitter {
					waiting++
				}
			}
		}
		if waiting < 6 {
			t.Errorf("%d of 8 runs wait for their start", waiting)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		seen := map[time.Duration]bool{}
		for _, key := range keys {
			for _, run := range h.runs(key) {
				if run.Due.Sub(from) != time.Hour {
					continue
				}
				d, _ := h.store.Definition(h.ctx, jobs.DefaultTenant, key)
				start := d.Starts(run.Due)
				if run.State != jobs.Succeeded || run.Started.Before(start) || run.Started.Sub(start) > time.Second {
					t.Errorf("%s is %s, started at %v, want %v", key, run.State, run.Started, start)
				}
				if run.ID != kernel.DueID(run.Tenant, run.Job, run.Due, 0, 0) {
					t.Errorf("%s: its id does not follow from its due time", key)
				}
				seen[start.Sub(run.Due)] = true
			}
			h.covered(key, from.Add(time.Hour), time.Now(), time.Hour)
		}
		if len(seen) < 7 {
			t.Errorf("8 jobs start at %d different times", len(seen))
		}
	})
}

// A run may start from early before its due time to startWithin after it, and never outside.
func TestS1_10TriggerWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.calm()
		var early, plain atomic.Int64
		from := time.Now()
		w := []jobs.Job{job("early", jobs.Options{Cron: "@hourly", Early: 5 * time.Minute, StartWithin: 10 * time.Minute}, &early),
			job("plain", jobs.Options{Cron: "@hourly", StartWithin: 10 * time.Minute}, &plain)}
		stop := h.worker(worker.Config{}, w...)
		time.Sleep(54 * time.Minute)
		if synctest.Wait(); early.Load() != 0 {
			t.Error("it ran before its window")
		}
		time.Sleep(2 * time.Minute)
		if synctest.Wait(); early.Load() != 1 || plain.Load() != 0 {
			t.Errorf("in the window before the due time they ran %d and %d times, want 1 and 0", early.Load(), plain.Load())
		}
		time.Sleep(10 * time.Minute) // 01:06
		if synctest.Wait(); early.Load() != 1 || plain.Load() != 1 {
			t.Errorf("after the due time they ran %d and %d times, want 1 and 1", early.Load(), plain.Load())
		}
		stop()
		time.Sleep(65 * time.Minute) // 02:11: the window of 02:00 has passed
		h.worker(worker.Config{Name: "w2"}, w...)
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		for _, key := range []jobs.Key{"early", "plain"} {
			var last []jobs.State
			for _, run := range h.runs(key) {
				if run.Due.Sub(from) == 2*time.Hour {
					last = append(last, run.State)
					if run.Cause != kernel.ByDeadline {
						t.Errorf("%s: skipped by %q", key, run.Cause)
					}
				}
			}
			if !slices.Equal(last, []jobs.State{jobs.Skipped}) {
				t.Errorf("%s: the run of 02:00 is %v, want Skipped", key, last)
			}
		}
		h.covered("plain", from.Add(time.Hour), time.Now(), time.Hour)
		h.covered("early", from.Add(time.Hour), time.Now(), time.Hour)
	})
}

// An edit after an early start does not make another run of the same due time, nor may a leader fire before the window.
func TestEarlyRunIsNotMadeTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.calm()
		var n atomic.Int64
		from := time.Now()
		h.worker(worker.Config{}, job("tick", jobs.Options{Cron: "@hourly", Early: 30 * time.Minute}, &n))
		time.Sleep(35 * time.Minute)
		h.must(kernel.Edit{Key: "tick", Set: kernel.Settings{Schedule: new("0 0 * * * *")}})
		time.Sleep(45 * time.Minute) // 01:20
		synctest.Wait()
		if got, want := h.dues("tick", from), []float64{3600}; !slices.Equal(got, want) || n.Load() != 1 {
			t.Errorf("due at %v, %d runs, want %v", got, n.Load(), want)
		}
		time.Sleep(15 * time.Minute) // 01:35
		synctest.Wait()
		if n.Load() != 2 {
			t.Errorf("%d runs, want 2", n.Load())
		}
	})
}

// S0-22: a run whose start deadline has passed when it comes is Skipped at once, and the ledger has the reason.
func TestS0_22ExpiredRunsNeverStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.calm()
		var n atomic.Int64
		h.worker(worker.Config{}, job("tick", jobs.Options{Cron: "@hourly", StartWithin: time.Minute}, &n))
		first := time.Now().Add(time.Hour)
		time.Sleep(50 * time.Minute)
		h.stop()
		time.Sleep(30 * time.Minute)
		h.start()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		runs := h.runs("tick")
		if len(runs) != 1 || runs[0].State != jobs.Skipped || runs[0].Cause != kernel.ByDeadline || n.Load() != 0 {
			t.Errorf("%d runs; the first is %v", len(runs), runs[0].State)
		}
		h.covered("tick", first, time.Now(), time.Hour)
	})
}
