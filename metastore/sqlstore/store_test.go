package sqlstore

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
	"github.com/carillon-scheduler/carillon/metastore/storetest"
)

func TestMain(m *testing.M) { os.Exit(sqltest.Main(m)) }

func TestPostgres(t *testing.T) { judge(t, sqltest.Postgres) }

func TestMariaDB(t *testing.T) { judge(t, sqltest.MariaDB) }

// TestPgBouncer is a part of TestPostgres through PgBouncer: commits keep nothing in a session.
func TestPgBouncer(t *testing.T) {
	tests.Long(t)
	storetest.Sample(t, tests.Size(40, 12, 1), func(t *testing.T) storetest.Harness {
		return harness(t, Config{URL: sqltest.Bounced(t, sqltest.Postgres.New(t))}, storetest.NewClock())
	})
}

func judge(t *testing.T, kind *sqltest.Kind) {
	storetest.Sample(t, tests.Size(40, 4, 1), func(t *testing.T) storetest.Harness {
		return harness(t, Config{URL: kind.New(t)}, storetest.NewClock())
	})
}

// harness is a node that leads, until its process ends.
func harness(t *testing.T, c Config, clock *storetest.Clock) storetest.Harness {
	t.Helper()
	c.Now = clock.Now
	s := open(t, c)
	stop := leading(t, s)
	return storetest.Harness{
		Store: s,
		Clock: clock,
		Rows:  func() iter.Seq[kernel.Row] { return s.machine.Engine.Capture().Rows() },
		Crash: func(t *testing.T) storetest.Harness {
			stop()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			return harness(t, c, clock)
		},
		Slow: true,
	}
}

// longLease is a lease that does not expire while a busy machine stalls for some seconds. It is shorter than tests
// wait for one that is to expire.
const longLease = 15 * time.Second

func open(t testing.TB, c Config) *Store {
	t.Helper()
	// A test's process may stall for seconds in the middle of a transaction, which must not fail then.
	c.silence = cmp.Or(c.silence, time.Minute)
	if c.Logger == nil && testing.Verbose() {
		c.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	}
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// leading has a node lead, until stop.
func leading(t testing.TB, s *Store) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	leads, done := make(chan struct{}), make(chan error, 1)
	go func() {
		once := sync.OnceFunc(func() { close(leads) })
		done <- s.Lead(ctx, func(ctx context.Context, _ uint64) error {
			once()
			<-ctx.Done()
			return nil
		})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && s.ctx.Err() == nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	select {
	case <-leads:
	case <-time.After(time.Minute):
		t.Fatal("it does not lead")
	}
	return stop
}

// led opens a store that leads.
func led(t testing.TB, c Config) *Store {
	t.Helper()
	s := open(t, c)
	leading(t, s)
	return s
}

// TestMariaDBPrepared is a part of TestMariaDB with statements that the driver prepares, as it does with long ones:
// arguments go another way then.
func TestMariaDBPrepared(t *testing.T) {
	tests.Long(t)
	storetest.Sample(t, tests.Size(40, 8, 1), func(t *testing.T) storetest.Harness {
		return harness(t, Config{URL: sqltest.MariaDB.New(t), prepared: true}, storetest.NewClock())
	})
}
