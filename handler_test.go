package carillon_test

import (
	"context"
	"encoding/json"
	"errors"
	"html/template"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker"
)

// site is a program's HTTP server in a test.
type site struct {
	t       *testing.T
	handler http.Handler
}

func (s site) get(path string) (*http.Response, string) {
	s.t.Helper()
	return s.ask(http.MethodGet, path)
}

func (s site) ask(method, path string) (*http.Response, string) {
	s.t.Helper()
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, httptest.NewRequestWithContext(s.t.Context(), method, path, nil))
	answer := w.Result()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer, string(body)
}

// health asks until the worker is in a state.
func (s site) health(path string, want worker.State) {
	s.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		answer, body := s.get(path)
		var got struct {
			Status worker.State `json:"status"`
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			s.t.Fatalf("%s: %v", body, err)
		}
		if (got.Status == worker.Ready) != (answer.StatusCode == http.StatusOK) || answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusServiceUnavailable {
			s.t.Fatalf("a worker that is %s answers with %d", got.Status, answer.StatusCode)
		}
		if got.Status == want {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("health is %s, want %s", body, want)
		}
		select {
		case <-s.t.Context().Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// A program mounts its worker's page below two paths, with and without http.StripPrefix. The page has its jobs, its runs
// and those that finished, and health follows the worker from before its start until after its end.
func TestPageOfAWorker(t *testing.T) {
	server, address := serve(t)
	begun, end := make(chan bool, 10), make(chan bool) // a slow machine may lose the lease, and begin again
	const hostile = `<script>alert("x")</script>`
	w, err := carillon.NewWorker(address, worker.Config{App: "billing", Name: "w1", Slots: 4},
		jobs.NewTriggered(jobs.TriggeredFunc[charge](func(ctx context.Context, _ charge) error {
			jobs.Progress(ctx, 3, 10, hostile)
			begun <- true
			<-end
			return nil
		}), jobs.Options{Key: "billing.charge", Name: hostile, Description: hostile, Timeout: time.Hour}),
		jobs.NewTriggered(jobs.TriggeredFunc[charge](func(_ context.Context, c charge) error {
			return jobs.Fail("card_declined", errors.New("declined: the secret "+c.Customer))
		}), jobs.Options{Key: "billing.sleep"}),
		jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return nil }), jobs.Options{Key: "billing.close", Cron: "0 3 1 1 *"}))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/internal/worker/", http.StripPrefix("/internal/worker", carillon.Handler(w, carillon.HandlerConfig{Dashboard: "https://jobs.example.com/"})))
	mux.Handle("GET /w/", carillon.Handler(w, carillon.HandlerConfig{}))
	s := site{t, mux}
	s.health("/w/health", worker.Starting)

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	s.health("/w/health", worker.Ready)
	c, err := carillon.Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	failed, err := sleepJob.Enqueue(ctx, c, charge{"4111"})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := c.Wait(ctx, failed.ID); r.State != jobs.Terminated {
		t.Fatalf("%+v, %v", r, err)
	}
	for len(w.Status().Recent) == 0 { // the worker gets the answer to its report after the client does
		time.Sleep(5 * time.Millisecond)
	}
	run, err := chargeJob.Enqueue(ctx, c, charge{"5222"})
	if err != nil {
		t.Fatal(err)
	}
	<-begun

	for path, link := range map[string]string{"/internal/worker/": `href="https://jobs.example.com/runs/` + run.ID.String() + `"`, "/w/": run.ID.String() + "</span>"} {
		answer, page := s.get(path)
		if answer.StatusCode != http.StatusOK || !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/html") {
			t.Fatalf("%s: %d: %s", path, answer.StatusCode, page)
		}
		for _, want := range []string{"billing.charge", "billing.close", "0 3 1 1 *", failed.ID.String(), "card_declined", ">error<", "3 of 10", link, "of 4", ">ready<", "01-01 03:00:00 UTC"} {
			if !strings.Contains(page, want) {
				t.Errorf("%s: the page does not have %q", path, want)
			}
		}
		for _, secret := range []string{"4111", "5222", "declined: the secret"} {
			if strings.Contains(page, secret) {
				t.Errorf("%s: the page shows %q", path, secret)
			}
		}
		if strings.Contains(page, "<script") || !strings.Contains(page, "&lt;script&gt;") {
			t.Errorf("%s: a name is not escaped: %s", path, page)
		}
		if strings.Contains(page, `href="/`) || strings.Contains(page, `src="/`) {
			t.Errorf("%s: a link is not relative", path)
		}
		for _, file := range []string{"style.css", "bell.svg", "health"} {
			if answer, body := s.get(path + file); answer.StatusCode != http.StatusOK || body == "" {
				t.Errorf("%s: %d", path+file, answer.StatusCode)
			}
		}
		policy := answer.Header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; style-src 'self'; img-src 'self'") || strings.Contains(policy, "script") ||
			answer.Header.Get("X-Content-Type-Options") != "nosniff" || answer.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: headers are %v", path, answer.Header)
		}
	}
	for _, path := range []string{"/w/nothing", "/internal/worker/handler.gohtml", "/internal/worker/live.js"} {
		if answer, _ := s.get(path); answer.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, answer.StatusCode)
		}
	}
	if answer, _ := s.ask(http.MethodPost, "/internal/worker/"); answer.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", answer.StatusCode)
	}

	port := server.Port()
	if err := server.Stop(); err != nil { // the run continues meanwhile
		t.Fatal(err)
	}
	s.health("/w/health", worker.Disconnected)
	if _, page := s.get("/w/"); !strings.Contains(page, "No control plane answers.") || !strings.Contains(page, run.ID.String()) {
		t.Errorf("of a disconnected worker, the page is %s", page)
	}
	if server, err = embedded.Start(embedded.Config{Port: port}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	s.health("/w/health", worker.Ready)

	stop()
	s.health("/w/health", worker.Leaving)
	close(end)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	s.health("/w/health", worker.Stopped)
	if _, page := s.get("/w/"); !strings.Contains(page, ">success<") {
		t.Errorf("the run that finished is not on the page: %s", page)
	}
}

// A program without the page does not link the templates, which would make it half as large again.
func TestThePageIsLinkedOnDemand(t *testing.T) {
	const program = `package main

import (
	"context"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

func main() {
	w, err := carillon.NewWorker("", worker.Config{}, jobs.NewRecurring(nil, jobs.Options{}))
	_, _ = err, w.Run(context.Background())
}`
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", binary, source)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	linked := read(t, binary) // it has the name of each function, for traces
	for name, want := range map[string]bool{nameOf((*worker.Worker).Run): true, nameOf((*template.Template).Execute): false} {
		if got := strings.Contains(linked, name+"\x00"); got != want {
			t.Errorf("%s is linked: %t, want %t", name, got, want)
		}
	}
}

// nameOf is a function's name in a program.
func nameOf(function any) string {
	return runtime.FuncForPC(reflect.ValueOf(function).Pointer()).Name()
}

// A worker that was asked to take no new runs answers probes with 503, and says why.
func TestPageOfADrainedWorker(t *testing.T) {
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	sched, err := embed.Start(t.Context(), embed.Config{Bus: func(ctx context.Context, as bus.Principal) (bus.Bus, error) {
		return natsbus.Connect(ctx, server.URL(), natsbus.Config{As: as})
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sched.Stop() })
	w, err := carillon.NewWorker(server.URL(), worker.Config{},
		jobs.NewTriggered(jobs.TriggeredFunc[charge](func(context.Context, charge) error { return nil }), jobs.Options{Key: "billing.charge"}))
	if err != nil {
		t.Fatal(err)
	}
	background(t, w.Run)
	s := site{t, carillon.Handler(w, carillon.HandlerConfig{})}
	s.health("/health", worker.Ready)
	if _, err := sched.Ops().Drain(t.Context(), ops.Who{Actor: "person:ann", Role: ops.Admin}, w.Name(), true); err != nil {
		t.Fatal(err)
	}
	s.health("/health", worker.Drained)
	if _, page := s.get("/"); !strings.Contains(page, "asked to take no new runs") {
		t.Errorf("the page is %s", page)
	}
	if _, err := sched.Ops().Drain(t.Context(), ops.Who{Actor: "person:ann", Role: ops.Admin}, w.Name(), false); err != nil {
		t.Fatal(err)
	}
	s.health("/health", worker.Ready)
}
