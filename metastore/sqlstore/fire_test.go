package sqlstore

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// Due times fired in a second, in batches of several members that have a share of the jobs each.
func BenchmarkFire(b *testing.B) {
	const keys = 900
	for name, kind := range map[string]*sqltest.Kind{"PostgreSQL": sqltest.Postgres, "MariaDB": sqltest.MariaDB} {
		for _, members := range []int{1, 2, 3} {
			b.Run(fmt.Sprint(name, "/", members), func(b *testing.B) {
				url := kind.New(b)
				var ahead atomic.Int64 // of the stores' clock: all is due by then
				clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
				s := led(b, Config{URL: url, Now: clock})
				batch := make([]kernel.Envelope, keys)
				for i := range batch {
					batch[i] = envelope(kernel.Register{App: "app", Worker: "w", Start: true,
						Job: kernel.Declaration{Key: jobs.Key(fmt.Sprint("k", i)), Kind: kernel.Recurring, Code: kernel.Settings{Schedule: new("* * * * * *"), MaxConcurrency: new(0)}}})
				}
				batch = append(batch, envelope(kernel.Lead{Term: 1, Node: "n"}))
				defs := make([]*kernel.Definition, keys)
				for i, r := range s.Apply(b.Context(), batch) {
					if r.Err != nil {
						b.Fatal(r.Err)
					}
					if i < keys {
						defs[i] = r.Definition()
					}
				}
				ahead.Store(int64(24 * time.Hour))
				b.ResetTimer()
				var all sync.WaitGroup
				for m := range members {
					mine := defs[m*keys/members : (m+1)*keys/members]
					all.Go(func() {
						for range b.N {
							batch := make([]kernel.Envelope, len(mine))
							for i, d := range mine {
								due := d.Cursor.Add(time.Second).Truncate(time.Second)
								batch[i] = envelope(kernel.Fire{Key: d.Key, Job: d.UID, Revision: d.Revision, Term: 1, From: d.Cursor, To: due, Due: []time.Time{due}})
							}
							for i, r := range s.Apply(b.Context(), batch) {
								if r.Err != nil {
									b.Error(r.Err)
									return
								}
								mine[i] = r.Definition()
							}
						}
					})
				}
				all.Wait()
				b.ReportMetric(float64(keys*b.N)/b.Elapsed().Seconds(), "fires/s")
			})
		}
	}
}
