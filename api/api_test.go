package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/ops"
)

// fixture is an API over a store with two jobs, and what is needed to look behind it.
type fixture struct {
	t     *testing.T
	store metastore.Full
	log   strings.Builder
	api   *api.API
	http.Handler
}

func newFixture(t *testing.T) *fixture {
	d := newStore(t)
	log := slog.New(slog.NewTextHandler(&d.log, nil))
	d.api = api.New(api.Config{Ops: ops.New(ops.Config{Store: d.store, ForecastWork: time.Minute}), Logger: log})
	d.Handler = api.Guard(log, "", d.api)
	return d
}

// newStore is a fixture whose API is still to be made, which takes longer than anything else in it.
func newStore(t *testing.T) *fixture { return newStoreAt(t, time.Now) }

func newStoreAt(t *testing.T, now func() time.Time) *fixture {
	d := &fixture{t: t, store: &metastore.Local{Engine: memstore.New(memstore.Config{}), Now: now}}
	for _, j := range []jobs.Job{
		jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error { return nil }), jobs.Options{Key: "billing.charge"}),
		jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return nil }), jobs.Options{Key: "billing.close-day", Cron: "0 30 2 * * *"}),
	} {
		declared, err := kernel.Declare(j)
		if err != nil {
			t.Fatal(err)
		}
		d.apply(kernel.Register{App: "billing", Worker: "w1", Start: true, Job: declared})
	}
	return d
}

func (d *fixture) apply(k kernel.Command) kernel.Effect {
	d.t.Helper()
	r := d.store.Apply(d.t.Context(), []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "test", Command: k}})[0]
	if r.Err != nil {
		d.t.Fatal(r.Err)
	}
	return r.Effect
}

// release does what the leader does about runs that nothing holds any more.
func (d *fixture) release() {
	d.t.Helper()
	due, _, err := d.store.Waking(d.t.Context(), time.Now(), 100)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, run := range due {
		d.apply(kernel.Release{ID: run.ID})
	}
}

// answer is what came back.
type answer struct {
	*http.Response
	body []byte
}

func (a answer) problem(t *testing.T) api.Problem {
	t.Helper()
	var p api.Problem
	if err := json.Unmarshal(a.body, &p); err != nil || a.Header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("%d %s is no problem: %.200s", a.StatusCode, a.Header.Get("Content-Type"), a.body)
	}
	return p
}

func (d *fixture) send(method, path, body string, headers ...string) answer {
	d.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("If-Match", "*") // whatever it is like, unless the test says otherwise
	for i := 0; i+1 < len(headers); i += 2 {
		if r.Header.Set(headers[i], headers[i+1]); headers[i+1] == "" {
			r.Header.Del(headers[i])
		}
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	response := w.Result()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return answer{response, b}
}

// snapshot is all that could have changed.
func (d *fixture) snapshot() string {
	d.t.Helper()
	ctx := context.Background()
	state, err := d.store.State(ctx)
	if err != nil {
		d.t.Fatal(err)
	}
	counts, err := d.store.Counts(ctx, metastore.CountQuery{Tenant: jobs.DefaultTenant})
	if err != nil {
		d.t.Fatal(err)
	}
	page, err := d.store.Runs(ctx, metastore.RunQuery{Tenant: jobs.DefaultTenant, Limit: metastore.MaxPage})
	if err != nil {
		d.t.Fatal(err)
	}
	return fmt.Sprint(state.Changes, counts.Live, len(page.Runs))
}

func read[T any](t *testing.T, a answer) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(a.body, &v); err != nil || a.StatusCode >= 300 {
		t.Fatalf("%d: %v: %.500s", a.StatusCode, err, a.body)
	}
	return v
}

func TestJobs(t *testing.T) {
	d := newFixture(t)
	type list struct {
		Items []api.Job
		Next  string
	}
	all := read[list](t, d.send("GET", "/api/v1/jobs", ""))
	if len(all.Items) != 2 || all.Items[0].Key != "billing.charge" || len(all.Items[1].Next) != 1 || all.Items[1].Words == "" {
		t.Fatalf("jobs are %+v", all)
	}
	first := read[list](t, d.send("GET", "/api/v1/jobs?limit=1", ""))
	if len(first.Items) != 1 || first.Next != "billing.charge" {
		t.Fatalf("the first page is %+v", first)
	}
	if rest := read[list](t, d.send("GET", "/api/v1/jobs?limit=1&after="+first.Next, "")); len(rest.Items) != 1 || rest.Next != "" {
		t.Fatalf("the second page is %+v", rest)
	}
	got := d.send("GET", "/api/v1/jobs/billing.close-day", "")
	etag := got.Header.Get("ETag")
	job := read[api.Job](t, got)
	if etag != `"1"` || job.Kind != "recurring" || *job.Zone != "" || len(job.Next) != 5 {
		t.Fatalf("job %s: %+v", etag, job)
	}
	edited := read[api.Job](t, d.send("PATCH", "/api/v1/jobs/billing.close-day", `{"schedule":"@every 90s","timeout":"1h30m"}`, "If-Match", etag))
	if *edited.Schedule != "@every 90s" || time.Duration(*edited.Timeout) != 90*time.Minute || fmt.Sprint(edited.Edited) != "[schedule timeout]" {
		t.Fatalf("edited: %+v", edited)
	}
	if p := d.send("PATCH", "/api/v1/jobs/billing.close-day", `{"retries":1}`, "If-Match", etag).problem(t); p.Status != 412 || p.Code != "stale" {
		t.Fatalf("an edit of an old revision: %+v", p)
	}
	cleared := read[api.Job](t, d.send("PATCH", "/api/v1/jobs/billing.close-day", `{"clear":["schedule"]}`))
	if *cleared.Schedule != "0 30 2 * * *" {
		t.Fatalf("cleared: %+v", cleared)
	}
	paused := read[api.Job](t, d.send("POST", "/api/v1/jobs/billing.close-day/pause", `{"reason":"stocktaking"}`))
	if paused.Paused == nil || paused.Paused.Reason != "stocktaking" || paused.Silent != "paused" {
		t.Fatalf("paused: %+v", paused)
	}
	if resumed := read[api.Job](t, d.send("POST", "/api/v1/jobs/billing.close-day/resume", "")); resumed.Paused != nil {
		t.Fatalf("resumed: %+v", resumed)
	}
	type next struct {
		Words string
		Next  []time.Time
	}
	if n := read[next](t, d.send("GET", "/api/v1/jobs/billing.close-day/next?n=3&schedule=0+0+*+*+*&zone=Europe/Berlin", "")); len(n.Next) != 3 || n.Words == "" {
		t.Fatalf("next: %+v", n)
	}
	if n := read[next](t, d.send("GET", "/api/v1/jobs/billing.close-day/next?n=3&schedule=@every+1h&first=2099-01-01T00:30:00Z&ttl=1h", "")); len(n.Next) > 2 ||
		len(n.Next) > 0 && n.Next[0].Year() != 2099 {
		t.Errorf("an interval from 2099 on: %v", n.Next)
	}
	if r := d.send("GET", "/api/v1/jobs/billing.close-day/next?calendars=none-of-this-name", ""); !strings.Contains(string(r.body), "there is no calendar") {
		t.Errorf("an unknown calendar in a preview: %s", r.body)
	}
}

func TestRuns(t *testing.T) {
	d := newFixture(t)
	run := read[api.Run](t, d.send("POST", "/api/v1/jobs/billing.charge/trigger", `{"args":{"customer":"c7"},"delay":"30m"}`, "Idempotency-Key", "k1"))
	if run.State != "Scheduled" || run.Origin != "api" || string(*run.Args) != `{"customer":"c7"}` {
		t.Fatalf("triggered: %+v", run)
	}
	again := read[api.Run](t, d.send("POST", "/api/v1/jobs/billing.charge/trigger", `{"args":{"customer":"c7"},"delay":"30m"}`, "Idempotency-Key", "k1"))
	if again.ID != run.ID || !again.Duplicate {
		t.Fatalf("sent again: %+v", again)
	}
	if p := d.send("POST", "/api/v1/runs/"+run.ID+"/retry", "").problem(t); p.Code != "conflict" {
		t.Fatalf("a run that has not ended is run again: %+v", p)
	}
	cancelled := read[api.Run](t, d.send("POST", "/api/v1/runs/"+run.ID+"/cancel", `{"reason":"not needed"}`))
	if cancelled.State != "Cancelled" || cancelled.Moves[1].Text != "not needed" {
		t.Fatalf("cancelled: %+v", cancelled)
	}
	if twice := read[api.Run](t, d.send("POST", "/api/v1/runs/"+run.ID+"/cancel", "")); twice.State != "Cancelled" {
		t.Fatalf("cancelled twice: %+v", twice)
	}
	if late := read[api.Run](t, d.send("POST", "/api/v1/jobs/billing.charge/trigger", `{"args":{"customer":"c7"},"delay":"30m"}`, "Idempotency-Key", "k1")); late.ID != run.ID || late.State != "Cancelled" {
		t.Fatalf("sent again after its end: %+v", late)
	}
	retried := read[api.Run](t, d.send("POST", "/api/v1/runs/"+run.ID+"/retry", ""))
	if retried.Parent != run.ID || retried.Origin != "retry" || string(*retried.Args) != `{"customer":"c7"}` {
		t.Fatalf("run again: %+v", retried)
	}
	type list struct {
		Items []api.Run
		Next  string
	}
	if made := read[list](t, d.send("POST", "/api/v1/runs", `{"items":[{"job":"billing.charge"},{"job":"billing.close-day","priority":7}]}`)); len(made.Items) != 2 || made.Items[1].Priority != 7 {
		t.Fatalf("many: %+v", made)
	}
	if some := read[list](t, d.send("GET", "/api/v1/runs?job=billing.charge&limit=2", "")); len(some.Items) != 2 || some.Next == "" {
		t.Fatalf("listed: %+v", some)
	}
	if lines := read[list](t, d.send("GET", "/api/v1/runs/"+run.ID+"/log", "")); lines.Items == nil {
		t.Fatal("no log is not an empty list")
	}
	if p := d.send("GET", "/api/v1/runs/"+jobs.NewID(time.Now()).String(), "").problem(t); p.Status != 404 || p.Code != "not_found" {
		t.Fatalf("an unknown run: %+v", p)
	}
	if p := d.send("GET", "/api/v1/runs/00000000-0000-0000-0000-000000000000", "").problem(t); p.Status != 404 || p.Detail != "there is no run with the zero ID" {
		t.Fatalf("the zero ID: %+v", p)
	}
}

func TestDebugModeNamesWhatItHolds(t *testing.T) {
	d := newFixture(t)
	if s := read[api.Settings](t, d.send("PATCH", "/api/v1/settings", `{"appLimits":[{"name":"billing","max":20,"rate":"100/s"}],"retryBudget":"50/s"}`)); len(s.AppLimits) != 1 || s.AppLimits[0].Max != 20 ||
		jobs.Rate(*s.AppLimits[0].Rate) != (jobs.Rate{Max: 100, Per: time.Second}) || jobs.Rate(s.RetryBudget) != (jobs.Rate{Max: 50, Per: time.Second}) {
		t.Errorf("limits are %+v, and the budget is %+v", s.AppLimits, s.RetryBudget)
	}
	d.send("PATCH", "/api/v1/settings", `{"appLimits":[{"name":"billing","max":1,"by":"args.a"}]}`).problem(t)
	settings := read[api.Settings](t, d.send("PATCH", "/api/v1/settings", `{"triggeredDebug":true}`))
	if !settings.Triggered.On || settings.Triggered.By != "person:api" {
		t.Fatalf("settings: %+v", settings)
	}
	var held []jobs.ID
	for range 3 {
		id := jobs.NewID(time.Now())
		d.apply(kernel.Create{ID: id, Key: "billing.charge"})
		held = append(held, id)
	}
	p := d.send("PATCH", "/api/v1/settings", `{"triggeredDebug":false}`).problem(t)
	if p.Status != 409 || !strings.Contains(p.Detail, "3 runs") {
		t.Fatalf("switched off without a word: %+v", p)
	}
	if s := read[api.Settings](t, d.send("PATCH", "/api/v1/settings", `{"triggeredDebug":false,"held":"release"}`)); s.Released != 3 || s.Triggered.On {
		t.Fatalf("released: %+v", s)
	}
	d.release()
	for _, id := range held {
		if in := read[api.Run](t, d.send("GET", "/api/v1/runs/"+id.String(), "")); in.State != "Enqueued" {
			t.Errorf("a released run is %s", in.State)
		}
	}
}

// Statistics count finished runs by day, of one job and of all; without days, of a week.
func TestStats(t *testing.T) {
	d := newFixture(t)
	for range 3 {
		run := read[api.Run](t, d.send("POST", "/api/v1/jobs/billing.charge/trigger", ""))
		d.send("POST", "/api/v1/runs/"+run.ID+"/cancel", "")
	}
	for path, want := range map[string][2]int64{"/jobs/billing.charge/stats": {3, 7}, "/jobs/billing.close-day/stats?days=2": {0, 2}, "/stats": {3, 7}, "/stats?days=35": {3, 35}} {
		s := read[api.Stats](t, d.send("GET", "/api/v1"+path, ""))
		var days, hours int64
		for _, d := range s.Days {
			days += d.Runs["Cancelled"]
		}
		for _, h := range s.Hours {
			hours += h.Runs
		}
		if int64(len(s.Days)) != want[1] || s.Total["Cancelled"] != want[0] || days != want[0] || hours != want[0] {
			t.Errorf("%s: %+v", path, s)
		}
	}
	for path, want := range map[string]int64{"/stats": 3, "/stats?app=billing": 3, "/stats?app=none": 0, "/jobs/billing.charge/stats": 3, "/jobs/billing.close-day/stats": 0} {
		s := read[api.Stats](t, d.send("GET", "/api/v1"+path, ""))
		for i, period := range []string{"24h", "7d", "30d"} {
			if p := s.Periods[i]; p.Period != period || p.Runs != want || p.States["Cancelled"] != want || p.Mean != 0 || p.Failed != 0 {
				t.Errorf("%s: %+v", path, p)
			}
		}
	}
	for path, status := range map[string]int{"/stats?days=0": 422, "/stats?days=36": 422, "/jobs/absent/stats": 404} {
		if p := d.send("GET", "/api/v1"+path, "").problem(t); p.Status != status {
			t.Errorf("%s: %+v", path, p)
		}
	}
}

func TestOverviewAndHealth(t *testing.T) {
	d := newFixture(t)
	d.send("POST", "/api/v1/jobs/billing.charge/trigger", "")
	if o := read[api.Overview](t, d.send("GET", "/api/v1/overview", "")); o.Runs["Enqueued"] != 1 || len(o.Hours) != 1 {
		t.Fatalf("overview: %+v", o)
	}
	if a := d.send("GET", "/livez", ""); a.StatusCode != 200 {
		t.Errorf("livez: %d", a.StatusCode)
	}
	if p := d.send("GET", "/readyz", "").problem(t); p.Status != 503 || p.Code != "not_ready" {
		t.Errorf("ready without a leader: %+v", p)
	}
	if p := d.send("GET", "/leaderz", "").problem(t); p.Status != 503 || p.Code != "not_ready" {
		t.Errorf("leads without a leader: %+v", p)
	}
}
