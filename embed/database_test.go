package embed_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
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
