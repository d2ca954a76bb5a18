package schedule

import (
	"errors"
	"math"
	"testing"
	"time"
)

// quartzTrigger is the interface of github.com/reugn/go-quartz.
type quartzTrigger interface {
	NextFireTime(prev int64) (int64, error)
	Description() string
}

var _ quartzTrigger = (*Schedule)(nil)

func TestScheduleIsATrigger(t *testing.T) {
	s, err := Parse(Spec{Expr: "0 0 0 1 1 ? 2027-2028", Zone: "Europe/Berlin"})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.Description(), "Schedule::0 0 0 1 1 ? 2027-2028::Europe/Berlin"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, prev := range []int64{math.MinInt64, 0, at(t, "2026-12-31T22:59:59.9Z").UnixNano(), at(t, "2026-12-31T23:00:00Z").UnixNano()} {
		want, _ := s.Next(time.Unix(0, prev))
		if due, err := s.NextFireTime(prev); err != nil || due != want.UnixNano() {
			t.Errorf("after %d: got %d, %v, want %v", prev, due, err, want)
		}
	}
	for _, prev := range []int64{at(t, "2030-01-01T00:00:00Z").UnixNano(), math.MaxInt64} {
		if _, err := s.NextFireTime(prev); !errors.Is(err, ErrFinished) {
			t.Errorf("got %v, want ErrFinished", err)
		}
	}
}
