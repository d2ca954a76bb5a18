package archive

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/blocks"
)

// BenchmarkRetain measures a million runs, on disk and in memory, how long it takes to purge nearly all of them, and
// the effect on concurrent appends.
func BenchmarkRetain(b *testing.B) {
	for range b.N {
		path := filepath.Join(b.TempDir(), "archive")
		rng := rand.New(rand.NewPCG(1, 9))
		before := heap()
		a := open(b, path, Config{})
		made := 0
		some := func(n int) (rows []*kernel.Run) {
			for range n {
				r := run(made, rng)
				r.Key = jobs.Key(fmt.Sprint("k", made%100))
				r.Args, r.Moves = bytes.Repeat([]byte("x"), 100), make([]kernel.Move, 3)
				rows = append(rows, r)
				made++
			}
			return rows
		}
		for entry := range uint64(1000) {
			a.Begin(entry + 1)
			a.Append(some(1000))
		}
		if err := a.Sync(); err != nil {
			b.Fatal(err)
		}
		_, size, err := a.Len(ctx)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(size)/1e6, "disk-B/run")
		b.ReportMetric(float64(heap()-before)/1e6, "heap-B/run")
		stop, waits := make(chan struct{}), make(chan []time.Duration)
		go func() {
			var all []time.Duration
			for entry := uint64(2000); ; entry++ {
				select {
				case <-stop:
					waits <- all
					return
				case <-time.After(2 * time.Millisecond):
				}
				rows := some(20)
				a.Begin(entry)
				began := time.Now()
				a.Append(rows)
				all = append(all, time.Since(began))
			}
		}()
		began := time.Now()
		done, err := a.Retain(ctx, metastore.Retention{Of: func(jobs.Tenant, jobs.Key) (kernel.Kept, error) { return kernel.Kept{Succeeded: 100, Others: 100}, nil }})
		took := time.Since(began)
		close(stop)
		all := <-waits
		if err != nil || done.Dropped < 950_000 {
			b.Fatalf("%+v, %v", done, err)
		}
		slices.Sort(all)
		b.ReportMetric(took.Seconds(), "retain-s")
		b.ReportMetric(all[len(all)*99/100].Seconds()*1e3, "append-p99-ms")
		b.ReportMetric(all[len(all)-1].Seconds()*1e3, "append-max-ms")
		b.ReportMetric(float64(done.Bytes)/1e6, "left-MB")
		if err := a.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkIndex measures the memory of the open file's indexes.
func BenchmarkIndex(b *testing.B) {
	for range b.N {
		const runs = 200_000
		rng := rand.New(rand.NewPCG(1, 9))
		before := heap()
		x := newBuilding(blocks.Salt{})
		for i := range runs {
			x.add(uint64(i+1), run(i, rng))
			x.wrote(int64(i))
		}
		b.ReportMetric(float64(heap()-before)/runs, "heap-B/run")
		runtime.KeepAlive(x)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
