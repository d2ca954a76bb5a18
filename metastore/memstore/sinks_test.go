package memstore_test

import (
	"fmt"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

// Audits that a sink has not received are kept beyond MaxAudits, up to MaxAuditsWaiting. Once it has them, they are purged.
func TestAuditsWaitForSinks(t *testing.T) {
	s := memstore.Open(memstore.Config{})
	n := 0
	apply := func(batch ...kernel.Envelope) {
		t.Helper()
		for i := range batch {
			n++
			batch[i].ID, batch[i].Tenant, batch[i].Actor = kernel.DerivedID("sinks", fmt.Sprint(n)), "default", "person:ann"
		}
		for _, r := range s.Apply(t.Context(), batch) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	audits := 0
	write := func(more int) {
		for more > 0 {
			batch := make([]kernel.Envelope, min(more, 200))
			for i := range batch {
				audits++
				batch[i].Command = kernel.Configure{MaxJobs: new(audits)}
			}
			apply(batch...)
			more -= len(batch)
		}
	}
	first := func(want uint64) {
		t.Helper()
		g, err := s.Global(t.Context(), "default")
		if err != nil {
			t.Fatal(err)
		}
		list, err := s.Audits(t.Context(), metastore.AuditQuery{Tenant: "default", Since: 1, Limit: 1})
		if err != nil || len(list) != 1 || list[0].N != want || g.FirstAudit() != want {
			t.Fatalf("the oldest audit is %+v, and should be %d, as FirstAudit is %d: %v", list, want, g.FirstAudit(), err)
		}
	}
	sink := func(n uint64) {
		apply(kernel.Envelope{Command: kernel.Exported{Sinks: []string{"a", "b"}, Done: []kernel.AuditSink{{Name: "a", N: 1 << 40}, {Name: "b", N: n}}}})
	}
	write(100)
	sink(40)
	write(kernel.MaxAudits)
	first(41)
	sink(50)
	first(51)
	write(kernel.MaxAuditsWaiting - kernel.MaxAudits)
	write(7)
	first(uint64(audits - kernel.MaxAuditsWaiting + 1))
	for range 11 {
		write(1000)
		sink(uint64(audits))
	}
	first(uint64(audits - kernel.MaxAudits + 1))
}
