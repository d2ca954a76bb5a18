//go:build unix

package processtest

import (
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Very many runs wait without a worker: they cause no messages. The first worker that registers starts at once.
func TestFlood(t *testing.T) {
	tests.Long(t)
	many, idle := tests.Size(0, 20_000, 1_000_000), tests.Size(0, 3*time.Second, time.Minute)
	h := newFixture(t, "")
	h.hire(workerSpec{Name: "one"}).stop(t, syscall.SIGTERM) // it leaves, and its jobs are known

	var messages, pushes atomic.Int64
	ear, err := nats.Connect("nats://"+h.nats, nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer ear.Close()
	for _, subject := range []string{"to.>", "signal.>"} {
		_, err := ear.Subscribe(subject, func(m *nats.Msg) {
			messages.Add(1)
			if !strings.HasPrefix(m.Subject, "signal.") {
				pushes.Add(1)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := ear.Flush(); err != nil {
		t.Fatal(err)
	}
	asking := time.Now()
	for left := many; left > 0; {
		n := min(left, 10_000)
		if _, err := floodJob.EnqueueAll(t.Context(), h.client, make([]task, n)); err != nil {
			t.Fatal(err)
		}
		left -= n
	}
	t.Logf("%d runs were enqueued in %v", many, time.Since(asking))
	time.Sleep(idle) // no server runs
	t.Logf("%d messages were published", messages.Load())
	if n := pushes.Load(); n > 0 {
		t.Errorf("%d pushes of runs that no worker can take", n)
	}
	if live := get[api.Overview](h, "/api/v1/overview").Runs["Enqueued"]; live != many {
		t.Errorf("%d runs wait", live)
	}

	w := h.hire(workerSpec{Name: "two"})
	registered := time.Now()
	var first line
	await(t, "a first run has begun", func() bool {
		for _, l := range h.lines() {
			if l.PID == w.pid() && l.What == began {
				first = l
				return true
			}
		}
		return false
	})
	t.Logf("the first run began %v after the worker was known", first.At.Sub(registered))
	working := time.Now()
	h.quiet()
	t.Logf("all had run %v after that", time.Since(working))
	counts, err := h.rows.Counts(t.Context(), metastore.CountQuery{Job: jobs.Key(floodJob), From: asking.Add(-time.Hour), To: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	ran := int64(0)
	for _, hour := range counts.Tallies {
		ran += hour.Runs[jobs.Succeeded]
	}
	if ran != int64(many) {
		t.Errorf("%d of %d runs have succeeded", ran, many)
	}
}
