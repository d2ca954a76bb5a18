package ui_test

import (
	"net/url"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// From the page of a triggered job, a form creates a job that runs on its code, with arguments by its schema; errors are
// shown with the input.
func TestNewJobWithAHandler(t *testing.T) {
	s := newScene(t)
	s.apply(kernel.Register{App: "app", Worker: "w-1", Start: true, Job: kernel.Declaration{Key: "app.report", Kind: kernel.Triggered,
		Schema: []byte(`{"type":"object","properties":{"customer":{"type":"string"},"pages":{"type":"integer"}},"required":["customer"]}`)}})
	answer, body := s.get("/jobs/app.report")
	s.has("the way there", answer, body, 200, `href="/jobs/app.report/new"`)
	answer, body = s.get("/jobs/app.report/new")
	s.has("the form", answer, body, 200, "New job with handler app.report", `name="a.customer"`, `name="a.pages"`, `href="/jobs/app.report/new?as=json"`)

	good := url.Values{"key": {"app.report-c7"}, "mode": {"form"}, "a.customer": {"c7"}, "a.pages": {"3"}, "schedule": {"0 30 2 * * *"}, "zone": {"Europe/Berlin"}, "description": {"for c7"}}
	for field, wrong := range map[string][2]string{"key": {"no spaces", "job key"}, "schedule": {"0 0 25 * * *", "hour"}, "a.customer": {"", "Required."}, "a.pages": {"many", "Want a whole number."}} {
		form := url.Values{}
		for k, v := range good {
			form[k] = v
		}
		form.Set(field, wrong[0])
		answer, body = s.post("/jobs/app.report/new", form)
		s.has(field, answer, body, 422, wrong[1], "for c7")
	}
	answer, _ = s.post("/jobs/app.report/new", good)
	if to := answer.Header.Get("Location"); to != "/jobs/app.report-c7?did=saved" {
		t.Fatalf("it leads to %q", to)
	}
	d, err := s.store.Definition(t.Context(), jobs.DefaultTenant, "app.report-c7")
	if err != nil || d.Kind != kernel.Recurring || d.App != "app" || d.HandlerKey() != "app.report" || d.Policy.Zone != "Europe/Berlin" || string(d.Policy.Args) != `{"customer":"c7","pages":3}` {
		t.Fatalf("%+v, %v", d, err)
	}
	answer, body = s.post("/jobs/app.report/new", good)
	s.has("a second time", answer, body, 409, "job app.report-c7 already exists")
	form := url.Values{"key": {"app.report-c8"}, "mode": {"json"}, "args": {`{"customer":8}`}}
	answer, body = s.post("/jobs/app.report/new", form)
	s.has("JSON that breaks the schema", answer, body, 422, "customer")
	answer, body = s.get("/jobs/app.report-c7/new")
	s.has("of a job with a handler", answer, body, 409, "cannot be a handler")
	answer, body = s.get("/jobs/app.report-c7/run")
	s.has("the form of a run has the handler's fields", answer, body, 200, `name="a.customer"`)
}
