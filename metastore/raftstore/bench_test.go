package raftstore

import (
	"sync"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// BenchmarkApply measures commits: go test -run '^$' -bench Apply -benchtime 3s ./metastore/raftstore
func BenchmarkApply(b *testing.B) {
	for _, kind := range []string{LogBolt, LogWAL} {
		b.Run(string(kind), func(b *testing.B) {
			b.Run("create-x1", func(b *testing.B) { benchmarkCreate(b, kind, 1, 1) })
			b.Run("create-x16", func(b *testing.B) { benchmarkCreate(b, kind, 16, 1) })
			b.Run("create-x64", func(b *testing.B) { benchmarkCreate(b, kind, 64, 1) })
			b.Run("create-batches-of-1000", func(b *testing.B) { benchmarkCreate(b, kind, 1, 1000) })
			b.Run("create-batches-of-1000-x4", func(b *testing.B) { benchmarkCreate(b, kind, 4, 1000) })
			b.Run("cycle-batches-of-1000-x4", func(b *testing.B) { benchmarkCycle(b, kind, 4, 1000) })
			b.Run("cycle-x64", func(b *testing.B) { benchmarkCycle(b, kind, 64, 1) })
		})
	}
}

// each runs fn in some goroutines until b.N items, size at a time, are done.
func each(b *testing.B, goroutines, size int, fn func(n int)) {
	b.Helper()
	b.ResetTimer()
	parts := (b.N + size - 1) / size
	todo := make(chan int, parts)
	for i := range parts {
		todo <- min(size, b.N-i*size)
	}
	close(todo)
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for n := range todo {
				fn(n)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

func creates(n int) []kernel.Command {
	list := make([]kernel.Command, n)
	for i := range list {
		list[i] = create("k")
	}
	return list
}

func benchmarkCreate(b *testing.B, kind string, goroutines, size int) {
	s := open(b, Config{Dir: b.TempDir(), Log: kind})
	do(b, s, register("k"))
	each(b, goroutines, size, func(n int) { do(b, s, creates(n)...) })
}

// benchmarkCycle creates, starts and finishes.
func benchmarkCycle(b *testing.B, kind string, goroutines, size int) {
	s := open(b, Config{Dir: b.TempDir(), Log: kind})
	do(b, s, register("k"))
	each(b, goroutines, size, func(n int) { finish(b, s, n) })
}
