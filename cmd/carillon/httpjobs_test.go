package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

// A server that runs HTTP jobs: one is made over REST with a secret, a service and a variable, is asked for, and done.
func TestServerRunsHTTPJobs(t *testing.T) {
	seen := make(chan string, 1)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/never" {
			<-r.Context().Done()
			return
		}
		seen <- r.Method + " " + r.URL.String() + " " + r.Header.Get("Authorization") + " " + string(body)
		_, _ = w.Write([]byte(`{"answer":42}`))
	}))
	t.Cleanup(target.Close)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s3cr3t\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CARILLON_HTTP_JOBS_ALLOW", "127.0.0.1")
	t.Setenv("CARILLON_HTTP_JOBS_SERVICES", "billing="+target.URL)
	t.Setenv("CARILLON_HTTP_JOBS_VARIABLES", "REGION=eu")
	t.Setenv("CARILLON_HTTP_JOBS_CALL_TIMEOUT", "2s")
	t.Setenv("CARILLON_HTTP_JOBS_SECRETS", "BILLING@127.0.0.1="+secret)
	p := start(t, "server", "--memory", "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0", "--http-jobs")
	p.post("/api/v1/jobs", `{"key":"billing.ask","kind":"triggered","app":"http","http":{"request":[{"method":"POST","url":"service://billing/ask?region=${REGION}",
		"headers":{"Authorization":"Bearer ${secret:BILLING}"},"body":{"customer":"${$.customer}"}}]}}`)
	p.post("/api/v1/jobs/billing.ask/trigger", `{"args":{"customer":"c7"}}`)
	if got, want := <-seen, `POST /ask?region=eu Bearer s3cr3t {"customer":"c7"}`; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	p.get("/api/v1/runs?job=billing.ask&state=Succeeded", succeeded(1))
	p.post("/api/v1/jobs", `{"key":"billing.never","kind":"triggered","app":"http","retries":0,"http":{"request":[{"url":"service://billing/never"}]}}`)
	p.post("/api/v1/jobs/billing.never/trigger", `{}`)
	p.get("/api/v1/runs?job=billing.never&state=Terminated", func(_ int, body []byte) bool { return strings.Contains(string(body), "no answer within 2s") })
	p.get("/api/v1/jobs/billing.ask", func(_ int, body []byte) bool { return !strings.Contains(string(body), "s3cr3t") })
	p.end()
}

func TestHTTPJobsRefused(t *testing.T) {
	for name, c := range map[string]httpJobsConfig{
		"network": {On: true, Allow: "ten"}, "port": {On: true, Ports: "0"}, "service": {On: true, Services: "a=ftp://x"}, "pair": {On: true, Variables: "a"},
		"twice": {On: true, Variables: "a=1,a=2"}, "secret": {On: true, Secrets: "a@h=/no/such/file"}, "ssh": {On: true, Ports: "22"},
	} {
		if _, err := (&config{HTTPJobs: c}).httpJobs(); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("s3cr3t\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"A=" + file: "A@api.example.com=" + file, "A@=" + file: "host", "A@https://h=" + file: "host", "@h=" + file: "secret name",
		"A@h=" + file + ",A@g=" + file: "twice", "A@*=" + file: "host", "A@h+=" + file: "host"} {
		if _, err := secretsOf(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v, want ...%s...", text, err, want)
		}
	}
	got, err := secretsOf("A@a.example.com+[::1]:8080=" + file + ", B@b.example.com=" + file)
	if a := got["A"]; err != nil || len(got) != 2 || a.Value != "s3cr3t" || strings.Join(a.Hosts, " ") != "a.example.com [::1]:8080" {
		t.Errorf("%+v, %v", got, err)
	}
	if c, err := (&config{HTTPJobs: httpJobsConfig{Allow: "nonsense"}}).httpJobs(); c != nil || err != nil {
		t.Errorf("off: %v, %v", c, err)
	}
}

// carillon dev runs HTTP jobs by default, allows them to call this machine, and prints both, unless settings turn it
// off.
func TestDevRunsHTTPJobs(t *testing.T) {
	tests.Long(t)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{}`)) }))
	t.Cleanup(target.Close)
	p := start(t, "dev", "--memory", "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0")
	p.post("/api/v1/jobs", `{"key":"here.ask","kind":"triggered","app":"http","http":{"request":[{"url":"`+target.URL+`"}]}}`)
	p.post("/api/v1/jobs/here.ask/trigger", `{}`)
	p.get("/api/v1/runs?job=here.ask&state=Succeeded", succeeded(1))
	if want := "http   jobs run here and may call public addresses, 127.0.0.0/8, ::1\n"; !strings.Contains(p.out.String(), want) {
		t.Errorf("no %q in:\n%s", want, p.out)
	}
	p.end()

	off := &config{values: map[string]value{"http-jobs.on": {"false", "carillon.yaml:3"}}}
	if off.tryHTTPJobs(); off.HTTPJobs.On {
		t.Error("HTTP jobs run although the file turns them off")
	}
	narrow := &config{values: map[string]value{"http-jobs.on": {"false", "default"}}, HTTPJobs: httpJobsConfig{Allow: "10.0.0.0/8"}}
	if narrow.tryHTTPJobs(); !narrow.HTTPJobs.On || narrow.HTTPJobs.Allow != "10.0.0.0/8" {
		t.Errorf("%+v: http-jobs.allow was changed", narrow.HTTPJobs)
	}
}

// A worker with wrong settings of the bus or of HTTP jobs does not start.
func TestWorkerRefused(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		text string
	}{
		{"--slots 0", 2, "--slots 0"},
		{"--app a/b", 2, "app"},
		{"--nats http://127.0.0.1:4222", 2, "nats.url"},
		{"--nats nats://bus.example:4222", 2, "has no TLS"},
		{"--nats tls://token@bus.example:4222", 2, "nats.token-file"},
		{"--http-jobs-allow ten", 2, "http-jobs.allow"},
		{"--http-jobs-call-timeout 2h", 2, "http-jobs.call-timeout"},
		{"--http 127.0.0.1:0", 2, "unknown flag"},
		{"--nats nats://127.0.0.1:1", 6, "NATS server nats://127.0.0.1:1 cannot be reached"},
	} {
		out := newOutput()
		if code := execute(t.Context(), append([]string{"worker"}, strings.Fields(c.args)...), out, out); code != c.code || !strings.Contains(out.String(), c.text) {
			t.Errorf("worker %s: exit code %d, want %d, and %q of\n%s", c.args, code, c.code, c.text, out)
		}
	}
}
