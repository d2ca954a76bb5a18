package controlplane

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

// Ten minutes of a job that is due each minute are decided by the given policy, instead of the job's own. Those of the
// last thirty seconds are on time, and fire.
func TestCatchUp(t *testing.T) {
	for _, c := range []struct {
		by     jobs.Misfire
		fired  int
		missed uint64
	}{{jobs.MisfireSkip, 0, 10}, {jobs.MisfireOnce, 1, 9}, {jobs.MisfireAll, 10, 0}} {
		now := time.Date(2026, 11, 21, 12, 0, 30, 0, time.UTC)
		store := &metastore.Local{Engine: memstore.New(memstore.Config{}), Now: func() time.Time { return now }}
		for i, k := range []kernel.Command{
			kernel.Lead{Term: 7, Node: "restore"},
			kernel.Register{App: "app", Worker: "w", Start: true, Job: kernel.Declaration{Key: "each", Kind: kernel.Recurring,
				Code: kernel.Settings{Schedule: new("0 * * * * *"), Misfire: new(jobs.MisfireSkip), MaxConcurrency: new(0)}}},
			kernel.Register{App: "app", Worker: "w", Start: true, Job: kernel.Declaration{Key: "manual", Kind: kernel.Triggered}},
		} {
			if r := store.Apply(t.Context(), []kernel.Envelope{{ID: jobs.ID{byte(i + 1)}, Tenant: jobs.DefaultTenant, Actor: "test", Command: k}})[0]; r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		now = now.Add(10*time.Minute + 10*time.Second) // 40 seconds after the last one
		fired, missed, err := CatchUp(t.Context(), store, 7, c.by, now)
		if err != nil || fired != c.fired || missed != c.missed {
			t.Errorf("%s: %d fired and %d missed (%v), want %d and %d", c.by, fired, missed, err, c.fired, c.missed)
		}
		page, err := store.Runs(t.Context(), metastore.RunQuery{Tenant: jobs.DefaultTenant, Job: "each", Limit: 100})
		if err != nil || len(page.Runs) != c.fired {
			t.Errorf("%s: there are %d runs (%v)", c.by, len(page.Runs), err)
		}
		if c.by == jobs.MisfireOnce && len(page.Runs) == 1 && !page.Runs[0].Due.Equal(now.Truncate(time.Minute)) {
			t.Errorf("the one that fires was due at %v, and is not the newest", page.Runs[0].Due)
		}
		if fired, missed, err = CatchUp(t.Context(), store, 7, jobs.MisfireAll, now); fired != 0 || missed != 0 || err != nil {
			t.Errorf("%s, a second time: %d fired and %d missed (%v)", c.by, fired, missed, err)
		}
		if _, _, err := CatchUp(t.Context(), store, 6, jobs.MisfireAll, now.Add(time.Hour)); err == nil {
			t.Error("a past term decides")
		}
	}
}
