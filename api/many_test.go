package api_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// apps declares jobs of two more apps, and returns the fixture.
func apps(t *testing.T) *fixture {
	d := newFixture(t)
	for _, k := range []struct {
		app string
		key jobs.Key
	}{{"mail", "mail.send"}, {"mail", "mail.sort"}, {"shop", "shop.pack"}} {
		job := jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error { return nil }), jobs.Options{Key: k.key, Tags: []string{"post", k.app}})
		declared, err := kernel.Declare(job)
		if err != nil {
			t.Fatal(err)
		}
		d.apply(kernel.Register{App: k.app, Worker: "w1", Start: true, Job: declared})
	}
	return d
}

func TestJobsAndRunsByFilter(t *testing.T) {
	d := apps(t)
	for _, key := range []string{"mail.send", "mail.sort", "mail.sort", "shop.pack"} {
		d.apply(kernel.Create{ID: jobs.NewID(time.Now()), Key: jobs.Key(key)})
	}
	for query, want := range map[string]string{
		"app=mail":            "mail.send mail.sort",
		"tag=shop":            "shop.pack",
		"match=*.s*":          "mail.send mail.sort",
		"app=mail&match=*.p*": "",
		"tag=post&q=pack":     "shop.pack",
	} {
		list := read[struct{ Items []api.Job }](t, d.send("GET", "/api/v1/jobs?"+query, ""))
		var keys []string
		for _, j := range list.Items {
			keys = append(keys, string(j.Key))
		}
		if got := strings.Join(keys, " "); got != want {
			t.Errorf("jobs?%s: %s, want %s", query, got, want)
		}
	}
	for query, want := range map[string]int{"app=mail": 3, "tag=post": 4, "tag=shop": 1, "tag=nothing": 0, "match=*.sort": 2, "app=mail&tag=shop": 0, "app=shop&state=Enqueued": 1} {
		if list := read[struct{ Items []api.Run }](t, d.send("GET", "/api/v1/runs?"+query, "")); len(list.Items) != want {
			t.Errorf("runs?%s: %d, want %d", query, len(list.Items), want)
		}
	}
	// A cursor is of one filter.
	page := read[struct{ Next string }](t, d.send("GET", "/api/v1/runs?tag=post&limit=2", ""))
	for query, want := range map[string]int{"tag=post": 200, "tag=mail": 400, "app=mail": 400, "match=m*": 400} {
		if got := d.send("GET", "/api/v1/runs?limit=2&"+query+"&cursor="+url.QueryEscape(page.Next), "").StatusCode; got != want {
			t.Errorf("the cursor of another list with %s: %d, want %d", query, got, want)
		}
	}
	if got := read[struct{ Items []api.App }](t, d.send("GET", "/api/v1/apps", "")).Items; len(got) != 3 || got[1] != (api.App{Name: "mail", Jobs: 2}) {
		t.Errorf("apps: %+v", got)
	}
}

func TestManyJobs(t *testing.T) {
	d := apps(t)
	many := func(action, body string) api.Many {
		t.Helper()
		return read[api.Many](t, d.send("POST", "/api/v1/bulk/jobs/"+action, body))
	}
	paused := func() (keys []jobs.Key) {
		for _, j := range read[struct{ Items []api.Job }](t, d.send("GET", "/api/v1/jobs?paused=true", "")).Items {
			keys = append(keys, j.Key)
		}
		return keys
	}
	if m := many("pause", `{"filter":{"app":"mail"},"dryRun":true}`); m.Matched != 2 || m.Done != 0 || !m.DryRun || fmt.Sprint(m.Names) != "[mail.send mail.sort]" || paused() != nil {
		t.Errorf("a dry run: %+v; paused are %v", m, paused())
	}
	if m := many("pause", `{"filter":{"app":"mail"},"until":"2030-01-01T00:00:00Z"}`); m.Done != 2 || fmt.Sprint(paused()) != "[mail.send mail.sort]" {
		t.Errorf("%+v; paused are %v", m, paused())
	}
	// A program's runs are held, and the resumption discards them.
	if m := many("trigger", `{"filter":{"match":"mail.*"}}`); m.Done != 2 {
		t.Errorf("%+v", m)
	}
	held := d.send("GET", "/api/v1/runs?app=mail&state=Scheduled", "")
	if n := strings.Count(string(held.body), `"cause":"paused"`); n != 2 {
		t.Errorf("%d runs are held: %s", n, held.body)
	}
	if m := many("resume", `{"filter":{"tag":"post"},"held":"discard","missed":"once"}`); m.Done != 3 || paused() != nil {
		t.Errorf("%+v; paused are %v", m, paused())
	}
	d.release()
	if n := strings.Count(string(d.send("GET", "/api/v1/runs?app=mail&state=Cancelled", "").body), `"Cancelled"`); n != 2 {
		t.Errorf("%d held runs were discarded", n)
	}
	// The same request again creates no second run.
	for range 2 {
		d.send("POST", "/api/v1/bulk/jobs/trigger", `{"filter":{"app":"mail"},"manual":true}`, "Idempotency-Key", "once")
	}
	if n := len(read[struct{ Items []api.Run }](t, d.send("GET", "/api/v1/runs?app=mail&state=Enqueued", "")).Items); n != 2 {
		t.Errorf("%d runs of two requests with one key, want 2", n)
	}
	// Jobs with live runs are not deleted unless the request says what happens to these.
	m := many("delete", `{"filter":{"match":"*.*","kind":"triggered","tag":"post"}}`)
	if m.Matched != 3 || m.Done != 1 || m.Refused != 2 || len(m.Refusals) != 2 || m.Refusals[0].Name != "mail.send" || m.Refusals[0].Code != "conflict" {
		t.Errorf("%+v", m)
	}
	if m := many("delete", `{"filter":{"tag":"post"},"runs":"cancel"}`); m.Done != 2 {
		t.Errorf("%+v", m)
	}
	for body, status := range map[string]int{`{"filter":{}}`: 422, `{"filter":{"match":"["}}`: 422, `{"filter":{"state":"x"}}`: 422, `{}`: 422} {
		if got := d.send("POST", "/api/v1/bulk/jobs/pause", body).StatusCode; got != status {
			t.Errorf("%s: %d, want %d", body, got, status)
		}
	}
}

// Runs are handled in parts; what programs enqueue meanwhile is not. The audit has few lines for many runs.
func TestManyRuns(t *testing.T) {
	d := apps(t)
	const all = 10_300
	for range all / 100 {
		var items []string
		for i := range 100 {
			items = append(items, fmt.Sprintf(`{"job":"mail.%s","manual":true}`, [...]string{"send", "sort"}[i%2]))
		}
		d.send("POST", "/api/v1/runs", `{"items":[`+strings.Join(items, ",")+`]}`)
	}
	d.apply(kernel.Create{ID: jobs.NewID(time.Now()), Key: "shop.pack"})
	many := func(action, filter, cursor string, more ...string) api.Many {
		t.Helper()
		return read[api.Many](t, d.send("POST", "/api/v1/bulk/runs/"+action, fmt.Sprintf(`{"filter":%s,"cursor":%q,"dryRun":%v}`, filter, cursor, len(more) > 0 && more[0] == "dry"), "Idempotency-Key", "k"))
	}
	if m := many("cancel", `{"app":"mail"}`, "", "dry"); m.Matched != 10_000 || m.Done != 0 || m.Next == "" || len(m.Names) != 20 {
		t.Errorf("a dry run: %d matched, %d done, %d names", m.Matched, m.Done, len(m.Names))
	}
	first := many("cancel", `{"app":"mail"}`, "")
	rest := many("cancel", `{"app":"mail"}`, first.Next)
	if first.Done != 10_000 || rest.Done != all-10_000 || rest.Next != "" {
		t.Errorf("cancelled %d and %d of %d", first.Done, rest.Done, all)
	}
	if n := len(read[struct{ Items []api.Run }](t, d.send("GET", "/api/v1/runs?state=Enqueued", "")).Items); n != 1 {
		t.Errorf("%d runs are left, want that of the other app", n)
	}
	audits := read[struct{ Items []struct{ Verb string } }](t, d.send("GET", "/api/v1/audit?limit=200", ""))
	cancels := 0
	for _, line := range audits.Items {
		if line.Verb == "cancel" {
			cancels++
		}
	}
	if cancels == 0 || cancels > 50 {
		t.Errorf("%d lines of the audit for %d runs", cancels, all)
	}
	// Finished runs run again, once for a key; new ones are not followed.
	first = many("retry", `{"match":"mail.send","state":"Cancelled"}`, "")
	if first.Done != all/2 || first.Next != "" {
		t.Errorf("%d of %d run again, next %q", first.Done, all/2, first.Next)
	}
	many("retry", `{"match":"mail.send","state":"Cancelled"}`, "")
	if m := many("cancel", `{"match":"mail.*"}`, "", "dry"); m.Matched != all/2 {
		t.Errorf("%d new runs, want %d", m.Matched, all/2)
	}
	if m := many("retry", `{"app":"mail"}`, ""); m.Matched != 0 {
		t.Errorf("without a state, %d runs match: want the Terminated ones", m.Matched)
	}
	for body, part := range map[string]string{
		`{"filter":{"state":"Succeeded"}}`:                        "only live runs",
		`{"filter":{}}`:                                           "the filter is empty",
		`{"filter":{"app":"mail"},"cursor":"x"}`:                  "the cursor is not of this list",
		`{"filter":{"app":"mail"},"cursor":"` + rest.Next + `9"}`: "the cursor is not of this list",
	} {
		if got := d.send("POST", "/api/v1/bulk/runs/cancel", body); got.StatusCode < 400 || !strings.Contains(string(got.body), part) {
			t.Errorf("%s: %d %s", body, got.StatusCode, got.body)
		}
	}
	if got := d.send("POST", "/api/v1/bulk/runs/retry", `{"filter":{"state":"Enqueued"}}`); !strings.Contains(string(got.body), "only finished runs") {
		t.Errorf("retry live runs: %s", got.body)
	}
}
