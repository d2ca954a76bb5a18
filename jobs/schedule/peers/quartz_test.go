package peers

import (
	"context"
	"testing"
	"time"

	"github.com/reugn/go-quartz/quartz"

	"github.com/carillon-scheduler/carillon/jobs/schedule"
)

var _ quartz.Trigger = (*schedule.Schedule)(nil)

// rung is a job of go-quartz that says when it runs.
type rung chan time.Time

func (r rung) Execute(context.Context) error {
	select {
	case r <- time.Now():
	default: // the receiver has gone
	}
	return nil
}

func (rung) Description() string { return "rung" }

// TestOursInQuartz lets go-quartz run a job by our schedule.
func TestOursInQuartz(t *testing.T) {
	s, err := schedule.Parse(schedule.Spec{Expr: "* * * * * ?"})
	if err != nil {
		t.Fatal(err)
	}
	scheduler, err := quartz.NewStdScheduler()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	scheduler.Start(ctx)
	job := make(rung)
	asked := time.Now()
	if err := scheduler.ScheduleJob(quartz.NewJobDetail(job, quartz.NewJobKey("rung")), s); err != nil {
		t.Fatal(err)
	}
	select {
	case at := <-job:
		if due, _ := s.Next(asked); at.Before(due) {
			t.Errorf("it ran at %v and was due at %v", at, due)
		}
	case <-time.After(30 * time.Second):
		t.Error("it did not run")
	}
	cancel()
	scheduler.Wait(t.Context())
}

// TestQuartzInOurs walks triggers of go-quartz, with a start and, for one of them, an end.
func TestQuartzInOurs(t *testing.T) {
	start := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	daily, err := quartz.NewCronTrigger("0 30 9 * * ? 2026")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		trigger quartz.Trigger
		first   time.Time
		times   int // within a hundred
	}{
		{quartz.NewSimpleTrigger(90 * time.Second), start.Add(90 * time.Second), 100},
		{daily, start.Add(9*time.Hour + 30*time.Minute), 41},
	} {
		next, times, due := schedule.FromTrigger(c.trigger), 0, start
		for range 100 {
			after, ok := next(due)
			if !ok {
				break
			}
			if times++; times == 1 && !after.Equal(c.first) || !after.After(due) {
				t.Errorf("%s: after %v comes %v", c.trigger.Description(), due, after)
			}
			due = after
		}
		if times != c.times {
			t.Errorf("%s: %d due times, want %d", c.trigger.Description(), times, c.times)
		}
	}
}
