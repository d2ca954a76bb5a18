package embed_test

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// A job is created over REST before any worker has it, and triggered: the run waits, and the first worker with the code
// runs it under the settings from REST. Then the job is changed and deleted over REST.
func TestS1_01JobsOverREST(t *testing.T) { jobOverREST(t) }

// The same, for the seed that makes all its jobs so.
func TestS2_01CreateAJobOverREST(t *testing.T) { jobOverREST(t) }

func jobOverREST(t *testing.T) {
	dir := t.TempDir()
	cfg := embed.Config{Dir: dir, Worker: worker.Config{App: "demo", Name: "w", Grace: -1}}
	s, err := embed.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(status int, method, path, body string) (found map[string]any) {
		t.Helper()
		r := httptest.NewRequest(method, "/api/v1"+path, strings.NewReader(body))
		r.Header.Set("If-Match", "*")
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if w.Code != status {
			t.Fatalf("%s %s: %d, want %d: %s", method, path, w.Code, status, w.Body)
		}
		_ = json.Unmarshal(w.Body.Bytes(), &found) // ignores lists
		return found
	}
	ask(201, "POST", "/jobs", `{"key":"demo.greet","kind":"triggered","app":"demo","retries":2,"args":{"name":"Ann"}}`)
	ask(409, "POST", "/jobs", `{"key":"demo.greet","kind":"triggered","app":"demo"}`)
	run := ask(201, "POST", "/jobs/demo.greet/trigger", `{}`)
	if run["state"] != "Enqueued" || run["retries"] != 2.0 {
		t.Errorf("no worker has the job, and its run is %v with %v retries", run["state"], run["retries"])
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}

	if s, err = embed.Start(t.Context(), cfg, greet()); err != nil {
		t.Fatal(err)
	}
	id, err := jobs.ParseID(run["id"].(string))
	if err != nil {
		t.Fatal(err)
	}
	in, err := s.Client().Wait(t.Context(), id)
	if err != nil || in.State != jobs.Succeeded || string(in.Result) != `"hello Ann"` {
		t.Errorf("the run became %+v, %v", in, err)
	}
	if job := ask(200, "PATCH", "/jobs/demo.greet", `{"retries":5}`); job["retries"] != 5.0 {
		t.Errorf("after an edit it has %v retries", job["retries"])
	}
	ask(200, "DELETE", "/jobs/demo.greet", "")
	ask(404, "GET", "/jobs/demo.greet", "")
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}
