package embed_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/jobs"
)

type greeting struct{ Name string }

var greetJob = jobs.Trigger[greeting]("demo.greet")

func greet() jobs.Job {
	return jobs.NewTriggered(jobs.TriggeredFunc[greeting](func(ctx context.Context, g greeting) error {
		if g.Name == "" {
			return jobs.NoRetry(errors.New("greet whom?"))
		}
		jobs.Log(ctx).Info("greeting", "name", g.Name)
		return jobs.Result(ctx, "hello "+g.Name)
	}), jobs.Options{Key: "demo.greet"})
}

// A whole scheduler in virtual time: a run that is asked for, and a recurring one over an hour.
func TestStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ticks := 0
		tick := jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { ticks++; return nil }), jobs.Options{Key: "demo.tick", Cron: "0 */10 * * * *"})
		s, err := embed.Start(t.Context(), embed.Config{}, greet(), tick)
		if err != nil {
			t.Fatal(err)
		}
		run, err := greetJob.Enqueue(t.Context(), s.Client(), greeting{"Ann"}, jobs.After(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Client().Wait(t.Context(), run.ID)
		if err != nil || r.State != jobs.Succeeded || string(r.Result) != `"hello Ann"` {
			t.Fatalf("%v: %+v", err, r)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if ticks != 6 {
			t.Errorf("every ten minutes came %d times in an hour", ticks)
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// Run drains: a handler that is at work when the context ends is waited for.
func TestRunDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started, finished := make(chan struct{}), false
		slow := jobs.NewRecurring(jobs.RecurringFunc(func(ctx context.Context) error {
			close(started)
			time.Sleep(5 * time.Second)
			finished = true
			return nil
		}), jobs.Options{Key: "demo.slow", Cron: "@every 1h"})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- embed.Run(ctx, embed.Config{}, slow) }()
		<-started
		cancel()
		if err := <-done; err != nil || !finished {
			t.Errorf("%v, the handler had finished: %v", err, finished)
		}
	})
}

// What was enqueued is there at the next start.
func TestDirectoryKeeps(t *testing.T) {
	dir := t.TempDir()
	s, err := embed.Start(t.Context(), embed.Config{Dir: dir}, greet())
	if err != nil {
		t.Fatal(err)
	}
	later, err := greetJob.Enqueue(t.Context(), s.Client(), greeting{"Ann"}, jobs.After(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := embed.Open(t.Context(), embed.Config{Dir: dir}); err == nil {
		t.Error("a directory was opened twice")
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if s, err = embed.Start(t.Context(), embed.Config{Dir: dir}, greet()); err != nil {
		t.Fatal(err)
	}
	if run, err := s.Client().Get(t.Context(), later.ID); err != nil || run.State != jobs.Scheduled {
		t.Errorf("the run became %+v (%v)", run, err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}

func TestHandler(t *testing.T) {
	s, err := embed.Start(t.Context(), embed.Config{Base: "/jobs"}, greet())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}()
	mux := http.NewServeMux()
	mux.Handle("/jobs/", s.Handler())
	server := httptest.NewServer(mux)
	defer server.Close()
	for path, want := range map[string]string{"/jobs/": "Overview", "/jobs/readyz": "ok", "/jobs/api/v1/jobs": "demo.greet", "/jobs/openapi.json": "openapi"} {
		answer, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != 200 || !strings.Contains(string(body), want) {
			t.Errorf("%s: %d, %v: %.300s", path, answer.StatusCode, err, body)
		}
		answer.Body.Close()
	}
	answer, err := http.Post(server.URL+"/jobs/api/v1/jobs/demo.greet/trigger", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	to, err := answer.Location()
	if err != nil {
		t.Fatal(answer.Status, err)
	}
	if answer, err = http.Get(to.String()); err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != 200 {
		t.Errorf("the run's location is %s: %s", to, answer.Status)
	}
}

// The public address serves no profiler, no variables of the process, and nothing of NATS's or raft's.
func TestNoDebugRoutes(t *testing.T) {
	s, err := embed.Open(t.Context(), embed.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/vars", "/varz", "/connz", "/jsz", "/raft", "/debug"} {
		answer := httptest.NewRecorder()
		s.Handler().ServeHTTP(answer, httptest.NewRequest("GET", path, http.NoBody))
		if answer.Code != 404 {
			t.Errorf("%s: %d %.200s", path, answer.Code, answer.Body)
		}
	}
}
