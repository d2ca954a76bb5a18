package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"os"
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

func judge(t *testing.T, kind *sqltest.Kind) {
	storetest.Sample(t, tests.Size(40, 1, 1), func(t *testing.T) storetest.Harness {
		return harness(t, Config{URL: kind.New(t)}, storetest.NewClock())
	})
}

// harness opens a store that crashes by leaving its connections behind.
func harness(t *testing.T, c Config, clock *storetest.Clock) storetest.Harness {
	t.Helper()
	c.Now = clock.Now
	s := open(t, c)
	return storetest.Harness{
		Store: s,
		Clock: clock,
		Rows:  func() iter.Seq[kernel.Row] { return s.captured(t) },
		Crash: func(t *testing.T) storetest.Harness {
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
	// A test's process may stall for seconds in the middle of a commit, and its commit must not fail then.
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

// captured are all rows as an engine in memory would capture them.
func (s *Store) captured(t *testing.T) iter.Seq[kernel.Row] {
	t.Helper()
	ctx := context.Background()
	var all []kernel.Row
	state, err := s.State(ctx)
	if state != (kernel.StoreRow{}) {
		all = append(all, &state)
	}
	err = errors.Join(err, s.query(ctx, "capture", func(scan func(...any) error) error {
		row, err := scanOther(scan)
		all = append(all, row)
		return err
	}, "SELECT "+others.all()+" FROM carillon_rows"))
	err = errors.Join(err, s.query(ctx, "capture", func(scan func(...any) error) error {
		n, err := scanTally(scan)
		if !n.Job.IsZero() {
			all = append(all, n)
		}
		return err
	}, "SELECT "+tallies.all()+" FROM carillon_tallies"))
	err = errors.Join(err, s.query(ctx, "capture", func(scan func(...any) error) error {
		r, err := scanRun(scan)
		switch {
		case err != nil:
		case r.settled == nil:
			all = append(all, r.Run)
		case periodOf(*r.settledAt) >= periodOf(nanos(state.At))-kept:
			run := stub(r.Run)
			run.Ended = time.Unix(0, periodOf(*r.settledAt)*int64(period)).UTC()
			all = append(all, run)
		}
		return err
	}, "SELECT "+runs.all()+" FROM carillon_runs"))
	if err != nil {
		t.Fatal(err)
	}
	return func(yield func(kernel.Row) bool) {
		for _, row := range all {
			if !yield(row) {
				return
			}
		}
	}
}
