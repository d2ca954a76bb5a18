package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	neturl "net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// faults is a driver whose commits fail now and then: before anything was done, after it was done, or in its place.
type faults struct {
	driver.Connector
	mu    sync.Mutex
	rand  *rand.Rand
	did   map[string]int
	quiet bool
	hang  chan struct{} // commits wait until it is closed; nil = they do not
	hung  func()        // is called by a commit before it waits
}

var errFault = errors.New("the network is away")

// fault is the fault of this time.
func (f *faults) fault(at string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	kind := ""
	switch n := f.rand.IntN(12); {
	case f.quiet:
	case at == "begin" && n == 0:
		kind = "before"
	case at == "commit" && n == 0:
		kind = "after"
	case at == "commit" && n == 1:
		kind = "instead"
	case at == "query" && n == 0 && f.rand.IntN(4) == 0:
		kind = "within"
	}
	f.did[kind]++
	return kind
}

func (f *faults) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := f.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &faultyConn{c, f}, nil
}

// faultyConn passes on what the drivers of both databases can do.
type faultyConn struct {
	driver.Conn
	f *faults
}

func (c *faultyConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if c.f.fault("begin") != "" {
		return nil, errFault
	}
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
	return faultyTx{tx, c.f}, err
}

func (c *faultyConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.f.fault("query") != "" {
		return nil, errFault
	}
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *faultyConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *faultyConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	return c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
}

func (c *faultyConn) CheckNamedValue(v *driver.NamedValue) error {
	return c.Conn.(driver.NamedValueChecker).CheckNamedValue(v)
}

type faultyTx struct {
	driver.Tx
	f *faults
}

func (t faultyTx) Commit() error {
	if t.f.hang != nil {
		t.f.hung()
		<-t.f.hang
	}
	switch t.f.fault("commit") {
	case "instead":
		return errors.Join(errFault, t.Rollback())
	case "after":
		return errors.Join(errFault, t.Tx.Commit())
	}
	return t.Tx.Commit()
}

// faulty replaces the connections of a store.
func faulty(t *testing.T, s *Store, url string) *faults {
	t.Helper()
	f := &faults{rand: rand.New(rand.NewPCG(1, 2026)), did: map[string]int{}}
	if s.dialect == postgres {
		c, err := pgx.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		f.Connector = stdlib.GetConnector(*c)
	} else {
		u, err := neturl.Parse(url)
		if err != nil {
			t.Fatal(err)
		}
		c, err := mariadbConfig(u, s.cfg.silence)
		if err != nil {
			t.Fatal(err)
		}
		if f.Connector, err = mysql.NewConnector(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.db.Close(); err != nil {
		t.Fatal(err)
	}
	s.db = sql.OpenDB(f)
	return f
}

// insist repeats a request until it is answered, as couriers do.
func insist(t *testing.T, s *Store, commands ...kernel.Command) []metastore.Result {
	t.Helper()
	batch := make([]kernel.Envelope, len(commands))
	for i, k := range commands {
		batch[i] = envelope(k)
	}
	for range 100 {
		results := s.Apply(t.Context(), batch)
		switch code := jobs.CodeOf(results[0].Err); {
		case results[0].Err != nil && (code == jobs.Unknown || code == jobs.Unavailable):
			continue
		}
		return results
	}
	t.Fatal("there was no answer")
	return nil
}

// A commit with an unknown outcome is sent again, and is done once; one that was not done leaves nothing behind. The
// counts beside the rows agree with them afterwards.
func TestCommitsThatFail(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := open(t, Config{URL: url})
		do(t, s, kernel.Register{App: "app", Worker: "w", Start: true, Job: kernel.Declaration{Key: "k", Kind: kernel.Triggered,
			Code: kernel.Settings{MaxConcurrency: new(3), Overlap: new(jobs.OverlapQueue)}}})
		f := faulty(t, s, url)
		const n = 120
		ids := map[jobs.ID]bool{}
		for range n / 6 {
			var requests []kernel.Command
			for range 6 {
				k := create("k")
				ids[k.ID] = true
				requests = append(requests, k)
			}
			for i, r := range insist(t, s, requests...) {
				if r.Err != nil {
					t.Fatalf("create %d: %v", i, r.Err)
				}
			}
		}
		for done := 0; done < n; {
			ready, err := s.Ready(t.Context(), jobs.DefaultTenant, "app", 10)
			if err != nil {
				continue // a question that was not answered is asked again
			}
			if len(ready) == 0 {
				t.Fatalf("nothing is ready, and %d of %d are done", done, n)
			}
			if len(ready) > 3 {
				t.Fatalf("%d hold one of 3 slots", len(ready))
			}
			for _, run := range ready {
				for _, k := range []kernel.Command{kernel.Start{ID: run.ID, Worker: "w", Attempt: 1}, kernel.Finish{ID: run.ID, Worker: "w", Attempt: 1, Outcome: kernel.OutcomeSuccess}} {
					if r := insist(t, s, k)[0]; r.Err != nil {
						t.Fatalf("%s: %v", k.Verb(), r.Err)
					}
				}
				done++
			}
		}
		f.mu.Lock()
		f.quiet = true
		f.mu.Unlock()
		t.Log("faults:", f.did)
		for _, kind := range []string{"before", "after", "instead", "within"} {
			if f.did[kind] == 0 {
				t.Errorf("no commit failed %s", kind)
			}
		}
		seen := 0
		q := metastore.RunQuery{Tenant: jobs.DefaultTenant, Limit: 50}
		for {
			page, err := s.Runs(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for _, run := range page.Runs {
				seen++
				if !ids[run.ID] || run.State != jobs.Succeeded || run.Attempt != 1 {
					t.Errorf("%+v", run)
				}
			}
			if q.Cursor = page.Next; q.Cursor == "" {
				break
			}
		}
		c, err := s.Counts(t.Context(), metastore.CountQuery{Tenant: jobs.DefaultTenant, From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Hour)})
		if err != nil || seen != n || len(c.Live) != 0 {
			t.Errorf("%d runs, counted %+v (%v)", seen, c.Live, err)
		}
		var succeeded int64
		for _, h := range c.Tallies {
			succeeded += h.Runs[jobs.Succeeded]
		}
		if succeeded != n {
			t.Errorf("%d were counted as Succeeded", succeeded)
		}
		for row := range s.captured(t) {
			if g, ok := row.(*kernel.Gate); ok && g.Taken != 0 {
				t.Errorf("%+v", g)
			}
		}
		if left, err := s.Unserved(t.Context(), 10); err != nil || len(left) != 0 {
			t.Errorf("%v (%v)", left, err)
		}
	})
}

// The store reports of each commit what it knows.
func TestWhatIsKnownOfACommit(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := open(t, Config{URL: url})
		do(t, s, register("k"))
		f := faulty(t, s, url)
		for range 60 {
			k := create("k")
			f.mu.Lock()
			clear(f.did)
			f.mu.Unlock()
			err := s.Apply(t.Context(), []kernel.Envelope{envelope(k)})[0].Err
			f.mu.Lock()
			f.quiet = true
			f.mu.Unlock()
			_, there := s.Run(t.Context(), jobs.DefaultTenant, k.ID)
			f.mu.Lock()
			f.quiet = false
			did := fmt.Sprint(f.did)
			f.mu.Unlock()
			switch code := jobs.CodeOf(there); {
			case err == nil && there != nil, err != nil && jobs.CodeOf(err) == jobs.Unavailable && code != jobs.NotFound:
				t.Errorf("%v: the answer is %v, and the run: %v", did, err, there)
			case err != nil && jobs.CodeOf(err) != jobs.Unknown && jobs.CodeOf(err) != jobs.Unavailable:
				t.Errorf("%v: %v", did, err)
			}
		}
	})
}

// A COMMIT without an answer is not waited for longer than a commit may take, even if the driver ignores that; its
// outcome is unknown.
func TestACommitThatHangs(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := open(t, Config{URL: url})
		do(t, s, register("k"))
		f := faulty(t, s, url)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		// Its time ends once it hangs, and not while the database still works on earlier statements.
		f.quiet, f.hang, f.hung = true, make(chan struct{}), cancel
		// Returns although the COMMIT hangs.
		_, sent, err := s.transaction(ctx, []kernel.Envelope{envelope(create("k"))})
		if err == nil || !sent {
			t.Errorf("sent %v, %v", sent, err)
		}
		close(f.hang)
	})
}

// The clock of a database is the same whatever the zone of its machine: an hour of local time may come twice.
func TestTheClockKnowsNoZone(t *testing.T) {
	s := open(t, Config{URL: sqltest.MariaDB.New(t)})
	var zone string
	if err := s.db.QueryRowContext(t.Context(), "SELECT @@session.time_zone").Scan(&zone); err != nil || zone != "+00:00" {
		t.Errorf("connections are in zone %q (%v)", zone, err)
	}
}

// A leader that does not know yet that another one leads notifies that one of its commits, as any process does.
func TestADeposedLeaderNotifies(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := open(t, Config{URL: url})
		do(t, s, register("k"), kernel.Lead{Node: "a", Term: 5})
		notified := func() (n int64) {
			t.Helper()
			if err := s.db.QueryRowContext(t.Context(), "SELECT commits FROM carillon_beside WHERE one = 1").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		for _, c := range []struct{ term, more uint64 }{{0, 1}, {5, 0}, {4, 1}} {
			s.leads.Store(c.term)
			before := notified()
			do(t, s, create("k"))
			if more := notified() - before; more != int64(c.more) {
				t.Errorf("in term %d of 5 it notifies %d times", c.term, more)
			}
		}
	})
}

// A MariaDB whose default lets statements read uncommitted rows shows a store committed rows only.
func TestReadsAreCommitted(t *testing.T) {
	url := sqltest.MariaDB.New(t)
	db := sqltest.MariaDB.Open(t, url)
	set := func(level string) {
		t.Helper()
		if _, err := db.Exec("SET GLOBAL tx_isolation = '" + level + "'"); err != nil {
			t.Fatal(err)
		}
	}
	set("READ-UNCOMMITTED")
	t.Cleanup(func() { set("REPEATABLE-READ") })
	s := open(t, Config{URL: url})
	var level string
	if err := s.db.QueryRowContext(t.Context(), "SELECT @@session.tx_isolation").Scan(&level); err != nil || level != "REPEATABLE-READ" {
		t.Errorf("connections read as %q (%v)", level, err)
	}
}
