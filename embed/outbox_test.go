package embed_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// A program enqueues runs in a transaction of its own. They start without a message to the leader over the bus; the test
// logs the delay after the commit.
func TestRunsAskedForInTheDatabase(t *testing.T) {
	tests.Long(t)
	for name, kind := range map[string]*sqltest.Kind{"PostgreSQL": sqltest.Postgres, "MariaDB": sqltest.MariaDB} {
		t.Run(name, func(t *testing.T) {
			url := kind.New(t)
			begun := make(chan time.Time, 1)
			s, err := embed.Start(t.Context(), embed.Config{Database: url}, jobs.NewTriggered(jobs.TriggeredFunc[ring](func(context.Context, ring) error {
				begun <- time.Now()
				return nil
			}), jobs.Options{Key: "test.ring"}))
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Stop(); err != nil {
					t.Error(err)
				}
			}()
			db := kind.Open(t, url)
			start := func(what string, ask func() error) {
				t.Helper()
				var all []time.Duration
				for range 10 {
					if err := ask(); err != nil {
						t.Fatal(err)
					}
					committed := time.Now()
					select {
					case at := <-begun:
						all = append(all, max(0, at.Sub(committed)))
					case <-time.After(2 * time.Minute):
						t.Fatalf("%s: it does not begin", what)
					}
				}
				slices.Sort(all)
				t.Logf("%s: begun after %v mostly, %v at most", what, all[len(all)/2], all[len(all)-1])
			}
			start("in a transaction", func() error {
				tx, err := db.BeginTx(t.Context(), nil)
				if err != nil {
					return err
				}
				defer func() { _ = tx.Rollback() }() // does nothing after a commit
				request, err := ringJob.Request(ring{})
				if err == nil {
					err = s.EnqueueTx(t.Context(), tx, request)
				}
				if err != nil {
					return err
				}
				return tx.Commit()
			})
		})
	}
}
