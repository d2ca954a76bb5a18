package kernel

import (
	"time"
)

// The audit is exported as it grows: the leader sends each audit to the sinks of its configuration, in order and at
// least once, and records how far each sink is.

// The limits of sinks of the audit.
const (
	MaxAuditSinks     = 8
	MaxAuditSinkError = 300 // bytes
)

// AuditSink is how far the audits of a tenant are exported to a sink.
type AuditSink struct {
	Name    string
	N       uint64    // it has received all audits up to this one, except those of gaps
	Failing time.Time // since when it fails; zero = it does not
	Error   string    // of the last failure
	// GapFrom and GapTo are the last audits that were purged before the sink had received them; 0 = there are none.
	GapFrom, GapTo uint64
	GapAt          time.Time
}

// Exported records how far sinks are. Sinks names all that the leader has: others are forgotten, and audits are not kept
// for them. N never decreases.
//
// A gap from N+1 to GapTo means that these audits were purged before the sink received them. It is an audit of its own,
// so that a gap in a sink's lines can be told from lines that were removed there.
type Exported struct {
	Sinks []string
	Done  []AuditSink
}

// Verb returns the verb of the command.
func (Exported) Verb() Verb { return VerbExported }

// Check validates the names and numbers.
func (c Exported) Check() error {
	if len(c.Sinks) > MaxAuditSinks || len(c.Done) > MaxAuditSinks {
		return Invalid("%d sinks of the audit, at most %d are allowed", max(len(c.Sinks), len(c.Done)), MaxAuditSinks)
	}
	for _, name := range c.Sinks {
		if err := CheckName("sink of the audit", name); err != nil {
			return err
		}
	}
	for i := range c.Done {
		s := &c.Done[i]
		if err := CheckName("sink of the audit", s.Name); err != nil {
			return err
		}
		if len(s.Error) > MaxAuditSinkError {
			return Invalid("the error of sink %s has %d bytes: want at most %d of text", s.Name, len(s.Error), MaxAuditSinkError)
		}
		if s.GapFrom > s.GapTo || s.GapTo > s.N {
			return Invalid("sink %s has a gap from %d to %d and all up to %d: want a gap that ends there or before", s.Name, s.GapFrom, s.GapTo, s.N)
		}
	}
	return nil
}

// FirstAudit is the number of the oldest audit that is kept, if there is any.
func (g *Global) FirstAudit() uint64 { return max(1, g.AuditsFrom) }

// AuditSink returns how far a sink is, or nil.
func (g *Global) AuditSink(name string) *AuditSink {
	for i := range g.AuditSinks {
		if g.AuditSinks[i].Name == name {
			return &g.AuditSinks[i]
		}
	}
	return nil
}

// AuditSinkTarget is the target of the audit of a gap.
func AuditSinkTarget(name string) string { return "audit sink " + name }

// AuditGap is the audit of a gap, as far as its fields are read again.
type AuditGap struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// Beyond returns the audits that a sink lacks and that are not kept any more, or false.
func (g *Global) Beyond(s *AuditSink) (gap AuditGap, lost bool) {
	if first := g.FirstAudit(); s.N+1 < first {
		return AuditGap{From: s.N + 1, To: first - 1}, true
	}
	return AuditGap{}, false
}

func wireAuditSink(c *coder, s *AuditSink) {
	text(c, &s.Name)
	number(c, &s.N)
	c.time(&s.Failing)
	text(c, &s.Error)
	number(c, &s.GapFrom)
	number(c, &s.GapTo)
	c.time(&s.GapAt)
}

func wireExported(c *coder, k *Exported) {
	wireStrings(c, &k.Sinks)
	list(c, &k.Done, 7, wireAuditSink)
}
