package ui_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/storetest"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/ui"
)

// withOutbox shows an outbox, to a user of a role.
func (s *scene) withOutbox(box metastore.Outbox, role ops.Role) {
	s.Handler = ui.New(ui.Config{Ops: ops.New(ops.Config{Store: s.store, Logs: s.logs, Live: s.live, Outbox: box}),
		Who: func(*http.Request) (ops.Who, error) { return ops.Who{Actor: "person:ann", Role: role}, nil }})
}

// Refused requests are reported on the overview, and retried or discarded on their page.
func TestRefusedRequestsPage(t *testing.T) {
	s := newScene(t)
	s.withOutbox(nil, ops.Admin)
	answer, body := s.get("/outbox")
	s.has("without a database", answer, body, 200, "No refused requests.", "in its own transaction", "!<table", "!Retry selected")
	box := storetest.NewOutbox(
		metastore.RefusedRequest{At: time.Now(), Key: "app.gone", Run: jobs.NewID(time.Now()), Actor: "client:shop", Reason: "there is no job app.gone " + hostile},
		metastore.RefusedRequest{At: time.Now(), Reason: "the request cannot be read", Unreadable: true},
		metastore.RefusedRequest{At: time.Now(), Key: "app.work", Actor: hostile, Reason: "no"},
		metastore.RefusedRequest{At: time.Now(), Tenant: "other", Key: "app.foreign"})
	s.withOutbox(box, ops.Viewer)
	answer, body = s.get("/")
	s.has("the overview", answer, body, 200, `href="/outbox"`, "3 requests from transactions were refused")
	answer, body = s.get("/outbox")
	s.has("for a viewer", answer, body, 200, "app.gone", "client:shop", "unreadable", `href="/jobs?q=app.gone"`, "there is no job app.gone &#34;&gt;&lt;script&gt;", "!<script>alert", "!app.foreign", "!Retry selected", `!type="checkbox"`)
	checkTables(t, "/outbox", body)
	if strings.Index(body, "app.work") > strings.Index(body, "app.gone") {
		t.Error("the newest request is not the first")
	}
	answer, body = s.post("/outbox", url.Values{"number": {"1"}, "do": {"retry"}})
	s.has("a change by a viewer", answer, body, 403)

	s.withOutbox(box, ops.Operator)
	answer, body = s.get("/outbox")
	s.has("for an operator", answer, body, 200, `name="number" value="1"`, "Retry selected", "Discard selected", `aria-label="Select request 1 of app.gone"`)
	for _, form := range []url.Values{{"do": {"retry"}}, {"number": {"1"}, "do": {"burn"}}, {"number": {"one"}, "do": {"retry"}}} {
		answer, body = s.post("/outbox", form)
		s.has(form.Encode(), answer, body, 422)
	}
	answer, body = s.post("/outbox", url.Values{"number": {"4"}, "do": {"discard"}})
	s.has("of another tenant", answer, body, 404)
	answer, body = s.post("/outbox", url.Values{"number": {"1", "3", "9"}, "do": {"retry"}, "reason": {"the job is back"}})
	s.has("retried", answer, body, 303)
	answer, body = s.get(answer.Header.Get("Location"))
	s.has("the result of a retry", answer, body, 200, "2 requests are delivered again.", "!app.gone", "request 2")
	if got := box.Retried(); len(got) != 2 {
		t.Errorf("retried: %v", got)
	}
	answer, body = s.post("/outbox", url.Values{"number": {"2"}, "do": {"discard"}})
	s.has("discarded", answer, body, 303)
	answer, body = s.get(answer.Header.Get("Location"))
	s.has("the result of a discard", answer, body, 200, "1 request was discarded.", "No refused requests.")
	answer, body = s.get("/")
	s.has("the overview without any", answer, body, 200, "!from transactions")
}
