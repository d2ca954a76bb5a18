package memstore

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// sized makes n rows of a kind by the commands that make them, as a log entry has them: each string is its own.
func sized(tb testing.TB, kind string, n int) *metastore.Local {
	tb.Helper()
	s := &metastore.Local{Engine: New(Config{Archive: nowhere{}})}
	var batch []kernel.Envelope
	flush := func() {
		if len(batch) == 0 {
			return
		}
		entry, err := kernel.DecodeEnvelopes(kernel.AppendEnvelopes(nil, batch))
		if err != nil {
			tb.Fatal(err)
		}
		for _, r := range s.Apply(ctx, entry) {
			if r.Err != nil {
				tb.Fatal(r.Err)
			}
		}
		batch = batch[:0]
	}
	add := func(k kernel.Command) {
		batch = append(batch, kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: "default", Actor: "worker:bench", Command: k})
		if len(batch) == 1000 {
			flush()
		}
	}
	if kind == "job" {
		for i := range n {
			cron := fmt.Sprintf("%d %d %d 1 5 *", i%60, i/60%60, i%24)
			add(kernel.Register{App: "bench", Worker: "bench", Start: true,
				Job: kernel.Declaration{Key: jobs.Key(fmt.Sprintf("bench.daily-%d", i)), Kind: kernel.Recurring, Code: kernel.Settings{Schedule: &cron}}})
		}
		flush()
		return s
	}
	for i := range 100 {
		add(kernel.Register{App: "bench", Worker: "bench", Start: true, Job: kernel.Declaration{Key: jobs.Key(fmt.Sprintf("bench.job-%d", i)), Kind: kernel.Triggered}})
	}
	flush()
	ids := make([]jobs.ID, n)
	for i := range n {
		c := kernel.Create{ID: jobs.NewID(time.Now()), Key: jobs.Key(fmt.Sprintf("bench.job-%d", i%100)), Args: fmt.Appendf(nil, `{"customer":"c-%d","amount":1200,"note":"a hundred bytes or so of arguments, as most have"}`, i)}
		if kind == "delayed" {
			c.Delay = 5 * time.Hour
		}
		ids[i] = c.ID
		add(c)
	}
	flush()
	if kind == "finished" {
		for _, id := range ids {
			add(kernel.Start{ID: id, Worker: "w", Attempt: 1})
			add(kernel.Finish{ID: id, Worker: "w", Attempt: 1, Outcome: kernel.OutcomeSuccess})
		}
		flush()
	}
	return s
}

// nowhere keeps no run.
type nowhere struct{ metastore.Archive }

func (nowhere) Append([]*kernel.Run) {}

// TestMain keeps few rows unpacked, so that all tests meet packed ones. Benchmarks run as programs do.
func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" {
		mostWarm, mostResting, mostWaiting = 3, 2, 3
	}
	os.Exit(m.Run())
}

// BenchmarkSize measures what rows take in memory, and how long it takes to restore them. With SIZE_PROFILE, a directory,
// it writes heap profiles: go test -run '^$' -bench Size -benchtime 1x -memprofilerate 4096 ./metastore/memstore
func BenchmarkSize(b *testing.B) {
	defer func(most int) { mostWaiting = most }(mostWaiting)
	mostWaiting = 10_000
	for _, kind := range []string{"job", "waiting", "delayed", "finished"} {
		b.Run(kind, func(b *testing.B) {
			const n = 100_000
			for range b.N {
				before := heapNow()
				s := sized(b, kind, n)
				made := heapNow()
				if dir := os.Getenv("SIZE_PROFILE"); dir != "" {
					f, _ := os.Create(dir + "/" + kind + ".pprof")
					pprof.Lookup("heap").WriteTo(f, 0)
					f.Close()
				}
				b.ReportMetric(float64(made-before)/n, "B/row")
				e := s.Engine.(*Engine)
				var raw []byte
				begin := time.Now()
				for row := range e.Capture().Stored() {
					raw = kernel.AppendRow(raw, row)
				}
				b.ReportMetric(float64(time.Since(begin).Nanoseconds())/n, "write-ns/row")
				b.ReportMetric(float64(len(raw))/n, "snapshot-B/row")
				runtime.KeepAlive(s)
				s, e = nil, nil
				heapNow()
				r := New(Config{Archive: nowhere{}})
				before = heapNow()
				begin = time.Now()
				if err := r.Restore(func(yield func(kernel.Row, error) bool) {
					for rest := raw; len(rest) > 0; {
						var row kernel.Row
						var err error
						row, rest, err = kernel.DecodeRow(rest)
						if !yield(row, err) {
							return
						}
					}
				}); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(time.Since(begin).Nanoseconds())/n, "restore-ns/row")
				b.ReportMetric(float64(heapNow()-before)/n, "restored-B/row")
				runtime.KeepAlive(r)
				runtime.KeepAlive(raw)
			}
		})
	}
}
