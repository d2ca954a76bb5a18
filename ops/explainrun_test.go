package ops_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// named are the constants of a type in package jobs, as its source has them.
func named(t *testing.T, of string) (values []string) {
	t.Helper()
	entries, err := os.ReadDir("../internal/kernel")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), "../internal/kernel/"+e.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok {
				if typ, ok := spec.Type.(*ast.Ident); ok && typ.Name == of && len(spec.Values) == 1 {
					text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
					if err != nil {
						t.Fatal(err)
					}
					values = append(values, text)
				}
			}
			return true
		})
	}
	return values
}

// Whatever the cause of a state or the reason of a due time without a run is, there are words for it.
func TestEachCauseAndReasonHasWords(t *testing.T) {
	causes, reasons := named(t, "Cause"), named(t, "Reason")
	if len(causes) < 15 || len(reasons) < 6 {
		t.Fatalf("%d causes and %d reasons", len(causes), len(reasons))
	}
	for _, c := range causes {
		if ops.CauseText(kernel.Cause(c)) == "" {
			t.Errorf("cause %q has no text", c)
		}
	}
	for _, r := range reasons {
		if ops.ReasonText(kernel.Reason(r)) == "" {
			t.Errorf("reason %q has no text", r)
		}
	}
}

// One sentence says why a run stands where it does.
func TestExplainRun(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*fixture, *members) jobs.ID
		want string
	}{
		"due ahead": {func(d *fixture, _ *members) jobs.ID { return d.begin(kernel.Create{Due: d.now.Add(time.Hour)}) }, "It waits for its due time, 2026-11-21T13:00:00Z."},
		"paused": {func(d *fixture, _ *members) jobs.ID {
			d.Pause(d.t.Context(), ann, kernel.Pause{Key: "app.work", Reason: "stocktaking"})
			return d.begin(kernel.Create{})
		}, "It is held, because the job is paused by ann (stocktaking), until resumed."},
		"debug": {func(d *fixture, _ *members) jobs.ID {
			d.apply(kernel.Configure{TriggeredDebug: new(true)})
			return d.begin(kernel.Create{Origin: kernel.FromCode})
		}, "It is held, because debug mode holds it, until that ends."},
		"no worker": {func(d *fixture, c *members) jobs.ID { c.workers = nil; return d.begin(kernel.Create{}) }, "It waits: no worker of the app app is online."},
		"no worker with the tag": {func(d *fixture, _ *members) jobs.ID {
			d.apply(kernel.Edit{Key: "app.work", Set: kernel.Settings{Needs: &[]string{"gpu"}}})
			return d.begin(kernel.Create{})
		}, "It waits: no worker with the tag gpu is online."},
		"ready": {func(d *fixture, _ *members) jobs.ID { return d.begin(kernel.Create{}) }, "It is ready, and is being dispatched."},
		"a slot": {func(d *fixture, _ *members) jobs.ID {
			d.apply(kernel.Edit{Key: "app.work", Set: kernel.Settings{MaxConcurrency: new(1), Overlap: new(jobs.OverlapQueue)}})
			d.begin(kernel.Create{})
			return d.begin(kernel.Create{})
		}, "It waits for a slot of its job: at most 1 may run at once."},
		"a slot of its customer": {func(d *fixture, _ *members) jobs.ID {
			d.apply(kernel.Edit{Key: "app.work", Set: kernel.Settings{Overlap: new(jobs.OverlapQueue), Limits: &[]jobs.Limit{{Name: "tenant", Max: 1, By: "args.customer"}}}})
			d.begin(kernel.Create{Args: []byte(`{"customer":"c7"}`)})
			return d.begin(kernel.Create{Args: []byte(`{"customer":"c7"}`)})
		}, "It waits for a slot of limit tenant for c7: at most 1 may run at once."},
		"a rate": {func(d *fixture, _ *members) jobs.ID {
			d.apply(kernel.Edit{Key: "app.work", Set: kernel.Settings{Overlap: new(jobs.OverlapQueue), Rate: &jobs.Rate{Max: 1, Per: time.Hour}}})
			first := d.begin(kernel.Create{})
			id := d.begin(kernel.Create{})
			d.apply(kernel.Start{ID: first, Worker: "w1", Attempt: 1})
			return id
		}, "It is the first that waits for the rate limit of its job, which lets it start at 2026-11-21T13:00:02Z."},
		"a retry": {func(d *fixture, _ *members) jobs.ID {
			d.apply(kernel.Edit{Key: "app.work", Set: kernel.Settings{Retries: new(3), RetryDelay: new(time.Minute), RetryJitter: new(jobs.JitterNone)}})
			id := d.begin(kernel.Create{})
			d.apply(kernel.Start{ID: id, Worker: "w1", Attempt: 1})
			d.apply(kernel.Finish{ID: id, Worker: "w1", Attempt: 1, Outcome: kernel.OutcomeError, Error: "the line is bad\nat a place"})
			return id
		}, "Attempt 1 failed, because its handler failed (the line is bad); the next one is due at 2026-11-21T12:01:01Z."},
		"put off": {func(d *fixture, _ *members) jobs.ID {
			id := d.begin(kernel.Create{})
			d.apply(kernel.Start{ID: id, Worker: "w1", Attempt: 1})
			d.apply(kernel.Finish{ID: id, Worker: "w1", Attempt: 1, Outcome: kernel.OutcomeSnooze, Error: "request 1: billing:80 is left alone", Code: "circuit_open", Delay: time.Minute})
			return id
		}, "Attempt 1 was postponed, because its handler asked to be called again later (request 1: billing:80 is left alone); the next one is due at 2026-11-21T12:01:01Z."},
		"running": {func(d *fixture, _ *members) jobs.ID {
			id := d.begin(kernel.Create{})
			d.apply(kernel.Start{ID: id, Worker: "w1", Attempt: 1})
			return id
		}, "It runs on w1 since 2026-11-21T12:00:01Z, as attempt 1."},
		"running where its route has put it": {func(d *fixture, _ *members) jobs.ID {
			d.apply(kernel.Edit{Key: "app.work", Set: kernel.Settings{Route: new(jobs.RouteFirst), Needs: &[]string{"gpu"}}})
			id := d.begin(kernel.Create{})
			d.apply(kernel.Start{ID: id, Worker: "w1", Attempt: 1})
			return id
		}, "It runs on w1 since 2026-11-21T12:00:01Z, as attempt 1; w1 was chosen as the first worker that is free, with gpu."},
		"cancelled": {func(d *fixture, _ *members) jobs.ID {
			id := d.begin(kernel.Create{})
			d.apply(kernel.Cancel{ID: id})
			return id
		}, "It is Cancelled since 2026-11-21T12:00:01Z, because it was requested."},
	} {
		d, members := newFixture(t), &members{workers: []ops.Worker{serving("app", "app.work")}}
		d.Ops = ops.New(ops.Config{Store: d.store, Live: members, Now: func() time.Time { return d.now }})
		e, err := d.ExplainRun(t.Context(), ann, c.do(d, members))
		if err != nil || e.Why != c.want {
			t.Errorf("%s: %s (%v)\nwant %s", name, e.Why, err, c.want)
		}
	}
}

// begin makes a run of app.work, a second after what was before.
func (d *fixture) begin(k kernel.Create) jobs.ID {
	d.t.Helper()
	k.ID, k.Key = jobs.NewID(d.now), "app.work"
	d.apply(k)
	d.now = d.now.Add(time.Second)
	return k.ID
}
