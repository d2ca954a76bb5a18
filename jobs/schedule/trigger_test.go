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

func TestTriggerBothWays(t *testing.T) {
	s, err := Parse(Spec{Expr: "0 0 0 1 1 ? 2027-2028", Zone: "Europe/Berlin"})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.Description(), "Schedule::0 0 0 1 1 ? 2027-2028::Europe/Berlin"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	next := FromTrigger(s)
	for _, after := range []time.Time{{}, at(t, "2026-12-31T22:59:59.9Z"), at(t, "2026-12-31T23:00:00Z"), at(t, "2030-01-01T00:00:00Z"), at(t, "3000-01-01T00:00:00Z")} {
		want, wantOK := s.Next(after)
		if got, ok := next(after); got != want || ok != wantOK {
			t.Errorf("after %v: got %v %v, want %v %v", after, got, ok, want, wantOK)
		}
	}
	for _, prev := range []int64{math.MinInt64, 0, at(t, "2026-12-31T23:00:00Z").UnixNano()} {
		if due, err := s.NextFireTime(prev); err != nil || due <= prev {
			t.Errorf("after %d: got %d, %v", prev, due, err)
		}
	}
	if _, err := s.NextFireTime(math.MaxInt64); !errors.Is(err, ErrFinished) {
		t.Errorf("got %v, want ErrFinished", err)
	}
}

// stuck answers with the question.
type stuck struct{}

func (stuck) NextFireTime(prev int64) (int64, error) { return prev, nil }

func TestFromTriggerDoesNotRepeat(t *testing.T) {
	if due, ok := FromTrigger(stuck{})(at(t, "2026-01-01T00:00:00Z")); ok {
		t.Errorf("due at %v", due)
	}
}
