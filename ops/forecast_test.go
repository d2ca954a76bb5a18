package ops_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/timetable"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// recurring makes a job known.
func (d *fixture) recurring(o jobs.Options) {
	d.t.Helper()
	d.declare(jobs.NewRecurring(jobs.RecurringFunc(nil), o))
}

func (d *fixture) forecast() ops.Forecast {
	d.t.Helper()
	f, err := d.Forecast(d.t.Context(), ann)
	if err != nil {
		d.t.Fatal(err)
	}
	return f
}

// What is counted is what the schedules say, one due time after the other.
func TestForecastCountsWhatIsDue(t *testing.T) {
	d := newFixture(t)
	d.now = d.now.Add(90*time.Second + 300*time.Millisecond) // in the middle of a minute
	if _, err := d.SetCalendar(t.Context(), ann, kernel.SetCalendar{Name: "night", Rules: []string{"22:00-06:00"}}); err != nil {
		t.Fatal(err)
	}
	for _, o := range []jobs.Options{
		{Key: "a", Cron: "*/10 * * * *", Calendars: []string{"night"}}, {Key: "b", Cron: "*/10 * * * *", Calendars: []string{"night"}},
		{Key: "c", Cron: "*/7 * * * * *"}, {Key: "d", Every: 11 * time.Second}, {Key: "e", Cron: "*/10 * * * *", TimeZone: "Asia/Kathmandu"},
		{Key: "f", Cron: "H/10 * * * *"}, {Key: "g", Cron: "*/10 * * * *", Jitter: 20 * time.Minute}, {Key: "h", Cron: "0 3 * * *", Early: time.Hour},
		{Key: "i", Every: 5 * time.Minute, TTL: time.Hour}, {Key: "off", Cron: "* * * * *", Disabled: true}, {Key: "held", Cron: "* * * * *"}, {Key: "later", Cron: "* * * * *"},
	} {
		d.recurring(o)
	}
	d.apply(kernel.Pause{Key: "held"})
	d.apply(kernel.Pause{Key: "later", Until: d.now.Add(23 * time.Hour)})
	got := d.forecast()
	want := make([]int, len(got.Fires))
	rows, err := d.Calendars(t.Context(), ann)
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := d.Jobs(t.Context(), ann, ops.JobQuery{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	fires := 0
	for _, j := range list {
		plan, err := timetable.Plan(j.Definition, timetable.Calendars(1, rows))
		if err != nil {
			t.Fatal(err)
		}
		if plan == nil || j.Key == "off" || j.Key == "held" {
			continue
		}
		before := fires
		for at, ok := plan.Next(d.now.Add(-1 - j.Policy.Jitter)); ok && at.Before(d.now.Add(26*time.Hour)); at, ok = plan.Next(at) {
			start := j.Starts(at)
			if j.Key == "later" && at.Before(j.Paused.Until) || at.Before(d.now) && j.Policy.Jitter == 0 {
				continue
			}
			if m := int(start.Sub(got.From) / time.Minute); m < len(want) && !start.Before(got.From) {
				want[m]++
				fires++
			}
		}
		if before == fires {
			t.Errorf("%s is never due", j.Key)
		}
	}
	if fmt.Sprint(got.Fires) != fmt.Sprint(want) || got.Jobs != 12 || got.Left != 0 || len(want) != 1440 {
		t.Errorf("%d jobs plan\n%v, want\n%v", got.Jobs, got.Fires, want)
	}
}

// Crowded minutes are named, with those who could go elsewhere; and what is proposed makes them quieter.
func TestForecastProposesQuieterMinutes(t *testing.T) {
	d := newFixture(t)
	for i := range 30 {
		d.recurring(jobs.Options{Key: jobs.Key(fmt.Sprintf("report-%02d", i)), Cron: "0 3 * * *"})
		d.recurring(jobs.Options{Key: jobs.Key(fmt.Sprintf("sweep-%02d", i)), Every: time.Hour}) // all at noon, and at each full hour
	}
	d.recurring(jobs.Options{Key: "poll", Cron: "*/5 * * * *"})
	f := d.forecast()
	if f.Usual != 1 || len(f.Crowded) == 0 {
		t.Fatalf("usual %d, crowded %+v", f.Usual, f.Crowded)
	}
	c := f.Crowded[0]
	if c.At != time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC) || c.Fires != 62 || len(c.Jobs) != 10 || c.More != 52 {
		t.Fatalf("%+v", c)
	}
	moves := 0
	for i, p := range c.Jobs {
		if p.Instead == "" {
			continue
		}
		if moves++; i >= moves {
			t.Errorf("%s is named after one without a proposal", p.Key)
		}
		switch p.Key {
		case "poll":
			if p.Instead != "1-59/5 * * * *" || p.Spread != "H/5 * * * *" {
				t.Errorf("%+v", p)
			}
		default:
			if !strings.HasSuffix(p.Instead, " 3 * * *") || p.Spread != "H 3 * * *" || p.Then > 3 {
				t.Errorf("%+v", p)
			}
		}
		if _, err := d.Edit(t.Context(), ann, kernel.Edit{Key: p.Key, Set: kernel.Settings{Schedule: &p.Instead}}); err != nil {
			t.Errorf("%s: %v", p.Key, err)
		}
	}
	after := d.forecast()
	for end := time.Now().Add(time.Minute); after.Fires[15*60] == 62 && time.Now().Before(end); after = d.forecast() {
		time.Sleep(10 * time.Millisecond) // one that took long is kept a while
	}
	if left := after.Fires[15*60]; moves != 5 || left != 62-moves {
		t.Errorf("after %d moves there are %d fires", moves, left)
	}
	for m, n := range after.Fires {
		if n > 3 && n > f.Fires[m] {
			t.Errorf("minute %d has %d fires, and had %d", m, n, f.Fires[m])
		}
	}
}

// A forecast that takes long is computed piece by piece, by any number of requests: each gets the progress, and the
// pieces make the same result.
func TestForecastInPieces(t *testing.T) {
	d := newFixture(t)
	for i := range 60 {
		d.recurring(jobs.Options{Key: jobs.Key(fmt.Sprintf("job-%02d", i)), Cron: "H/7 * * * *"})
	}
	want := d.forecast()
	for _, askers := range []int{1, 5} {
		slow := ops.New(ops.Config{Store: d.store, Now: func() time.Time { return d.now }, ForecastWork: 1})
		gone, leave := context.WithCancel(t.Context())
		leave()
		if _, err := slow.Forecast(gone, ann); !errors.Is(err, context.Canceled) {
			t.Errorf("who has gone is answered with %v", err)
		}
		var asking sync.WaitGroup
		var pieces atomic.Int64
		for range askers {
			asking.Go(func() {
				left := len(want.Fires)
				for by := time.Now().Add(time.Minute); time.Now().Before(by); {
					f, err := slow.Forecast(t.Context(), ann)
					if err != nil {
						t.Error(err)
						return
					}
					if !f.Going {
						if !reflect.DeepEqual(f, want) {
							t.Errorf("in pieces it is %d fires of %d jobs, want %d of %d", sum(f.Fires), f.Jobs, sum(want.Fires), want.Jobs)
						}
						return
					}
					if pieces.Add(1); len(f.Fires) != len(want.Fires) || len(f.Crowded) > 0 || f.Left > left || sum(f.Fires) > sum(want.Fires) {
						t.Errorf("a part has %d fires, %d jobs left after %d, and %d crowds", sum(f.Fires), f.Left, left, len(f.Crowded))
					}
					if f.Left > 0 {
						left = f.Left
					}
				}
				t.Error("it is not whole after a minute")
			})
		}
		asking.Wait()
		if pieces.Load() < 30 {
			t.Errorf("it was made in %d pieces", pieces.Load())
		}
	}
}

func sum(list []int) (n int) {
	for _, i := range list {
		n += i
	}
	return n
}

// A cluster without a crowd is left alone.
func TestForecastOfNothing(t *testing.T) {
	d := newFixture(t)
	if f := d.forecast(); len(f.Crowded) != 0 || f.Jobs != 2 || f.Usual != 1 {
		t.Errorf("%+v", f.Crowded)
	}
}

func BenchmarkForecast(b *testing.B) {
	for name, options := range map[string]func(i int) jobs.Options{
		"alike":   func(i int) jobs.Options { return jobs.Options{Cron: fmt.Sprintf("%d * * * *", i%60)} },
		"daily":   func(i int) jobs.Options { return jobs.Options{Cron: "H H * * *", TimeZone: "Europe/Berlin"} },
		"minutes": func(i int) jobs.Options { return jobs.Options{Cron: "H/2 * * * *", Jitter: time.Minute} },
		"seconds": func(i int) jobs.Options { return jobs.Options{Every: time.Duration(1+i%50) * time.Second} },
	} {
		b.Run(name, func(b *testing.B) {
			d := newFixture(b)
			for i := range 10_000 {
				o := options(i)
				o.Key = jobs.Key(fmt.Sprintf("job-%05d", i))
				d.recurring(o)
			}
			longest := time.Duration(0)
			for b.Loop() {
				fresh := ops.New(ops.Config{Store: d.store, Now: func() time.Time { return d.now }})
				for going := true; going; {
					begun := time.Now()
					f, err := fresh.Forecast(b.Context(), ann)
					if longest = max(longest, time.Since(begun)); err != nil || !f.Going && f.Left > 0 {
						b.Fatal(err, f.Left)
					}
					going = f.Going
				}
			}
			b.ReportMetric(longest.Seconds(), "s/longest")
		})
	}
}
