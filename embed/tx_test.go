package embed_test

import (
	"errors"
	"testing"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// A run that is enqueued in a transaction exists if that commits, and only then.
func TestEnqueueInATransaction(t *testing.T) {
	for name, kind := range map[string]*sqltest.Kind{"PostgreSQL": sqltest.Postgres, "MariaDB": sqltest.MariaDB} {
		t.Run(name, func(t *testing.T) {
			url := kind.New(t)
			s, err := embed.Start(t.Context(), embed.Config{Database: url}, greet())
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Stop(); err != nil {
					t.Error(err)
				}
			}()
			db := kind.Open(t, url)
			enqueue := func(commit bool) jobs.ID {
				tx, err := db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = tx.Rollback() }() // does nothing after a commit
				r, err := greetJob.Request(greeting{"Ann"})
				if err == nil {
					err = s.EnqueueTx(t.Context(), tx, r)
				}
				if err == nil && commit {
					err = tx.Commit()
				}
				if err != nil {
					t.Fatal(err)
				}
				return r.ID
			}
			dropped, kept := enqueue(false), enqueue(true)
			for {
				run, err := s.Client().Wait(t.Context(), kept)
				if errors.Is(err, jobs.NotFound) { // it is on its way
					continue
				}
				if err != nil || string(run.Result) != `"hello Ann"` {
					t.Errorf("%+v (%v)", run, err)
				}
				break
			}
			if _, err := s.Client().Get(t.Context(), dropped); !errors.Is(err, jobs.NotFound) {
				t.Errorf("the run of a transaction that was rolled back: %v", err)
			}
		})
	}
	s, err := embed.Start(t.Context(), embed.Config{}, greet())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.EnqueueTx(t.Context(), nil, jobs.Request{Key: "k"}); !errors.Is(err, jobs.BadInput) {
		t.Errorf("without a database: %v", err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}
