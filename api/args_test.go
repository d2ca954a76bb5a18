package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/argschema"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// newSchooled is a fixture whose job billing.charge has a schema, to which arguments are held.
func newSchooled(t *testing.T) *fixture {
	d := newFixture(t)
	j := jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error { return nil }), jobs.Options{Key: "billing.charge", Version: 2})
	declared, err := kernel.Declare(j)
	if err != nil {
		t.Fatal(err)
	}
	declared.Schema = []byte(`{"type":"object","required":["customer"],"additionalProperties":false,
		"properties":{"customer":{"type":"string"},"items":{"type":"array","items":{"type":"object","properties":{"price":{"type":"number"}}}}}}`)
	d.apply(kernel.Register{App: "billing", Worker: "w1", Start: true, Job: declared})
	d.Handler = api.New(api.Config{Ops: ops.New(ops.Config{Store: d.store})})
	return d
}

// Arguments that do not fit their job's schema are refused with their place, wherever they come in.
func TestArgumentsFitTheSchema(t *testing.T) {
	good := `{"customer":"c7","items":[{"price":1}]}`
	for _, c := range []struct{ name, method, path, body, location string }{
		{"a type", "POST", trigger, `{"args":{"customer":7}}`, "body.args.customer"},
		{"deep", "POST", trigger, `{"args":{"customer":"c7","items":[{},{"price":"much"}]}}`, "body.args.items[1].price"},
		{"missing", "POST", trigger, `{"args":{}}`, "body.args.customer"},
		{"misspelt", "POST", trigger, `{"args":{"customer":"c7","itmes":[]}}`, "body.args.itmes"},
		{"one of many", "POST", many, `{"items":[{"job":"billing.charge","args":` + good + `},{"job":"billing.charge","args":{"customer":null}}]}`, "body.items[1].args.customer"},
		{"default arguments", "PATCH", "/api/v1/jobs/billing.charge", `{"args":{"customer":1}}`, "body.args.customer"},
		{"run again", "POST", "", `{"args":{"customer":1}}`, "body.args.customer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newSchooled(t)
			if c.path == "" {
				run := read[api.Run](t, d.send("POST", trigger, `{"args":`+good+`}`))
				d.send("POST", many+"/"+run.ID+"/cancel", "")
				c.path = many + "/" + run.ID + "/retry"
			}
			before := d.snapshot()
			p := d.send(c.method, c.path, c.body).problem(t)
			if p.Status != 422 || p.Code != "invalid" || len(p.Errors) != 1 || p.Errors[0].Location != c.location || strings.Contains(fmt.Sprint(p), "jsonschema") {
				t.Errorf("%+v, want %s", p, c.location)
			}
			if after := d.snapshot(); after != before {
				t.Errorf("%s became %s", before, after)
			}
		})
	}
	d := newSchooled(t)
	for _, body := range []string{`{"args":` + good + `}`, `{}`} { // nothing said means the job's own
		if a := d.send("POST", trigger, body); a.StatusCode != 201 {
			t.Errorf("%s: %d %s", body, a.StatusCode, a.body)
		}
	}
}

func TestJobsAreFiltered(t *testing.T) {
	d := newFixture(t)
	d.send("POST", "/api/v1/jobs/billing.charge/pause", "")
	for query, want := range map[string]string{
		"": "billing.charge billing.close-day", "?kind=triggered": "billing.charge", "?kind=recurring": "billing.close-day",
		"?paused=true": "billing.charge", "?paused=false": "billing.close-day", "?kind=recurring&paused=true": "", "?app=billing&q=CLOSE": "billing.close-day",
		"?limit=1&paused=false": "billing.close-day", "?app=other": "",
		// Row 26: what is searched for is taken as it stands.
		"?q=%25": "", "?q=_": "", "?q=%5C": "", "?q=%27%20OR%201=1--": "", "?q=.": "billing.charge billing.close-day",
	} {
		var keys []string
		for _, j := range read[struct{ Items []api.Job }](t, d.send("GET", "/api/v1/jobs"+query, "")).Items {
			keys = append(keys, string(j.Key))
		}
		if got := strings.Join(keys, " "); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

func TestRunsAreFiltered(t *testing.T) {
	d := newFixture(t)
	first := read[api.Run](t, d.send("POST", trigger, `{}`))
	d.send("POST", many+"/"+first.ID+"/cancel", "")
	again := read[api.Run](t, d.send("POST", many+"/"+first.ID+"/retry", ""))
	code := d.apply(kernel.Create{ID: jobs.NewID(time.Now()), Key: "billing.charge"}).Run()
	d.apply(kernel.Start{ID: code.ID, Worker: "w1", Attempt: 1})
	between := url.QueryEscape(first.Created.Add(-time.Second).Format(time.RFC3339Nano))
	after := url.QueryEscape(code.Created.Add(time.Second).Format(time.RFC3339Nano))
	for query, want := range map[string]string{
		"origin=api": first.ID, "origin=person": "", "origin=code": code.ID.String(), "origin=cron": "", "worker=w1": code.ID.String(), "worker=w2": "",
		"parent=" + first.ID: again.ID, "state=Cancelled": first.ID, "state=Processing": code.ID.String(), "from=" + after: "", "to=" + between: "",
		"origin=retry&from=" + between + "&to=" + after: again.ID, "job=billing.close-day": "",
		"worker=%27%20OR%201=1--": "", "worker=%25": "", "worker=_1": "", "code=%27%20OR%201=1--": "",
	} {
		var ids []string
		for _, in := range read[struct{ Items []api.Run }](t, d.send("GET", many+"?"+query, "")).Items {
			ids = append(ids, in.ID)
		}
		if got := strings.Join(ids, " "); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

// Runs are found by the arguments that their jobs declare as searchable, live and finished ones, on several pages; an
// argument that no job declares is refused, as an empty list would be misread.
func TestRunsAreFoundByArgument(t *testing.T) {
	d := newFixture(t)
	type charge struct {
		Customer string `json:"customer" carillon:"search"`
		Cents    int    `json:"cents"`
	}
	schema, err := argschema.Describe(reflect.TypeFor[charge]())
	if err != nil {
		t.Fatal(err)
	}
	d.apply(kernel.Register{App: "billing", Worker: "w", Start: true, Job: kernel.Declaration{Key: "billing.refund", Kind: kernel.Triggered, Schema: schema}})
	d.send("POST", trigger, `{"args":{"customer":"c7"}}`) // of a job that does not declare it
	ids := map[string][]string{}
	for i := range 6 {
		customer := []string{"c7", "c8"}[i%2]
		run := d.apply(kernel.Create{ID: jobs.NewID(time.Now()), Key: "billing.refund", Args: []byte(`{"customer":"` + customer + `","cents":5}`)}).Run()
		if i < 2 {
			d.apply(kernel.Cancel{ID: run.ID})
		}
		ids[customer] = append(ids[customer], run.ID.String())
	}
	for query, want := range map[string][]string{
		"arg=args.customer=c7": ids["c7"], "arg=customer%20=%20c8&job=billing.refund": ids["c8"], "arg=customer=c7&state=Cancelled": ids["c7"][:1],
		"arg=customer=c7&limit=1": ids["c7"], "arg=customer=c7&arg=customer=c8": nil, "arg=customer=c": nil, "arg=customer=c7&match=billing.*": ids["c7"],
	} {
		var got []string
		for next := "&"; next != ""; {
			list := read[struct {
				Items []api.Run
				Next  string
			}](t, d.send("GET", many+"?"+query+next, ""))
			for _, run := range list.Items {
				got = append(got, run.ID)
			}
			if next = ""; list.Next != "" {
				next = "&cursor=" + list.Next
			}
		}
		slices.Sort(got)
		if want = slices.Sorted(slices.Values(want)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	page := read[struct{ Next string }](t, d.send("GET", many+"?arg=customer=c7&limit=1", ""))
	if p := d.send("GET", many+"?arg=customer=c8&limit=1&cursor="+page.Next, "").problem(t); p.Code != "bad_cursor" {
		t.Errorf("the cursor of another argument: %+v", p)
	}
	for query, says := range map[string]string{"arg=cents=5": "declares args.cents as searchable", "arg=customer=c7&job=billing.charge": "declares args.customer", "arg=customer": "want args.customer = c7"} {
		if p := d.send("GET", many+"?"+query, "").problem(t); p.Status != 422 && p.Status != 400 || !strings.Contains(p.Detail, says) {
			t.Errorf("%s: %+v", query, p)
		}
	}
	if m := read[api.Many](t, d.send("POST", "/api/v1/bulk/runs/cancel", `{"filter":{"args":["customer=c8"]}}`)); m.Matched != 2 {
		t.Errorf("cancelled by argument: %+v", m)
	}
}

// A triggered job is paused and resumed, and what was held back is named.
func TestResumeSaysWhatItLetsGo(t *testing.T) {
	for body, want := range map[string][2]int{"": {3, 0}, `{"held":"release"}`: {3, 0}, `{"held":"discard"}`: {0, 3}} {
		d := newFixture(t)
		d.send("POST", "/api/v1/jobs/billing.charge/pause", `{"reason":"stocktaking"}`)
		for range 3 {
			d.apply(kernel.Create{ID: jobs.NewID(time.Now()), Key: "billing.charge"})
		}
		if j := read[api.ResumedJob](t, d.send("POST", "/api/v1/jobs/billing.charge/resume", body)); j.Released != want[0] || j.Discarded != want[1] || j.Paused != nil {
			t.Errorf("%s: %+v", body, j)
		}
	}
}

func TestDeleteJob(t *testing.T) {
	d := newFixture(t)
	run := read[api.Run](t, d.send("POST", trigger, `{}`))
	if p := d.send("DELETE", "/api/v1/jobs/billing.charge", "").problem(t); p.Status != 409 || !strings.Contains(p.Detail, "1 live run") {
		t.Errorf("without a word: %+v", p)
	}
	etag := d.send("GET", "/api/v1/jobs/billing.charge", "").Header.Get("ETag")
	if done := read[api.DeletedJob](t, d.send("DELETE", "/api/v1/jobs/billing.charge?runs=cancel", "", "If-Match", etag)); done.Cancelled != 1 {
		t.Errorf("%+v", done)
	}
	if a := d.send("GET", "/api/v1/jobs/billing.charge", ""); a.StatusCode != 404 {
		t.Errorf("the job is there: %d", a.StatusCode)
	}
	if in := read[api.Run](t, d.send("GET", many+"/"+run.ID, "")); in.State != "Cancelled" {
		t.Errorf("its run is %s", in.State)
	}
}

// Rows 46 and 64: a client that exceeds a rate limit gets Retry-After.
func TestTooOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		statuses := map[int]int{}
		var last answer
		for i := range 150 {
			last = d.send("PATCH", edit, fmt.Sprintf(`{"retries":%d}`, i))
			statuses[last.StatusCode]++
		}
		if p := last.problem(t); statuses[200] != 100 || statuses[429] != 50 || p.Code != "too_many" || last.Header.Get("Retry-After") != "1" {
			t.Errorf("edits: %v %+v", statuses, p)
		}
		for _, other := range [][2]string{{"POST", edit + "/pause"}, {"POST", edit + "/resume"}, {"DELETE", edit}} {
			if a := d.send(other[0], other[1], ""); a.StatusCode != 429 {
				t.Errorf("%s: %d", other, a.StatusCode)
			}
		}
		if job := read[api.Job](t, d.send("GET", edit, "")); *job.Retries != 99 {
			t.Errorf("it has %d retries", *job.Retries)
		}
		if a := d.send("PATCH", "/api/v1/jobs/billing.charge", `{"retries":1}`); a.StatusCode != 200 {
			t.Errorf("another job: %d", a.StatusCode)
		}
		clear(statuses)
		for range 5_000 {
			last = d.send("GET", "/api/v1/whoami", "")
			statuses[last.StatusCode]++
		}
		if statuses[200]+155 != 4_000 || last.problem(t).Status != 429 {
			t.Errorf("requests: %v", statuses)
		}
		if err := d.api.Admit(ops.Who{Actor: "person:api", Role: ops.Admin}); !errors.Is(err, jobs.Exhausted) {
			t.Errorf("the pages of the same person: %v", err)
		}
		time.Sleep(time.Second)
		if a := d.send("GET", "/api/v1/whoami", ""); a.StatusCode != 200 {
			t.Errorf("a second later: %d", a.StatusCode)
		}
	})
}

// The page that describes the API needs nothing from elsewhere and no script, and names everything once.
func TestReference(t *testing.T) {
	d := newFixture(t)
	a := d.send("GET", "/docs", "")
	page := string(a.body)
	if kind, policy := a.Header.Get("Content-Type"), a.Header.Get("Content-Security-Policy"); kind != "text/html; charset=utf-8" ||
		!strings.HasPrefix(policy, "default-src 'none'; style-src 'self'") || !strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("%s, %s", kind, policy)
	}
	for _, foreign := range []string{"<script", "http:", "https:", " style=", "ZgotmplZ", "&lt;no value", "%!"} {
		if strings.Contains(page, foreign) {
			t.Errorf("it has %q", foreign)
		}
	}
	var document struct {
		Paths      map[string]map[string]struct{ OperationID string }
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal(d.send("GET", "/openapi.json", "").body, &document); err != nil {
		t.Fatal(err)
	}
	names := 0
	for _, methods := range document.Paths {
		for _, op := range methods {
			names++
			if strings.Count(page, `id="`+op.OperationID+`"`) != 1 {
				t.Errorf("%s is not there once", op.OperationID)
			}
		}
	}
	for name := range document.Components.Schemas {
		names++
		if strings.Count(page, `id="`+name+`"`) != 1 {
			t.Errorf("%s is not there once", name)
		}
	}
	if names < 40 || strings.Contains(page, `href="#"`) {
		t.Errorf("%d names", names)
	}
	for link := range strings.SplitSeq(page, `href="#`) {
		if name, _, _ := strings.Cut(link, `"`); !strings.HasPrefix(link, "<!doctype") && !strings.Contains(page, `id="`+name+`"`) {
			t.Errorf("a link to %s leads nowhere", name)
		}
	}
}
