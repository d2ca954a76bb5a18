package embed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
	"github.com/carillon-scheduler/carillon/ops"
)

// What a user's program knows of Carillon: it is the same wherever the rows are kept.

type order struct{ N int }

var (
	shipJob = jobs.Trigger[order]("shop.ship")
	tryJob  = jobs.Trigger[order]("shop.try")
	holdJob = jobs.Trigger[order]("shop.hold")
)

// shop are its jobs. The recurring ones get their schedule from plan.
func shop(held chan<- int) []jobs.Job {
	ring := jobs.RecurringFunc(func(context.Context) error { return nil })
	bell := jobs.Options{Key: "shop.bell", MaxConcurrency: jobs.None, Misfire: jobs.MisfireAll}
	silent := bell
	silent.Key, silent.Disabled = "shop.silent", true
	return []jobs.Job{
		jobs.NewRecurring(ring, bell),
		jobs.NewRecurring(ring, silent),
		jobs.NewTriggered(jobs.TriggeredFunc[order](func(ctx context.Context, o order) error {
			if o.N < 0 {
				return jobs.NoRetry(errors.New("there is no such order"))
			}
			return jobs.Result(ctx, fmt.Sprintf("shipped %d", o.N))
		}), jobs.Options{Key: "shop.ship", Retries: 5}),
		jobs.NewTriggered(jobs.TriggeredFunc[order](func(ctx context.Context, o order) error {
			if n := int(jobs.Attempt(ctx).Number); n < o.N {
				return fmt.Errorf("attempt %d", n)
			}
			return nil
		}), jobs.Options{Key: "shop.try", Retries: 2}),
		jobs.NewTriggered(jobs.TriggeredFunc[order](func(ctx context.Context, o order) error {
			held <- o.N
			<-ctx.Done()
			return ctx.Err()
		}), jobs.Options{Key: "shop.hold"}),
	}
}

// plan has the recurring jobs be due three times from first on, and then never again.
func plan(ctx context.Context, o *ops.Ops, first time.Time) error {
	for _, key := range []jobs.Key{"shop.bell", "shop.silent"} {
		set := kernel.Settings{Schedule: new("@every 1s"), First: &first, End: new(first.Add(2500 * time.Millisecond))}
		if _, err := o.Edit(ctx, ops.Who{Actor: "person:ann", Role: ops.Admin}, kernel.Edit{Key: key, Set: set}); err != nil {
			return err
		}
	}
	return nil
}

// visit asks for runs, cancels some, and returns when all of them are finished.
func visit(ctx context.Context, c *client.Client, held <-chan int) error {
	var all []jobs.ID
	ask := func(run jobs.Receipt, err error) (jobs.Receipt, error) {
		all = append(all, run.ID)
		return run, err
	}
	if _, err := ask(shipJob.Enqueue(ctx, c, order{1})); err != nil {
		return err
	}
	if _, err := ask(shipJob.Enqueue(ctx, c, order{-2})); err != nil {
		return err
	}
	if _, err := ask(shipJob.Enqueue(ctx, c, order{3}, jobs.After(400*time.Millisecond))); err != nil {
		return err
	}
	batch, err := shipJob.EnqueueAll(ctx, c, []order{{4}, {5}, {6}}, jobs.WithPriority(7))
	if err != nil {
		return err
	}
	for _, run := range batch {
		all = append(all, run.ID)
	}
	if _, err := ask(tryJob.Enqueue(ctx, c, order{3})); err != nil {
		return err
	}
	if _, err := ask(tryJob.Enqueue(ctx, c, order{4})); err != nil {
		return err
	}
	later, err := ask(shipJob.Enqueue(ctx, c, order{7}, jobs.After(time.Hour), jobs.Unique("seven")))
	if err != nil {
		return err
	}
	if again, err := shipJob.Enqueue(ctx, c, order{8}, jobs.Unique("seven")); err != nil || !again.Duplicate || again.ID != later.ID {
		return fmt.Errorf("a unique key led to %+v (%v)", again, err)
	}
	if err := c.Cancel(ctx, later.ID, "not needed"); err != nil {
		return err
	}
	long, err := ask(holdJob.Enqueue(ctx, c, order{9}))
	if err != nil {
		return err
	}
	<-held
	if err := c.Cancel(ctx, long.ID, "it takes too long"); err != nil {
		return err
	}
	for _, id := range all {
		if _, err := c.Wait(ctx, id); err != nil && !errors.As(err, new(*jobs.RunError)) {
			return fmt.Errorf("wait for %s: %w", id, err)
		}
	}
	return nil
}

// ledger is the store's final state of the program's jobs, without what differs between two tests: times, and the IDs
// of runs and processes.
func ledger(ctx context.Context, o *ops.Ops, first time.Time) (lines []string, over bool, err error) {
	over = true
	for _, key := range []jobs.Key{"shop.bell", "shop.silent", "shop.ship", "shop.try", "shop.hold"} {
		page, err := o.Runs(ctx, ops.Who{}, metastore.RunQuery{Job: key, Limit: metastore.MaxPage})
		if err != nil {
			return nil, false, err
		}
		var runs []string
		for _, run := range page.Runs {
			over = over && run.State.Final()
			line := strings.TrimSpace(fmt.Sprintf("%s %s", key, run.Args))
			if run.Origin == kernel.FromCron || run.Origin == kernel.FromMisfire { // on time or late: that is the machine's doing
				line += " due +" + run.Due.Sub(first).String()
			}
			if run.Priority != 0 {
				line += fmt.Sprintf(", priority %d", run.Priority)
			}
			if len(run.Result) > 0 {
				line += fmt.Sprintf(", result %s", run.Result)
			}
			if run.Error != "" {
				line += fmt.Sprintf(", error %q", run.Error)
			}
			var moves []string
			for _, m := range run.Moves {
				moves = append(moves, strings.TrimSpace(fmt.Sprintf("%v %s", m.State, m.Cause)))
			}
			runs = append(runs, line+": "+strings.Join(moves, ", "))
		}
		slices.Sort(runs)
		lines = append(lines, runs...)
		e, err := o.Explain(ctx, ops.Who{}, key)
		if err != nil {
			return nil, false, err
		}
		for _, m := range e.Missed {
			lines = append(lines, fmt.Sprintf("%s missed +%v to +%v, %d: %s", key, m.From.Sub(first), m.To.Sub(first), m.Count, m.Reason))
		}
	}
	return lines, over, nil
}

// runProgram runs the program on the store of config, and returns the ledger. If a slow machine wrote the schedule
// after it began, it runs the program again, on an empty store and with twice the time.
func runProgram(t *testing.T, config func(*testing.T) embed.Config) []string {
	t.Helper()
	for lead := time.Second; lead <= 16*time.Second; lead *= 2 {
		if lines, planned := runProgramOnce(t, config(t), lead); planned {
			return lines
		}
	}
	t.Fatal("the machine is too slow for a schedule that begins in 16 seconds")
	return nil
}

// runProgramOnce is the same with a schedule that begins after a delay, and reports whether it was written in time.
func runProgramOnce(t *testing.T, cfg embed.Config, lead time.Duration) (lines []string, planned bool) {
	t.Helper()
	held := make(chan int, 1)
	s, err := embed.Start(t.Context(), cfg, shop(held)...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}()
	first := time.Now().Add(lead)
	if err := plan(t.Context(), s.Ops(), first); err != nil {
		t.Fatal(err)
	}
	if time.Now().After(first) {
		return nil, false
	}
	if err := visit(t.Context(), s.Client(), held); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the ledger is complete", func() bool {
		var over bool
		lines, over, err = ledger(t.Context(), s.Ops(), first)
		all := strings.Join(lines, "\n")
		return err == nil && over && strings.Count(all, "shop.bell") == 3 && strings.Contains(all, " 3: ")
	})
	return lines, true
}

// wanted is what all of that comes to.
var wanted = []string{
	`shop.bell due +0s: Enqueued, Processing, Succeeded`,
	`shop.bell due +1s: Enqueued, Processing, Succeeded`,
	`shop.bell due +2s: Enqueued, Processing, Succeeded`,
	`shop.silent missed +0s to +2s, 3: disabled`,
	`shop.ship {"N":-2}, error "there is no such order": Enqueued, Processing, Failed error, Terminated error`,
	`shop.ship {"N":1}, result "shipped 1": Enqueued, Processing, Succeeded`,
	`shop.ship {"N":3}, result "shipped 3": Scheduled, Enqueued, Processing, Succeeded`,
	`shop.ship {"N":4}, priority 7, result "shipped 4": Enqueued, Processing, Succeeded`,
	`shop.ship {"N":5}, priority 7, result "shipped 5": Enqueued, Processing, Succeeded`,
	`shop.ship {"N":6}, priority 7, result "shipped 6": Enqueued, Processing, Succeeded`,
	`shop.ship {"N":7}: Scheduled, Cancelled request`,
	`shop.try {"N":3}: Enqueued, Processing, Failed error, Processing, Failed error, Processing, Succeeded`,
	`shop.try {"N":4}, error "attempt 3": Enqueued, Processing, Failed error, Processing, Failed error, Processing, Failed error, Terminated error`,
	`shop.hold {"N":9}: Enqueued, Processing, Cancelled request`,
}

// One program has the same ledger on every store.
func TestOneProgramOnEveryStore(t *testing.T) {
	tests.Long(t)
	for name, config := range map[string]func(t *testing.T) embed.Config{
		"memory":        func(*testing.T) embed.Config { return embed.Config{} },
		"raft of one":   func(t *testing.T) embed.Config { return embed.Config{Dir: t.TempDir()} },
		"raft of three": oneOfThree,
		"PostgreSQL":    func(t *testing.T) embed.Config { return embed.Config{Database: sqltest.Postgres.New(t)} },
		"MariaDB":       func(t *testing.T) embed.Config { return embed.Config{Database: sqltest.MariaDB.New(t)} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := runProgram(t, config); !slices.Equal(got, wanted) {
				t.Errorf("the ledger is\n%s\nand it should be\n%s", strings.Join(got, "\n"), strings.Join(wanted, "\n"))
			}
		})
	}
}

// oneOfThree starts two nodes and returns the configuration of a third, which does not lead.
func oneOfThree(t *testing.T) embed.Config {
	next := three(t, func(*place) {})
	for range 2 {
		next().start(t)
	}
	cfg, server, err := next().open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	return cfg
}
