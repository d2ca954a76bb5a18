package loglines

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// BenchmarkAppend measures a line: its time, garbage and bytes on disk. Each of many runs writes 5 lines at a time,
// those of 20 runs come together; each run writes twice.
func BenchmarkAppend(b *testing.B) {
	l := open(b, b.TempDir(), Config{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	lines, batch := 0, make([]metastore.LogLine, 0, 100)
	for i := 0; b.Loop(); i++ {
		batch = batch[:0]
		for j := range 20 {
			n := i/2*20 + j
			for k := range 5 {
				x := line(0, 1, uint64(i%2*5+k+1), "something that a handler wrote, with a value=17 and another one")
				x.Run = jobs.ID{1, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
				batch = append(batch, x)
			}
		}
		lines += len(batch)
		add(b, l, batch...)
	}
	b.StopTimer()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(lines), "ns/line")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(lines), "garbage-B/line")
	b.ReportMetric(float64(l.Size())/float64(lines), "disk-B/line")
	closeLogs(b, l)
}

// BenchmarkMemory measures what a run takes in memory that wrote one line: all of them in the open file, and in sealed
// files.
func BenchmarkMemory(b *testing.B) {
	const runs = 300_000
	for _, c := range []struct {
		what   string
		sealAt int64
	}{{"open", 1 << 30}, {"sealed", 4 << 20}} {
		b.Run(c.what, func(b *testing.B) {
			for range b.N {
				before := heap()
				l := open(b, b.TempDir(), Config{SealAt: c.sealAt})
				for i := range runs / 100 {
					batch := make([]metastore.LogLine, 100)
					for j := range batch {
						batch[j] = line(0, 1, 1, "something that a handler wrote")
						n := i*100 + j
						batch[j].Run = jobs.ID{1, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
					}
					add(b, l, batch...)
				}
				x := line(0, 1, 2, "") // all files are asked for the first one
				add(b, l, x)
				b.ReportMetric(float64(heap()-before)/runs, "B/run")
				closeLogs(b, l)
			}
		})
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkPage measures a page of 100 lines of one run with a log of 500 MiB: the first one, and one in the middle.
func BenchmarkPage(b *testing.B) {
	dir := b.TempDir()
	l := open(b, dir, Config{})
	text := strings.Repeat("x", 200)
	for attempt := range uint32(500) {
		for i := range uint64(45) {
			batch := make([]metastore.LogLine, 100)
			for j := range batch {
				batch[j] = line(1, attempt+1, i*100+uint64(j)+1, text)
			}
			add(b, l, batch...)
		}
	}
	closeLogs(b, l)
	l = open(b, dir, Config{})
	b.Logf("%d MiB", l.Size()>>20)
	for what, after := range map[string]metastore.LogPosition{"first": {}, "middle": {Attempt: 250, Sequence: 2000}} {
		began := time.Now()
		read(b, l, 1, after, 100)
		b.Logf("%s, after a restart: %v", what, time.Since(began))
		b.Run(what, func(b *testing.B) {
			for b.Loop() {
				if n := len(read(b, l, 1, after, 100)); n != 100 {
					b.Fatalf("%d lines", n)
				}
			}
		})
	}
	closeLogs(b, l)
}
