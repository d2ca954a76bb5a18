package bubble_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/bubble"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker"
)

// A job that follows two others runs once for each occasion. A failure keeps the occasion open until the failed run is
// run again, or until the time of the occasion is over: then the ledger names what was missing.
func TestAfterSeveralOthers(t *testing.T) {
	bubble.Run(t, func(t *testing.T, c *bubble.System) {
		type parents struct {
			Occasion string           `json:"occasion"`
			Parents  []jobs.ParentRun `json:"parents"`
		}
		var fails atomic.Bool
		got := make(chan parents, 10)
		none := jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error { return nil })
		load := jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error {
			if fails.Load() {
				return jobs.NoRetry(errors.New("disk full"))
			}
			return nil
		})
		report := jobs.TriggeredFunc[parents](func(_ context.Context, a parents) error { got <- a; return nil })
		c.Start(worker.Config{}, jobs.NewTriggered(none, jobs.Options{Key: "root", OnSuccess: []string{"extract", "load"}}),
			jobs.NewTriggered(none, jobs.Options{Key: "extract"}), jobs.NewTriggered(load, jobs.Options{Key: "load"}),
			jobs.NewTriggered(report, jobs.Options{Key: "report", After: []string{"extract", "load"}, AfterWithin: time.Hour}))
		o := opsOf(c)
		root := func() jobs.ID {
			run, err := jobs.Trigger[struct{}]("root").Enqueue(t.Context(), c.Client, struct{}{})
			if err != nil {
				t.Fatal(err)
			}
			c.Pass(time.Second)
			return run.ID
		}
		first := root()
		if len(got) != 1 {
			t.Fatalf("%d reports ran, want 1", len(got))
		}
		if a := <-got; a.Occasion != first.String() || len(a.Parents) != 2 || a.Parents[0].Job != "extract" || a.Parents[1].State != jobs.Succeeded {
			t.Errorf("the report got %+v", a)
		}
		g, err := o.RunGraph(t.Context(), person, first)
		if err != nil || len(g.Nodes) != 4 || len(g.Edges) != 4 {
			t.Fatalf("the graph is %+v (%v)", g, err)
		}
		for _, n := range g.Nodes {
			if n.Run == nil || n.Run.State != jobs.Succeeded {
				t.Errorf("the graph has %s with %v", n.Job, n.Run)
			}
		}

		fails.Store(true)
		second := root()
		open, err := o.Occasions(t.Context(), person, "report", 10)
		if err != nil || len(open) != 1 || open[0].Name != second.String() || len(open[0].Missing) != 1 || open[0].Missing[0].State != jobs.Terminated {
			t.Fatalf("open occasions are %+v (%v)", open, err)
		}
		fails.Store(false)
		again, err := o.Again(t.Context(), person, open[0].Missing[0].Run, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		c.Pass(time.Second)
		if len(got) != 1 {
			t.Fatalf("%d reports ran after the repetition, want 1", len(got))
		}
		if a := <-got; a.Occasion != second.String() || a.Parents[1].Run != again.ID {
			t.Errorf("the report got %+v", a)
		}

		fails.Store(true)
		root()
		c.Pass(63 * time.Minute)
		missed := c.Missed("report")
		if len(got) != 0 || len(missed) != 1 || missed[0].Reason != kernel.MissedParents || len(missed[0].Parents) != 1 || missed[0].Parents[0].Job != "load" {
			t.Errorf("%d reports ran; the ledger has %+v", len(got), missed)
		}
		if open, err := o.Occasions(t.Context(), person, "report", 10); err != nil || len(open) != 0 {
			t.Errorf("open occasions are %+v (%v)", open, err)
		}
		g, err = o.JobGraph(t.Context(), person, "load")
		if err != nil || len(g.Nodes) != 4 || slices.ContainsFunc(g.Edges, func(e ops.GraphEdge) bool { return e.To == "report" && !e.After }) {
			t.Errorf("the graph is %+v (%v)", g, err)
		}
	})
}
