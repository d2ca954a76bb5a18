package sqlstore

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/replica"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// kinds are the databases that tests have.
var kinds = map[string]*sqltest.Kind{"PostgreSQL": sqltest.Postgres, "MariaDB": sqltest.MariaDB}

// A store goes to another database and back with all that it has, also runs that were not in the table yet, and goes on
// there. A process that had the empty database open finds it.
func TestAStoreMoves(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			from := Config{URL: kind.New(t)}
			s := led(t, from)
			do(t, s, register("k"))
			live, ended := create("k"), create("k")
			do(t, s, live, ended)
			do(t, s, kernel.Cancel{ID: ended.ID})
			if err := s.Logs().Append(t.Context(), []metastore.LogLine{{Tenant: jobs.DefaultTenant, Run: ended.ID, LogPosition: metastore.LogPosition{Attempt: 1, Sequence: 1}, At: time.Unix(9, 0).UTC(), Level: "INFO", Text: "x"}}); err != nil {
				t.Fatal(err)
			}
			if err := s.history.settled(t.Context()); err != nil {
				t.Fatal(err)
			}
			last := create("k")
			s.history.close() // the last run stays in the log
			do(t, s, last, kernel.Cancel{ID: last.ID})
			s.crash(t)
			expire(t, from)
			for _, other := range []*sqltest.Kind{sqltest.Postgres, sqltest.MariaDB, kind} {
				to := Config{URL: other.New(t)}
				early := open(t, to)
				move(t, from, to)
				for id, state := range map[jobs.ID]jobs.State{live.ID: jobs.Enqueued, ended.ID: jobs.Cancelled, last.ID: jobs.Cancelled} {
					eventually(t, "the process that was there before has the rows", func() bool {
						run, err := early.Run(t.Context(), jobs.DefaultTenant, id)
						return err == nil && run.State == state
					})
				}
				if err := early.Close(); err != nil {
					t.Fatal(err)
				}
				from = to
			}
			next := led(t, from)
			term, err := next.State(t.Context())
			if err != nil || term.Term < 3 {
				t.Errorf("term %d after three moves, %v", term.Term, err)
			}
			do(t, next, kernel.Cancel{ID: live.ID})
			var ids []jobs.ID
			page, err := next.Runs(t.Context(), metastore.RunQuery{Tenant: jobs.DefaultTenant})
			for _, run := range page.Runs {
				ids = append(ids, run.ID)
			}
			if err != nil || len(ids) != 3 || ids[0] != live.ID || ids[1] != last.ID || ids[2] != ended.ID {
				t.Errorf("it lists %v, %v", ids, err)
			}
			lines, err := next.Logs().Read(t.Context(), jobs.DefaultTenant, ended.ID, metastore.LogPosition{}, 10)
			if err != nil || len(lines) != 1 {
				t.Errorf("%d log lines, %v", len(lines), err)
			}
		})
	}
}

// expire ends the lease of a leader that has crashed.
func expire(t *testing.T, c Config) {
	t.Helper()
	s, err := dial(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.db.Exec("UPDATE carillon_leader SET until = 0"); err != nil {
		t.Fatal(err)
	}
}

func move(t *testing.T, from, to Config) {
	t.Helper()
	f, err := Freeze(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := metastore.Carry(t.Context(), f, func(ctx context.Context, c metastore.Content, check func(metastore.Content) error) error {
		return Fill(ctx, to, c, check)
	}, nil); err != nil {
		t.Fatal(err)
	}
}

// A database is not read while processes work with it, and while it is read none can.
func TestFreeze(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		c := Config{URL: url, Node: "a"}
		refused := func(want string) {
			t.Helper()
			f, err := Freeze(t.Context(), c)
			if err == nil {
				_ = f.Close()
			}
			if !errors.Is(err, jobs.Conflict) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: want %q", err, want)
			}
		}
		if _, err := Freeze(t.Context(), c); !errors.Is(err, jobs.NotFound) {
			t.Errorf("an empty database: %v", err)
		}
		s := open(t, c)
		stop := leading(t, s)
		do(t, s, register("k"))
		tabled(t, s, "k")
		refused("node a leads")
		stop()
		m := metastore.Member{Node: "m", Nonce: "1"}
		if err := s.Stay(t.Context(), m, time.Hour); err != nil {
			t.Fatal(err)
		}
		refused("1 nodes fire here")
		if err := s.Leave(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		tx, err := s.db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Outbox("", "client:shop").Enqueue(t.Context(), tx, jobs.Request{Key: "k"}), tx.Commit()); err != nil {
			t.Fatal(err)
		}
		refused("the outbox has 1 requests")
		if _, err := s.db.Exec("DELETE FROM carillon_outbox"); err != nil {
			t.Fatal(err)
		}
		// Processes that died a moment ago have the places of those that follow.
		if _, err := s.db.Exec(s.dialect.ask("UPDATE carillon_followers SET nonce = 'dead', until = "+s.dialect.clock+" + ?"), int64(time.Hour)); err != nil {
			t.Fatal(err)
		}
		f, err := Freeze(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		rows := 0
		for range f.Rows(t.Context()) {
			rows++
		}
		if rows == 0 {
			t.Error("it has no rows")
		}
		refused("another process writes")
		// Not even a leader that has not noticed that its lease is over.
		table := logTable{s, s.db}
		seq, hash, _, err := table.End(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		row := dblog.Row{Seq: seq + 1, Term: 1, Prev: hash, Hash: dblog.Hash{1}, Entry: replica.TermEntry()}
		done := make(chan error, 2)
		go func() {
			_, _, err := table.Insert(t.Context(), []dblog.Row{row})
			done <- err
		}()
		go func() {
			_, err := table.Take(t.Context(), "b", 0, time.Millisecond)
			done <- err
		}()
		select {
		case err := <-done:
			t.Errorf("another process leads or writes: %v", err)
		case <-time.After(300 * time.Millisecond):
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		leading(t, s)
		do(t, s, create("k"))
	})
}

// broken is content that cannot be read to its end.
type broken struct{ metastore.Content }

func (b broken) Ended(ctx context.Context) iter.Seq2[*kernel.Run, error] {
	return joined(b.Content.Ended(ctx), func(yield func(*kernel.Run, error) bool) { yield(nil, errFault) })
}

// A fill that fails leaves an empty database, and one that has rows is not filled.
func TestAFillIsWholeOrNothing(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		from := Config{URL: url}
		s := open(t, from)
		stop := leading(t, s)
		ended := create("k")
		do(t, s, register("k"), ended, kernel.Cancel{ID: ended.ID})
		stop()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		f, err := Freeze(t.Context(), from)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		kind := sqltest.Postgres
		if s.dialect == mariadb {
			kind = sqltest.MariaDB
		}
		to := Config{URL: kind.New(t)}
		checked := func(metastore.Content) error { return nil }
		if err := Fill(t.Context(), to, broken{f}, checked); !errors.Is(err, errFault) {
			t.Errorf("content that cannot be read: %v", err)
		}
		if err := Fill(t.Context(), to, f, func(metastore.Content) error { return errFault }); !errors.Is(err, errFault) {
			t.Errorf("a copy that differs: %v", err)
		}
		if err := Fill(t.Context(), to, f, checked); err != nil {
			t.Fatal(err)
		}
		if err := Fill(t.Context(), to, f, checked); !errors.Is(err, jobs.Conflict) {
			t.Errorf("a database that has rows: %v", err)
		}
		if run, err := open(t, to).Run(t.Context(), jobs.DefaultTenant, ended.ID); err != nil || run.State != jobs.Cancelled {
			t.Errorf("%+v, %v", run, err)
		}
	})
}
