package ops

import (
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
)

// afterEnd says when a job is due whose due times count from the end of its last run, and about none but the next one.
func (o *Ops) afterEnd(d *kernel.Definition, when *schedule.Plan, at time.Time) (says string, whole bool) {
	if d.Waits() {
		return fmt.Sprintf("Its due times count from the end of its last run, and run %s is not over: when it is due next is not known yet.", d.Running), true
	}
	now := o.Now()
	next, ok := when.Next(now)
	switch {
	case !at.After(now):
		return fmt.Sprintf("It was not due at %s: its due times count from the end of its last run, and no run was due then.", clock(at)), true
	case ok && at.After(next):
		return fmt.Sprintf("It is due at %s; when after that is known when that run has ended, because its due times count from the end of its last run.", clock(next)), true
	}
	return "", false
}

// finished says when a schedule was due last.
func finished(when *schedule.Plan, at time.Time) string {
	before, _ := around(when.Schedule.Next, at)
	if before.IsZero() {
		return fmt.Sprintf("Its schedule is finished by %s.", clock(at))
	}
	return fmt.Sprintf("Its schedule is finished by %s: it was due for the last time at %s.", clock(at), clock(before))
}

// startsAround says of which due time a run may start at a time that is none itself, because starts are early or spread.
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
	why := "its starts are spread over " + p.Jitter.String()
	switch {
	case p.Jitter == 0:
		why = "it may start " + p.Early.String() + " early"
	case p.Early != 0:
		why += ", from " + p.Early.String() + " early on"
	}
	return fmt.Sprintf(" The run of %s starts at %s, because %s.", clock(due), exactly(d.Starts(due)), why)
}

func exactly(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }
