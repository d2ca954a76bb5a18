//go:build unix

package processtest

import (
	"errors"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/cmd/carillon/cli"
	"github.com/carillon-scheduler/carillon/internal/tests"
)

// A worker that is stopped while there is no server ends before Kubernetes would kill it, and its exit code and its
// error show that the outcome of a run may be missing.
func TestAWorkerEndsInTimeWithoutAServer(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	target := newCalled(t)
	h := newFixture(t, "")
	worker := h.hireHTTP("h1")
	h.do(http.MethodPost, "/api/v1/jobs", `{"key":"shop.slow","kind":"triggered","app":"http","retries":0,"http":{"request":[{"url":"`+target.url+`/slow"}]}}`)
	id := strings.Split(string(h.do(http.MethodPost, "/api/v1/jobs/shop.slow/trigger", `{}`)), `"id":"`)[1][:36]
	call := target.next("/slow")
	h.server.kill()
	began := time.Now()
	worker.signal(t, syscall.SIGTERM)
	call.reply <- `{}` // the run succeeds, and its report has no receiver
	await(t, "the worker ends", worker.over)
	took := time.Since(began)
	if took > 28*time.Second {
		t.Errorf("it ended after %v", took)
	}
	if e, ok := errors.AsType[*exec.ExitError](worker.err); !ok || e.ExitCode() != cli.Unknown {
		t.Errorf("it ended with %v, want exit code %d", worker.err, cli.Unknown)
	}
	if out := worker.out.tail(16 << 10); !strings.Contains(string(out), "carillon: worker: unknown outcome of 1 runs") || !strings.Contains(string(out), id) {
		t.Errorf("its output does not name run %s:\n%s", id, out)
	}
	t.Log("it ended after", took)
}
