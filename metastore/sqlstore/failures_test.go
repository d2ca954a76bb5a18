package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// load is commands that are sent to a store one after the other, until stop.
type load struct {
	t    *testing.T
	s    *Store
	over context.CancelFunc
	done chan struct{}

	mu    sync.Mutex
	acked []jobs.ID
}

func loading(t *testing.T, s *Store) *load {
	ctx, over := context.WithCancel(t.Context())
	l := &load{t: t, s: s, over: over, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		for ctx.Err() == nil {
			e := envelope(create("k"))
			err := s.Apply(ctx, []kernel.Envelope{e})[0].Err
			switch code := jobs.CodeOf(err); {
			case err == nil:
				l.mu.Lock()
				l.acked = append(l.acked, e.Command.(kernel.Create).ID)
				l.mu.Unlock()
			case code != jobs.Unavailable && code != jobs.Unknown:
				t.Errorf("a command is refused: %v", err)
			}
		}
	}()
	return l
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// more waits until further commands are acknowledged.
func (l *load) more(what string) {
	l.t.Helper()
	n := l.count()
	within(l.t, "commands are acknowledged "+what, func() bool { return l.count() > n+20 })
}

func (l *load) stop() {
	l.over()
	<-l.done
}

// exec runs statements on a database.
func exec(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, q := range statements {
		if _, err := db.Exec(q); err != nil {
			t.Errorf("%s: %v", q, err)
		}
	}
}

// cut ends all connections to the database but that of an administrator.
func cut(t *testing.T, admin *sql.DB, kind *sqltest.Kind, name string) {
	t.Helper()
	if kind == sqltest.Postgres {
		exec(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '"+name+"' AND pid <> pg_backend_pid()")
		return
	}
	rows, err := admin.Query("SELECT id FROM information_schema.processlist WHERE db = ? AND id <> connection_id()", name)
	var ids []int64
	err = each(rows, err, func(scan func(...any) error) error {
		ids = append(ids, 0)
		return scan(&ids[len(ids)-1])
	})
	if err != nil {
		t.Error(err)
	}
	for _, id := range ids {
		_, _ = admin.Exec(fmt.Sprintf("KILL %d", id)) // it may have gone by itself
	}
}

// locked holds a lock that keeps the log from being written.
func locked(t *testing.T, admin *sql.DB, kind *sqltest.Kind, long time.Duration) {
	t.Helper()
	c, err := admin.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	lock, unlock := "BEGIN; LOCK TABLE carillon_log IN ACCESS EXCLUSIVE MODE", "COMMIT"
	if kind == sqltest.MariaDB {
		lock, unlock = "LOCK TABLES carillon_log WRITE", "UNLOCK TABLES"
	}
	if _, err := c.ExecContext(t.Context(), lock); err != nil {
		t.Error(err)
	}
	time.Sleep(long) // statements time out meanwhile
	if _, err := c.ExecContext(t.Context(), unlock); err != nil {
		t.Error(err)
	}
}

// failures are what may happen to a database. Each returns when it is over.
var failures = []struct {
	name string
	on   []*sqltest.Kind
	play func(t *testing.T, l *load, admin *sql.DB, kind *sqltest.Kind, name string)
}{
	{"the disk is full", []*sqltest.Kind{sqltest.Postgres, sqltest.MariaDB}, func(t *testing.T, l *load, admin *sql.DB, kind *sqltest.Kind, _ string) {
		if kind == sqltest.Postgres {
			exec(t, admin, "CREATE FUNCTION no_space() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$",
				"CREATE TRIGGER no_space BEFORE INSERT ON carillon_log EXECUTE FUNCTION no_space()")
		} else {
			exec(t, admin, "CREATE TRIGGER no_space BEFORE INSERT ON carillon_log FOR EACH ROW SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1021, MESSAGE_TEXT = 'Disk full'")
		}
		n := l.count()
		time.Sleep(300 * time.Millisecond)
		if got := l.count(); got > n+1 { // one was on its way
			t.Errorf("%d commands were acknowledged without a place for them", got-n)
		}
		if kind == sqltest.Postgres {
			exec(t, admin, "DROP TRIGGER no_space ON carillon_log", "DROP FUNCTION no_space")
		} else {
			exec(t, admin, "DROP TRIGGER no_space")
		}
	}},
	{"connections are cut", []*sqltest.Kind{sqltest.Postgres, sqltest.MariaDB}, func(t *testing.T, l *load, admin *sql.DB, kind *sqltest.Kind, name string) {
		for range 5 {
			cut(t, admin, kind, name)
			l.more("after a cut")
		}
	}},
	{"no connection is accepted", []*sqltest.Kind{sqltest.Postgres}, func(t *testing.T, _ *load, _ *sql.DB, kind *sqltest.Kind, name string) {
		admin := kind.Open(t, kind.New(t)) // the own one cannot be closed
		exec(t, admin, "ALTER DATABASE "+name+" ALLOW_CONNECTIONS false")
		cut(t, admin, kind, name)
		time.Sleep(500 * time.Millisecond)
		exec(t, admin, "ALTER DATABASE "+name+" ALLOW_CONNECTIONS true")
	}},
	{"statements time out", []*sqltest.Kind{sqltest.Postgres, sqltest.MariaDB}, func(t *testing.T, _ *load, admin *sql.DB, kind *sqltest.Kind, name string) {
		limit, unlimited := "ALTER DATABASE "+name+" SET statement_timeout = '200ms'", "ALTER DATABASE "+name+" RESET statement_timeout"
		if kind == sqltest.MariaDB {
			limit, unlimited = "SET GLOBAL max_statement_time = 0.2", "SET GLOBAL max_statement_time = 0"
		}
		exec(t, admin, limit)
		cut(t, admin, kind, name) // it is for new connections
		locked(t, admin, kind, time.Second)
		exec(t, admin, unlimited)
		cut(t, admin, kind, name)
	}},
	{"the database is read-only", []*sqltest.Kind{sqltest.Postgres}, func(t *testing.T, _ *load, admin *sql.DB, kind *sqltest.Kind, name string) {
		exec(t, admin, "ALTER DATABASE "+name+" SET default_transaction_read_only = on")
		cut(t, admin, kind, name)
		time.Sleep(500 * time.Millisecond)
		exec(t, admin, "BEGIN READ WRITE; ALTER DATABASE "+name+" RESET default_transaction_read_only; COMMIT")
		cut(t, admin, kind, name)
	}},
	{"a query takes an hour", []*sqltest.Kind{sqltest.Postgres, sqltest.MariaDB}, func(t *testing.T, l *load, admin *sql.DB, kind *sqltest.Kind, _ string) {
		tx, err := admin.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		var n int
		if err := tx.QueryRow("SELECT (SELECT COUNT(*) FROM carillon_log) + (SELECT COUNT(*) FROM carillon_runs)").Scan(&n); err != nil {
			t.Error(err)
		}
		if err := l.s.log.Snapshot(t.Context()); err != nil { // which cuts the log
			t.Error(err)
		}
		l.more("beside a long query")
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}},
}

// Whatever happens to the database, what was acknowledged is there, and it goes on when that is over.
func TestFailuresOfTheDatabase(t *testing.T) {
	for kindName, kind := range map[string]*sqltest.Kind{"PostgreSQL": sqltest.Postgres, "MariaDB": sqltest.MariaDB} {
		for _, f := range failures {
			if !slices.Contains(f.on, kind) {
				continue
			}
			t.Run(kindName+"/"+f.name, func(t *testing.T) {
				url := kind.New(t)
				name := url[strings.LastIndex(url, "/")+1:]
				name, _, _ = strings.Cut(name, "?")
				s := led(t, Config{URL: url, leaseTime: longLease})
				do(t, s, register("k"))
				admin := kind.Open(t, url)
				if err := admin.Ping(); err != nil { // one connection is there, whatever comes
					t.Fatal(err)
				}
				l := loading(t, s)
				l.more("before")
				f.play(t, l, admin, kind, name)
				l.more("afterwards")
				l.stop()
				checkSame(t, s, url, l.acked)
			})
		}
	}
}

// checkSame compares the rows of a store with those of one that starts now, in which all runs must be.
func checkSame(t *testing.T, s *Store, url string, ids []jobs.ID) {
	t.Helper()
	other := open(t, Config{URL: url, Copy: true})
	for _, id := range ids {
		if _, err := other.Run(t.Context(), jobs.DefaultTenant, id); err != nil {
			t.Fatalf("an acknowledged run is gone: %v", err)
		}
	}
	rows := func(s *Store) (all []kernel.Row) {
		for row := range s.machine.Engine.Capture().Rows() {
			all = append(all, row)
		}
		return all
	}
	if err := s.Linearizable(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := other.Linearizable(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(rows(s), rows(other)) {
		t.Error("the rows differ from those of a store that starts now")
	}
}

// A database that lost the end of the log, as a replica that was promoted, is noticed: the leader reads its rows again,
// leads again, and what it acknowledges from then on is there.
func TestTheLogLosesItsEnd(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := led(t, Config{URL: url})
		do(t, s, register("k"))
		kept := do(t, s, create("k"))[0].Run().ID
		end := count(t, s, "SELECT MAX(seq) FROM carillon_log")
		lost := do(t, s, create("k"), create("k"))[0].Run().ID
		if _, err := s.db.Exec(s.dialect.ask("DELETE FROM carillon_log WHERE seq > ?"), end); err != nil {
			t.Fatal(err)
		}
		l := loading(t, s)
		l.more("after the loss")
		l.stop()
		checkSame(t, s, url, append(l.acked, kept))
		if run, err := s.Run(t.Context(), jobs.DefaultTenant, lost); err == nil {
			t.Errorf("a run is here that the database has lost: %+v", run)
		}
	})
}
