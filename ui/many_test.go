package ui_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Under a filter, lists offer actions on all that match: a page counts first, and then shows what was done.
func TestManyJobsOnThePage(t *testing.T) {
	s := newScene(t)
	answer, body := s.get("/jobs")
	s.has("a list without a filter", answer, body, 200, "!/bulk/")
	answer, body = s.get("/jobs?q=app.*&kind=recurring")
	s.has("a list with a filter", answer, body, 200, `href="/bulk/jobs/pause?kind=recurring&amp;q=app.%2A"`, `/bulk/jobs/delete?`, "app.nightly", "!app.work")

	answer, body = s.get("/bulk/jobs/pause?kind=recurring&q=app.*")
	s.has("the question", answer, body, 200, "Pause 2 jobs", "app.nightly", "app.paused", `name="q" value="app.*"`, `name="kind" value="recurring"`)
	if d := s.definition("app.nightly"); d.Paused != nil {
		t.Fatal("the question paused a job")
	}
	answer, body = s.post("/bulk/jobs/pause", url.Values{"q": {"app.*"}, "kind": {"recurring"}, "until": {"hour"}, "reason": {"stocktaking"}})
	s.has("the result", answer, body, 200, "2 jobs paused.")
	if d := s.definition("app.nightly"); d.Paused == nil || d.Paused.Reason != "stocktaking" || d.Paused.Until.IsZero() {
		t.Errorf("paused: %+v", d.Paused)
	}
	answer, body = s.post("/bulk/jobs/resume", url.Values{"app": {"app"}, "state": {"paused"}, "missed": {"skip"}, "held": {"release"}})
	s.has("resumed", answer, body, 200, "2 jobs resumed.")
	answer, body = s.post("/bulk/jobs/delete", url.Values{"q": {"app.*"}, "kind": {"triggered"}})
	s.has("a refusal", answer, body, 200, "1 job deleted. 1 job refused.", `href="/jobs/app.work"`, "live runs")
	answer, body = s.get("/bulk/jobs/pause?q=nothing")
	s.has("no job", answer, body, 200, "No jobs match.")
	answer, body = s.get("/bulk/jobs/pause")
	s.has("no filter", answer, body, 422, "the filter is empty")
	answer, body = s.post("/bulk/jobs/pause", url.Values{})
	s.has("no filter", answer, body, 422, "the filter is empty")
}

func TestManyRunsOnThePage(t *testing.T) {
	s := newScene(t)
	for range 3 {
		s.apply(kernel.Create{ID: jobs.NewID(time.Now()), Key: "app.typed"})
	}
	answer, body := s.get("/runs?job=*.typed&app=app")
	s.has("the list", answer, body, 200, `href="/bulk/runs/cancel?app=app&amp;job=%2A.typed"`, `/bulk/runs/retry?`)
	if n := strings.Count(body, `name="id"`); n != 3 {
		t.Errorf("%d runs match the pattern, want 3", n)
	}
	answer, body = s.get("/runs?state=Terminated")
	s.has("finished ones", answer, body, 200, `/bulk/runs/retry?state=Terminated`, `!/bulk/runs/cancel`)
	answer, body = s.get("/bulk/runs/cancel?job=*.typed")
	s.has("the question", answer, body, 200, "Cancel 3 runs")
	answer, body = s.post("/bulk/runs/cancel", url.Values{"job": {"*.typed"}, "reason": {"stocktaking"}})
	s.has("the result", answer, body, 200, "3 runs cancelled.")
	again := url.Values{"job": {"app.typed"}, "state": {"Cancelled"}, "request": {"once"}}
	for range 2 { // the same form twice
		answer, body = s.post("/bulk/runs/retry", again)
		s.has("rerun", answer, body, 200, "3 runs started again.")
	}
	page, err := s.store.Runs(t.Context(), metastore.RunQuery{Tenant: jobs.DefaultTenant, Job: "app.typed", State: jobs.Enqueued})
	if err != nil || len(page.Runs) != 3 {
		t.Errorf("%d new runs, want 3: %v", len(page.Runs), err)
	}
	answer, body = s.get("/bulk/runs/cancel?from=yesterday&job=app.typed")
	s.has("a wrong filter", answer, body, 422, "invalid time")
}
