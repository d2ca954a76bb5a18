package sqlstore

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/replica"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog/dbtest"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog/memdb"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
	"github.com/carillon-scheduler/carillon/metastore/storetest"
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
				Database: logTable{s},
				Delete: func(from, to uint64) {
					exec("DELETE FROM carillon_log WHERE seq >= ? AND seq <= ?", int64(from), int64(to))
				},
				ForgetTerm: func() { exec("UPDATE carillon_leader SET until = 0, term = 0") },
				SpoilEntry: func(seq uint64) { spoil("entry", "carillon_log", "seq = ?", int64(seq)) },
				SpoilPart: func(n int) {
					spoil("part", "carillon_snapshot_parts", "n = ? AND seq = (SELECT seq FROM (SELECT MAX(seq) AS seq FROM carillon_snapshots) AS s)", n)
				},
			}
		})
	})
}

func logHarness(t testing.TB, s *Store, ended *memdb.Histories, clock *storetest.Clock) storetest.Harness {
	t.Helper()
	m := replica.NewMachine(replica.MachineConfig{History: ended.Node(), Fail: func(err error) { t.Error(err) }, SnapshotAfter: 64 << 20, Trailing: 1, Replay: time.Minute})
	log, err := dblog.Open(t.Context(), dblog.Config{Database: logTable{s}, Machine: m, Node: "n"})
	if err != nil {
		t.Fatal(err)
	}
	cfg := replica.Config{Machine: m, Log: log, Now: log.Now}
	if clock != nil {
		cfg.Now = clock.Now
	}
	r := replica.New(cfg)
	leads := make(chan struct{})
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() {
		over <- log.Lead(ctx, func(ctx context.Context, _ uint64) error {
			close(leads)
			<-ctx.Done()
			return nil
		})
	}()
	end := func() {
		stop()
		if err := <-over; err != nil {
			t.Error(err)
		}
		over <- nil
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(end)
	select {
	case <-leads:
	case <-time.After(time.Minute):
		t.Fatal("it does not lead")
	}
	return storetest.Harness{
		Store: r,
		Clock: clock,
		Rows:  func() iter.Seq[kernel.Row] { return m.Engine.Capture().Rows() },
		Crash: func(t *testing.T) storetest.Harness {
			t.Helper()
			end()
			return logHarness(t, s, ended, clock)
		},
	}
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
			b.Run(name+"/tables/"+string(rune('0'+size/1000)), func(b *testing.B) {
				s, err := Open(b.Context(), Config{URL: kind.New(b)})
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				bench(b, s)
			})
			b.Run(name+"/log/"+string(rune('0'+size/1000)), func(b *testing.B) {
				s, err := Open(b.Context(), Config{URL: kind.New(b)})
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				bench(b, logHarness(b, s, memdb.NewHistories(), nil).Store)
			})
		}
	}
}
