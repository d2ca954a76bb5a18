package ops_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/ops"
)

// What fires next is in order, without what is held back, and follows edits, pauses and the clock.
func TestSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.Open(memstore.Config{})
		o := ops.New(ops.Config{Store: store})
		apply := func(c kernel.Command) {
			t.Helper()
			if r := store.Apply(t.Context(), []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "test", Command: c}}); r[0].Err != nil {
				t.Fatal(r[0].Err)
			}
		}
		for minute := range 5 {
			apply(kernel.Register{App: "app", Worker: "w1", Start: true, Job: kernel.Declaration{Key: jobs.Key(fmt.Sprintf("at.%d", minute)), Kind: kernel.Recurring,
				Code: kernel.Settings{Schedule: new(fmt.Sprintf("0 %d * * * *", minute*10+5))}}})
		}
		apply(kernel.Register{App: "app", Worker: "w1", Start: true, Job: kernel.Declaration{Key: "asked", Kind: kernel.Triggered}})
		soon := func(want ...string) {
			t.Helper()
			list, all, err := o.Soon(t.Context(), ops.Who{}, 3)
			if err != nil || all != 6 {
				t.Fatalf("of %d jobs: %v", all, err)
			}
			var got []string
			for _, j := range list {
				got = append(got, fmt.Sprintf("%s %s", j.Key, j.Next[0].Format("15:04")))
			}
			if !slices.Equal(got, want) {
				t.Errorf("soon %q, want %q", got, want)
			}
		}
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour))) // synctest begins at midnight
		soon("at.0 01:05", "at.1 01:15", "at.2 01:25")
		soon("at.0 01:05", "at.1 01:15", "at.2 01:25")
		apply(kernel.Pause{Key: "at.1"})
		soon("at.0 01:05", "at.2 01:25", "at.3 01:35")
		apply(kernel.Edit{Key: "at.4", Set: kernel.Settings{Schedule: new("0 1 * * * *")}})
		soon("at.4 01:01", "at.0 01:05", "at.2 01:25")
		time.Sleep(10 * time.Minute)
		soon("at.2 01:25", "at.3 01:35", "at.4 02:01")
		apply(kernel.Resume{Key: "at.1"})
		soon("at.1 01:15", "at.2 01:25", "at.3 01:35")
		early := 20 * time.Minute // its run of 01:25 begins at 01:10
		apply(kernel.Lead{Term: 1})
		apply(kernel.Edit{Key: "at.2", Set: kernel.Settings{Early: &early}})
		d, err := store.Definition(t.Context(), jobs.DefaultTenant, "at.2")
		if err != nil {
			t.Fatal(err)
		}
		due := time.Now().Add(15 * time.Minute)
		apply(kernel.Fire{Key: d.Key, Job: d.UID, Revision: d.Revision, Term: 1, From: d.Since(), To: due, Due: []time.Time{due}})
		soon("at.1 01:15", "at.3 01:35", "at.4 02:01")
		if job, err := o.Job(t.Context(), ops.Who{}, d.Key, 1); err != nil || !job.Next[0].Equal(due.Add(time.Hour)) {
			t.Errorf("the next run of a job whose run has begun early is shown at %v: %v", job.Next, err)
		}
		apply(kernel.Configure{RecurringDebug: new(true)})
		soon()
	})
}
