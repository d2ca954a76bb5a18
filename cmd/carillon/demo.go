package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// demo is a worker worth looking at: each job shows one thing.
type demo struct {
	client *client.Client // set before the first job runs
}

// greeting is what demo.greet wants to know.
type greeting struct {
	Name string `json:"name"`
}

// step is where the relay is.
type step struct {
	Lap int `json:"lap"`
}

var relayJob = jobs.Trigger[step]("demo.relay")

const (
	lapDelay   = 10 * time.Second
	reportTime = 20 * time.Second
	reportRows = 40
)

func (d *demo) jobs() []jobs.Job {
	return []jobs.Job{
		jobs.NewRecurring(jobs.RecurringFunc(d.chime), jobs.Options{Key: "demo.chime", Cron: "*/5 * * * * *",
			Description: "Rings every five seconds."}),
		jobs.NewRecurring(jobs.RecurringFunc(d.report), jobs.Options{Key: "demo.report", Cron: "0,30 * * * * *", Timeout: time.Minute,
			Description: "Takes a while, and says how far it is. Try to cancel it."}),
		jobs.NewRecurring(jobs.RecurringFunc(d.flaky), jobs.Options{Key: "demo.flaky", Cron: "15,45 * * * * *", Retries: 2, RetryDelay: 2 * time.Second,
			Description: "Fails, and is tried again. Now and then all its attempts fail."}),
		jobs.NewTriggered(jobs.TriggeredFunc[step](d.relay), jobs.Options{Key: "demo.relay", Timeout: time.Minute,
			Description: "Each run starts the next one, ten seconds later."}),
		jobs.NewTriggered(jobs.TriggeredFunc[greeting](d.greet), jobs.Options{Key: "demo.greet", Args: greeting{Name: "you"},
			Description: "Waits for you: run it now, with a name of your own."}),
	}
}

func (d *demo) chime(ctx context.Context) error {
	jobs.Log(ctx).Info("ding", "attempt", jobs.Attempt(ctx).Number)
	return nil
}

func (d *demo) report(ctx context.Context) error {
	for i := range reportRows {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(reportTime / reportRows):
		}
		jobs.Progress(ctx, int64(i+1), reportRows, fmt.Sprintf("page %d of %d", i+1, reportRows))
		if i%8 == 7 {
			jobs.Log(ctx).Info("pages written", "pages", i+1)
		}
	}
	return jobs.Result(ctx, map[string]int{"pages": reportRows})
}

func (d *demo) flaky(ctx context.Context) error {
	a := jobs.Attempt(ctx)
	unlucky := a.Run[15]%4 == 0 // every fourth run or so: its id decides, so that all its attempts agree
	if a.Number < 3 || unlucky {
		jobs.Log(ctx).Warn("the line is busy", "attempt", a.Number)
		return errors.New("the line is busy")
	}
	jobs.Log(ctx).Info("got through", "attempt", a.Number)
	return nil
}

func (d *demo) relay(ctx context.Context, s step) error {
	a := jobs.Attempt(ctx)
	jobs.Log(ctx).Info("passing the baton", "lap", s.Lap)
	// The key makes it one next run, however often this one is tried.
	next, err := relayJob.Enqueue(ctx, d.client, step{s.Lap + 1}, jobs.After(lapDelay), jobs.Unique("after-"+a.Run.String()))
	if err != nil {
		return err
	}
	return jobs.Result(ctx, map[string]string{"next": next.ID.String()})
}

func (d *demo) greet(ctx context.Context, g greeting) error {
	if g.Name == "" {
		return jobs.NoRetry(errors.New("greet whom? give a name"))
	}
	jobs.Log(ctx).Info("greeting", "name", g.Name)
	return jobs.Result(ctx, "Hello, "+g.Name+"!")
}

// start sets the relay going, unless a run of it is still on its way from an earlier start.
func (d *demo) start(ctx context.Context, s *embed.Scheduler) error {
	page, err := s.Ops().Instances(ctx, ops.Who{}, metastore.InstanceQuery{Job: jobs.Key(relayJob), Limit: 1})
	if err != nil {
		return err
	}
	if len(page.Instances) > 0 && !page.Instances[0].State.Final() {
		return nil
	}
	// Its worker may still be registering it.
	for {
		_, err = relayJob.Enqueue(ctx, d.client, step{Lap: 1}, jobs.After(lapDelay))
		if !errors.Is(err, jobs.NotFound) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(50 * time.Millisecond):
		}
	}
}
