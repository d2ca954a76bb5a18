package kernel

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// A tally has a number for each state.
func TestEveryStateIsCounted(t *testing.T) {
	for _, state := range States() {
		if n := len(Sums{}.Runs); int(state) >= n {
			t.Errorf("state %s has the number %d, tallies have %d", state, state, n)
		}
	}
}

// An hour belongs to the day in UTC in which it begins, and adding is undone by subtracting.
func TestTallies(t *testing.T) {
	at := time.Date(2026, 11, 26, 23, 59, 59, 0, time.UTC)
	hour := Tally{Span: Hour, At: Hour.Start(at), Sums: Sums{Took: time.Second}}
	hour.Runs[jobs.Succeeded] = 2
	if !hour.Start().Equal(at.Truncate(time.Hour)) || !hour.End().Equal(at.Add(time.Second)) {
		t.Errorf("the hour is from %v to %v", hour.Start(), hour.End())
	}
	day := hour.Daily()
	if !day.Start().Equal(at.Add(time.Second).AddDate(0, 0, -1)) || !day.End().Equal(hour.End()) || day.Sums != hour.Sums || hour.Span != Hour {
		t.Errorf("the day is from %v to %v, with %+v", day.Start(), day.End(), day.Sums)
	}
	if again := day.Daily(); *again != *day {
		t.Errorf("the day of a day is %+v", again)
	}
	sum := day.Sums
	sum.Add(hour.Sums)
	if sum.Runs[jobs.Succeeded] != 4 || sum.Took != 2*time.Second {
		t.Errorf("the sum is %+v", sum)
	}
	if sum.Sub(hour.Sums); sum != hour.Sums {
		t.Errorf("the difference is %+v", sum)
	}
}
