package memstore

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// hourly makes an engine with the tallies that some jobs have after five weeks in which each ran every hour.
func hourly(n int) *Engine {
	e := New(Config{})
	end := time.Date(2026, 6, 8, 12, 0, 0, 0, time.UTC)
	e.Update(func(tx metastore.Tx) {
		for at := end.Add(-kernel.KeepHistory); at.Before(end); at = at.Add(time.Hour) {
			for job := range n {
				t := &kernel.Tally{Tenant: "t", Job: jobs.ID{byte(job), byte(job >> 8)}, Span: kernel.Hour, At: kernel.Hour.Start(at)}
				t.Runs[jobs.Enqueued], t.Runs[jobs.Succeeded], t.Took = 1, 1, 1234*time.Millisecond
				if t.End().Before(end.Add(-kernel.KeepHours)) {
					t = t.Daily()
				}
				tx.Put(t)
			}
		}
	})
	return e
}

// The tallies of a job that runs hourly take at most 2 KB after five weeks. A snapshot shares them.
func TestTalliesAreSmall(t *testing.T) {
	const n = 1000
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	e := hourly(n)
	if each := (heap() - before) / n; each > 2000 {
		t.Errorf("the tallies of a job take %d bytes", each)
	}
	if allocs := testing.AllocsPerRun(3, func() { e.Capture() }); allocs > 100 {
		t.Errorf("a snapshot of %d jobs takes %v allocations", n, allocs)
	}
	rows := 0
	for range e.Capture().Rows() {
		rows++
	}
	if want := n * (49 + 34); rows != want {
		t.Errorf("%d rows, want %d", rows, want)
	}
}

// What a snapshot has of the tallies stays, whatever is added, moved or dropped later.
func TestASnapshotKeepsItsTallies(t *testing.T) {
	e := hourly(1)
	list := func(s *Snapshot) (all []kernel.Tally) {
		for row := range s.Rows() {
			all = append(all, *row.(*kernel.Tally))
		}
		return all
	}
	s := e.Capture()
	before := list(s)
	newest := before[len(before)-1]
	for i := range 300 {
		e.Update(func(tx metastore.Tx) {
			later := newest
			later.At += int64(time.Duration(i/3) * time.Hour)
			tx.Put(&later)
			old := before[i%len(before)]
			if i%2 == 0 {
				tx.Delete(old.Ref())
			}
			tx.Put(old.Daily())
		})
	}
	if !slices.Equal(list(s), before) {
		t.Error("a snapshot has changed")
	}
}

func BenchmarkCaptureTallies(b *testing.B) {
	e := hourly(10_000)
	for b.Loop() {
		e.Capture()
	}
}
