//go:build unix

package processtest

import (
	"net/http"
	"regexp"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
)

// The first minute of a new user: one command, a page within a second, jobs that run. dev ends at a signal, and
// continues from there at the next start.
func TestDev(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	path, err := carillonProgram()
	if err != nil {
		t.Fatal(err)
	}
	h := &fixture{t: t, data: t.TempDir() + "/data", journals: t.TempDir()}
	grace := tests.Size("2s", "2s", "30s")
	args := []string{"dev", "--data", h.data, "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0", "--grace", grace}
	dev := h.develop(path, args)
	h.dial()
	h.rang("demo.chime", 1)

	second := start(t, "a second dev", path, nil, args...)
	await(t, "a second dev on the same data ends", second.over)
	if second.code() != 1 || !second.out.has(h.data) || !second.out.has("in use by another process") {
		t.Errorf("it ended with %d and printed %s", second.code(), second.out)
	}

	// A signal waits for current runs within the grace, and returns them after it. The schedule may have started a
	// report just now, so two of them must be allowed.
	h.do(http.MethodPatch, "/api/v1/jobs/demo.report", `{"maxConcurrency":0}`)
	report := decode[api.Run](t, h.do(http.MethodPost, "/api/v1/jobs/demo.report/trigger", ""))
	id, err := jobs.ParseID(report.ID)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the report is being written", func() bool { return h.run(id).State == "Processing" })

	asked := time.Now()
	dev.stop(t, syscall.SIGTERM)
	t.Logf("it stopped after %v", time.Since(asked))
	if regexp.MustCompile(`127\.0\.0\.1:4222\b`).MatchString(dev.out.String()) {
		t.Errorf("it speaks of an address that it was not given: %s", dev.out)
	}

	h.develop(path, args)
	h.dial()
	in := h.run(id)
	switch {
	case tests.Rough() && (in.State != "Succeeded" || in.Attempt != 1):
		t.Errorf("the report was waited for and is %s in attempt %d", in.State, in.Attempt)
	case !tests.Rough() && !slices.ContainsFunc(in.Moves, func(m api.Move) bool { return m.Cause == string(kernel.ByHandback) }):
		t.Errorf("the report was not returned: %+v", in.Moves)
	}
	if now := get[api.Job](h, "/api/v1/jobs/demo.report"); *now.MaxConcurrency != 0 {
		t.Errorf("the edit is forgotten: %d reports are allowed", *now.MaxConcurrency)
	}
	h.rang("demo.chime", 2)
	if !tests.Rough() { // the long form is as long as the report
		h.do(http.MethodPost, "/api/v1/runs/"+report.ID+"/cancel", "")
	}
	h.pause("demo.chime", "demo.report", "demo.flaky")

	// Nothing that was due between the first start and now was forgotten, or done twice.
	h.recorded("demo.chime", 5*time.Second)
}

// recorded checks that each due time of a job with this interval has one run or is in one missed range. Its handlers
// write no journals, so the judge cannot check it.
func (h *fixture) recorded(key jobs.Key, every time.Duration) {
	h.t.Helper()
	y := h.history(key)
	records := map[time.Time]int{}
	for _, run := range y.runs {
		if run.Key == key && run.Origin.Automatic() {
			records[run.Due.UTC()]++
		}
	}
	dues := 0
	for due := y.jobs[0].Created.UTC().Truncate(every).Add(every); !due.After(y.jobs[0].Cursor); due = due.Add(every) {
		dues++
		for _, m := range y.ledger {
			if !due.Before(m.From) && !due.After(m.To) {
				records[due]++
			}
		}
		if n := records[due]; n != 1 {
			h.t.Errorf("%s has %d records for %v", key, n, due)
		}
	}
	if dues < 2 {
		h.t.Errorf("%s was due %d times", key, dues)
	}
}

// develop starts `carillon dev` and reads its addresses from its output.
func (h *fixture) develop(path string, args []string) *process {
	h.t.Helper()
	dev := start(h.t, "carillon dev", path, nil, args...)
	await(h.t, "the page's address is printed", func() bool {
		h.http, h.nats = addressIn(dev, "page"), addressIn(dev, "bus")
		return h.http != "" && h.nats != ""
	})
	h.t.Logf("the page's address was printed after %v", time.Since(dev.began))
	h.ready(dev)
	h.t.Logf("it was ready after %v", time.Since(dev.began))
	return dev
}

// rang waits until so many runs of a job have succeeded.
func (h *fixture) rang(key string, times int) {
	h.t.Helper()
	await(h.t, key+" rings", func() bool {
		return len(get[list[api.Run]](h, "/api/v1/runs?state=Succeeded&job="+key).Items) >= times
	})
}
