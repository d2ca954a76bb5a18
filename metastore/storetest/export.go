package storetest

import (
	"fmt"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// exported reads an Exported.
func (tl *telling) exported(w words) kernel.Command {
	k := kernel.Exported{Sinks: w.names}
	if name, n, ok := strings.Cut(w.take("to"), ":"); ok {
		s := kernel.AuditSink{Name: name, N: uint64(tl.number(n)), Failing: tl.at(w.take("failing")), Error: w.take("error")}
		if from, to, ok := strings.Cut(w.take("gap"), "-"); ok {
			s.GapFrom, s.GapTo = uint64(tl.number(from)), uint64(tl.number(to))
		}
		k.Done = []kernel.AuditSink{s}
	}
	return k
}

// showSinks shows how far the audit of a tenant is exported.
func showSinks(tl *telling, w words) string {
	g, err := tl.h.Store.Global(tl.t.Context(), tenantOf(w))
	if err != nil {
		return refusedRead(err)
	}
	if len(g.AuditSinks) == 0 {
		return "none"
	}
	var list []string
	for _, s := range g.AuditSinks {
		p := phrase{fmt.Sprintf("sink %s has %d of %d audits", s.Name, s.N, g.Audits)}
		p.add(!s.Failing.IsZero(), "fails since %s: %s", since(s.Failing), s.Error)
		p.add(s.GapTo > 0, "gap from %d to %d at %s", s.GapFrom, s.GapTo, since(s.GapAt))
		list = append(list, strings.Join(p, ", "))
	}
	return strings.Join(list, "\n")
}
