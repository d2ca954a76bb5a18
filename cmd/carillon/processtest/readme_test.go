//go:build unix

package processtest

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
)

// The worker in the README, as a reader would make it: in a module of its own. It registers, runs its recurring job
// and its typed one, and one that is due in five seconds, never before.
func TestReadme(t *testing.T) {
	t.Parallel()
	h := newFixture(t, "")
	w := start(t, "the README's worker", buildReadme(t, "nats://"+h.nats), nil)
	h.known(w)

	close := decode[api.Run](t, h.do(http.MethodPost, "/api/v1/jobs/billing.close-day/trigger", ""))
	h.becomes(close.ID, "Succeeded")
	h.logged(close.ID, "closing the day")

	type chargeArgs struct {
		Customer string `json:"customer"`
		Cents    int    `json:"cents"`
	}
	const delay = 5 * time.Second
	sent := time.Now()
	r, err := jobs.Trigger[chargeArgs]("billing.charge").Enqueue(t.Context(), h.client, chargeArgs{"c7", 990}, jobs.After(delay))
	if err != nil {
		t.Fatal(err)
	}
	run, err := h.client.Wait(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	if run.State != jobs.Succeeded || string(run.Result) != `{"charged":990}` {
		t.Errorf("it is %v with the result %s", run.State, run.Result)
	}
	if run.Started.Before(sent.Add(delay)) || run.Started.Before(run.Due) {
		t.Errorf("sent at %v, due at %v, begun at %v", sent, run.Due, run.Started)
	}
	t.Logf("it began %v after it was due", run.Started.Sub(run.Due))
	h.logged(r.ID.String(), "charging customer=c7 cents=990")
	w.stop(t, syscall.SIGINT)
}

// buildReadme builds the worker in the README against this checkout.
func buildReadme(t *testing.T, url string) string {
	t.Helper()
	checkout, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(checkout, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```go\n(// worker.go\n.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatal("the README has no worker.go")
	}
	const there = "nats://127.0.0.1:4222"
	source := string(block[1])
	if strings.Count(source, there) != 1 {
		t.Fatalf("the README's worker does not name %s once", there)
	}
	dir := t.TempDir()
	file, program := filepath.Join(dir, "worker.go"), filepath.Join(dir, "worker")
	if err := os.WriteFile(file, []byte(strings.Replace(source, there, url, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	build := tests.Go("build", "-o", program, file)
	build.Dir = checkout // whose modules are here, since this test was built of them
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the README's worker: %v\n%s", err, out)
	}
	return program
}

// becomes waits until a run is in a state.
func (h *fixture) becomes(id, state string) {
	h.t.Helper()
	await(h.t, "run "+id+" is "+state, func() bool {
		return get[api.Run](h, "/api/v1/runs/"+id).State == state
	})
}

// logged waits until a run's log has a line with this text.
func (h *fixture) logged(id, text string) {
	h.t.Helper()
	await(h.t, fmt.Sprintf("run %s has logged %q", id, text), func() bool {
		for _, l := range get[list[api.LogLine]](h, "/api/v1/runs/"+id+"/log").Items {
			if strings.Contains(l.Text, text) {
				return true
			}
		}
		return false
	})
}
