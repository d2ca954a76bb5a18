package metastore

import (
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// purgesAtOnce is how many audits an Exported purges: a sink that was away for long frees many.
const purgesAtOnce = 1000

// exported records how far sinks of the audit are, and purges what all of them have.
func (c *change) exported(k kernel.Exported) error {
	g := c.global()
	list := slices.DeleteFunc(slices.Clone(g.AuditSinks), func(s kernel.AuditSink) bool { return !slices.Contains(k.Sinks, s.Name) })
	var gaps []kernel.AuditSink
	for _, done := range k.Done {
		if !slices.Contains(k.Sinks, done.Name) {
			continue
		}
		at := slices.IndexFunc(list, func(s kernel.AuditSink) bool { return s.Name == done.Name })
		if at < 0 {
			at = len(list)
			list = append(list, kernel.AuditSink{Name: done.Name})
		} else if done.GapTo > list[at].N && done.GapFrom == list[at].N+1 {
			gaps = append(gaps, done)
		}
		s := &list[at]
		s.N = max(s.N, min(done.N, g.Audits))
		s.Failing, s.Error = done.Failing, done.Error
		if len(gaps) > 0 && gaps[len(gaps)-1].Name == s.Name {
			s.GapFrom, s.GapTo, s.GapAt = done.GapFrom, done.GapTo, c.at
		}
	}
	slices.SortFunc(list, func(a, b kernel.AuditSink) int { return strings.Compare(a.Name, b.Name) })
	if slices.EqualFunc(list, g.AuditSinks, sameSink) {
		c.effect.Existing = true
		return nil
	}
	c.count(func(g *kernel.Global) { g.AuditSinks = list })
	for _, s := range gaps {
		c.audit(kernel.AuditSinkTarget(s.Name), nil, fields{"from": s.GapFrom, "to": s.GapTo})
	}
	c.purgeAudits(purgesAtOnce)
	return nil
}

func sameSink(a, b kernel.AuditSink) bool {
	return a.Name == b.Name && a.N == b.N && a.Failing.Equal(b.Failing) && a.Error == b.Error && a.GapFrom == b.GapFrom && a.GapTo == b.GapTo && a.GapAt.Equal(b.GapAt)
}

// purgeAudits purges audits beyond MaxAudits, the oldest first, and at most as many as that. Those that a sink lacks wait
// until there are more than MaxAuditsWaiting.
func (c *change) purgeAudits(most int) {
	g := *c.global()
	received := g.Audits
	for i := range g.AuditSinks {
		received = min(received, g.AuditSinks[i].N)
	}
	first := g.FirstAudit()
	for ; most > 0; most-- {
		kept := g.Audits + 1 - first
		if kept <= kernel.MaxAudits || first > received && kept <= kernel.MaxAuditsWaiting {
			break
		}
		c.tx.Delete(kernel.AuditRef(g.Tenant, first))
		first++
	}
	if first != g.FirstAudit() {
		g.AuditsFrom = first
		c.tx.Put(&g)
	}
}
