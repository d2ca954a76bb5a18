package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// faults is a driver whose statements fail now and then: before they did anything, after they did it, or in place of it.
type faults struct {
	mu    sync.Mutex
	rand  *rand.Rand
	did   map[string]int
	quiet bool
	hangs int // so many inserts into the log get no answer
}

var errFault = errors.New("the network is away")

// fault is the fault of this time.
func (f *faults) fault(at string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	kind := ""
	switch n := f.rand.IntN(12); {
	case at == "insert" && f.hangs > 0:
		f.hangs--
		kind = "hangs"
	case f.quiet:
	case n == 0 && (at == "begin" || at == "insert"):
		kind = "before"
	case n == 1 && at == "insert", n == 0 && at == "commit":
		kind = "after"
	case n == 1 && at == "commit":
		kind = "instead"
	case n == 0 && at == "query" && f.rand.IntN(4) == 0:
		kind = "within"
	}
	f.did[at+" "+kind]++
	return kind
}

func (f *faults) silence() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.quiet = true
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
	at := "query"
	if strings.HasPrefix(query, "INSERT INTO carillon_log ") {
		at = "insert"
	}
	switch c.f.fault(at) {
	case "before", "within":
		return nil, errFault
	case "hangs":
		<-ctx.Done()
		return nil, ctx.Err()
	case "after":
		rows, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
		if err != nil {
			return nil, err
		}
		for value := make([]driver.Value, len(rows.Columns())); err == nil; {
			err = rows.Next(value)
		}
		return nil, errors.Join(errFault, rows.Close())
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
	switch t.f.fault("commit") {
	case "instead":
		return errors.Join(errFault, t.Rollback())
	case "after":
		return errors.Join(errFault, t.Tx.Commit())
	}
	return t.Tx.Commit()
}

// faulty opens a store that leads on a database with faults. There are none before it leads.
func faulty(t *testing.T, c Config) (*Store, *faults) {
	t.Helper()
	f := &faults{rand: rand.New(rand.NewPCG(1, 2026)), did: map[string]int{}, quiet: true}
	c.through = func(to driver.Connector) driver.Connector {
		return &shared{to, f}
	}
	s := led(t, c)
	do(t, s, kernel.Register{App: "app", Worker: "w", Start: true, Job: kernel.Declaration{Key: "k", Kind: kernel.Triggered,
		Code: kernel.Settings{MaxConcurrency: new(3), Overlap: new(jobs.OverlapQueue)}}})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.quiet = false
	return s, f
}

// shared is one way of several with the same faults.
type shared struct {
	driver.Connector
	f *faults
}

func (s *shared) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := s.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &faultyConn{c, s.f}, nil
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

// An insert without an answer is sent again, and its entry is in the log once; one that was not done leaves nothing
// behind. Finished runs are written once, whatever becomes of the transactions. The counts agree afterwards.
func TestCommitsThatFail(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s, f := faulty(t, Config{URL: url})
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
			ready, err := s.Ready(t.Context(), metastore.ReadyQuery{Tenant: jobs.DefaultTenant, App: "app", Limit: 10})
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
		t.Log("faults:", f.did)
		for _, kind := range [][]string{{"insert before"}, {"insert after"}, {"begin before", "commit after", "commit instead"}} {
			if !slices.ContainsFunc(kind, func(kind string) bool { return f.did[kind] > 0 }) {
				t.Errorf("there was no fault %q", kind)
			}
		}
		f.mu.Unlock()
		f.silence()
		if err := s.history.settled(t.Context()); err != nil {
			t.Fatal(err)
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
		for row := range s.machine.Engine.Capture().Rows() {
			if g, ok := row.(*kernel.Gate); ok && g.Taken != 0 {
				t.Errorf("%+v", g)
			}
		}
		if left, err := s.Unserved(t.Context(), 10); err != nil || len(left) != 0 {
			t.Errorf("%v (%v)", left, err)
		}
	})
}

// The store reports of each commit what it knows: what it acknowledges is there, also on a node that starts then.
func TestWhatIsKnownOfACommit(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s, f := faulty(t, Config{URL: url})
		answers := map[jobs.ID]error{}
		for range 60 {
			k := create("k")
			answers[k.ID] = s.Apply(t.Context(), []kernel.Envelope{envelope(k)})[0].Err
		}
		f.silence()
		other := open(t, Config{URL: url})
		for id, err := range answers {
			code := jobs.CodeOf(err)
			_, there := other.Run(t.Context(), jobs.DefaultTenant, id)
			switch {
			case err == nil && there != nil, err != nil && code == jobs.Unavailable && jobs.CodeOf(there) != jobs.NotFound:
				t.Errorf("the answer is %v, and the run: %v", err, there)
			case err != nil && code != jobs.Unknown && code != jobs.Unavailable:
				t.Error(err)
			}
		}
		t.Log(f.did)
	})
}

// An insert that gets no answer is given up after a time, and sent again.
func TestACommitThatHangs(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s, f := faulty(t, Config{URL: url, patience: 200 * time.Millisecond, leaseTime: longLease})
		f.silence()
		f.mu.Lock()
		f.hangs = 2
		f.mu.Unlock()
		do(t, s, create("k"))
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
