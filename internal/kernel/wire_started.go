package kernel

import (
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// AppendStarted appends a run as its worker needs it: without its history and its gates. last is the run before it in
// the same list, or nil; what runs of one job share is written once.
func AppendStarted(b []byte, run, last *Run) []byte {
	c := coder{buf: b}
	wireStarted(&c, run, last)
	return c.buf
}

// DecodeStarted reads one run from the front of b and returns the rest. last is the run that was read before it, or nil.
func DecodeStarted(b []byte, last *Run) (*Run, []byte, error) {
	c := coder{buf: b, reading: true, lenient: true}
	run := new(Run)
	wireStarted(&c, run, last)
	return run, c.buf, c.err
}

func wireStarted(c *coder, run, last *Run) {
	c.row(func(c *coder) {
		same := !c.reading && last != nil && alike(run, last)
		if c.bool(&same); same && last == nil {
			c.fail("a run like the one before, and none is")
			return
		}
		switch {
		case !same:
			wireShared(c, run)
		case c.reading:
			*run = Run{Tenant: last.Tenant, Job: last.Job, Key: last.Key, App: last.App, Kind: last.Kind, Revision: last.Revision, Handler: last.Handler, Work: last.Work,
				Origin: last.Origin, Actor: last.Actor, Terms: last.Terms, Priority: last.Priority, Worker: last.Worker}
		}
		c.id(&run.ID)
		number(c, &run.Attempt)
		bytesOf(c, &run.Args)
		c.time(&run.Due)
		near(c, &run.Created, run.Due)
		near(c, &run.Queued, run.Due)
		near(c, &run.Started, run.Due)
		near(c, &run.Deadline, run.Started)
		wireSeldom(c, run)
		if c.reading {
			run.State = jobs.Processing
		}
	})
}

// alike reports whether two runs have the same shared fields.
func alike(a, b *Run) bool {
	return a.Job == b.Job && a.Revision == b.Revision && a.Worker == b.Worker && a.Origin == b.Origin && a.Actor == b.Actor && a.Terms == b.Terms &&
		a.Priority == b.Priority && a.Tenant == b.Tenant && a.Key == b.Key && a.App == b.App && a.Kind == b.Kind && a.Handler == b.Handler && a.Work == b.Work
}

func wireShared(c *coder, run *Run) {
	word(c, &run.Tenant)
	c.id(&run.Job)
	word(c, &run.Key)
	word(c, &run.App)
	number(c, &run.Kind)
	number(c, &run.Revision)
	word(c, &run.Handler)
	word(c, &run.Work)
	word(c, &run.Origin)
	word(c, &run.Actor)
	wireTerms(c, &run.Terms)
	some(c, &run.Terms.Failing, wireFailing)
	signed(c, &run.Priority)
	word(c, &run.Worker)
}

// wireSeldom is what most first attempts do not have: one byte says so.
func wireSeldom(c *coder, run *Run) {
	has := run.Failures > 0 || run.Losses > 0 || len(run.Checkpoint) > 0 || run.Trace != "" || !run.Parent.IsZero() || run.Place != nil || run.Feedback != nil ||
		run.Execution > 0 || run.Depth > 0
	if c.bool(&has); !has {
		return
	}
	number(c, &run.Failures)
	number(c, &run.Losses)
	bytesOf(c, &run.Checkpoint)
	text(c, &run.Trace)
	c.id(&run.Parent)
	some(c, &run.Place, wirePlace)
	some(c, &run.Feedback, wireFeedback)
	number(c, &run.Execution)
	number(c, &run.Depth)
}

// near is a time as its distance from another, which is short; 0 = the zero time.
func near(c *coder, t *time.Time, from time.Time) {
	var n int64
	if !c.reading && !t.IsZero() {
		if n = int64(t.Sub(from)); n >= 0 {
			n++
		}
	}
	if c.int(&n); !c.reading {
		return
	}
	*t = time.Time{}
	switch {
	case n > 0:
		*t = from.Add(time.Duration(n - 1))
	case n < 0:
		*t = from.Add(time.Duration(n))
	}
}
