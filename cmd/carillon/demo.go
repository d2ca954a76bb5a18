package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// demo is a worker with demo jobs: each shows one feature.
type demo struct{}

// greeting has the arguments of demo.greet.
type greeting struct {
	Name  string `json:"name" jsonschema:"whom to greet" carillon:"search"`
	Times int    `json:"times,omitempty" jsonschema:"how often; once if left out"`
	Shout bool   `json:"shout,omitempty" jsonschema:"in capitals"`
}

// delivery has the arguments of demo.import.
type delivery struct {
	File    string            `json:"file" jsonschema:"name of the file in the inbox" carillon:"search"`
	Decimal string            `json:"decimal,omitempty" jsonschema:"the sign between units and cents: a dot, unless another is given"`
	Columns map[string]string `json:"columns,omitempty" jsonschema:"names of columns that are called otherwise there"`
	DryRun  bool              `json:"dryRun,omitempty" jsonschema:"read and check, but store nothing"`
}

// step has the arguments of demo.relay.
type step struct {
	Lap int `json:"lap"`
}

var (
	relayJob  = jobs.Trigger[step]("demo.relay")
	importJob = jobs.Trigger[delivery]("demo.import")
)

const (
	lapDelay   = 10 * time.Second
	reportTime = 20 * time.Second
	reportRows = 40
)

func (d demo) jobs() []jobs.Job {
	return []jobs.Job{
		jobs.NewRecurring(jobs.RecurringFunc(d.chime), jobs.Options{Key: "demo.chime", Cron: "*/5 * * * * *", Tags: []string{"bells"},
			Description: "Rings every five seconds."}),
		jobs.NewRecurring(jobs.RecurringFunc(d.report), jobs.Options{Key: "demo.report", Cron: "0,30 * * * * *", Timeout: time.Minute, Tags: []string{"reports"},
			Description: "Runs for 20 seconds and reports its progress. Try to cancel it."}),
		jobs.NewRecurring(jobs.RecurringFunc(d.flaky), jobs.Options{Key: "demo.flaky", Cron: "15,45 * * * * *", Retries: 2, RetryDelay: 2 * time.Second,
			Description: "Fails and is retried. All attempts of about every fourth run fail."}),
		jobs.NewRecurring(jobs.RecurringFunc(d.nightly), jobs.Options{Key: "demo.close-day", Cron: "0 30 2 * * MON-FRI", TimeZone: "Europe/Berlin", Retries: 3,
			Tags: []string{"reports", "books"}, Description: "Closes the books of the day at 02:30 in Berlin. Its page shows the due times around clock changes."}),
		jobs.NewRecurring(jobs.RecurringFunc(d.inbox), jobs.Options{Key: "demo.inbox", Cron: "10 * * * * *", Tags: []string{"files"},
			Description: "Checks the inbox every minute and enqueues a demo.import for each file."}),
		jobs.NewTriggered(jobs.TriggeredFunc[delivery](d.read), jobs.Options{Key: "demo.import", Timeout: time.Minute, MaxConcurrency: 2, Tags: []string{"files"},
			Description: "Reads a file of orders. Some have a decimal comma: find out why it failed, and run it again with other arguments."}),
		jobs.NewTriggered(jobs.TriggeredFunc[step](d.relay), jobs.Options{Key: "demo.relay", Timeout: time.Minute,
			Description: "Each run starts the next one, ten seconds later."}),
		jobs.NewTriggered(jobs.TriggeredFunc[greeting](d.greet), jobs.Options{Key: "demo.greet", Args: greeting{Name: "you"},
			Description: "Starts on request only: trigger it with a name."}),
	}
}

func (demo) chime(ctx context.Context) error {
	jobs.Log(ctx).Info("ding", "attempt", jobs.Attempt(ctx).Number)
	return nil
}

func (demo) report(ctx context.Context) error {
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

func (demo) flaky(ctx context.Context) error {
	a := jobs.Attempt(ctx)
	unlucky := a.Run[15]%4 == 0 // about every fourth run, by its ID, so that all its attempts agree
	if a.Number < 3 || unlucky {
		jobs.Log(ctx).Warn("the line is busy", "attempt", a.Number)
		return errors.New("the line is busy")
	}
	jobs.Log(ctx).Info("got through", "attempt", a.Number)
	return nil
}

func (demo) relay(ctx context.Context, s step) error {
	a := jobs.Attempt(ctx)
	jobs.Log(ctx).Info("passing the baton", "lap", s.Lap)
	// The key makes it one next run, even if this one is retried.
	next, err := relayJob.Enqueue(ctx, carillon.ClientFrom(ctx), step{s.Lap + 1}, jobs.After(lapDelay), jobs.Unique("after-"+a.Run.String()))
	if err != nil {
		return err
	}
	return jobs.Result(ctx, map[string]string{"next": next.ID.String()})
}

func (demo) greet(ctx context.Context, g greeting) error {
	if g.Name == "" {
		return jobs.NoRetry(errors.New("greet whom? give a name"))
	}
	jobs.Log(ctx).Info("greeting", "name", g.Name)
	text := strings.Repeat("Hello, "+g.Name+"! ", min(max(g.Times, 1), 100))
	if g.Shout {
		text = strings.ToUpper(text)
	}
	return jobs.Result(ctx, strings.TrimSpace(text))
}

func (demo) nightly(ctx context.Context) error {
	jobs.Log(ctx).Info("closing the day", "day", jobs.Attempt(ctx).Due.Format(time.DateOnly))
	return nil
}

// inbox finds a file a minute; every third has a decimal comma.
func (demo) inbox(ctx context.Context) error {
	due := jobs.Attempt(ctx).Due
	file := fmt.Sprintf("orders-%s.csv", due.UTC().Format("1504"))
	if due.Minute()%3 == 0 {
		file = fmt.Sprintf("bestellungen-%s.csv", due.UTC().Format("1504"))
	}
	run, err := importJob.Enqueue(ctx, carillon.ClientFrom(ctx), delivery{File: file}, jobs.Unique(file))
	if err != nil {
		return err
	}
	jobs.Log(ctx).Info("a file has come", "file", file, "import", run.ID)
	return nil
}

const (
	importRows = 48
	importTime = 6 * time.Second
)

func (demo) read(ctx context.Context, f delivery) error {
	log := jobs.Log(ctx)
	if f.File == "" {
		return jobs.NoRetry(errors.New("which file? give its name"))
	}
	comma := strings.HasPrefix(f.File, "bestellungen")
	log.Info("opened", "file", f.File, "rows", importRows)
	for i := range importRows {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(importTime / importRows):
		}
		jobs.Progress(ctx, int64(i+1), importRows, fmt.Sprintf("row %d of %d", i+1, importRows))
		if i == 16 && comma && f.Decimal != "," {
			log.Warn("this does not look like a number", "row", i+1, "amount", "12,50")
			return fmt.Errorf("row %d of %s: amount \"12,50\" is not a number\n\n  %d | c7;2 bells;12,50;EUR\n                   ^\nIf the file has a decimal comma, run it again with \"decimal\": \",\"", i+1, f.File, i+1)
		}
	}
	log.Info("all rows are read", "stored", !f.DryRun)
	return jobs.Result(ctx, map[string]any{"rows": importRows, "stored": !f.DryRun})
}

// start triggers the relay, unless an earlier start left a live run of it, and an import that fails, so that users find
// a failure within seconds.
func (demo) start(ctx context.Context, s *embed.Scheduler) error {
	page, err := s.Ops().Runs(ctx, ops.Who{}, metastore.RunQuery{Job: jobs.Key(relayJob), Limit: 1})
	if err != nil {
		return err
	}
	if len(page.Runs) > 0 && !page.Runs[0].State.Final() {
		return nil
	}
	lap, err := relayJob.Request(step{Lap: 1}, jobs.After(lapDelay))
	if err != nil {
		return err
	}
	file, err := importJob.Request(delivery{File: "bestellungen-0000.csv"})
	if err != nil {
		return err
	}
	// Their worker may still be registering them.
	for {
		_, err = s.Client().Enqueue(ctx, lap, file)
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
