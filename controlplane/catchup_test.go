package controlplane

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

// Ten minutes of a job that is due each minute are decided by the given policy, instead of the job's own, however late
// the last due time is, and whatever the tenant takes for late.
func TestCatchUp(t *testing.T) {
	for _, c := range []struct {
		by     jobs.Misfire
		fired  int
		missed uint64
	}{{jobs.MisfireSkip, 0, 10}, {jobs.MisfireOnce, 1, 9}, {jobs.MisfireAll, 10, 0}} {
		for _, late := range []time.Duration{0, time.Second, 10 * time.Second, 40 * time.Second} {
			for _, after := range []time.Duration{0, time.Second, time.Hour} {
				for _, early := range []time.Duration{0, time.Minute} {
					t.Run(fmt.Sprintf("%s %v after the last, misfire after %v, early %v", c.by, late, after, early), func(t *testing.T) {
						catchesUp(t, c.by, late, after, early, c.fired, c.missed)
					})
				}
			}
		}
	}
}

func catchesUp(t *testing.T, by jobs.Misfire, late, after, early time.Duration, wantFired int, wantMissed uint64) {
	now := time.Date(2026, 11, 21, 12, 0, 30, 0, time.UTC)
	store := &metastore.Local{Engine: memstore.New(memstore.Config{}), Now: func() time.Time { return now }}
	commands := []kernel.Command{
		kernel.Lead{Term: 7, Node: "restore"},
		kernel.Register{App: "app", Worker: "w", Start: true, Job: kernel.Declaration{Key: "each", Kind: kernel.Recurring,
			Code: kernel.Settings{Schedule: new("0 * * * * *"), Misfire: new(jobs.MisfireSkip), MaxConcurrency: new(0), Early: &early}}},
		kernel.Register{App: "app", Worker: "w", Start: true, Job: kernel.Declaration{Key: "manual", Kind: kernel.Triggered}},
	}
	if after > 0 {
		commands = append(commands, kernel.Configure{MisfireAfter: &after})
	}
	for i, k := range commands {
		e := kernel.Envelope{ID: jobs.ID{byte(i + 1)}, Tenant: jobs.DefaultTenant, Actor: "test", Command: k}
		if r := store.Apply(t.Context(), []kernel.Envelope{e})[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	now = now.Truncate(time.Minute).Add(10*time.Minute + late)
	fired, missed, err := CatchUp(t.Context(), store, 7, by, now)
	if err != nil || fired != wantFired || missed != wantMissed {
		t.Errorf("%d fired and %d missed (%v), want %d and %d", fired, missed, err, wantFired, wantMissed)
	}
	page, err := store.Runs(t.Context(), metastore.RunQuery{Tenant: jobs.DefaultTenant, Job: "each", Limit: 100})
	if err != nil || len(page.Runs) != wantFired {
		t.Errorf("there are %d runs (%v)", len(page.Runs), err)
	}
	if by == jobs.MisfireOnce && len(page.Runs) == 1 && !page.Runs[0].Due.Equal(now.Truncate(time.Minute)) {
		t.Errorf("the one that fires was due at %v, and is not the newest", page.Runs[0].Due)
	}
	if fired, missed, err = CatchUp(t.Context(), store, 7, jobs.MisfireAll, now); fired != 0 || missed != 0 || err != nil {
		t.Errorf("a second time: %d fired and %d missed (%v)", fired, missed, err)
	}
	if _, _, err := CatchUp(t.Context(), store, 6, jobs.MisfireAll, now.Add(time.Hour)); err == nil {
		t.Error("a past term decides")
	}
}
