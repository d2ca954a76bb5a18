package controlplane_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/internal/timetable"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
	"github.com/carillon-scheduler/carillon/worker"
)

// dues are when the runs of a job's schedule were due, earliest first, as seconds since from.
func (h *fixture) dues(key jobs.Key, from time.Time) (list []float64) {
	for _, run := range h.runs(key) {
		if run.Origin.Automatic() {
			list = append(list, run.Due.Sub(from).Seconds())
		}
	}
	slices.Sort(list)
	return list
}

// timer stores a job with a timer, as an API would.
func (h *fixture) timer(n *atomic.Int64, tm schedule.Timer) {
	h.t.Helper()
	h.worker(worker.Config{}, job("tick", jobs.Options{}, n))
	spec, err := tm.Spec(time.Now(), "")
	if err != nil {
		h.t.Fatalf("%+v: %v", tm, err)
	}
	h.must(kernel.Edit{Key: "tick", Set: timetable.Settings(spec)})
}

// timers are the forms of a timer and when they are due, in seconds after they were written; more follow if the last
// one is negative.
func timers(t *testing.T, name string, tm schedule.Timer, want ...float64) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newFixture(t)
			defer h.close()
			var n atomic.Int64
			time.Sleep(time.Second)
			from := time.Now()
			h.timer(&n, tm)
			more := want[len(want)-1] < 0
			if more {
				want = want[:len(want)-1]
			}
			last := time.Hour
			if len(want) > 0 {
				last = time.Duration(want[len(want)-1]) * time.Second
			}
			time.Sleep(last + 500*time.Millisecond)
			if !more {
				time.Sleep(10 * time.Minute)
			}
			synctest.Wait()
			if got := h.dues("tick", from); !slices.Equal(got, want) {
				t.Errorf("%+v: due %v s after it was written, want %v", tm, got, want)
			}
			if got := int(n.Load()); got != len(want) {
				t.Errorf("%+v: the handler ran %d times, want %d", tm, got, len(want))
			}
			d, err := h.store.Definition(h.ctx, jobs.DefaultTenant, "tick")
			if err != nil {
				t.Fatal(err)
			}
			s, err := timetable.Schedule(d)
			if err != nil {
				t.Fatal(err)
			}
			if s == nil {
				return // external
			}
			if _, ahead := s.Next(time.Now()); ahead != more {
				t.Errorf("%+v: another due time is ahead: %v, want %v", tm, ahead, more)
			}
			if ranges := h.ledger("tick"); len(ranges) > 0 {
				t.Errorf("%+v: %d ranges passed without a run", tm, len(ranges))
			}
		})
	})
}

const more = -1

func TestS2_27OneTime(t *testing.T) {
	timers(t, "no text", schedule.Timer{}, 1)
	timers(t, "no period", schedule.Timer{DueTime: "10m"}, 1)
	timers(t, "no due time", schedule.Timer{Period: "5m"}, 1)
}

func TestS2_28FixedStartAndPeriod(t *testing.T) {
	tests.Long(t)
	timers(t, "once at a time", schedule.Timer{DueTime: "2000-01-01 00:10:01", Period: "0s"}, 600)
	timers(t, "from a time", schedule.Timer{DueTime: "2000-01-01 00:10:01", Period: "5m"}, 600, 900, 1200, more)
	timers(t, "after a while", schedule.Timer{DueTime: "1h", Period: "5m"}, 3600, 3900, 4200, more)
	timers(t, "once after a while", schedule.Timer{DueTime: "1h", Period: "0s"}, 3600)
	timers(t, "at once, then by period", schedule.Timer{DueTime: "0s", Period: "5m"}, 1, 301, 601, more)
}

func TestS2_29Durations(t *testing.T) {
	tests.Long(t)
	timers(t, "0h0m2s", schedule.Timer{DueTime: "0h0m2s", Period: "0h0m2s"}, 2, 4, 6, more)
	timers(t, "2h30m", schedule.Timer{DueTime: "2h30m", Period: "2h30m"}, 9000, 18000, more)
}

func TestS2_29DurationsOfDays(t *testing.T) {
	tests.Long(t)
	tests.WithoutRace(t)
	t.Parallel()
	timers(t, "1d2h0m2s", schedule.Timer{DueTime: "1d2h0m2s", Period: "1d2h0m2s"}, 93602, 187204, more)
	timers(t, "5d3s", schedule.Timer{DueTime: "5d3s", Period: "0s"}, 5*86400+3)
}

func TestS2_30ISODurations(t *testing.T) {
	tests.Long(t)
	timers(t, "PT2H30M", schedule.Timer{DueTime: "PT2H30M", Period: "PT2H30M"}, 9000, 18000, more)
}

func TestS2_30ISODurationsOfDays(t *testing.T) {
	tests.Long(t)
	tests.WithoutRace(t)
	t.Parallel()
	timers(t, "P1DT1H20M10S", schedule.Timer{DueTime: "P1DT1H20M10S", Period: "PT1M"}, 91210, 91270, more)
}

func TestS2_31RepetitionsThenFinished(t *testing.T) {
	timers(t, "R4/PT3S", schedule.Timer{DueTime: "10s", Period: "R4/PT3S"}, 10, 13, 16, 19)
	timers(t, "R4/3s", schedule.Timer{DueTime: "10s", Period: "R4/3s"}, 10, 13, 16, 19)
	synctest.Test(t, func(t *testing.T) { // without a first time, as an expression, and through a change of leaders
		h := newFixture(t)
		defer h.close()
		var n atomic.Int64
		h.worker(worker.Config{}, job("tick", jobs.Options{Cron: "R4/PT3S"}, &n))
		from := time.Now()
		time.Sleep(7 * time.Second)
		h.stop()
		time.Sleep(time.Second)
		h.start()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got, want := h.dues("tick", from), []float64{3, 6, 9, 12}; !slices.Equal(got, want) || n.Load() != 4 {
			t.Errorf("due at %v s, %d runs, want %v", got, n.Load(), want)
		}
	})
}

func TestS2_32AbsoluteTimes(t *testing.T) {
	tests.Long(t)
	for _, text := range []string{"2000-01-01 00:10:01", "2000-1-1 00:10:01", "2000-1-1 0:10:01", "2000-01-01T00:10:01", "2000-01-01T00:10:01Z",
		"2000-01-01T01:10:01+01:00", "2000-01-01 08:10:01+08:00"} {
		timers(t, text, schedule.Timer{DueTime: text, Period: "0s"}, 600)
	}
	synctest.Test(t, func(t *testing.T) { // on the clocks of the job's zone
		h := newFixture(t)
		defer h.close()
		var n atomic.Int64
		from := time.Now()
		h.worker(worker.Config{}, job("tick", jobs.Options{Cron: "2000-1-1 09:30", TimeZone: "Asia/Shanghai"}, &n))
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if got, want := h.dues("tick", from), []float64{90 * 60}; !slices.Equal(got, want) {
			t.Errorf("due at %v s, want %v", got, want)
		}
	})
}

func TestS2_33CronIgnoresTheDueTime(t *testing.T) {
	tests.Long(t)
	timers(t, "each minute", schedule.Timer{DueTime: "9h", Period: "0 */1 * * * ?"}, 59, 119, 179, more)
	timers(t, "once", schedule.Timer{DueTime: "0s", Period: "1 0 9 1 1 ? 2000"}, 9*3600)
	timers(t, "five fields", schedule.Timer{DueTime: "junk", Period: "*/2 * * * *"}, 119, 239, more)
}

func TestS2_34External(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.calm()
		var n atomic.Int64
		h.timer(&n, schedule.Timer{DueTime: "0s", Period: "external"})
		time.Sleep(2 * time.Hour)
		if synctest.Wait(); n.Load() != 0 {
			t.Errorf("it ran %d times by itself", n.Load())
		}
		for range 3 {
			h.must(kernel.Create{ID: jobs.NewID(time.Now()), Key: "tick", Origin: kernel.FromPerson})
			time.Sleep(time.Second)
		}
		if synctest.Wait(); n.Load() != 3 {
			t.Errorf("it ran %d times manually, want 3", n.Load())
		}
	})
}

func TestS2_35TTLEndsTheSchedule(t *testing.T) {
	timers(t, "ttl", schedule.Timer{DueTime: "10s", Period: "10s", TTL: "35s"}, 10, 20, 30)
	synctest.Test(t, func(t *testing.T) { // as a setting, counted from when the job was written
		h := newFixture(t)
		defer h.close()
		h.calm()
		var n atomic.Int64
		h.worker(worker.Config{}, job("tick", jobs.Options{Every: time.Minute, TTL: 3 * time.Minute}, &n))
		from := time.Now()
		time.Sleep(time.Hour)
		synctest.Wait()
		if got, want := h.dues("tick", from), []float64{60, 120, 180}; !slices.Equal(got, want) {
			t.Errorf("due at %v s, want %v", got, want)
		}
	})
}

func TestS2_35TTLInDays(t *testing.T) {
	tests.Long(t)
	tests.WithoutRace(t)
	t.Parallel()
	timers(t, "ttl in days", schedule.Timer{DueTime: "1d", Period: "1d", TTL: "2d3s"}, 86400, 2*86400)
}

// An interval that counts from the end of the last run: while a run lasts, nothing is due, under any leader.
func TestS2_28FixedDelayCountsFromTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		var n atomic.Int64
		lasts := []time.Duration{30 * time.Second, 10 * time.Minute, time.Second, 0, 0, 0, 0, 0, 0, 0, 0, 0}
		h.worker(worker.Config{}, jobs.NewRecurring(jobs.RecurringFunc(func(ctx context.Context) error {
			time.Sleep(lasts[n.Add(1)-1])
			return nil
		}), jobs.Options{Key: "tick", Every: time.Minute, AfterEnd: true}))
		from := time.Now()
		time.Sleep(2*time.Minute + 50*time.Second) // the second run is under way
		h.stop()
		time.Sleep(2 * time.Minute)
		h.start() // another leader, which knows nothing
		time.Sleep(14*time.Minute + 40*time.Second)
		synctest.Wait()
		// 60 (30 s) -> 90+60 = 150 (600 s) -> 750+60 = 810 (1 s) -> 871, 931, 991
		got := h.dues("tick", from)
		for i := range got {
			got[i] = float64(int(got[i]))
		}
		if want := []float64{60, 150, 810, 871, 931, 991, 1051, 1111}; !slices.Equal(got, want) {
			t.Errorf("due at %v s, want %v", got, want)
		}
		if ranges := h.ledger("tick"); len(ranges) > 0 {
			t.Errorf("%d ranges passed without a run, and there was one run or its end at any time", len(ranges))
		}
	})
}

// While a fixed delay is paused each of its due times is in the ledger, and it continues from the last of them. An end
// that comes while no node leads is remembered by the commit that made it.
func TestFixedDelayPausedAndSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		var n atomic.Int64
		h.worker(worker.Config{}, job("tick", jobs.Options{Every: time.Minute, AfterEnd: true}, &n))
		time.Sleep(90 * time.Second)
		h.must(kernel.Pause{Key: "tick"})
		time.Sleep(5 * time.Minute)
		h.must(kernel.Resume{Key: "tick"})
		time.Sleep(5*time.Minute + 10*time.Second)
		synctest.Wait()
		ranges := h.ledger("tick")
		if len(ranges) != 1 || ranges[0].Count != 5 || ranges[0].Reason != kernel.MissedPaused {
			t.Errorf("the ledger is %+v, want one range of 5", ranges)
		}
		if got := n.Load(); got != 6 {
			t.Errorf("it ran %d times, want once before and five times after the pause", got)
		}
	})
}
