//go:build nextrules

package metastore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

// The new field, command and rule of the next version do nothing before that is in force, and work from then on.
func TestNextRules(t *testing.T) {
	s := memstore.Open(memstore.Config{})
	do := func(k kernel.Command) (kernel.Effect, error) {
		r := s.Apply(t.Context(), []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "test", Command: k}})
		return r[0].Effect, r[0].Err
	}
	must := func(k kernel.Command) kernel.Effect {
		t.Helper()
		e, err := do(k)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	begun := func() (n int64) {
		counts, err := s.Counts(t.Context(), metastore.CountQuery{Tenant: jobs.DefaultTenant, From: time.Now().Add(-24 * time.Hour), To: time.Now().Add(24 * time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		for _, tally := range counts.Tallies {
			n += tally.Runs[jobs.Processing]
		}
		return n
	}
	must(kernel.Register{App: "app", Worker: "w", Start: true, Job: kernel.Declaration{Key: "k", Kind: kernel.Triggered}})
	plain, noted := kernel.Create{ID: jobs.NewID(time.Now()), Key: "k"}, kernel.Create{ID: jobs.NewID(time.Now()), Key: "k"}
	noted.Note = "first"
	must(plain)
	must(kernel.Start{ID: plain.ID, Worker: "w", Attempt: 1})
	for _, k := range []kernel.Command{noted, kernel.Annotate{ID: plain.ID, Note: "x"}} {
		if _, err := do(k); !errors.Is(err, jobs.Conflict) {
			t.Errorf("%T before the version is in force: %v", k, err)
		}
	}
	if n := begun(); n != 0 {
		t.Errorf("%d attempts are counted as they begin", n)
	}
	must(kernel.FinalizeUpgrade{To: kernel.ApplyVersion})
	if run := must(noted).Run(); run.Note != "first" {
		t.Errorf("the note is %q", run.Note)
	}
	if run := must(kernel.Annotate{ID: noted.ID, Note: "second"}).Run(); run.Note != "second" {
		t.Errorf("the note is %q", run.Note)
	}
	must(kernel.Start{ID: noted.ID, Worker: "w", Attempt: 1})
	if n := begun(); n != 1 {
		t.Errorf("%d attempts are counted as they begin, want 1", n)
	}
}
