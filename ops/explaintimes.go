package ops

import (
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
)

// afterEnd explains the next due time of a job whose due times count from the end of its last run.
func (o *Ops) afterEnd(d *kernel.Definition, when *schedule.Plan, at time.Time) (says string, whole bool) {
	now := o.Now()
	next, ok := when.Next(now)
	switch {
	case at.After(now) && d.Waits():
		return fmt.Sprintf("Its due times count from the end of its last run, and run %s is unfinished: its next due time is not known yet.", d.Running), true
	case !at.After(now):
		return fmt.Sprintf("It was not due at %s: its due times count from the end of its last run, and no run was due then.", clock(at)), true
	case ok && at.After(next):
		return fmt.Sprintf("It is due at %s; later due times count from the end of that run.", clock(next)), true
	}
	return "", false
}

// finished explains when a schedule was due last.
func finished(when *schedule.Plan, at time.Time) string {
	before, _ := around(when.Schedule.Next, at)
	if before.IsZero() {
		return fmt.Sprintf("Its schedule is finished by %s.", clock(at))
	}
	return fmt.Sprintf("Its schedule is finished by %s: it was due for the last time at %s.", clock(at), clock(before))
}

// startsAround names the due time whose run may start at another time, because starts are early or spread.
func startsAround(d *kernel.Definition, when *schedule.Plan, at time.Time) string {
	p := &d.Policy
	if p.Jitter == 0 && p.Early == 0 {
		return ""
	}
	after := max(0, p.Jitter-p.Early) // the due time
	due, ok := when.Next(at.Add(-after - 1))
	if !ok || at.Before(due.Add(-p.Early)) || at.After(due.Add(after)) {
		return ""
	}
	why := "its jitter is " + p.Jitter.String()
	switch {
	case p.Jitter == 0:
		why = "it may start " + p.Early.String() + " early"
	case p.Early != 0:
		why += ", and it may start " + p.Early.String() + " early"
	}
	return fmt.Sprintf(" The run of %s starts at %s, because %s.", clock(due), exactly(d.Starts(due)), why)
}

func exactly(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }
