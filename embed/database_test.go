package embed_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
	"github.com/carillon-scheduler/carillon/worker"
)

func TestMain(m *testing.M) {
	if node := os.Getenv(childNode); node != "" {
		child(node)
		return
	}
	if database := os.Getenv(childReplica); database != "" {
		fmt.Println(replica(database))
		return
	}
	tests.Parallel(4)
	os.Exit(sqltest.Main(m))
}

// The same program runs on a database, and finds there what it has left.
func TestDatabaseKeeps(t *testing.T) {
	for name, kind := range map[string]*sqltest.Kind{"PostgreSQL": sqltest.Postgres, "MariaDB": sqltest.MariaDB} {
		t.Run(name, func(t *testing.T) {
			cfg := embed.Config{Database: kind.New(t)}
			s, err := embed.Start(t.Context(), cfg, greet())
			if err != nil {
				t.Fatal(err)
			}
			run, err := greetJob.Enqueue(t.Context(), s.Client(), greeting{"Ann"})
			if err != nil {
				t.Fatal(err)
			}
			if r, err := s.Client().Wait(t.Context(), run.ID); err != nil || r.State != jobs.Succeeded {
				t.Fatalf("%+v (%v)", r, err)
			}
			if err := s.Stop(); err != nil {
				t.Fatal(err)
			}
			if s, err = embed.Start(t.Context(), cfg, greet()); err != nil {
				t.Fatal(err)
			}
			if r, err := s.Client().Get(t.Context(), run.ID); err != nil || string(r.Result) != `"hello Ann"` {
				t.Errorf("%+v (%v)", r, err)
			}
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// With LiveTable, runs that wait can be queried in the database.
func TestLiveTable(t *testing.T) {
	tests.Long(t) // runs come after five seconds
	t.Parallel()
	if _, err := embed.Start(t.Context(), embed.Config{LiveTable: true}); !errors.Is(err, jobs.BadInput) {
		t.Errorf("without a database: %v", err)
	}
	url := sqltest.Postgres.New(t)
	s, err := embed.Start(t.Context(), embed.Config{Database: url, LiveTable: true, Worker: worker.Config{App: "demo"}}, greet())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := s.Client().Enqueue(t.Context(), jobs.Request{Key: "demo.greet", Args: []byte(`{"Name":"Ann"}`), Delay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	db := sqltest.Postgres.Open(t, url)
	eventually(t, "the run is in the table", func() bool {
		var n int
		err := db.QueryRow("SELECT COUNT(*) FROM carillon_live WHERE state = 'Scheduled' AND args::jsonb ->> 'Name' = 'Ann'").Scan(&n)
		return err == nil && n == 1
	})
}
