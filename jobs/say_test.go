package jobs

import (
	"testing"
	"time"
)

// Rows hold codes and values; these are the sentences about them.
func TestSentencesAreMadeOfCodes(t *testing.T) {
	at, by := noon, DerivedID("other")
	begun := func(in Instance) Instance {
		in, err := in.Begin(at, "", time.Time{})
		if err == nil {
			in, err = in.Claim(at, "w1")
		}
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	check := func(what string, in Instance, err error, want string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		m := &in.Moves[len(in.Moves)-1]
		if got := in.Says(m); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
		if m.State == Failed || m.State == Terminated {
			if got := in.Problem(); got != want {
				t.Errorf("the problem of %s: %q, want %q", what, got, want)
			}
		} else if in.Problem() != "" {
			t.Errorf("the problem of %s: %q", what, in.Problem())
		}
	}
	run := Instance{ID: DerivedID("run"), Actor: "client:shop", StartBy: at, Terms: Terms{Timeout: time.Minute, Retries: 1}}
	fail := func(cause Cause, text string) (Instance, error) { return begun(run).Fail(at, cause, "", text, 0, true) }
	in, err := fail(ByLoss, "")
	check("a loss", in, err, "worker w1 stopped answering")
	in, err = fail(ByTimeout, "")
	check("a timeout", in, err, "timeout after 1m0s")
	in, err = fail(ByTimeout, "too slow")
	check("a timeout in the worker's words", in, err, "too slow")
	in, err = fail(ByError, "no paper")
	check("an error", in, err, "no paper")
	waiting, err := run.Begin(at, "", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for _, skip := range []struct {
		cause      Cause
		gate, want string
	}{
		{ByDeadline, "", "not started by 2026-11-21T12:00:00.000Z"},
		{ByDeadline, "job/k", "not started by 2026-11-21T12:00:00.000Z: no free slot at job/k"},
		{ByOverlap, "job/k", "no free slot at job/k"},
		{ByDisabled, "", "the job is disabled"}, {ByPause, "", "the job is paused"}, {ByDebug, "", "debug mode of recurring jobs is on"},
		{ByNobody, "", "no worker that may take it was there"},
	} {
		in, err := waiting.Skip(at, skip.cause, skip.gate)
		check(string(skip.cause), in, err, skip.want)
	}
	one := waiting
	one.Terms.Overlap = OverlapQueueOne
	in, err = one.Skip(at, ByOverlap, "job/k")
	check("one that waits", in, err, "another run of the job waits for a slot at job/k, and only one may")
	in, err = waiting.Replace(at, by)
	check("a newer run", in, err, "run "+by.String()+" of the same job took its place")
	in, err = begun(run).Cancel(at, "person:ann", "wrong customer")
	check("a cancel", in, err, "wrong customer")
	if got := (&Held{By: ByItself, Failed: 3, Run: by, Reason: "no paper"}).Why(); got != "3 runs in a row failed; the last was "+by.String()+": no paper" {
		t.Errorf("a job that paused itself: %q", got)
	}
	if got := (&Held{By: "person:ann", Reason: "sale"}).Why(); got != "sale" {
		t.Errorf("a job that somebody paused: %q", got)
	}
}
