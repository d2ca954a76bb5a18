package embed

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// A process whose token the database no longer knows loses its connection to the leader, and is soon back.
func TestALostTokenIsRenewed(t *testing.T) {
	t.Parallel()
	database := sqltest.Postgres.New(t)
	start := func(node string) *Scheduler {
		s, err := Start(t.Context(), Config{Database: database, Node: node})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	start("leader")
	r := start("other").store.road
	within := func(limit time.Duration, what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(limit); !ok(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not in %v: %s", limit, what)
			}
		}
	}
	within(time.Minute, "it is connected to the leader", func() bool { return r.outside() && r.settled() })
	db := sqltest.Postgres.Open(t, database)
	if _, err := db.Exec("DELETE FROM carillon_peers"); err != nil {
		t.Fatal(err)
	}
	within(roadStay/2, "its connection ends", func() bool { return !r.settled() })
	within(roadStay/2, "its token is renewed", func() bool {
		var n int
		if err := db.QueryRow("SELECT COUNT(*) FROM carillon_peers").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n > 0
	})
	within(time.Minute, "it is back", r.settled)

	// It goes elsewhere when the leader withdraws its bus, and comes back when that is announced again.
	announced := r.leader()
	if err := r.store.Withdraw(t.Context(), announced.Term); err != nil {
		t.Fatal(err)
	}
	within(time.Minute, "it has left", func() bool { return !r.outside() && r.leader().Term == 0 })
	if err := r.store.Announce(t.Context(), announced); err != nil {
		t.Fatal(err)
	}
	within(time.Minute, "it is back again", func() bool { return r.outside() && r.settled() })
}

// A leader that stops withdraws the address of its bus, which others would try to reach. A database that does not
// answer that does not hold it up.
func TestALeaderThatStopsWithdrawsItsBus(t *testing.T) {
	t.Parallel()
	database := sqltest.Postgres.New(t)
	db := sqltest.Postgres.Open(t, database)
	for _, locked := range []bool{false, true} {
		s, err := Start(t.Context(), Config{Database: database})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := s.database.Announced(t.Context()); err != nil || r.Term == 0 {
			t.Fatalf("the leader has announced %+v (%v)", r, err)
		}
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if locked {
			if _, err := tx.Exec("SELECT 1 FROM carillon_road FOR UPDATE"); err != nil {
				t.Fatal(err)
			}
		}
		stopped := make(chan error)
		go func() { stopped <- s.Stop() }()
		select {
		case err := <-stopped:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Error("it does not stop")
			_ = tx.Rollback()
			<-stopped
		}
		var address string
		if err := db.QueryRow("SELECT address FROM carillon_road").Scan(&address); err != nil || (address == "") == locked {
			t.Errorf("locked: %v, the address is %q (%v)", locked, address, err)
		}
	}
}
