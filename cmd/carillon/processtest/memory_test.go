//go:build unix

package processtest

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A server whose data nears its memory limit refuses further runs, and serves all else: cancelled runs make room.
func TestMemoryLimit(t *testing.T) {
	tests.Long(t)
	h := newFixture(t, "")
	h.hire(workerSpec{Name: "one"}).stop(t, syscall.SIGTERM) // its jobs are known
	h.server.stop(t, syscall.SIGTERM)
	h.env = []string{"GOMEMLIMIT=128MiB"}
	h.serve()

	var text strings.Builder // that does not compress
	for rng := rand.New(rand.NewPCG(1, 2)); text.Len() < 200_000; {
		text.WriteString(strconv.FormatUint(rng.Uint64(), 36))
	}
	large := task{Until: text.String()}
	var err error
	n := 0
	for ; err == nil && n < 2_000; n++ {
		_, err = floodJob.Enqueue(t.Context(), h.client, large)
	}
	if !errors.Is(err, jobs.Exhausted) || !strings.Contains(err.Error(), "memory limit") {
		t.Fatalf("run %d: %v", n, err)
	}
	t.Logf("run %d: %v", n, err)
	if n < 100 || n > 500 {
		t.Errorf("%d runs of 200 kB are admitted to a limit of 128 MiB", n)
	}
	h.do(http.MethodPost, "/api/v1/bulk/runs/cancel", `{"filter":{"state":"Enqueued"}}`)
	await(t, "there is room again", func() bool {
		_, err := floodJob.Enqueue(t.Context(), h.client, task{Number: 1})
		return err == nil
	})
}
