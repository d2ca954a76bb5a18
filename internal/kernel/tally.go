package kernel

import (
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Tally counts the runs of a job that entered each state within an hour or a day. Putting one adds it to the stored
// one. Hours are kept for KeepHours; then PurgeAudit adds them to their days.
type Tally struct {
	Tenant jobs.Tenant
	Job    jobs.ID
	Span   Span
	At     int64 // Unix nanoseconds of its start
	Sums
}

// Sums are the numbers of a Tally.
type Sums struct {
	Runs [jobs.Skipped + 1]int64 // by state
	Took time.Duration           // by the last attempts of the runs that succeeded, together
}

// Span is how much time a Tally counts.
type Span uint8

// The spans of tallies.
const (
	Hour Span = iota + 1
	Day       // from midnight UTC
)

// KeepHours is how long after its end an hour is counted apart from its day.
const KeepHours = 48 * time.Hour

// Length returns how long a span is.
func (s Span) Length() time.Duration {
	if s == Day {
		return 24 * time.Hour
	}
	return time.Hour
}

// Start returns the start of the span that a time is in, in Unix nanoseconds.
func (s Span) Start(at time.Time) int64 { return at.Truncate(s.Length()).UnixNano() }

// Start returns when the tally begins.
func (t *Tally) Start() time.Time { return time.Unix(0, t.At).UTC() }

// End returns when the tally ends.
func (t *Tally) End() time.Time { return t.Start().Add(t.Span.Length()) }

// Daily returns the tally as a part of its day.
func (t *Tally) Daily() *Tally {
	day := *t
	day.Span, day.At = Day, Day.Start(t.Start())
	return &day
}

// Add adds other numbers.
func (s *Sums) Add(o Sums) {
	for i, n := range o.Runs {
		s.Runs[i] += n
	}
	s.Took += o.Took
}

// Sub subtracts other numbers.
func (s *Sums) Sub(o Sums) {
	for i, n := range o.Runs {
		s.Runs[i] -= n
	}
	s.Took -= o.Took
}

// Ref returns the reference of the tally.
func (t *Tally) Ref() Ref {
	return Ref{Kind: RowTally, Tenant: t.Tenant, ID: t.Job, Span: t.Span, At: t.At}
}

func wireTally(c *coder, t *Tally) {
	text(c, &t.Tenant)
	c.id(&t.Job)
	number(c, &t.Span)
	c.int(&t.At)
	for i := range t.Runs {
		c.int(&t.Runs[i])
	}
	signed(c, &t.Took)
}
