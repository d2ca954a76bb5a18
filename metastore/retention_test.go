package metastore_test

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

// The history of a job is its app's, also after it was deleted.
func TestKeptNamesTheApp(t *testing.T) {
	rows := memstore.Open(memstore.Config{})
	do := func(k kernel.Command) {
		t.Helper()
		e := kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "person:ann", Command: k}
		if err := rows.Apply(t.Context(), []kernel.Envelope{e})[0].Err; err != nil {
			t.Fatal(err)
		}
	}
	declared, err := kernel.Declare(jobs.NewTriggered(jobs.TriggeredFunc[struct{}](nil), jobs.Options{Key: "a"}))
	if err != nil {
		t.Fatal(err)
	}
	app := func(key jobs.Key) string {
		t.Helper()
		kept, err := metastore.KeptBy(t.Context(), rows, time.Now())(jobs.DefaultTenant, key)
		if err != nil {
			t.Fatal(err)
		}
		return kept.App
	}
	do(kernel.Register{App: "shop", Worker: "w1", Start: true, Job: declared})
	if got := app("a"); got != "shop" {
		t.Errorf("the app of the job is %q", got)
	}
	do(kernel.Delete{Key: "a"})
	if got := app("a"); got != "shop" {
		t.Errorf("the app of the deleted job is %q", got)
	}
	if got := app("never"); got != "" {
		t.Errorf("the app of an unknown job is %q", got)
	}
}
