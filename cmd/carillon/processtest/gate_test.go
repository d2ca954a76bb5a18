//go:build unix

package processtest

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A thousand runs of a job with concurrency limit 1: each begins when the one before ends, without polling.
func TestOneAtATime(t *testing.T) {
	tests.Long(t)
	h := newFixture(t, "")
	for _, name := range []string{"one", "two"} {
		h.hire(workerSpec{Name: name})
	}
	many := 1000
	asking := time.Now()
	runs, err := oneJob.EnqueueAll(t.Context(), h.client, make([]task, many))
	if err != nil {
		t.Fatal(err)
	}
	h.quiet()
	t.Logf("%d runs, one at a time, took %v", many, time.Since(asking))
	y := h.history()
	y.once = true
	for _, r := range runs {
		y.asked = append(y.asked, asked{at: asking, request: jobs.Request{ID: r.ID, Key: r.Key}, run: r.ID})
	}
	y.check(t)
}
