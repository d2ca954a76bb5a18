package bubble_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/bubble"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker"
)

type reportArgs struct {
	Customer string `json:"customer"`
}

// reports is a handler that writes down for which customers it was called, by which job.
type reports struct {
	mu   sync.Mutex
	list []string
}

func (r *reports) Run(ctx context.Context, a reportArgs) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, fmt.Sprintf("%s %s", jobs.Attempt(ctx).Key, a.Customer))
	return nil
}

func (r *reports) seen() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.list)
	text := strings.Join(r.list, ", ")
	r.list = nil
	return text
}

// Many jobs run on the code of one: people make them while the worker runs, each with its own schedule and arguments,
// which the handler's schema checks. When no worker has the handler any more, none of them fires.
func TestOneHandlerManyJobs(t *testing.T) {
	bubble.Run(t, func(t *testing.T, c *bubble.System) {
		var r reports
		worked := []jobs.Job{jobs.NewTriggered(&r, jobs.Options{Key: "report.customer"}),
			jobs.NewRecurring(nil, jobs.Options{Key: "report.code", Cron: "0 6 * * *", Handler: "report.customer", Args: reportArgs{"c1"}})}
		stop := c.Start(worker.Config{App: "reports"}, worked...)
		o := opsOf(c)
		make := func(key jobs.Key, kind kernel.Kind, handler, args string, schedule string) ([]ops.Planned, error) {
			set := kernel.Settings{Handler: &handler}
			if args != "" {
				set.Args = new(json.RawMessage(args))
			}
			if schedule != "" {
				set.Schedule = &schedule
			}
			return o.Declare(t.Context(), person, []ops.Wanted{{Key: key, Kind: kind, App: "reports", Set: set}}, ops.How{Fresh: true})
		}
		for i := range 3 {
			if _, err := make(jobs.Key(fmt.Sprintf("report.c%d", i)), kernel.Recurring, "report.customer", fmt.Sprintf(`{"customer":"c%d"}`, i), "0 7 * * *"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := make("report.adhoc", kernel.Triggered, "report.customer", "", ""); err != nil {
			t.Fatal(err)
		}
		if _, err := make("report.bad", kernel.Recurring, "report.customer", `{"customer":7}`, "0 7 * * *"); !errors.Is(err, jobs.BadInput) || !strings.Contains(err.Error(), "customer") {
			t.Errorf("arguments that the handler's schema refuses: %v", err)
		}
		plans, err := make("report.other", kernel.Recurring, "report.unknown", "", "0 7 * * *")
		if err != nil || !slices.Contains(plans[0].Job.Warnings, "no online worker of the app reports has the handler report.unknown: its runs wait for one") {
			t.Errorf("a handler that is not registered: %v, %+v", err, plans)
		}
		c.Pass(24 * time.Hour)
		if got := r.seen(); got != "report.c0 c0, report.c1 c1, report.c2 c2, report.code c1" {
			t.Errorf("a day's reports: %s", got)
		}

		adhoc := jobs.Trigger[reportArgs]("report.adhoc")
		receipt, err := adhoc.Enqueue(t.Context(), c, reportArgs{"c9"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Wait(t.Context(), receipt.ID); err != nil {
			t.Error(err)
		}
		if got := r.seen(); got != "report.adhoc c9" {
			t.Errorf("triggered: %s", got)
		}
		if _, err := jobs.Trigger[map[string]any]("report.adhoc").Enqueue(t.Context(), c, map[string]any{"customer": 7}); !errors.Is(err, jobs.BadInput) {
			t.Errorf("triggered with arguments that the handler's schema refuses: %v", err)
		}

		stop()
		old := c.Start(worker.Config{App: "reports"}, jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return nil }), jobs.Options{Key: "report.cleanup", Every: time.Hour}))
		c.Pass(2 * time.Hour)
		before := len(c.Runs("report.c0"))
		c.Pass(24 * time.Hour)
		if after := len(c.Runs("report.c0")); after != before {
			t.Errorf("%d runs without a handler", after-before)
		}
		e, err := o.Explain(t.Context(), person, "report.c0")
		if text := strings.Join(e.Text, " "); err != nil || !strings.Contains(text, "no online worker of the app reports has its handler report.customer any more") {
			t.Errorf("explain: %s, %v", text, err)
		}
		old()
		c.Start(worker.Config{App: "reports"}, worked...)
		c.Pass(24 * time.Hour)
		if got := r.seen(); !strings.Contains(got, "report.c0 c0") {
			t.Errorf("with the handler again: %s", got)
		}
	})
}

// Two workers of one app, one for HTTP jobs and one for commands, run what is theirs, and nothing else.
func TestWorkersForOneKindOfJob(t *testing.T) {
	bubble.Run(t, func(t *testing.T, c *bubble.System) {
		var mu sync.Mutex
		ran := map[string]string{}
		for _, only := range kernel.WorkSettings() {
			c.Start(worker.Config{App: "all", Name: only, Only: only, Others: func(ctx context.Context, _ []byte) error {
				mu.Lock()
				defer mu.Unlock()
				ran[string(jobs.Attempt(ctx).Key)] += only
				return nil
			}})
		}
		o := opsOf(c)
		var runs []jobs.ID
		for key, set := range map[jobs.Key]kernel.Settings{"code": {},
			kernel.WorkHTTP: {HTTP: new(json.RawMessage(`{"request":[{"url":"https://example.com/"}]}`))},
			kernel.WorkExec: {Exec: new(json.RawMessage(`{"argv":["true"]}`)), Route: new(jobs.RouteFirst)}} {
			if _, err := o.Declare(t.Context(), person, []ops.Wanted{{Key: key, Kind: kernel.Triggered, App: "all", Set: set}}, ops.How{}); err != nil {
				t.Fatal(err)
			}
			receipt, err := jobs.Trigger[map[string]any](key).Enqueue(t.Context(), c, map[string]any{})
			if err != nil {
				t.Fatal(err)
			}
			if key != "code" {
				runs = append(runs, receipt.ID)
			}
		}
		for _, id := range runs {
			if _, err := c.Wait(t.Context(), id); err != nil {
				t.Error(err)
			}
		}
		c.Pass(10 * time.Minute)
		mu.Lock()
		ran = maps.Clone(ran)
		mu.Unlock()
		if ran["http"] != "http" || ran["exec"] != "exec" || len(ran) != 2 {
			t.Errorf("ran: %v", ran)
		}
		if list := c.Runs("code"); len(list) != 1 || list[0].State != jobs.Enqueued {
			t.Errorf("the run of a job without a worker: %+v", list)
		}
	})
}

// A catch-all worker keeps the jobs of its app alive, also those that only the API knows; one for HTTP jobs or commands
// keeps only those, and runs them.
func TestCatchAllKeepsJobs(t *testing.T) {
	for _, only := range []string{"", kernel.WorkHTTP, kernel.WorkExec} {
		bubble.Run(t, func(t *testing.T, c *bubble.System) {
			var mu sync.Mutex
			ran := map[jobs.Key]int{}
			stop := c.Start(worker.Config{App: "all", Only: only, Others: func(ctx context.Context, _ []byte) error {
				mu.Lock()
				defer mu.Unlock()
				ran[jobs.Attempt(ctx).Key]++
				return nil
			}},
				jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return nil }), jobs.Options{Key: "named", Every: time.Hour}))
			o := opsOf(c)
			for key, set := range map[jobs.Key]kernel.Settings{"code": {},
				kernel.WorkHTTP: {HTTP: new(json.RawMessage(`{"request":[{"url":"https://example.com/"}]}`))},
				kernel.WorkExec: {Exec: new(json.RawMessage(`{"argv":["true"]}`))}} {
				set.Schedule = new("@every 30m")
				if _, err := o.Declare(t.Context(), person, []ops.Wanted{{Key: key, Kind: kernel.Recurring, App: "all", Set: set}}, ops.How{}); err != nil {
					t.Fatal(err)
				}
			}
			c.Pass(10 * time.Hour)
			mu.Lock()
			ran = maps.Clone(ran)
			mu.Unlock()
			for _, key := range []jobs.Key{"code", kernel.WorkHTTP, kernel.WorkExec} {
				job, err := o.Job(t.Context(), person, key, 1)
				if err != nil {
					t.Fatal(err)
				}
				runs := only == "" || only == string(key)
				if stopped := !job.Stopped.IsZero(); stopped == runs || runs && ran[key] != 20 {
					t.Errorf("only %q: %s: stopped %v, %d runs", only, key, stopped, ran[key])
				}
			}
			stop()
		})
	}
}
