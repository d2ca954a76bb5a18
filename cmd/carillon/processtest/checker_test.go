//go:build unix

package processtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/chaos/judge"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// history is the evidence of a test: from the client, the handlers, and the store at the end.
type history struct {
	began, read time.Time
	asked       []asked // in order of time
	lines       []line  // in order of time
	runs        []*kernel.Run
	ledger      []*kernel.Missed

	jobs   []*kernel.Definition // those that are due by themselves
	paused []judge.Op
	gone   map[int]time.Time // processes that were killed or frozen
	once   bool              // nothing has happened that excuses a second attempt
}

// asked is one request of the client with its response.
type asked struct {
	at        time.Time
	request   jobs.Request
	run       jobs.ID // that was answered
	duplicate bool
	err       error // it may or may not have been done
}

// specs are the jobs of the worker in the judge's form.
var specs = []judge.Spec{
	{Key: string(plainJob), Overlap: "queue"},
	{Key: string(threeJob), Overlap: "queue", MaxConcurrency: 3},
	{Key: string(oneJob), Overlap: "queue", MaxConcurrency: 1},
	{Key: string(hastyJob), Overlap: "queue", MaxConcurrency: 1, Timeout: time.Second, Retries: 1},
	{Key: string(tickAllJob), Overlap: "queue", Schedule: "* * * * * *", Misfire: "fire_all"},
	{Key: string(tickOneJob), Overlap: "queue", Schedule: "* * * * * *", Misfire: "fire_once"},
}

// check passes a history to the judge and returns its verdict.
func (h *history) check(t *testing.T) *judge.Verdict {
	t.Helper()
	v := judge.Judge(h.evidence(t.Name()))
	v.Print(t.Output())
	if !v.Pass {
		t.Errorf("the judge names %q", v.Broken())
	}
	begun := map[jobs.ID]uint32{}
	for _, l := range h.lines {
		if h.once && begun[l.Run] != 0 && begun[l.Run] != l.Attempt {
			t.Errorf("run %s of %s had attempts %d and %d without need", l.Run, l.Key, begun[l.Run], l.Attempt)
		}
		begun[l.Run] = l.Attempt
	}
	return v
}

// moment is a time of this machine, whose clock no fault changes here.
func moment(at time.Time) judge.Moment { return judge.Moment{Wall: at.UnixNano(), Mono: at.UnixNano()} }

// evidence is a history in the judge's form. Servers and buses fail all the time, which excuses late runs; when exactly
// a killed or frozen process stopped is unknown.
func (h *history) evidence(name string) *judge.Case {
	c := &judge.Case{Setup: judge.Setup{Name: name, Began: moment(h.began), Skew: 2 * time.Millisecond}, History: h.paused}
	c.Faults = append(c.Faults, judge.Fault{Kind: "test", Role: judge.Control, Begin: moment(h.began)})
	for pid, at := range h.gone {
		c.Faults = append(c.Faults, judge.Fault{Kind: judge.Freeze, Role: judge.Worker, PID: pid, Begin: moment(at)})
	}
	for _, s := range specs {
		if s.Schedule == "" || len(h.jobs) > 0 {
			c.Specs = append(c.Specs, s)
		}
	}
	seen := map[jobs.ID]bool{}
	for _, a := range h.asked {
		w := &a.request
		o := judge.Op{What: judge.Create, Invoked: moment(a.at), Returned: moment(a.at), Outcome: judge.OK, Key: string(w.Key), Run: a.run.String(), RequestID: w.ID.String(),
			Idempotency: w.Idempotency, Unique: w.Unique, Duplicate: a.duplicate}
		if w.Delay > 0 && !seen[w.ID] { // the same request, sent later: the delay counts from the first
			o.Due = a.at.Add(w.Delay).UnixNano()
		}
		seen[w.ID] = true
		if a.err != nil {
			o.Outcome, o.Run, o.Text = judge.Unknown, "", a.err.Error()
		}
		c.History = append(c.History, o)
	}
	for _, l := range h.lines {
		what, outcome := judge.Start, ""
		if l.What == ended {
			what, outcome = judge.End, "ok"
			if l.Cause != "" {
				outcome = l.Cause
			}
		}
		c.Journal = append(c.Journal, judge.Line{What: what, Key: string(l.Key), Run: l.Run.String(), Due: l.Due.UnixNano(), Attempt: l.Attempt, PID: l.PID, At: moment(l.At), Outcome: outcome})
	}
	s := judge.Store{At: moment(h.read)}
	for _, run := range h.runs {
		r := judge.Run{ID: run.ID.String(), Key: string(run.Key), State: run.State.String(), Cause: string(run.Cause), Origin: string(run.Origin), Due: run.Due, Created: run.Created,
			Ended: run.Ended, RetryAt: run.RetryAt, Attempt: run.Attempt, Worker: run.Worker, Unique: run.Unique, Error: run.Error, Result: run.Result}
		for _, m := range run.Moves {
			r.Moves = append(r.Moves, judge.Move{State: m.State.String(), Cause: string(m.Cause), At: m.At, Attempt: m.Attempt, By: m.By})
		}
		s.Runs = append(s.Runs, r)
	}
	for _, m := range h.ledger {
		s.Missed = append(s.Missed, judge.Missed{Key: string(m.Key), From: m.From, To: m.To, Count: m.Count, Reason: string(m.Reason)})
	}
	for _, d := range h.jobs {
		s.Definitions = append(s.Definitions, judge.Definition{Key: string(d.Key), Schedule: d.Policy.Schedule, Created: d.Created})
	}
	c.Stores = []judge.Store{s}
	return c
}

// count logs the size of a history: a test of nothing proves nothing.
func (h *history) count(t *testing.T) {
	t.Helper()
	duplicates := 0
	for _, a := range h.asked {
		if a.duplicate {
			duplicates++
		}
	}
	t.Log(fmt.Sprint(len(h.asked), " requests, of which ", duplicates, " returned an earlier run"))
}

// unknown returns how many requests have no response.
func (h *history) unknown() (n int) {
	for _, a := range h.asked {
		if a.err != nil {
			n++
		}
	}
	return n
}
