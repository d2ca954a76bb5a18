package main

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/cmd/carillon/jobfile"
	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/ops"
)

const stated = "jobs:\n- {key: shop.report, kind: recurring, app: shop, schedule: '@every 1h', retries: "

// lookOften has watched jobs looked at more often than people may want it.
func lookOften(t *testing.T) {
	before := leastEvery
	t.Cleanup(func() { leastEvery = before })
	leastEvery = 20 * time.Millisecond
	t.Setenv("CARILLON_JOBS_EVERY", leastEvery.String())
}

// S2-55: jobs in a file exist without a worker, changes of the file are applied, and a user's edit stays until the file
// changes.
func TestS2_55JobsStatedInAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "jobs.yaml")
	state := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil { // never a partial file
			t.Fatal(err)
		}
	}
	state(stated + "1}\n")
	lookOften(t)
	args := []string{"server", "--data", t.TempDir(), "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0", "--jobs-from", file}
	p := start(t, args...)
	p.get("/api/v1/jobs/shop.report", contains(`"retries":1`))
	state("calendars: [{name: weekend, zone: Europe/Berlin, rules: [\"SAT,SUN\"]}]\n" + stated + "2, calendars: [weekend]}\n")
	p.get("/api/v1/jobs/shop.report", contains(`"retries":2`))
	p.get("/api/v1/calendars/weekend", contains(`"jobs":["shop.report"]`))
	p.get("/api/v1/jobs/shop.report/owners", contains("config:node"))
	p.patch("/api/v1/jobs/shop.report", `{"retries":7}`)
	p.end()
	p = start(t, args...) // the file has not changed
	p.get("/api/v1/jobs/shop.report", contains(`"retries":7`))
	state(stated + "4}\n")
	p.get("/api/v1/jobs/shop.report", contains(`"retries":4`))
	p.end()
}

// The same from a URL, in memory: what was applied is not applied again at each look, and where something is wrong
// nothing is done.
func TestJobsStatedAtAURL(t *testing.T) {
	var mu sync.Mutex
	text, looks := stated+"1}\n", 0
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		looks++
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(source.Close)
	state := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		text, looks = s, 0
	}
	looked := func(pleases func(int, []byte) bool) func(int, []byte) bool {
		return func(status int, body []byte) bool {
			mu.Lock()
			defer mu.Unlock()
			return looks > 2 && pleases(status, body)
		}
	}
	lookOften(t)
	p := start(t, "server", "--memory", "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0", "--jobs-from", source.URL+"/jobs.yaml")
	p.get("/api/v1/jobs/shop.report", contains(`"retries":1`))
	p.patch("/api/v1/jobs/shop.report", `{"retries":7}`)
	state(stated + "1}\n")
	p.get("/api/v1/jobs/shop.report", looked(contains(`"retries":7`)))
	for _, wrong := range []string{
		stated + "2}\n- {key: shop.other, kind: triggered, app: shop, retires: 1}\n",
		stated + "2}\n- {key: shop.other, kind: triggered, app: shop, retries: many}\n",
		stated + "2}\n- {key: shop.other, kind: sometimes, app: shop}\n",
		stated + "2}\n- {key: shop.other}\n",
		stated + "2}\n- {key: shop.report}\n",
	} {
		state(wrong)
		p.get("/api/v1/jobs/shop.other", looked(func(status int, _ []byte) bool { return status == http.StatusNotFound }))
		p.get("/api/v1/jobs/shop.report", contains(`"retries":7`))
	}
	state(stated + "2}\n")
	p.get("/api/v1/jobs/shop.report", contains(`"retries":2`))
	p.end()
}

// Watched jobs must come over TLS or from loopback: an attacker on the network could change them.
func TestJobsAreNotReadInTheClear(t *testing.T) {
	for from, taken := range map[string]bool{"http://jobs.example.com/jobs.yaml": false, "http://10.0.0.1/jobs.yaml": false, "http://token@jobs.example.com/jobs.yaml?t=token": false,
		"http://localhost.example.com/": false, "https://jobs.example.com/jobs.yaml": true, "http://127.0.0.1:9000/jobs.yaml": true, "http://localhost/jobs.yaml": true, "http://[::1]/jobs.yaml": true, "jobs.yaml": true} {
		var c config
		err := jobsFrom(&c, from)
		if (err == nil) != taken || err != nil && (!strings.Contains(err.Error(), "https") || strings.Contains(err.Error(), "token")) {
			t.Errorf("%s: %v", from, err)
		}
	}
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://jobs.example.com/jobs.yaml", http.StatusFound)
	}))
	t.Cleanup(source.Close)
	if _, err := fetchJobs(t.Context(), source.URL+"/jobs.yaml"); err == nil || !strings.Contains(err.Error(), "use https") {
		t.Errorf("a redirect into the clear: %v", err)
	}
}

// A secret in the URL of a source is in no log, no audit entry and no error.
func TestASourceKeepsItsSecret(t *testing.T) {
	const secret = "Geheimnis"
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch user, _, _ := r.BasicAuth(); {
		case user != secret || r.URL.Query().Get("private_token") != secret:
			w.WriteHeader(http.StatusForbidden)
		case r.URL.Path == "/wrong.yaml":
			_, _ = w.Write([]byte("jobs: [{key: shop.report, retires: 1}]\n"))
		case r.URL.Path == "/long.yaml":
			_, _ = w.Write(make([]byte, jobfile.MaxBytes+1))
		case r.URL.Path == "/broken.yaml":
			panic(http.ErrAbortHandler)
		case r.URL.Path == "/jobs.yaml":
			_, _ = w.Write([]byte(stated + "1}\n"))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(source.Close)
	at := func(path string) string {
		return strings.Replace(source.URL, "://", "://"+secret+"@", 1) + path + "?private_token=" + secret
	}
	for _, path := range []string{"/gone.yaml", "/wrong.yaml", "/long.yaml", "/broken.yaml"} {
		p := &process{cfg: &config{Memory: true}}
		p.cfg.Jobs.From = at(path)
		_, err := p.applyJobs(t.Context(), nil, "")
		if err == nil || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), source.URL+path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if got := shown("jobs.from", at("/jobs.yaml")); got != source.URL+"/jobs.yaml?***" {
		t.Errorf("the configuration is printed with %s", got)
	}
	p := start(t, "server", "--memory", "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0", "--jobs-from", at("/jobs.yaml"))
	p.get("/api/v1/jobs/shop.report", contains(`"retries":1`))
	p.get("/api/v1/audit", func(status int, body []byte) bool {
		if strings.Contains(string(body), secret) {
			t.Errorf("the record of changes has the secret: %s", body)
			return true
		}
		return status == http.StatusOK && contains("stated in "+source.URL+"/jobs.yaml\"")(status, body)
	})
	p.end()
}

// applied.json is outside the store, which may be replaced. A start that therefore applies nothing logs that once, with
// the file to delete.
func TestUnchangedSourceIsLogged(t *testing.T) {
	var logged bytes.Buffer
	p := &process{cfg: &config{Node: "n1", Data: t.TempDir()}, log: slog.New(slog.NewTextHandler(&logged, nil))}
	p.cfg.Jobs.From = filepath.Join(t.TempDir(), "jobs.yaml")
	if err := os.WriteFile(p.cfg.Jobs.From, []byte(stated+"1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// run is a process with rows of its own, which looks at the source twice.
	run := func(jobs int, want string) {
		t.Helper()
		logged.Reset()
		s, err := embed.Start(t.Context(), embed.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Stop()
		applied := ""
		for range 2 {
			if applied, err = p.applyJobs(t.Context(), s, applied); err != nil {
				t.Fatal(err)
			}
		}
		list, _, err := s.Ops().Jobs(t.Context(), ops.Who{}, ops.JobQuery{})
		if err != nil || len(list) != jobs {
			t.Errorf("%d jobs, want %d (%v)", len(list), jobs, err)
		}
		if strings.Count(logged.String(), "\n") != 1 || !strings.Contains(logged.String(), want) {
			t.Errorf("it logs %q, want %q once", logged.String(), want)
		}
	}
	run(1, "the watched jobs are applied")
	run(0, "they equal those recorded in applied.json\" source="+p.cfg.Jobs.From+" dir="+p.cfg.Data)
	if err := os.Remove(p.dir("applied.json")); err != nil {
		t.Fatal(err)
	}
	run(1, "the watched jobs are applied")
}

// jobs.prune deletes what a source no longer names when it is read twice with the same content. A source that is broken,
// empty, gone or without a bundle deletes nothing.
func TestWatchedJobsArePruned(t *testing.T) {
	var logged bytes.Buffer
	p := &process{cfg: &config{Node: "n1", Memory: true}, log: slog.New(slog.NewTextHandler(&logged, nil))}
	p.cfg.Jobs.From, p.cfg.Jobs.Prune = filepath.Join(t.TempDir(), "jobs.yaml"), true
	s, err := embed.Start(t.Context(), embed.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	if _, err := s.Ops().Create(t.Context(), ops.Who{Actor: "person:ann", Role: ops.Admin}, ops.Wanted{Key: "own", Kind: kernel.Triggered, App: "shop"}); err != nil {
		t.Fatal(err)
	}
	const bundle, other, closed = "bundle: shop\n", "- {key: shop.other, kind: triggered, app: shop}\n", "calendars: [{name: closed, rules: [SAT]}]\n"
	const all = "own shop.other shop.report closed"
	applied := ""
	for _, step := range []struct {
		what, text string // "" = there is no file
		says, want string // of an error, of what is there afterwards
		looks      int
	}{
		{"jobs", bundle + closed + stated + "1}\n" + other, "", all, 3},
		{"no file", "", "no such file", all, 2},
		{"an empty file", " ", "needs a bundle", all, 2},
		{"a broken file", bundle + "jobs: [{", "jobs.yaml", all, 2},
		{"half of a file", bundle + stated, "jobs.yaml", all, 2},
		{"a bad job", bundle + "jobs: [{key: shop.report, retires: 1}]\n", "retires", all, 2},
		{"no bundle", stated + "1}\n", "needs a bundle", all, 2},
		{"no jobs", bundle + "jobs: []\n", "", all, 3},
		{"a job of another bundle", "bundle: mail\njobs: [{key: shop.report}]\n", "belongs to bundle shop", all, 2},
		{"no jobs that exist", "bundle: mail\n" + strings.Replace(stated, "shop.report", "mail.report", 1) + "1}\n", "", "mail.report " + all, 3},
		{"one look at less", bundle + stated + "1}\n", "", "mail.report " + all, 1},
		{"one look at something else", bundle + stated + "2}\n", "", "mail.report " + all, 1},
		{"two looks", bundle + stated + "2}\n", "", "mail.report own shop.report", 2},
	} {
		if err := os.Remove(p.cfg.Jobs.From); step.text == "" && err != nil {
			t.Fatal(err)
		}
		if step.text != "" {
			if err := os.WriteFile(p.cfg.Jobs.From, []byte(step.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for range step.looks {
			applied, err = p.applyJobs(t.Context(), s, applied)
			if (err == nil) != (step.says == "") || err != nil && !strings.Contains(err.Error(), step.says) {
				t.Errorf("%s: %v, want %q", step.what, err, step.says)
			}
		}
		var have []string
		list, _, err := s.Ops().Jobs(t.Context(), ops.Who{}, ops.JobQuery{})
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range list {
			have = append(have, string(j.Key))
		}
		calendars, err := s.Ops().Calendars(t.Context(), ops.Who{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range calendars {
			have = append(have, c.Name)
		}
		if got := strings.Join(have, " "); got != step.want {
			t.Errorf("%s: there are %s, want %s", step.what, got, step.want)
		}
	}
	for _, want := range []string{"are not pruned: the source has no jobs", "a watched job is pruned\" source=" + p.cfg.Jobs.From + " bundle=shop key=shop.other does=delete", "a watched calendar is pruned"} {
		if strings.Count(logged.String(), want) != 1 {
			t.Errorf("it logs %q, want %q once", logged.String(), want)
		}
	}
}

// A watched folder states calendars and HTTP jobs as well, each where it likes: calendars are there before the jobs
// that name them, and a job that is wrong is not made.
func TestJobsStatedInAFolder(t *testing.T) {
	tests.Long(t)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"ok":true}`)) }))
	t.Cleanup(target.Close)
	dir := t.TempDir()
	state := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name+".new"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	const job = "jobs:\n- {key: shop.ask, kind: recurring, app: http, schedule: '@every 1h', calendars: [weekend], http: {request: [{url: '"
	state("jobs.yaml", job+target.URL+"'}]}}\n")
	state("calendars.yaml", "calendars:\n- {name: weekend, rules: [SAT, SUN]}\n")
	lookOften(t)
	p := start(t, "dev", "--memory", "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0", "--jobs-from", dir)
	p.get("/api/v1/jobs/shop.ask", contains(target.URL))
	p.get("/api/v1/calendars/weekend", contains(`"shop.ask"`))
	p.post("/api/v1/jobs/shop.ask/trigger", "")
	p.get("/api/v1/runs?job=shop.ask&state=Succeeded", succeeded(1))

	state("more.yaml", "jobs:\n- {key: shop.other, kind: triggered, app: http, http: {request: [{url: '"+target.URL+"'}]}}\n")
	state("calendars.yaml", "calendars:\n- {name: weekend, zone: Europe/Berlin, rules: [SAT, SUN, 12-25]}\n")
	p.get("/api/v1/calendars/weekend", contains(`"12-25"`))
	p.get("/api/v1/jobs/shop.other", contains(`"triggered"`))
	state("more.yaml", "jobs:\n- {key: shop.third, kind: triggered, app: http, http: {request: [{url: 'no URL'}]}}\n")
	state("last.yaml", "calendars:\n- {name: night, rules: ['22:00-06:00']}\n")
	gone := func(status int, _ []byte) bool { return status == http.StatusNotFound }
	p.get("/api/v1/jobs/shop.third", gone)
	p.get("/api/v1/calendars/night", gone) // where a part is wrong nothing is done
	state("more.yaml", "jobs:\n- {key: shop.fourth, kind: recurring, app: http, schedule: '@every 1h', calendars: [night], http: {request: [{url: '"+target.URL+"'}]}}\n")
	p.get("/api/v1/calendars/night", contains(`"shop.fourth"`))
	p.get("/api/v1/jobs/shop.third", gone)
	p.end()
}
