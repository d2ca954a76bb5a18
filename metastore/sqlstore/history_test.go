package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// historyOf is a history whose node leads after lead(true).
func historyOf(t testing.TB, s *Store, limit int64) (h *history, lead func(bool)) {
	t.Helper()
	var leads atomic.Bool
	h = newHistory(historyConfig{db: s.db, dialect: s.dialect, episodes: episode.New(slog.New(slog.NewTextHandler(t.Output(), nil))), limit: limit, loose: true, leads: leads.Load})
	t.Cleanup(h.close)
	return h, func(is bool) {
		leads.Store(is)
		select {
		case h.more <- struct{}{}:
		default:
		}
	}
}

func (h *history) settle(index uint64, runs ...*kernel.Run) {
	h.Begin(index)
	h.Append(runs)
}

// over is a run that has ended.
func over(n int, at time.Time) *kernel.Run {
	return &kernel.Run{Tenant: "t", ID: jobs.ID{1, byte(n >> 8), byte(n)}, Key: "k", App: "app", State: jobs.Succeeded, Worker: "w", Created: at, Due: at, Started: at, Ended: at, Attempt: 1,
		Args: fmt.Appendf(nil, `{"n":%d}`, n)}
}

func waits(h *history) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.waiting)
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// A list that is read while runs are written has all of them.
func TestHistoryIsReadWhileItIsWritten(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		h, lead := historyOf(t, open(t, Config{URL: url}), 0)
		lead(true)
		const each = 200
		entries := tests.Size[uint64](8, 30, 30)
		var entry atomic.Uint64
		var reading sync.WaitGroup
		for range 2 {
			reading.Go(func() {
				for e := entry.Load(); e < entries; e = entry.Load() {
					// The list starts at the second run of the entry that is being written, and ends at the first.
					q := metastore.RunQuery{Tenant: "t", Limit: 1, Cursor: strconv.FormatUint((e+1)<<positionBits+2, 36)}
					page, err := h.List(t.Context(), q)
					if err != nil || e > 0 && len(page.Runs) == 0 {
						t.Errorf("%d runs, %v", len(page.Runs), err)
						return
					}
				}
			})
		}
		for e := range entries {
			var part []*kernel.Run
			for i := range each {
				part = append(part, over(int(e)*each+i, time.Date(2026, 11, 26, 12, 0, int(e), 0, time.UTC)))
			}
			h.settle(e+1, part...)
			if err := h.settled(t.Context()); err != nil {
				t.Error(err)
			}
			entry.Store(e + 1)
		}
		reading.Wait()
		if got := pages(t, h, metastore.RunQuery{Tenant: "t", Limit: metastore.MaxPage}); len(got) != int(entries)*each {
			t.Errorf("%d of %d runs", len(got), entries*each)
		}
	})
}

// Whatever part of the runs is in the table already, a list has all of them, once, in order, as one in memory has.
func TestHistoryAgainstMemory(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := open(t, Config{URL: url})
		h, lead := historyOf(t, s, 0)
		model := memstore.NewArchive(0)
		random := tests.Random(t)
		at := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
		ids := []jobs.ID{}
		for entry := range uint64(tests.Size(40, 100, 2000)) {
			var part []*kernel.Run
			for range random.IntN(4) {
				run := over(len(ids), at.Add(time.Duration(len(ids))*time.Second))
				run.Tenant = []jobs.Tenant{"t", "t", "u"}[random.IntN(3)]
				run.Key = []jobs.Key{"a", "b"}[random.IntN(2)]
				run.State = []jobs.State{jobs.Succeeded, jobs.Succeeded, jobs.Terminated, jobs.Cancelled, jobs.Skipped}[random.IntN(5)]
				if random.IntN(3) == 0 && len(ids) > 0 {
					run.Parent = ids[0]
				}
				ids = append(ids, run.ID)
				part = append(part, run)
			}
			h.settle(entry+1, part...)
			model.Append(part)
			if entry%20 == 10 {
				lead(true)
				if err := h.settled(t.Context()); err != nil {
					t.Fatal(err)
				}
				lead(false)
			}
			if entry%7 != 3 {
				continue
			}
			q := metastore.RunQuery{Tenant: []jobs.Tenant{"t", "u", "v"}[random.IntN(3)], Limit: 1 + random.IntN(20)}
			switch random.IntN(5) {
			case 0:
				q.Job = "a"
			case 1:
				q.State = []jobs.State{jobs.Succeeded, jobs.Terminated}[random.IntN(2)]
			case 2:
				q.Parent = ids[0]
			case 3:
				q.Args = []metastore.Arg{{Path: "n", Value: fmt.Sprint(random.IntN(len(ids) + 1))}}
			}
			if got, want := pages(t, h, q), pages(t, model, q); !reflect.DeepEqual(got, want) {
				t.Fatalf("%+v lists %v, want %v", q, got, want)
			}
			id := ids[random.IntN(len(ids))]
			for _, tenant := range []jobs.Tenant{"t", "u"} {
				got, err := h.Get(t.Context(), tenant, id)
				want, _ := model.Get(t.Context(), tenant, id)
				if err != nil || (got == nil) != (want == nil) || got != nil && got.ID != want.ID {
					t.Fatalf("%s of %s is %v, %v; want %v", id, tenant, got, err, want)
				}
			}
		}
	})
}

// pages are the IDs in all pages of a query.
func pages(t *testing.T, a metastore.Archive, q metastore.RunQuery) (ids []jobs.ID) {
	t.Helper()
	for {
		page, err := a.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range page.Runs {
			ids = append(ids, run.ID)
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return ids
		}
	}
}

// Nodes that both take themselves for the leader, and one that starts again from an earlier entry, write each run once.
func TestHistoryIsWrittenOnce(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := open(t, Config{URL: url})
		a, leadA := historyOf(t, s, 0)
		b, leadB := historyOf(t, s, 0)
		leadA(true)
		leadB(true)
		const entries = 300
		at := time.Now().UTC()
		var all sync.WaitGroup
		for _, h := range []*history{a, b} {
			all.Go(func() {
				for n := range entries {
					h.settle(uint64(n+1), over(2*n, at), over(2*n+1, at))
				}
			})
		}
		all.Wait()
		for _, h := range []*history{a, b} {
			if err := h.settled(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		c, leadC := historyOf(t, s, 0)
		for n := entries / 2; n < entries+10; n++ {
			c.settle(uint64(n+1), over(2*n, at), over(2*n+1, at))
		}
		leadC(true)
		if err := c.settled(t.Context()); err != nil {
			t.Fatal(err)
		}
		var rows, distinct int
		if err := s.db.QueryRow("SELECT COUNT(*), COUNT(DISTINCT id) FROM carillon_runs").Scan(&rows, &distinct); err != nil || rows != 2*(entries+10) || distinct != rows {
			t.Errorf("%d rows, %d of them distinct, %v; want %d", rows, distinct, err, 2*(entries+10))
		}
		for _, h := range []*history{a, b, c} { // those that do not lead notice, too
			if n := waits(h); n > 0 {
				t.Errorf("%d wait", n)
			}
		}
	})
}

// A node that does not lead keeps runs until the leader has written them.
func TestHistoryOfAFollower(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := open(t, Config{URL: url})
		leader, lead := historyOf(t, s, 0)
		follower, _ := historyOf(t, s, 0)
		for _, h := range []*history{leader, follower} {
			h.settle(7, over(1, time.Now()), over(2, time.Now()))
		}
		if waits(follower) != 2 || waits(leader) != 2 {
			t.Error("nothing waits")
		}
		leader.forget() // the database has lost the entry, and has it again, with other runs
		if run, err := leader.Get(t.Context(), "t", over(1, time.Now()).ID); run != nil || err != nil || waits(leader) != 0 {
			t.Errorf("a run that was forgotten is there: %v, %v", run, err)
		}
		leader.settle(7, over(1, time.Now()), over(2, time.Now()))
		lead(true)
		eventually(t, "it has left the leader", func() bool { return waits(leader) == 0 })
		eventually(t, "it has left the follower", func() bool { return waits(follower) == 0 })
		for _, h := range []*history{leader, follower} {
			if got := pages(t, h, metastore.RunQuery{Tenant: "t"}); len(got) != 2 {
				t.Errorf("%d runs are listed", len(got))
			}
		}
	})
}

// Commits wait for a table that is too slow, and go on when it has caught up.
func TestHistoryBounds(t *testing.T) {
	s := open(t, Config{URL: sqltest.Postgres.New(t)})
	h, lead := historyOf(t, s, 2_000)
	lead(true)
	tx, err := s.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.Exec("SELECT upto FROM carillon_mark FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		h.settle(uint64(n+1), over(n, time.Now()))
	}
	done := make(chan struct{})
	go func() {
		h.settle(5, over(4, time.Now()))
		close(done)
	}()
	select {
	case <-done:
		t.Error("it does not wait")
	case <-time.After(50 * time.Millisecond):
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := h.settled(ctx); err == nil {
		t.Error("all is in the table, though that is locked")
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	<-done
	if err := h.settled(t.Context()); err != nil {
		t.Error(err)
	}
}

// A node that does not lead does not wait: while the leader that has filled the table's backlog is gone, it must be
// able to read the log to its end and lead. One that stops leading no longer waits either.
func TestHistoryBoundsTheLeaderOnly(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := open(t, Config{URL: url})
		h, lead := historyOf(t, s, 2_000)
		for n := range 10 {
			h.settle(uint64(n+1), over(n, time.Now()))
		}
		if n := waits(h); n != 10 {
			t.Errorf("%d wait", n)
		}
		lead(true)
		if err := h.settled(t.Context()); err != nil {
			t.Error(err)
		}
		follower, _ := historyOf(t, s, 2_000)
		for n := range 11 {
			follower.settle(uint64(n+1), over(n, time.Now()))
		}
		if n := waits(follower); n > 5 {
			t.Errorf("%d wait, though the table has all but the last", n)
		}
	})
}

// A process that is frozen, or cut off, while it writes runs blocks the others for some seconds, and not until the
// database has noticed that it is gone.
func TestASilentWriterIsEnded(t *testing.T) {
	tests.Long(t)
	both(t, func(t *testing.T, url string) {
		t.Parallel()
		frozen, other := open(t, Config{URL: url, silence: silence}), open(t, Config{URL: url})
		tx, err := frozen.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.Exec("UPDATE carillon_mark SET upto = 7 WHERE one = 1" + frozen.dialect.unlessIdle); err != nil {
			t.Fatal(err)
		}
		h, lead := historyOf(t, other, 0)
		lead(true)
		h.settle(1, over(1, time.Now()))
		if err := h.settled(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err == nil {
			t.Error("a transaction that was idle for so long was done")
		}
	})
}

// Whatever a run contains is stored, and read back to the last bit; queries of users find it in columns.
func TestHistoryTakesAnything(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := open(t, Config{URL: url})
		h, lead := historyOf(t, s, 0)
		lead(true)
		odd := over(1, time.Date(2026, 11, 26, 12, 0, 0, 123456789, time.UTC))
		odd.Error, odd.Worker, odd.Args, odd.Result = "a\x00b\xff\xfe\xed\xa0\x80", "w\x00", []byte(`{"a":"\u0000","b":"\ud800"}`), []byte(strings.Repeat("x\x00", 100_000))
		odd.Due = time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC)
		odd.Started = time.Time{}
		early := over(2, time.Unix(0, 1).UTC())
		h.settle(1, odd, early)
		if err := h.settled(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, want := range []*kernel.Run{odd, early} {
			got, err := h.Get(t.Context(), "t", want.ID)
			if err != nil || string(kernel.AppendRow(nil, got)) != string(kernel.AppendRow(nil, want)) {
				t.Errorf("it is read back as %+v, %v", got, err)
			}
		}
		var job, state, failure, args string
		var attempts int
		var ended time.Time
		var started *time.Time
		row := s.db.QueryRow(s.dialect.ask("SELECT job, state, error, args, attempts, started_at, ended_at FROM carillon_runs WHERE number = ?"), 1<<positionBits)
		if s.dialect == mariadb {
			var raw string
			if err := row.Scan(&job, &state, &failure, &args, &attempts, &raw, &raw); err == nil {
				t.Error("a time that is missing is there")
			}
			row = s.db.QueryRow("SELECT job, state, error, args, attempts, NULL, ended_at FROM carillon_runs WHERE number = ?", 1<<positionBits)
			var none *string
			if err := row.Scan(&job, &state, &failure, &args, &attempts, &none, &raw); err != nil || raw != "2026-11-26 12:00:00.123456" {
				t.Errorf("it ended at %q, %v", raw, err)
			}
		} else if err := row.Scan(&job, &state, &failure, &args, &attempts, &started, &ended); err != nil || started != nil || !ended.Equal(odd.Ended.Truncate(time.Microsecond)) {
			t.Errorf("it started at %v and ended at %v, %v", started, ended, err)
		}
		if job != "k" || state != "Succeeded" || !strings.HasPrefix(failure, "a\uFFFDb") || args != string(odd.Args) || attempts != 1 {
			t.Errorf("%q %q %q %q %d", job, state, failure, args, attempts)
		}
	})
}

// A query that takes long holds up neither a new day's partition nor what is written.
func TestHistoryBesideALongQuery(t *testing.T) {
	s := open(t, Config{URL: sqltest.Postgres.New(t)})
	h, lead := historyOf(t, s, 0)
	lead(true)
	h.settle(1, over(1, time.Now()))
	if err := h.settled(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx, err := s.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	var n int
	if err := tx.QueryRow("SELECT COUNT(*) FROM carillon_runs").Scan(&n); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	day := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, daysAhead+1)
	var all sync.WaitGroup
	for range 4 { // one makes it, the others find it
		all.Go(func() {
			if err := h.within(t.Context(), func(tx *sql.Tx) error { return s.dialect.partition(t.Context(), tx, day) }); err != nil {
				t.Errorf("the partition of a later day: %v", err)
			}
		})
	}
	all.Wait()
	h.settle(2, over(2, time.Now()))
	if err := h.settled(t.Context()); err != nil {
		t.Error(err)
	}
	var parts int
	if err := s.db.QueryRow("SELECT COUNT(*) FROM pg_inherits WHERE inhparent = 'carillon_runs'::regclass").Scan(&parts); err != nil || parts != daysAhead+2 {
		t.Errorf("%d partitions, %v; want %d", parts, err, daysAhead+2)
	}
}

// What is purged is what a store in memory purges, by the age of runs and by their number.
func TestHistoryIsPurged(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := open(t, Config{URL: url})
		h, _ := historyOf(t, s, 0)
		model := memstore.NewArchive(0)
		random := tests.Random(t)
		now := time.Date(2026, 11, 26, 15, 0, 0, 0, time.UTC)
		var runs []*kernel.Run
		for n := range 1500 { // over ten days
			run := over(n, now.Add(-10*24*time.Hour+time.Duration(n)*9*time.Minute))
			run.Key = []jobs.Key{"few", "short", "rest"}[random.IntN(3)]
			run.State = []jobs.State{jobs.Succeeded, jobs.Succeeded, jobs.Terminated}[random.IntN(3)]
			runs = append(runs, run)
		}
		model.Append(runs)
		const first = 1 << positionBits
		if err := h.within(t.Context(), func(tx *sql.Tx) error {
			last, err := s.dialect.fillRuns(t.Context(), tx, func(yield func(*kernel.Run, error) bool) {
				for _, run := range runs {
					if !yield(run, nil) {
						return
					}
				}
			}, first)
			if last != first+uint64(len(runs)) {
				t.Errorf("the last number is %d", last)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		lines := s.Logs()
		kept, purged := runs[len(runs)-1], runs[0]
		for _, run := range []*kernel.Run{kept, purged} {
			if err := lines.Append(t.Context(), []metastore.LogLine{{Tenant: "t", Run: run.ID, LogPosition: metastore.LogPosition{Attempt: 1, Sequence: 1}, At: run.Ended, Level: "info", Text: "x"}}); err != nil {
				t.Fatal(err)
			}
		}
		same := func(when string) {
			t.Helper()
			q := metastore.RunQuery{Tenant: "t", Limit: metastore.MaxPage}
			got, want := pages(t, h, q), pages(t, model, q)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %d runs are left, want %d", when, len(got), len(want))
			}
			n := 0
			for _, err := range s.dialect.allRuns(t.Context(), s.db) {
				if err != nil {
					t.Fatal(err)
				}
				n++
			}
			if n != len(want) {
				t.Errorf("%s: %d runs are read, want %d", when, n, len(want))
			}
		}
		same("before")
		for i, of := range []map[jobs.Key]kernel.Kept{
			{"few": {Succeeded: 30, Others: 3}, "short": {Since: now.Add(-50 * time.Hour)}, "rest": {Since: now.Add(-30 * 24 * time.Hour)}},
			{"few": {Succeeded: 10, Others: 3, Young: now.Add(-24 * time.Hour)}, "short": {Since: now.Add(-30 * time.Hour)}, "rest": {Since: now.Add(-5 * 24 * time.Hour)}},
			{"few": {Since: now.Add(-4 * 24 * time.Hour)}, "short": {Since: now.Add(-30 * time.Hour)}, "rest": {Since: now.Add(-4 * 24 * time.Hour)}},
		} {
			r := metastore.Retention{Now: now, Of: func(_ jobs.Tenant, key jobs.Key) (kernel.Kept, error) { return of[key], nil }}
			got, err := h.Retain(t.Context(), r)
			want, _ := model.Retain(t.Context(), r)
			if err != nil || got.Dropped != want.Dropped {
				t.Errorf("pass %d: %d are purged, %v; want %d", i, got.Dropped, err, want.Dropped)
			}
			same(fmt.Sprint("pass ", i))
		}
		if found, err := lines.Read(t.Context(), "t", kept.ID, metastore.LogPosition{}, 0); err != nil || len(found) != 1 {
			t.Errorf("the lines of a run that is kept: %v, %v", found, err)
		}
		if s.dialect == postgres {
			var days int
			if err := s.db.QueryRow("SELECT COUNT(*) FROM pg_inherits WHERE inhparent = 'carillon_runs'::regclass").Scan(&days); err != nil || days != 4 {
				t.Errorf("%d days have partitions, %v; want 4", days, err)
			}
		}
	})
}

// A process purges what others have written before it led.
func TestRunsOfOthersArePurged(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := open(t, Config{URL: url})
		at := time.Now().Add(-time.Hour)
		r := metastore.Retention{Now: time.Now(), Of: func(jobs.Tenant, jobs.Key) (kernel.Kept, error) { return kernel.Kept{Succeeded: 3}, nil }}
		n := 0
		writes := func(h *history, lead func(bool), entry uint64) {
			for range 5 {
				n++
				h.settle(entry, over(n, at))
				entry++
			}
			lead(true)
			if err := h.settled(t.Context()); err != nil {
				t.Fatal(err)
			}
			lead(false)
		}
		a, leadA := historyOf(t, s, 0)
		b, leadB := historyOf(t, s, 0)
		writes(a, leadA, 1)
		for i, pass := range []struct {
			by      *history
			dropped int
		}{{a, 2}, {a, 0}} {
			if done, err := pass.by.Retain(t.Context(), r); err != nil || done.Dropped != pass.dropped {
				t.Errorf("pass %d: %d are purged, %v; want %d", i, done.Dropped, err, pass.dropped)
			}
		}
		b.forget()
		writes(b, leadB, 10)
		if done, err := a.Retain(t.Context(), r); err != nil || done.Dropped != 5 {
			t.Errorf("%d of another process are purged, %v; want 5", done.Dropped, err)
		}
		writes(b, leadB, 20)
		writes(a, leadA, 30)
		if done, err := a.Retain(t.Context(), r); err != nil || done.Dropped != 10 {
			t.Errorf("%d of both are purged, %v; want 10", done.Dropped, err)
		}
	})
}

// BenchmarkHistory is what a run takes to be written, behind commits.
func BenchmarkHistory(b *testing.B) {
	for name, kind := range map[string]*sqltest.Kind{"postgres": sqltest.Postgres, "mariadb": sqltest.MariaDB} {
		b.Run(name, func(b *testing.B) {
			s, err := Open(b.Context(), Config{URL: kind.New(b)})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			h, lead := historyOf(b, s, 0)
			lead(true)
			at := time.Now()
			b.ResetTimer()
			for n := range b.N {
				run := over(n, at)
				run.ID = jobs.NewID(at)
				h.settle(uint64(n+1), run)
			}
			if err := h.settled(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}
