package embed

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// A process whose token the database no longer knows loses its connection to the leader, and is soon back.
func TestALostTokenIsRenewed(t *testing.T) {
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
	within(roadStay/2, "it is back", r.settled)
}
