package ops_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// Finished runs count on the day on which they finished, of one job and of all; today is the last day.
func TestStats(t *testing.T) {
	d := newFixture(t)
	today := d.now.Truncate(24 * time.Hour)
	finish := func(key jobs.Key, days, n int) {
		d.now = today.Add(time.Duration(days)*24*time.Hour + 23*time.Hour + 59*time.Minute)
		for range n {
			run := d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: key})
			d.apply(kernel.Cancel{ID: run.ID})
			d.now = d.now.Add(time.Millisecond)
		}
	}
	finish("app.work", 1, 4)
	finish("app.work", 2, 2)
	finish("app.nightly", 2, 1)
	finish("app.work", 4, 3)
	d.now = today.Add(8 * 24 * time.Hour)
	finish("app.work", 8, 1)
	for _, c := range []struct {
		key  jobs.Key
		days int
		want string
	}{{"app.work", 7, "2:2 4:3 8:1"}, {"app.nightly", 7, "2:1"}, {"", 7, "2:3 4:3 8:1"}, {"", 1, "8:1"}, {"app.work", 35, "1:4 2:2 4:3 8:1"}} {
		s, err := d.Stats(t.Context(), ann, ops.StatsQuery{Job: c.key, Days: c.days})
		if err != nil {
			t.Fatal(err)
		}
		got, sum := "", int64(0)
		for _, day := range s.Days {
			if n := day.Runs[jobs.Cancelled]; n > 0 {
				got += fmt.Sprintf(" %d:%d", day.From.Sub(today)/(24*time.Hour), n)
				sum -= n
			}
		}
		if len(s.Days) != c.days || len(got) == 0 || got[1:] != c.want {
			t.Errorf("%s, %d days: %q, want %q", c.key, c.days, got, c.want)
		}
		for _, h := range s.Hours {
			sum += h.Runs[jobs.Cancelled]
		}
		if sum != 0 {
			t.Errorf("%s: hours and days differ by %d", c.key, sum)
		}
	}
	for _, days := range []int{0, 36} {
		if _, err := d.Stats(t.Context(), ann, ops.StatsQuery{Days: days}); !errors.Is(err, jobs.BadInput) {
			t.Errorf("%d days: %v", days, err)
		}
	}
	if _, err := d.Stats(t.Context(), ann, ops.StatsQuery{Job: "app.absent", Days: 7}); !errors.Is(err, jobs.NotFound) {
		t.Errorf("a job that does not exist: %v", err)
	}
}

// The last day counts by hour, the others by day: how runs ended, how many attempts failed, how long the successful runs
// took, of a job, of an app or of all.
func TestStatsOfPeriods(t *testing.T) {
	d := newFixture(t)
	today := d.now.Truncate(24 * time.Hour).Add(40 * 24 * time.Hour)
	d.apply(kernel.Register{App: "other", Worker: "w", Start: true, Job: kernel.Declaration{Key: "other.work", Kind: kernel.Triggered}})
	run := func(key jobs.Key, at, takes time.Duration, o kernel.Outcome) {
		d.now = today.Add(at)
		run := d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: key})
		d.apply(kernel.Start{ID: run.ID, Worker: "w", Attempt: 1})
		d.now = d.now.Add(takes)
		d.apply(kernel.Finish{ID: run.ID, Worker: "w", Attempt: 1, Outcome: o})
	}
	const day = 24 * time.Hour
	run("app.work", -29*day, time.Second, kernel.OutcomeFatal)
	run("app.work", -6*day, 2*time.Second, kernel.OutcomeSuccess)
	run("app.work", -16*time.Hour, 4*time.Second, kernel.OutcomeSuccess)
	run("app.nightly", 8*time.Hour, 9*time.Second, kernel.OutcomeSuccess)
	run("other.work", 8*time.Hour+30*time.Minute, time.Second, kernel.OutcomeSuccess)
	d.now = today.Add(8*time.Hour + 59*time.Minute)
	for _, c := range []struct {
		q    ops.StatsQuery
		want string
	}{
		{ops.StatsQuery{}, "24h 2 in 5s, 7d 4 in 4s, 30d 5-1 in 4s"},
		{ops.StatsQuery{App: "app"}, "24h 1 in 9s, 7d 3 in 5s, 30d 4-1 in 5s"},
		{ops.StatsQuery{App: "other"}, "24h 1 in 1s, 7d 1 in 1s, 30d 1 in 1s"},
		{ops.StatsQuery{App: "none"}, "24h 0 in 0s, 7d 0 in 0s, 30d 0 in 0s"},
		{ops.StatsQuery{Job: "app.work"}, "24h 0 in 0s, 7d 2 in 3s, 30d 3-1 in 3s"},
	} {
		c.q.Days = 1
		s, err := d.Stats(t.Context(), ann, c.q)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range s.Periods {
			failed := ""
			if n := p.Runs[jobs.Terminated]; n > 0 {
				failed = fmt.Sprint("-", n)
			}
			got = append(got, fmt.Sprintf("%s %d%s in %v", p.Name, p.Finished(), failed, p.Mean()))
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%+v: %s, want %s", c.q, strings.Join(got, ", "), c.want)
		}
	}
}
