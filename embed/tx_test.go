package embed_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
	"github.com/carillon-scheduler/carillon/ops"
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

// A request that is refused after its transaction has committed is stored with the reason, and retried or discarded
// by a person.
func TestRefusedRequests(t *testing.T) {
	url := sqltest.Postgres.New(t)
	var log bytes.Buffer
	s, err := embed.Start(t.Context(), embed.Config{Database: url, Logger: slog.New(slog.NewTextHandler(&log, nil))}, greet())
	if err != nil {
		t.Fatal(err)
	}
	e := kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "client:client", Command: kernel.Create{ID: jobs.NewID(time.Now()), Key: "gone"}}
	if _, err := sqltest.Postgres.Open(t, url).Exec("INSERT INTO carillon_outbox (envelope) VALUES ($1)", kernel.AppendEnvelopes(nil, []kernel.Envelope{e})); err != nil {
		t.Fatal(err)
	}
	ann := ops.Who{Actor: "person:ann", Reason: "clearing up", Role: ops.Admin}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		list, err := s.Ops().RefusedRequests(t.Context(), ann, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 1 && list[0].Key == "gone" && strings.Contains(list[0].Reason, `no job "gone"`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("refused: %+v", list)
		}
	}
	if n, err := s.Ops().DiscardRefused(t.Context(), ann, []int64{1}); err != nil || n != 1 {
		t.Errorf("discarded: %d, %v", n, err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if want := `msg="refused requests from transactions are changed" does=discard tenant=default actor=person:ann reason="clearing up" count=1 row=[1]`; !strings.Contains(log.String(), want) {
		t.Errorf("the log lacks %q: %s", want, &log)
	}
}
