package memstore

import (
	"runtime"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// stubs settles n runs of a few jobs, and returns their IDs.
func stubs(n int) (s *settled, ids []jobs.ID) {
	s = &settled{period: 1}
	ids = make([]jobs.ID, n)
	now := time.Unix(1, 0)
	for i := range ids {
		ids[i] = jobs.NewID(now)
	}
	run := &kernel.Run{Key: "a", Worker: "w", State: jobs.Succeeded, Attempt: 1}
	for i := range ids {
		run.ID = ids[i]
		s.add(uint32(i%2), run)
	}
	return s, ids
}

// Stubs of two tenants with equal IDs are two; one is removed alone, and comes back; each is found in each size.
func TestStubs(t *testing.T) {
	s, ids := stubs(1_000)
	for i, id := range ids {
		space := uint32(i % 2)
		if s.get("t", space, id) == nil || s.get("t", 1-space, id) != nil {
			t.Fatalf("stub %d is not that of its tenant", i)
		}
	}
	other := &kernel.Run{ID: ids[0], Key: "b", State: jobs.Failed, Attempt: 1<<32 - 1}
	if s.add(1, other) || !s.add(1, other) {
		t.Error("a second stub of an ID is not known for itself")
	}
	s.remove(0, ids[0])
	if s.get("t", 0, ids[0]) != nil {
		t.Error("a removed stub is found")
	}
	if got := s.get("t", 1, ids[0]); got == nil || got.Key != "b" || got.State != jobs.Failed || got.Attempt != other.Attempt {
		t.Errorf("the other tenant's is %+v", got)
	}
	n := 0
	for range s.generations[0].rows([]jobs.Tenant{"x", "y"}) {
		n++
	}
	if n != len(ids) {
		t.Errorf("%d rows, want %d", n, len(ids))
	}
	if s.add(0, other) || s.get("t", 0, ids[0]).Key != "b" {
		t.Error("a removed stub does not come back")
	}
}

// BenchmarkStub shows what a stub costs, and how much memory it takes when the runs of a period are there.
func BenchmarkStub(b *testing.B) {
	const many = 150_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s, ids := stubs(many)
	runtime.GC()
	runtime.ReadMemStats(&after)
	for i := 0; b.Loop(); i++ {
		if i%many == 0 {
			s = &settled{period: 1}
		}
		s.add(0, &kernel.Run{ID: ids[i%many], Key: "a", Worker: "w", State: jobs.Succeeded, Attempt: 1})
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/many-16, "B/stub") // an ID has 16
}
