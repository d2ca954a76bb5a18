package ui_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// A form creates a job of a request, and tries it at once; errors are shown with the input.
func TestNewHTTPJob(t *testing.T) {
	s := newScene(t)
	answer, body := s.get("/jobs")
	s.has("the way there", answer, body, 200, `href="/new"`)
	answer, body = s.get("/new")
	s.has("the form", answer, body, 200, "New HTTP job", "Save and run")

	good := url.Values{"key": {"app.ping"}, "app": {"http"}, "request.0.method": {"POST"}, "request.0.url": {"https://example.com/?day=${$.day}"}, "request.0.header": {"Authorization", "", "X-A"},
		"request.0.value": {"Bearer ${secret:T}", "", "b"}, "request.0.body": {`{"a": "${$.a}"}`}, "schedule": {"0 30 2 * * *"}, "zone": {"Europe/Berlin"}, "timeout": {"90s"}, "retries": {"3"}}
	for field, wrong := range map[string][2]string{"request.0.url": {"ftp://x/", "must begin with"}, "key": {"no spaces", "job key"}, "schedule": {"0 0 25 * * *", "hour"},
		"timeout": {"long", "long"}, "retries": {"many", "whole number"}, "request.0.header": {"no name", "invalid header name"}, "rate": {"often", "number of seconds"},
		"request.0.env": {"a b", "invalid name"}} {
		form := url.Values{}
		for k, v := range good {
			form[k] = v
		}
		form.Set(field, wrong[0])
		answer, body = s.post("/new", form)
		s.has(field, answer, body, 422, wrong[1], "https://example.com/"[:8])
	}
	answer, _ = s.post("/new", good)
	if to := answer.Header.Get("Location"); to != "/jobs/app.ping?did=saved" {
		t.Fatalf("it leads to %q", to)
	}
	d, err := s.store.Definition(t.Context(), jobs.DefaultTenant, "app.ping")
	if err != nil || d.Kind != kernel.Recurring || d.Policy.Retries != 3 || d.Policy.Zone != "Europe/Berlin" {
		t.Fatalf("%+v, %v", d, err)
	}
	want := `{"request":[{"method":"POST","url":"https://example.com/?day=${$.day}","headers":{"Authorization":"Bearer ${secret:T}","X-A":"b"},"body":{"a":"${$.a}"}}]}`
	if got := string(d.Policy.HTTP); got != want {
		t.Errorf("it is to do %s, want %s", got, want)
	}
	answer, body = s.post("/new", good)
	s.has("a second time", answer, body, 409, "job app.ping already exists")

	good.Set("key", "app.pong")
	good.Set("do", "try")
	good.Set("request.1.url", "http://example.com/2")
	answer, _ = s.post("/new", good)
	if to := answer.Header.Get("Location"); !strings.HasPrefix(to, "/runs/") {
		t.Fatalf("a try leads to %q", to)
	}
	if d, err = s.store.Definition(t.Context(), jobs.DefaultTenant, "app.pong"); err != nil || !strings.Contains(string(d.Policy.HTTP), "/2") {
		t.Errorf("%s, %v", d.Policy.HTTP, err)
	}
}

// The page of an HTTP job shows what it calls, with places for values as they were written.
func TestWhatAnHTTPJobCalls(t *testing.T) {
	s := newScene(t)
	form := url.Values{"key": {"app.chain"}, "app": {"http"}, "timeout": {"90s"}, "retries": {"0"},
		"request.0.method": {"POST"}, "request.0.url": {"http://example.com/begin?day=${$.day}"}, "request.0.env": {"FIRST"}, "request.1.url": {"service://far/<b>"},
		"async": {"check"}, "check.url": {"http://example.com/${responses[0].id}"}, "rate": {"7"},
		"notification.0.method": {"PUT"}, "notification.0.url": {"http://example.com/done"}, "notification.0.state": {"finalFailed"}}
	if answer, body := s.post("/new", form); answer.StatusCode != 303 {
		t.Fatalf("%d %s", answer.StatusCode, body)
	}
	answer, body := s.get("/jobs/app.chain")
	s.has("the chain", answer, body, 200, "<h2>Requests</h2>", "request 1", "<code>POST http://example.com/begin?day=${$.day}</code>", "response stored as ${FIRST}",
		"request 2", "<code>GET service://far/&lt;b&gt;</code>", "check", "<code>GET http://example.com/${responses[0].id}</code>", "every 7 s", "<code>PUT http://example.com/done</code>", "for finalFailed")

	form = url.Values{"key": {"app.back"}, "app": {"http"}, "timeout": {"90s"}, "retries": {"0"}, "request.0.url": {"http://example.com/?to=${schedulingFeedbackUrl}"}, "async": {"feedback"}}
	if answer, body := s.post("/new", form); answer.StatusCode != 303 {
		t.Fatalf("%d %s", answer.StatusCode, body)
	}
	answer, body = s.get("/jobs/app.back")
	s.has("a call back", answer, body, 200, "feedback", "the service calls back")
	if answer, body = s.get("/jobs/billing.charge"); strings.Contains(body, "<h2>Requests</h2>") {
		t.Errorf("%d: a job of code calls something", answer.StatusCode)
	}
}

// A job that was made and could not be tried is not said not to have been made.
func TestNewHTTPJobThatIsNotTried(t *testing.T) {
	s := newScene(t)
	form := url.Values{"key": {"app.ping"}, "app": {"http"}, "request.0.method": {"GET"}, "request.0.url": {"https://example.com/"}, "timeout": {"90s"}, "retries": {"0"}, "do": {"try"}, "reason": {"to see it work"}}
	if answer, body := s.post("/new", form); answer.StatusCode != 303 {
		t.Fatalf("%d %s", answer.StatusCode, body)
	}
	audits, err := s.store.Audits(t.Context(), metastore.AuditQuery{Tenant: jobs.DefaultTenant, Limit: 1})
	if err != nil || len(audits) != 1 || audits[0].Reason != "to see it work" || !strings.HasPrefix(audits[0].Target, "run ") {
		t.Errorf("of the run is kept %+v (%v)", audits, err)
	}

	for code, says := range map[jobs.Code][]string{
		jobs.Conflict: {"The job was created, but not run: no worker", `action="/jobs/app.conflict/trigger"`, "!409:"},
		jobs.Unknown:  {"outcome unknown", "job app.outcome was created; whether its run started is unknown"},
	} {
		s.breaks(func(k kernel.Command) error {
			if _, ok := k.(kernel.Create); ok {
				return kernel.Refuse(code, "no worker")
			}
			return nil
		})
		key, _, _ := strings.Cut("app."+string(code), " ")
		form.Set("key", key)
		answer, body := s.post("/new", form)
		s.has(key, answer, body, map[jobs.Code]int{jobs.Conflict: 409, jobs.Unknown: 504}[code], says...)
		if _, err := s.store.Definition(t.Context(), jobs.DefaultTenant, jobs.Key(key)); err != nil {
			t.Error(err)
		}
	}
}
