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
