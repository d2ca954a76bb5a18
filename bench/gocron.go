package main

import (
	"context"
	"time"

	"github.com/go-co-op/gocron/v2"
)

// gocronTimer is gocron in this process: no store, no other process, nothing on the way. What it needs to start a
// handler is what timers of Go need, and a little more. It is compared for delayed jobs only.
type gocronTimer struct {
	scheduler gocron.Scheduler
	fleet     workerSet
}

func (g *gocronTimer) start(context.Context, string, int) (err error) {
	g.fleet.own = &tally{}
	if g.scheduler, err = gocron.NewScheduler(); err == nil {
		g.scheduler.Start()
	}
	return err
}

func (g *gocronTimer) batch(context.Context, int, int) error { return errNone }

func (g *gocronTimer) one(context.Context, noArgs) error { return errNone }

func (g *gocronTimer) later(_ context.Context, due []time.Time) error {
	for i, at := range due {
		a := hundredOf(i)
		a.Report = true
		// With a limit of runs gocron forgets the job once it has run; else unsettled would not end.
		if _, err := g.scheduler.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartDateTime(at)), gocron.NewTask(func() { g.fleet.own.ran(a, at) }), gocron.WithLimitedRuns(1)); err != nil {
			return err
		}
	}
	return nil
}

func (g *gocronTimer) everySecond(context.Context, int) error { return errNone }

func (g *gocronTimer) unsettled(context.Context) (int, error) { return len(g.scheduler.Jobs()), nil }

func (g *gocronTimer) workerSet() *workerSet { return &g.fleet }

// pids are none: this process counts anyway.
func (g *gocronTimer) pids() []int { return nil }

func (g *gocronTimer) stop() {
	if g.scheduler != nil {
		_ = g.scheduler.Shutdown()
	}
}
