package kernel

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Rows hold codes and values; these are the sentences about them.
func TestSentencesAreMadeOfCodes(t *testing.T) {
	at, by := noon, DerivedID("other")
	begun := func(r Run) Run {
		r, err := r.Begin(at, "", time.Time{})
		if err == nil {
			r, err = r.Start(at, "w1")
		}
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	check := func(what string, r Run, err error, want string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		m := &r.Moves[len(r.Moves)-1]
		if got := r.Text(m); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
		if m.State == jobs.Failed || m.State == jobs.Terminated {
			if got := r.Problem(); got != want {
				t.Errorf("the problem of %s: %q, want %q", what, got, want)
			}
		} else if r.Problem() != "" {
			t.Errorf("the problem of %s: %q", what, r.Problem())
		}
	}
	run := Run{ID: DerivedID("run"), Actor: "client:shop", StartBy: at, Terms: Terms{Timeout: time.Minute, Retries: 1}}
	fail := func(cause Cause, text string) (Run, error) { return begun(run).Fail(at, cause, "", text, 0, true) }
	r, err := fail(ByLoss, "")
	check("a loss", r, err, "worker w1 was lost: its lease expired")
	r, err = fail(ByTimeout, "")
	check("a timeout", r, err, "timeout after 1m0s")
	r, err = fail(ByTimeout, "too slow")
	check("a timeout in the worker's words", r, err, "too slow")
	r, err = fail(ByError, "no paper")
	check("an error", r, err, "no paper")
	waiting, err := run.Begin(at, "", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for _, skip := range []struct {
		cause      Cause
		gate, want string
	}{
		{ByDeadline, "", "not started by 2026-11-21T12:00:00.000Z"},
		{ByDeadline, "job/k", "not started by 2026-11-21T12:00:00.000Z: no free slot of its job"},
		{ByOverlap, "job/k", "no free slot of its job"}, {ByOverlap, LimitGate("db"), "no free slot of limit db"},
		{ByDisabled, "", "the job is disabled"}, {ByPause, "", "the job is paused"}, {ByDebug, "", "debug mode of recurring jobs is on"},
		{ByNoWorker, "", "no eligible worker was online"},
	} {
		r, err := waiting.Skip(at, skip.cause, skip.gate)
		check(string(skip.cause), r, err, skip.want)
	}
	one := waiting
	one.Terms.Overlap = jobs.OverlapQueueOne
	r, err = one.Skip(at, ByOverlap, "job/k")
	check("one that waits", r, err, "another run of the job waits for a slot of its job, and only one may wait")
	r, err = waiting.Replace(at, by)
	check("a newer run", r, err, "run "+by.String()+" of the same job replaced it")
	r, err = begun(run).Cancel(at, "person:ann", "wrong customer")
	check("a cancel", r, err, "wrong customer")
	if got := (&Held{By: ByItself, Failed: 3, Run: by, Reason: "no paper"}).Why(); got != "3 consecutive runs failed; the last was "+by.String()+": no paper" {
		t.Errorf("a job that paused itself: %q", got)
	}
	if got := (&Held{By: "person:ann", Reason: "sale"}).Why(); got != "sale" {
		t.Errorf("a job that a person paused: %q", got)
	}
}
