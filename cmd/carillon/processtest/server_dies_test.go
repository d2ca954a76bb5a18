//go:build unix

package processtest

import (
	"net/http"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
)

// The server is killed again and again under two hundred requests a second, while its workers live. What it has
// acknowledged runs to its end, once; and every due time of a recurring job is a run, or has its line in the ledger.
func TestKilledServer(t *testing.T) {
	rounds := tests.Size(1, 2, 10)
	h := newFixture(t, "")
	for _, name := range []string{"one", "two"} {
		h.hire(workerSpec{Name: name, Slots: 64, Ticks: true})
	}
	// A due time that is a second late is a misfire, so that an outage of three has some.
	h.do(http.MethodPatch, "/api/v1/settings", `{"misfireAfter":"1s"}`)
	l := h.press(200)
	for round := range rounds {
		time.Sleep(1500 * time.Millisecond) // under load
		h.server.kill()
		if round%2 == 0 {
			time.Sleep(3 * time.Second) // no server runs to start it again
		}
		started := time.Now()
		took := h.serve()
		first := h.enqueue(plainJob, task{})
		l.add(asked{at: started, request: jobs.Request{ID: first.ID, Key: first.Key}, run: first.ID})
		begun := h.wrote(began, first.ID, 1)
		t.Logf("round %d: ready %v after its start, and a run began after %v", round+1, took, begun.At.Sub(started))
		if n := l.repeat(20); n == 0 {
			t.Error("no run was over that could be asked for again")
		}
	}
	time.Sleep(time.Second) // under load
	l.stop()
	h.pause(tickAllJob, tickOneJob)
	h.quiet()
	l.repeat(50)
	h.quiet()

	y := h.history(tickAllJob, tickOneJob)
	y.asked, y.once = l.results(), true
	y.check(t)
	y.count(t)
	if unknown := y.unknown(); unknown > 0 {
		t.Errorf("%d requests got no response in half a minute", unknown)
	}
	late := map[jobs.Key]int{}
	for _, m := range y.ledger {
		if m.Reason == kernel.MissedLate {
			late[m.Key] += int(m.Count)
		}
	}
	if late[tickOneJob] == 0 || late[tickAllJob] != 0 {
		t.Errorf("missed due times %v: the one that fires once has some, and the one that fires all has none", late)
	}
}
