package schedule

import (
	"errors"
	"fmt"
	"time"
)

// ErrFinished is the error of NextFireTime when no due time is left.
var ErrFinished = errors.New("schedule is finished")

// NextFireTime is Next in Unix nanoseconds. With Description it makes a Schedule a Trigger of
// github.com/reugn/go-quartz; package jobs/quartztrigger is for the other direction.
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
