package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/storetest"
	"github.com/carillon-scheduler/carillon/ops"
)

// Refused requests from transactions are listed, delivered again and discarded.
func TestRefusedRequests(t *testing.T) {
	d := newFixture(t)
	const path = "/api/v1/outbox/refused"
	type list struct{ Items []api.RefusedRequest }
	if none := d.send("GET", path, ""); none.StatusCode != 200 || strings.TrimSpace(string(none.body)) != `{"items":[]}` {
		t.Errorf("without a database: %d %s", none.StatusCode, none.body)
	}
	if p := d.send("POST", path+"/retry", `{"numbers":[1]}`); p.StatusCode != 409 || p.problem(t).Code != "conflict" {
		t.Errorf("a change without a database: %d %s", p.StatusCode, p.body)
	}

	at, run := time.Date(2026, 11, 27, 1, 2, 3, 0, time.UTC), jobs.NewID(time.Now())
	box := storetest.NewOutbox(metastore.RefusedRequest{At: at, Key: "billing.charge", Run: run, Actor: "client:shop", Reason: "there is no job"},
		metastore.RefusedRequest{At: at, Reason: "cannot be read", Unreadable: true}, metastore.RefusedRequest{Tenant: "other"})
	d.Handler = api.New(api.Config{Ops: ops.New(ops.Config{Store: d.store, Outbox: box})})
	all := read[list](t, d.send("GET", path, ""))
	if len(all.Items) != 2 || all.Items[0] != (api.RefusedRequest{Number: 2, At: at, Reason: "cannot be read", Unreadable: true}) ||
		all.Items[1] != (api.RefusedRequest{Number: 1, At: at, Job: "billing.charge", Run: run.String(), Actor: "client:shop", Reason: "there is no job"}) {
		t.Errorf("listed: %+v", all)
	}
	if one := read[list](t, d.send("GET", path+"?limit=1", "")); len(one.Items) != 1 {
		t.Errorf("a list of one: %+v", one)
	}
	for body, code := range map[string]string{`{}`: "invalid", `{"numbers":[]}`: "invalid", `{"numbers":["1"]}`: "invalid", `{"numbers":[3]}`: "not_found",
		`{"numbers":[1],"reason":"` + strings.Repeat("x", 1_025) + `"}`: "invalid", `{"numbers":[1` + strings.Repeat(",1", 1_000) + `]}`: "invalid"} {
		for _, verb := range []string{"/retry", "/discard"} {
			if p := d.send("POST", path+verb, body).problem(t); p.Code != code {
				t.Errorf("%s of %.60s: %+v, want %s", verb, body, p, code)
			}
		}
	}
	if done := read[api.ChangedRequests](t, d.send("POST", path+"/retry", `{"numbers":[1,3],"reason":"the job is back"}`)); done.Requests != 1 || len(box.Retried()) != 1 {
		t.Errorf("retried: %+v, %v", done, box.Retried())
	}
	if done := read[api.ChangedRequests](t, d.send("POST", path+"/discard", `{"numbers":[2]}`)); done.Requests != 1 || len(box.Retried()) != 1 {
		t.Errorf("discarded: %+v, %v", done, box.Retried())
	}
	if rest := read[list](t, d.send("GET", path, "")); len(rest.Items) != 0 {
		t.Errorf("left: %+v", rest)
	}
}
