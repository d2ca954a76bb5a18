package ui_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// pipeline declares a job that starts two others, and one that follows both. It returns a run of the first, which
// succeeded, and whose follower load is Terminated.
func (s *scene) pipeline() (root, load jobs.ID) {
	s.t.Helper()
	none := jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error { return nil })
	for _, o := range []jobs.Options{
		{Key: "flow.root", OnSuccess: []string{"flow.extract", "flow.load"}}, {Key: "flow.extract"},
		{Key: "flow.load", OnFailure: []string{"flow.clean"}}, {Key: "flow.report", After: []string{"flow.extract", "flow.load:ended"}},
	} {
		s.declare(jobs.NewTriggered(none, o))
	}
	s.apply(kernel.Configure{RecurringDebug: new(false), TriggeredDebug: new(false)})
	root = jobs.NewID(time.Now())
	s.apply(kernel.Create{ID: root, Key: "flow.root"})
	s.finish(root, kernel.OutcomeSuccess)
	load = s.runOf("flow.load")
	s.finish(load, kernel.OutcomeFatal)
	return root, load
}

func (s *scene) finish(id jobs.ID, outcome kernel.Outcome) {
	s.t.Helper()
	s.apply(kernel.Start{ID: id, Worker: "w1", Attempt: 1})
	f := kernel.Finish{ID: id, Worker: "w1", Attempt: 1, Outcome: outcome}
	if outcome != kernel.OutcomeSuccess {
		f.Error = hostile
	}
	s.apply(f)
}

func (s *scene) runOf(key jobs.Key) jobs.ID {
	s.t.Helper()
	page, err := s.store.Runs(s.t.Context(), metastore.RunQuery{Tenant: jobs.DefaultTenant, Job: key, Limit: 1})
	if err != nil || len(page.Runs) == 0 {
		s.t.Fatalf("no run of %s (%v)", key, err)
	}
	return page.Runs[0].ID
}

// drawn returns the drawing of a page, and its list.
func (s *scene) drawn(path string) (drawing, list string) {
	s.t.Helper()
	_, body := s.get(path)
	_, body, _ = strings.Cut(body, `<section class="card" id="graph"`)
	body, _, _ = strings.Cut(body, "</section>")
	drawing, list, _ = strings.Cut(body, "</svg>")
	_, list, _ = strings.Cut(list, "View as list")
	return drawing, list
}

// The page of a job draws the jobs that follow each other; a job without any has no drawing.
func TestGraphOfJobs(t *testing.T) {
	s := newScene(t)
	s.pipeline()
	drawing, list := s.drawn("/jobs/flow.report")
	for _, want := range []string{`<a href="/jobs/flow.root"><g class="node calm" data-tip="flow.root`, `<g class="node calm here" data-tip="flow.report`, `>no such job</text>`, `class="arrow on-end"`, `class="arrow on-failure"`} {
		if !strings.Contains(drawing, want) {
			t.Errorf("the drawing lacks %s: %s", want, drawing)
		}
	}
	if !strings.Contains(list, "after any end: <a href=\"/jobs/flow.report\">flow.report</a>, triggered") {
		t.Errorf("the list is %s", list)
	}
	if drawing, _ := s.drawn("/jobs/app.work"); drawing != "" {
		t.Errorf("a job without followers has a drawing: %s", drawing)
	}
}

// The page of a run draws the runs of its occasion and its family, with their states.
func TestGraphOfRuns(t *testing.T) {
	s := newScene(t)
	root, load := s.pipeline()
	child := jobs.NewID(time.Now())
	s.apply(kernel.Create{ID: child, Key: "app.work", Parent: load})
	for _, id := range []jobs.ID{root, load, child} {
		drawing, list := s.drawn("/runs/" + id.String())
		here := map[jobs.ID]string{root: "flow.root", load: "flow.load", child: "app.work"}[id]
		for _, want := range []string{` here" data-tip="` + here, "\"flow.root\nSucceeded\"", "\"flow.load\nTerminated\"", `<g class="node terminated`, `class="arrow child good"`, "\"app.work\nEnqueued\""} {
			if !strings.Contains(drawing, want) {
				t.Errorf("%s: the drawing lacks %s: %s", here, want, drawing)
			}
		}
		if !strings.Contains(list, here+"</a>, ") || !strings.Contains(list, "(this page)") {
			t.Errorf("%s: the list is %s", here, list)
		}
	}
	drawing, list := s.drawn("/runs/" + root.String())
	if !strings.Contains(drawing, `href="/jobs/flow.report"`) || !strings.Contains(list, "flow.report</a>, no run") || !strings.Contains(list, "(condition met)") {
		t.Errorf("the follower that waits is not in it: %s", list)
	}
	if drawing, _ := s.drawn("/runs/" + s.runs[jobs.Succeeded].String()); drawing != "" {
		t.Errorf("a run alone has a drawing: %s", drawing)
	}
	s.apply(kernel.Delete{Key: "flow.load"})
	if drawing, _ := s.drawn("/runs/" + load.String()); !strings.Contains(drawing, "\"flow.root\nSucceeded\"") {
		t.Errorf("a run whose job was deleted has no family: %s", drawing)
	}
}
