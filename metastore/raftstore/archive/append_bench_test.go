//go:build unix

package archive

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// BenchmarkAppend measures a run from Append to the disk: time and CPU of the whole process, bytes on disk and garbage.
// Runs are written as many at a time as there are, or a few hundred, as under a lower load.
func BenchmarkAppend(b *testing.B) {
	for _, each := range []int{400_000, 500} {
		b.Run(fmt.Sprintf("by-%d", each), func(b *testing.B) { benchmarkAppend(b, each) })
	}
}

func benchmarkAppend(b *testing.B, perWrite int) {
	const each = 100
	rng := rand.New(rand.NewPCG(1, 9))
	rows := make([]*kernel.Run, 400_000)
	for i := range rows {
		rows[i] = run(i, rng)
		rows[i].Key = jobs.Key(fmt.Sprint("k", i%100))
		rows[i].Args, rows[i].Moves = bytes.Repeat([]byte("x"), 100), make([]kernel.Move, 3)
	}
	for range b.N {
		a := open(b, filepath.Join(b.TempDir(), "archive"), Config{})
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		began := cpu(b)
		for i := 0; i < len(rows); i += each {
			a.Begin(uint64(i + 1))
			a.Append(rows[i : i+each])
			if (i+each)%perWrite == 0 {
				a.flush()
			}
		}
		if err := a.Sync(); err != nil {
			b.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		_, size := a.Size()
		n := float64(len(rows))
		b.ReportMetric(float64(cpu(b)-began)/n, "cpu-ns/run")
		b.ReportMetric(float64(size)/n, "disk-B/run")
		b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/n, "garbage-B/run")
		if err := a.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(rows)), "ns/run")
}

// cpu is the time that this process has computed so far, in nanoseconds.
func cpu(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
