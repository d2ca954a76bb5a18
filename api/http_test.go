package api_test

import (
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/httpspec"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/ops"
)

// The requests of an HTTP job, and the command of a job, are validated when it is saved, and errors name their place.
func TestWorkIsReadWhenSaved(t *testing.T) {
	d := newFixture(t)
	d.Handler = api.New(api.Config{Ops: ops.New(ops.Config{Store: d.store, CheckHTTP: func(_ string, raw []byte) (string, error) { return httpspec.Check(raw) }})})
	const good = `{"request":[{"url":"https://example.com/","body":{"a":null}}]}`
	if a := d.send("POST", "/api/v1/jobs", `{"key":"ping","kind":"triggered","app":"http","http":`+good+`}`); a.StatusCode != 201 {
		t.Fatalf("%d %s", a.StatusCode, a.body)
	}
	if job := read[api.Job](t, d.send("GET", "/api/v1/jobs/ping", "")); job.HTTP == nil || string(*job.HTTP) != good || strings.Join(job.Edited, " ") != "http" {
		t.Errorf("shown: %+v", job)
	}
	for _, c := range []struct{ name, method, path, body, location string }{
		{"edited", "PATCH", "/api/v1/jobs/ping", `{"http":{"request":[{"url":"ftp://example.com/"}]}}`, "body.http.request[0].url"},
		{"the second", "PATCH", "/api/v1/jobs/ping", `{"http":{"request":[{"url":"https://a.example/"},{"url":"https://b.example/","headers":{"Host":"c"}}]}}`, "body.http.request[1].headers.Host"},
		{"none", "PATCH", "/api/v1/jobs/ping", `{"http":{"request":[]}}`, "body.http"},
		{"unknown", "PATCH", "/api/v1/jobs/ping", `{"http":{"requests":[]}}`, "body.http"},
		{"made", "POST", "/api/v1/jobs", `{"key":"pong","kind":"triggered","app":"http","http":{"request":[{"url":"https://a.example/"}],"checkUrl":{"url":"https://a.example/"},"qos":2}}`, "body.http.qos"},
		{"applied", "POST", "/api/v1/apply", `{"jobs":[{"key":"pong","kind":"triggered","app":"http","http":{"request":[{"url":"https://{x}.example/"}],"async":true,"checkUrl":"https://${x}/"}}]}`, "body.http.request[0].url"},
		{"too much", "PATCH", "/api/v1/jobs/ping", `{"http":{"request":[{"url":"https://a.example/","body":"` + strings.Repeat("x", kernel.MaxWork) + `"}]}}`, ""},
		{"a command, edited", "PATCH", "/api/v1/jobs/ping", `{"http":{},"exec":{"argv":["",null]}}`, "body.exec.argv[0]"},
		{"a command, made", "POST", "/api/v1/jobs", `{"key":"pong","kind":"triggered","app":"exec","exec":{"argv":["a"],"env":{"LD_PRELOAD":"x"}}}`, "body.exec.env.LD_PRELOAD"},
		{"a command, applied", "POST", "/api/v1/apply", `{"jobs":[{"key":"pong","kind":"triggered","app":"exec","exec":{"argv":["a"],"dir":"etc"}}]}`, "body.exec.dir"},
		{"both", "PATCH", "/api/v1/jobs/ping", `{"exec":{"argv":["a"]}}`, ""},
	} {
		p := d.send(c.method, c.path, c.body).problem(t)
		location := ""
		if len(p.Errors) > 0 {
			location = p.Errors[0].Location
		}
		if p.Status != 422 || p.Code != "invalid" || location != c.location {
			t.Errorf("%s: %+v, want %s", c.name, p, c.location)
		}
	}
	if job := read[api.Job](t, d.send("PATCH", "/api/v1/jobs/ping", `{"http":{}}`)); job.HTTP == nil || string(*job.HTTP) != `{}` {
		t.Errorf("taken away: %+v", job.HTTP)
	}
}
