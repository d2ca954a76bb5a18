package kernel

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/outcome"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Whatever it is given, a backoff is between half of the doubled delay and all of it, and never overflows.
func TestBackoffBounds(t *testing.T) {
	for _, base := range []time.Duration{1, time.Millisecond, time.Second, time.Hour, MaxDuration} {
		for _, most := range []time.Duration{0, 1, time.Minute, time.Hour, MaxDuration} {
			for _, n := range []int{1, 2, 3, 10, 40, 63, 64, 65, 1000, math.MaxInt32} {
				top := float64(base) * math.Pow(2, float64(n-1))
				if most > 0 {
					top = math.Min(top, float64(max(most, base)))
				}
				top = math.Min(top, float64(MaxDuration))
				for i := range byte(20) {
					d := Backoff(base, most, n, jobs.ID{8: i, 15: i})
					if float64(d) > top || float64(d) < math.Floor(top/2) {
						t.Fatalf("base %v, most %v, retry %d: %v is not within half of %v", base, most, n, d, time.Duration(top))
					}
				}
			}
		}
	}
	for _, base := range []time.Duration{0, -1, math.MinInt64} {
		if d := Backoff(base, time.Hour, 3, jobs.ID{1}); d != 0 {
			t.Errorf("base %v: %v, want at once", base, d)
		}
	}
}

// Every replica computes the same wait, and runs that failed together do not come back together.
func TestBackoffSpreads(t *testing.T) {
	var slots [10]int
	for i := range 10_000 {
		id := DerivedID(fmt.Sprint(i))
		d := Backoff(time.Minute, 0, 1, id)
		if again := Backoff(time.Minute, 0, 1, id); again != d {
			t.Fatalf("%s waits %v, then %v", id, d, again)
		}
		slots[min(9, (d-30*time.Second)/(3*time.Second))]++
	}
	for i, n := range slots {
		if n < 800 || n > 1200 {
			t.Errorf("tenth %d of the spread has %d of 10,000 runs", i, n)
		}
	}
}

// IDs that differ little, as those of one batch, still spread.
func TestBackoffSpreadsNeighbours(t *testing.T) {
	seen := map[time.Duration]bool{}
	for i := range 256 {
		seen[Backoff(time.Hour, 0, 1, jobs.ID{15: byte(i)})] = true
		seen[Backoff(time.Hour, 0, 2, jobs.ID{15: byte(i)})] = true
	}
	if len(seen) < 500 {
		t.Errorf("512 neighbours have %d waits", len(seen))
	}
}

// These waits are computed again when a log is replayed: they must never change.
func TestBackoffGolden(t *testing.T) {
	id := jobs.ID{0: 1, 9: 2, 15: 3}
	var got []time.Duration
	for n := 1; n <= 4; n++ {
		got = append(got, Backoff(time.Second, 5*time.Second, n, id))
	}
	if fmt.Sprint(got) != "[608.608206ms 1.160486368s 2.342957116s 3.476874962s]" {
		t.Errorf("%v", got)
	}
}

func TestWhatHandlersReturn(t *testing.T) {
	boom := errors.New("boom")
	wrapped := fmt.Errorf("charge: %w", jobs.NoRetry(boom))
	if !outcome.IsFinal(wrapped) || !errors.Is(wrapped, boom) || wrapped.Error() != "charge: boom" {
		t.Errorf("NoRetry: final %v, text %q", outcome.IsFinal(wrapped), wrapped)
	}
	if jobs.NoRetry(nil) != nil || outcome.IsFinal(boom) || outcome.IsFinal(nil) {
		t.Error("an error is final without NoRetry")
	}
	if d, ok := outcome.Snoozed(fmt.Errorf("later: %w", jobs.Snooze(time.Minute))); !ok || d != time.Minute {
		t.Errorf("Snoozed: %v, %v", d, ok)
	}
	if _, ok := outcome.Snoozed(boom); ok {
		t.Error("an error is taken for a snooze")
	}
}
