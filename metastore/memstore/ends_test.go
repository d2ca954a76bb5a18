package memstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

// teller sends commands to a store whose clock stays where the test sets it.
func teller(t *testing.T) (*metastore.Local, func(...kernel.Command)) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	st, n := &metastore.Local{Engine: memstore.New(memstore.Config{}), Now: func() time.Time { return at }}, 0
	return st, func(all ...kernel.Command) {
		t.Helper()
		for _, k := range all {
			n++
			if r := st.Apply(t.Context(), []kernel.Envelope{{ID: kernel.DerivedID("e", fmt.Sprint(n)), Tenant: jobs.DefaultTenant, Actor: "worker:w", Command: k}})[0]; r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
}

// Each retry beyond a budget has its turn after the one before, and no turn is further away than any delay: stored
// times end in 2262, and later ones would read as long ago.
func TestRetriesHaveATurnWithinBounds(t *testing.T) {
	st, tell := teller(t)
	rate := jobs.Rate{Max: 1, Per: kernel.MaxDuration}
	tell(kernel.Register{App: "a", Worker: "w", Start: true, Job: kernel.Declaration{Key: "k", Kind: kernel.Triggered, Code: kernel.Settings{Retries: new(1), RetryDelay: new(time.Duration(0)), RetryBudget: &rate}}})
	last := time.Time{}
	for i := range 300 {
		id := kernel.DerivedID("run", fmt.Sprint(i))
		tell(kernel.Create{ID: id, Key: "k"}, kernel.Start{ID: id, Worker: "w", Attempt: 1}, kernel.Finish{ID: id, Worker: "w", Attempt: 1, Outcome: kernel.OutcomeError})
		run, err := st.Run(t.Context(), jobs.DefaultTenant, id)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && run.RetryAt.Before(last) || run.RetryAt.After(st.Now().Add(kernel.MaxDelay)) {
			t.Fatalf("retry %d has its turn at %v, the one before at %v", i, run.RetryAt, last)
		}
		if i > 0 {
			last = run.RetryAt
		}
	}
}

// A new job under the key of a deleted one has the same former runs: purged ones stay purged on a node that was down
// meanwhile.
func TestPurgedRunsStayPurged(t *testing.T) {
	st, tell := teller(t)
	register := kernel.Register{App: "a", Worker: "w", Start: true, Job: kernel.Declaration{Key: "k", Kind: kernel.Triggered}}
	tell(register, kernel.Purge{Key: "k", Before: st.Now()}, kernel.Delete{Key: "k"}, register)
	if d, err := st.Definition(t.Context(), jobs.DefaultTenant, "k"); err != nil || !d.Purged.Equal(st.Now()) {
		t.Errorf("%+v, %v", d, err)
	}
}
