package schedule

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrFinished is the error of NextFireTime when no due time is left.
var ErrFinished = errors.New("schedule is finished")

// NextFireTime is Next in Unix nanoseconds. With Description it makes a
// Schedule a Trigger of github.com/reugn/go-quartz.
func (s *Schedule) NextFireTime(prev int64) (int64, error) {
	due, ok := s.Next(time.Unix(0, prev))
	if !ok {
		return 0, ErrFinished
	}
	return due.UnixNano(), nil
}

// Description names the schedule as it was written, with its zone.
func (s *Schedule) Description() string {
	return fmt.Sprintf("Schedule::%s::%s", s.spec.Expr, s.zone.name)
}

// Trigger is the part of a go-quartz Trigger that computes times: it returns the first due time after prev, in Unix
// nanoseconds, or an error when there is none.
type Trigger interface {
	NextFireTime(prev int64) (int64, error)
}

// FromTrigger converts a foreign trigger to a function with the contract of [Schedule.Next]. It ends with
// the first error of the trigger, or the first result that is not after the argument, which would repeat for ever.
func FromTrigger(t Trigger) func(after time.Time) (time.Time, bool) {
	// The instants that nanoseconds in an int64 can hold.
	earliest, latest := time.Unix(0, math.MinInt64), time.Unix(0, math.MaxInt64)
	return func(after time.Time) (time.Time, bool) {
		if after.Before(earliest) {
			after = earliest
		}
		if !after.Before(latest) {
			return time.Time{}, false
		}
		next, err := t.NextFireTime(after.UnixNano())
		if err != nil || next <= after.UnixNano() {
			return time.Time{}, false
		}
		return time.Unix(0, next).UTC(), true
	}
}
