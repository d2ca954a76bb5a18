package sqlstore

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog/dbtest"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

func TestLogTable(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := open(t, Config{URL: url})
		dbtest.Run(t, func(t *testing.T) dbtest.Harness {
			exec := func(query string, args ...any) {
				t.Helper()
				if _, err := s.db.Exec(s.dialect.ask(query), args...); err != nil {
					t.Fatal(err)
				}
			}
			exec("DELETE FROM carillon_log")
			zero := make([]byte, 32)
			exec("INSERT INTO carillon_log (seq, term, prev, hash, entry) VALUES (0, 0, ?, ?, ?)", zero, zero, []byte{})
			exec("DELETE FROM carillon_snapshots")
			exec("DELETE FROM carillon_snapshot_parts")
			exec("UPDATE carillon_leader SET until = 0, term = 0")
			spoil := func(column, table, where string, args ...any) {
				t.Helper()
				var b []byte
				if err := s.db.QueryRow(s.dialect.ask("SELECT "+column+" FROM "+table+" WHERE "+where), args...).Scan(&b); err != nil {
					t.Fatal(err)
				}
				b[len(b)/2] ^= 4
				exec("UPDATE "+table+" SET "+column+" = ? WHERE "+where, append([]any{b}, args...)...)
			}
			return dbtest.Harness{
				Database: logTable{s, s.db},
				Delete: func(from, to uint64) {
					exec("DELETE FROM carillon_log WHERE seq >= ? AND seq <= ?", int64(from), int64(to))
				},
				ForgetTerm: func() { exec("UPDATE carillon_leader SET until = 0, term = 0") },
				SpoilEntry: func(seq uint64) { spoil("entry", "carillon_log", "seq = ?", int64(seq)) },
				SpoilPart: func(n int) {
					spoil("part", "carillon_snapshot_parts", "n = ? AND name = (SELECT name FROM carillon_snapshots ORDER BY seq DESC LIMIT 1)", n)
				},
				Attempts: func() (n int) {
					if err := s.db.QueryRow("SELECT COUNT(DISTINCT name) FROM carillon_snapshot_parts").Scan(&n); err != nil {
						t.Fatal(err)
					}
					return n
				},
			}
		})
	})
}

func BenchmarkLog(b *testing.B) {
	for name, kind := range map[string]*sqltest.Kind{"postgres": sqltest.Postgres, "mariadb": sqltest.MariaDB} {
		for _, size := range []int{1, 1000} {
			bench := func(b *testing.B, s metastore.Applier) {
				apply := func(ks []kernel.Command) {
					batch := make([]kernel.Envelope, len(ks))
					for i, k := range ks {
						batch[i] = envelope(k)
					}
					for _, r := range s.Apply(b.Context(), batch) {
						if r.Err != nil {
							b.Fatal(r.Err)
						}
					}
				}
				apply([]kernel.Command{register("k")})
				b.ResetTimer()
				for n := 0; n < b.N; n += size {
					var c, st, f []kernel.Command
					for range size {
						id := jobs.NewID(time.Now())
						c = append(c, kernel.Create{ID: id, Key: "k", Args: []byte(`{"n":123456,"text":"0123456789012345678901234567890123456789"}`)})
						st = append(st, kernel.Start{ID: id, Worker: "w", Attempt: 1})
						f = append(f, kernel.Finish{ID: id, Worker: "w", Attempt: 1, Outcome: kernel.OutcomeSuccess})
					}
					apply(c)
					apply(st)
					apply(f)
				}
			}
			b.Run(name+"/"+string(rune('0'+size/1000)), func(b *testing.B) { bench(b, led(b, Config{URL: kind.New(b)})) })
		}
	}
}
