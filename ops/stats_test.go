package ops_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
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
		s, err := d.Stats(t.Context(), ann, c.key, c.days)
		if err != nil {
			t.Fatal(err)
		}
		got, sum := "", int64(0)
		for _, day := range s.Days {
			if n := day.Runs[jobs.Cancelled]; n > 0 {
				got += fmt.Sprintf(" %d:%d", day.Day.Sub(today)/(24*time.Hour), n)
				sum -= n
			}
		}
		if len(s.Days) != c.days || len(got) == 0 || got[1:] != c.want {
			t.Errorf("%s, %d days: %q, want %q", c.key, c.days, got, c.want)
		}
		for _, h := range s.Hours {
			sum += h.N
		}
		if sum != 0 {
			t.Errorf("%s: hours and days differ by %d", c.key, sum)
		}
	}
	for _, days := range []int{0, 36} {
		if _, err := d.Stats(t.Context(), ann, "", days); !errors.Is(err, jobs.BadInput) {
			t.Errorf("%d days: %v", days, err)
		}
	}
	if _, err := d.Stats(t.Context(), ann, "app.absent", 7); !errors.Is(err, jobs.NotFound) {
		t.Errorf("a job that does not exist: %v", err)
	}
}
