//go:build unix

package processtest

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A handler that heeds neither a cancel nor its timeout cannot be ended. It keeps its slot, and people can see it,
// until it returns.
func TestStuck(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	h := newFixture(t, "")
	h.hire(workerSpec{Name: "one"})
	over := filepath.Join(t.TempDir(), "over")

	cancelled := h.enqueue(oneJob, task{Until: over, Stubborn: true})
	timed := h.enqueue(hastyJob, task{Until: over, Stubborn: true}, jobs.WithRetries(0))
	stuck := []jobs.Receipt{cancelled, timed}
	for _, r := range stuck {
		h.wrote(began, r.ID, 1)
	}
	next := []jobs.Receipt{h.enqueue(oneJob, task{}), h.enqueue(hastyJob, task{})}
	h.do(http.MethodPost, "/api/v1/runs/"+cancelled.ID.String()+"/cancel", `{"reason":"to see whether it heeds"}`)
	asked := time.Now()

	for i, r := range stuck {
		await(t, "a handler is shown as stuck", func() bool { return h.run(r.ID).Stuck })
		t.Logf("shown as stuck %v after the cancel", time.Since(asked))
		in := h.run(r.ID)
		if want := []string{"Cancelled", "Terminated"}[i]; in.State != want || !in.Lingering {
			t.Errorf("the run is %s, lingering: %v", in.State, in.Lingering)
		}
		// Its slot is taken, so the next one waits.
		if in := h.run(next[i].ID); in.State != "Enqueued" || in.Waits == "" {
			t.Errorf("the next run is %s and waits at %q", in.State, in.Waits)
		}
	}
	if page := get[list[api.Run]](h, "/api/v1/runs?job="+string(oneJob)).Items; len(page) != 2 || !page[0].Stuck && !page[1].Stuck {
		t.Errorf("the list shows %+v", page)
	}

	returned := time.Now()
	create(t, over)
	for i, r := range stuck {
		h.becomes(next[i].ID.String(), "Succeeded")
		begun := h.wrote(began, next[i].ID, 1)
		t.Logf("the next run began %v after the handler could return", begun.At.Sub(returned))
		if end := h.wrote(ended, r.ID, 1); begun.At.Before(end.At) {
			t.Errorf("the next run began %v before the handler had returned", end.At.Sub(begun.At))
		}
		if in := h.run(r.ID); in.Stuck || in.Lingering {
			t.Errorf("the handler has returned and is shown as stuck: %v, lingering: %v", in.Stuck, in.Lingering)
		}
	}
}
