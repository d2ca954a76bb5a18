package ui_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/metastore/storetest"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/ui"
)

// hostile is text that wants to be markup.
const hostile = `"><script>alert(1)</script>&'`

// typedSchema has a field of each type, in an order that is not alphabetical, under names that contain markup.
const typedSchema = `{"type":"object","required":["who","n","deep"],"properties":{
	"who":{"type":"string","description":"\"><script>alert(1)</script>"},
	"n":{"type":["null","integer"]},
	"share":{"type":"number","default":0.5},
	"loud":{"type":"boolean"},
	"how":{"type":"string","enum":["soft","\"><script>alert(2)</script>"]},
	"deep":{"type":"object"},
	"<script>alert(3)</script>":{"type":"string"}}}`

// scene is the pages over a store with a bit of everything.
type scene struct {
	t     *testing.T
	store metastore.Full
	logs  metastore.Logs
	live  *live
	runs  map[jobs.State]jobs.ID
	http.Handler
}

// live is a Live that knows one worker, and that every run is half done.
type live struct {
	changes chan bus.Changes
	asked   atomic.Int64 // how often for the workers
	crowd   []ops.Worker // all workers; nil = one
}

func (l *live) Workers(jobs.Tenant) []ops.Worker {
	if l.crowd != nil {
		return l.crowd
	}
	l.asked.Add(1)
	return []ops.Worker{{WorkerInfo: bus.WorkerInfo{Name: "w1", App: "app", Host: hostile, Tags: []string{hostile}, Version: hostile, Keys: map[jobs.Key]int{"app.work": 2}, Slots: 4, Started: time.Now()}, Running: 1, Seen: time.Now(), Leaving: true}}
}

func (*live) Refusals(jobs.Tenant) []ops.Refusals { return nil }
func (*live) Shares() []ops.Share                 { return []ops.Share{{Node: hostile, Jobs: 149}} }

func (*live) Nodes() []ops.Node {
	return []ops.Node{{Name: "n1", Here: true, Online: true, Term: 7, Since: time.Now(), Seen: time.Now()},
		{Name: hostile, Address: "javascript:alert(4)", Version: hostile, Online: true, Seen: time.Now(), Skew: 5 * time.Second}, {Name: "n3"}}
}

func (*live) Attempt(jobs.Tenant, jobs.ID) (ops.Attempt, bool) {
	return ops.Attempt{Progress: &bus.Progress{Done: 3, Total: 6, Text: hostile}, Stuck: true}, true
}

func (*live) Pulse(jobs.Tenant) []ops.Minute { return nil }
func (*live) Leader() ops.Leader             { return ops.Leader{Node: "n1", Term: 1} }

func (l *live) Watch(ctx context.Context, _ jobs.Tenant, fn func(bus.Changes)) {
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-l.changes:
			fn(c)
		}
	}
}

func newScene(t *testing.T) *scene {
	s := &scene{t: t, store: memstore.Open(memstore.Config{}), live: &live{changes: make(chan bus.Changes)}, runs: map[jobs.State]jobs.ID{}}
	logs := memstore.NewLogs(0)
	s.logs = logs
	args := map[string]string{"x": hostile}
	for _, o := range []jobs.Options{
		{Key: "app.nightly", Cron: "0 30 2 * * *", TimeZone: "Europe/Berlin", Description: hostile},
		{Key: "app.paused", Cron: "@hourly"},
	} {
		s.declare(jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return nil }), o))
	}
	s.declare(jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error { return nil }),
		jobs.Options{Key: "app.work", Args: args, Retries: 1, RetryDelay: time.Hour}))
	s.apply(kernel.Pause{Key: "app.paused", Reason: hostile})
	s.apply(kernel.Register{App: "app", Worker: "w1", Start: true, Job: kernel.Declaration{Key: "app.typed", Kind: kernel.Triggered, Schema: []byte(typedSchema)}})

	for _, state := range kernel.States() {
		id := jobs.NewID(time.Now())
		s.runs[state] = id
		request := kernel.Create{ID: id, Key: "app.work"}
		if state == jobs.Scheduled {
			request.Delay = time.Hour
		}
		if state == jobs.Terminated {
			request.Retries = new(0)
		}
		if state == jobs.Skipped {
			request.StartWithin = new(time.Nanosecond)
		}
		s.apply(request)
		finish := kernel.Finish{ID: id, Worker: "w1", Attempt: 1, Outcome: kernel.OutcomeError, Code: "card<b>", Error: hostile}
		switch state {
		case jobs.Processing, jobs.Skipped:
			s.apply(kernel.Start{ID: id, Worker: "w1", Attempt: 1})
		case jobs.Succeeded:
			s.apply(kernel.Start{ID: id, Worker: "w1", Attempt: 1})
			finish.Outcome, finish.Result, finish.Error, finish.Code = kernel.OutcomeSuccess, []byte(`{"done":"</pre><b>x</b>"}`), "", ""
			s.apply(finish)
		case jobs.Failed, jobs.Terminated:
			s.apply(kernel.Start{ID: id, Worker: "w1", Attempt: 1})
			s.apply(finish)
		case jobs.Cancelled:
			s.apply(kernel.Cancel{ID: id})
		}
		line := metastore.LogLine{Tenant: jobs.DefaultTenant, Run: id, LogPosition: metastore.LogPosition{Attempt: 1, Sequence: 1}, At: time.Now(), Level: "WARN", Text: hostile}
		if err := logs.Append(t.Context(), []metastore.LogLine{line}); err != nil {
			t.Fatal(err)
		}
	}
	s.apply(kernel.Configure{RecurringDebug: new(true), TriggeredDebug: new(true)})
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	refused := storetest.NewOutbox(metastore.RefusedRequest{At: time.Now(), Key: "app.work", Actor: hostile, Reason: hostile})
	o := ops.New(ops.Config{Store: s.store, Logs: logs, Live: s.live, ForecastWork: time.Minute, Outbox: refused})
	s.Handler = api.Guard(log, "", ui.New(ui.Config{Ops: o, Notice: hostile, Logger: log}))
	return s
}

func (s *scene) declare(j jobs.Job) {
	s.t.Helper()
	declared, err := kernel.Declare(j)
	if err != nil {
		s.t.Fatal(err)
	}
	s.apply(kernel.Register{App: "app", Worker: "w1", Start: true, Job: declared})
}

func (s *scene) apply(k kernel.Command) {
	s.t.Helper()
	r := s.store.Apply(s.t.Context(), []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "test", Command: k}})[0]
	if r.Err != nil {
		s.t.Fatalf("%s: %v", k.Verb(), r.Err)
	}
}

// snapshot is what requests could have changed: jobs and settings, tokens and the runs with their states.
func (s *scene) snapshot() string {
	s.t.Helper()
	ctx := s.t.Context()
	state, err := s.store.State(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	tokens, err := s.store.Tokens(ctx, jobs.DefaultTenant)
	if err != nil {
		s.t.Fatal(err)
	}
	page, err := s.store.Runs(ctx, metastore.RunQuery{Tenant: jobs.DefaultTenant, Limit: metastore.MaxPage})
	if err != nil {
		s.t.Fatal(err)
	}
	text := fmt.Sprintf("%d changes, %d tokens", state.Changes, len(tokens))
	for _, run := range page.Runs {
		text += fmt.Sprintf(", %s %s", run.ID, run.State)
	}
	return text
}

func (s *scene) get(path string, headers ...string) (*http.Response, string) {
	s.t.Helper()
	r := httptest.NewRequest("GET", path, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return s.do(r)
}

func (s *scene) post(path string, form url.Values, headers ...string) (*http.Response, string) {
	s.t.Helper()
	r := httptest.NewRequest("POST", path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return s.do(r)
}

func (s *scene) do(r *http.Request) (*http.Response, string) {
	s.t.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	answer := w.Result()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer, string(body)
}

var (
	inlineStyle  = regexp.MustCompile(`(?i)\sstyle\s*=|<style`)
	inlineScript = regexp.MustCompile(`(?i)\son[a-z]+\s*=\s*["']|<script[^>]*>[^<]|javascript:`)
	elsewhere    = regexp.MustCompile(`(?i)(src|href|action)="(https?:)?//`)
)

// Every page shows every state, keeps to its own policy, and shows hostile text as text.
func TestPages(t *testing.T) {
	s := newScene(t)
	raised(s)
	paths := []string{"/", "/runs", "/runs?job=app.work&state=Terminated", "/runs?find=" + url.QueryEscape(hostile) + "&job=" + url.QueryEscape(hostile) + "&worker=" + url.QueryEscape(hostile) + "&from=" + url.QueryEscape(hostile) + "&bulk=cancel&n=1&no=1&why=" + url.QueryEscape(hostile), "/workers", "/settings", "/access", "/audit", "/jobs", "/jobs?kind=triggered&app=app&state=active&q=work", "/jobs?q=" + url.QueryEscape(hostile) + "&app=" + url.QueryEscape(hostile) + "&tag=" + url.QueryEscape(hostile) + "&after=x",
		"/jobs/app.nightly", "/jobs/app.paused", "/jobs/app.work", "/jobs/app.work/run", "/jobs/app.work/run?as=json", "/jobs/app.work/run?from=" + s.runs[jobs.Terminated].String(), "/jobs/app.typed/run",
		"/jobs/app.nightly/run", "/jobs/app.nightly/edit", "/jobs/app.work/edit", "/jobs/app.nightly/pause?reason=" + url.QueryEscape(hostile) + "&at=" + url.QueryEscape(hostile) + "&zone=" + url.QueryEscape(hostile), "/jobs/app.work/delete", "/audit?actor=" + url.QueryEscape(hostile), "/nothing",
		"/jobs/app.nightly/versions", "/jobs/app.nightly/backfill", "/new", "/new/command", "/forecast", "/forecast/day", "/stats", "/stats?app=app", "/stats?job=app.work", "/calendars", "/calendars/new", "/outbox?bulk=retry&n=1", "/batches",
		"/alarms", "/alarms/targets/new", "/alarms/targets/new?kind=feishu", "/alarms/targets/chat", "/alarms/rules/new", "/alarms/rules/new?kind=slow", "/alarms/rules/failed"}
	for _, id := range s.runs {
		paths = append(paths, "/runs/"+id.String(), "/runs/"+id.String()+"?find="+url.QueryEscape(hostile))
	}
	for _, path := range paths {
		for _, fragment := range []string{"", "1"} {
			answer, body := s.get(path, "X-Fragment", fragment)
			want := 200
			switch {
			case path == "/nothing":
				want = 404
			case strings.HasPrefix(path, "/runs?find="): // with filters that are none
				want = 422
			}
			h := answer.Header
			for _, part := range []string{"default-src 'none'; ", "script-src 'self'; ", "style-src 'self'; ", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"} {
				if !strings.Contains(h.Get("Content-Security-Policy"), part) {
					t.Errorf("%s: the policy lacks %q: %s", path, part, h.Get("Content-Security-Policy"))
				}
			}
			if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cross-Origin-Opener-Policy") != "same-origin" || h.Get("Referrer-Policy") != "same-origin" || fragment == "" && h.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: its headers are %v", path, h)
			}
			if answer.StatusCode != want {
				t.Errorf("%s: %d %v", path, answer.StatusCode, answer.Header)
			}
			if strings.Contains(body, "<script>") || strings.Contains(body, "<b>x") || !strings.Contains(body, "&lt;script&gt;") {
				t.Errorf("%s shows hostile text as markup", path)
			}
			for _, bad := range []*regexp.Regexp{inlineStyle, inlineScript, elsewhere} {
				if found := bad.FindString(body); found != "" {
					t.Errorf("%s has %q, which its policy forbids", path, found)
				}
			}
			if whole := strings.Contains(body, "<html"); whole != (fragment == "") {
				t.Errorf("%s with X-Fragment %q: a whole page: %v", path, fragment, whole)
			}
			if strings.Contains(body, "ZgotmplZ") || strings.Contains(body, "<no value>") {
				t.Errorf("%s: a template went wrong", path)
			}
			checkTables(t, path, body)
		}
	}
	if _, list := s.get("/runs?state=Enqueued"); !strings.Contains(list, "each worker that may take it is drained or stopping") {
		t.Error("the list of runs does not show why a ready run has no worker")
	}
	_, home := s.get("/")
	for _, want := range []string{"app.work", "Leader: n1", "Debug mode: recurring", "Debug mode: triggered", "stuck"} {
		if !strings.Contains(home, want) {
			t.Errorf("the first page does not show %s", want)
		}
	}
}

var (
	tables = regexp.MustCompile(`(?s)<table class="rows[^>]*>.*?</table>`)
	lines  = regexp.MustCompile(`(?s)<tr[ >].*?</tr>`)
	heads  = regexp.MustCompile(`(?s)<th[ >].*?</th>`)
	cells  = regexp.MustCompile(`<td( [^>]*)?>`)
	labels = regexp.MustCompile(` data-label="([^"]*)"`)
	tags   = regexp.MustCompile(`<[^>]*>`)
)

// checkTables checks that each line of a table has a cell for each head, and that a cell's label is its head.
func checkTables(t *testing.T, path, body string) {
	t.Helper()
	for _, table := range tables.FindAllString(body, -1) {
		names := heads.FindAllString(table, -1)
		for i := range names {
			names[i] = tags.ReplaceAllString(names[i], "")
		}
		for _, line := range lines.FindAllString(table, -1) {
			row := cells.FindAllString(line, -1)
			if len(row) == 0 || strings.Contains(line, "colspan") || len(names) == 0 {
				continue
			}
			if len(row) != len(names) {
				t.Errorf("%s: a line of %d cells under %d heads %q: a column needs a head and a cell in ui/templates", path, len(row), len(names), names)
				return
			}
			for i, cell := range row {
				if m := labels.FindStringSubmatch(cell); m != nil && m[1] != names[i] {
					t.Errorf("%s: the cell under %q has the label %q: see ui/templates", path, names[i], m[1])
				}
			}
		}
	}
}

func TestStaticFilesMayBeKept(t *testing.T) {
	s := newScene(t)
	_, home := s.get("/")
	for _, name := range []string{"style.css", "live.js", "bell.svg"} {
		path := regexp.MustCompile(`"(/static/[0-9a-f]+/` + name + `)"`).FindStringSubmatch(home)
		if path == nil {
			t.Fatalf("%s is not on the page", name)
		}
		if answer, body := s.get(path[1]); answer.StatusCode != 200 || !strings.Contains(answer.Header.Get("Cache-Control"), "immutable") || body == "" {
			t.Errorf("%s: %d %s", path[1], answer.StatusCode, answer.Header.Get("Cache-Control"))
		}
	}
	for _, path := range []string{"/static/", "/static/../ui.go", "/static/000000000000/style.css"} {
		if answer, _ := s.get(path); answer.StatusCode == 200 {
			t.Errorf("%s is served", path)
		}
	}
	folder := regexp.MustCompile(`"(/static/[0-9a-f]+/)style.css"`).FindStringSubmatch(home)[1]
	for _, name := range []string{"../../../etc/passwd", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "..%2ftemplates%2fframe.gohtml", "..%5c..%5cgo.mod", "style.css%00", "style.css%00.js", "%00", "/etc/passwd", "C:%5cboot.ini"} {
		if answer, body := s.get(folder + name); answer.StatusCode != 404 && (answer.StatusCode/100 != 3 || strings.HasPrefix(answer.Header.Get("Location"), "http")) || strings.Contains(body, "root:") {
			t.Errorf("%s: %d to %q: %.100s", name, answer.StatusCode, answer.Header.Get("Location"), body)
		}
	}
}

func TestActions(t *testing.T) {
	s := newScene(t)
	ctx := t.Context()
	done := func(answer *http.Response, body string) string {
		t.Helper()
		if answer.StatusCode != 303 {
			t.Fatalf("%d: %s", answer.StatusCode, body)
		}
		return answer.Header.Get("Location")
	}
	run := func(path string) *kernel.Run {
		t.Helper()
		id, err := jobs.ParseID(strings.TrimPrefix(strings.Split(path, "?")[0], "/runs/"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.store.Run(ctx, jobs.DefaultTenant, id)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := run(done(s.post("/jobs/app.work/trigger", url.Values{"args": {`{"x":1}`}}))); string(r.Args) != `{"x":1}` || r.Origin != kernel.FromPerson || r.State != jobs.Enqueued {
		t.Errorf("run now, in spite of debug mode: %+v", r)
	}
	if r := run(done(s.post("/runs/"+s.runs[jobs.Terminated].String()+"/again", nil))); r.Parent != s.runs[jobs.Terminated] {
		t.Errorf("run again: %+v", r)
	}
	if r := run(done(s.post("/runs/"+s.runs[jobs.Processing].String()+"/cancel", url.Values{"reason": {"enough"}}))); r.State != jobs.Cancelled || r.Moves[len(r.Moves)-1].Text != "enough" {
		t.Errorf("cancel: %+v", r)
	}
	done(s.post("/jobs/app.nightly/pause", url.Values{"reason": {"stocktaking"}}))
	done(s.post("/jobs/app.paused/resume", nil))
	for key, want := range map[jobs.Key]bool{"app.nightly": true, "app.paused": false} {
		if d, err := s.store.Definition(ctx, jobs.DefaultTenant, key); err != nil || (d.Paused != nil) != want {
			t.Errorf("%s is paused: %v (%v)", key, d.Paused, err)
		}
	}
	done(s.post("/debug", url.Values{"kind": {"triggered"}, "on": {"false"}, "held": {"release"}}))
	if g, err := s.store.Global(ctx, jobs.DefaultTenant); err != nil || g.TriggeredDebug.On || !g.RecurringDebug.On {
		t.Errorf("debug modes: %+v (%v)", g, err)
	}
}

func TestActionsRefused(t *testing.T) {
	s := newScene(t)
	for _, c := range []struct {
		path   string
		form   url.Values
		header []string
		status int
		says   string
	}{
		{"/jobs/app.work/trigger", url.Values{"args": {"{"}}, nil, 422, "not valid JSON"},
		{"/jobs/nope/trigger", nil, nil, 404, "there is no job"},
		{"/runs/" + s.runs[jobs.Succeeded].String() + "/cancel", nil, nil, 409, "Succeeded"},
		{"/runs/17/cancel", nil, nil, 404, "run not found"},
		{"/debug", url.Values{"kind": {"all"}}, nil, 422, "want recurring or triggered"},
		{"/jobs/app.work/trigger", nil, []string{"Sec-Fetch-Site", "cross-site"}, 403, ""},
		{"/jobs/app.work/trigger", nil, []string{"Sec-Fetch-Site", "same-site"}, 403, ""},
		{"/jobs/app.work/trigger", nil, []string{"Origin", "https://evil.example"}, 403, ""},
		{"/jobs/app.work/trigger", nil, []string{"Origin", "null"}, 403, ""},
	} {
		before := s.snapshot()
		if answer, body := s.post(c.path, c.form, c.header...); answer.StatusCode != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%s %v: %d, want %d and %q: %.200s", c.path, c.form, answer.StatusCode, c.status, c.says, body)
		}
		if after := s.snapshot(); after != before {
			t.Errorf("%s %v is refused, and yet %s became %s", c.path, c.form, before, after)
		}
	}
}

func TestEvents(t *testing.T) {
	s := newScene(t)
	server := httptest.NewServer(s)
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, "GET", server.URL+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if kind := answer.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Fatalf("content type %s", kind)
	}
	lines := bufio.NewScanner(answer.Body)
	next := func() {
		t.Helper()
		for lines.Scan() {
			if lines.Text() == "event: change" {
				return
			}
		}
		t.Fatalf("the stream ended: %v", lines.Err())
	}
	next() // the first says: look
	s.live.changes <- bus.Changes{Global: true}
	next()
}
