package controlplane

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// However many jobs of one app are due, and however long ago, those of other apps and tenants are decided in the next
// pass.
func TestDueTimesHaveTurns(t *testing.T) {
	var c catalog
	c.init()
	now := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	c.now = func() time.Time { return now }
	recurring := func(tenant jobs.Tenant, app string, key string) *kernel.Definition {
		d := &kernel.Definition{Tenant: tenant, App: app, Key: jobs.Key(key), Kind: kernel.Recurring, Cursor: now, SetAt: now, Anchor: now}
		d.Policy.Schedule = "PT1S"
		d.UID = jobs.NewID(now)
		return d
	}
	for i := range 5_000 {
		c.put(recurring("default", "greedy", fmt.Sprint("greedy", i)), nil)
		c.put(recurring("loud", fmt.Sprint("app", i%50), fmt.Sprint("loud", i)), nil)
	}
	now = now.Add(30 * time.Second) // they are late
	c.put(recurring("default", "modest", "modest"), nil)
	c.put(recurring("quiet", "quiet", "quiet"), nil)
	now = now.Add(time.Second)

	seen := map[string]int{}
	first, _ := c.dueBy(now, 100)
	for _, e := range first {
		seen[string(e.def.Tenant)+" "+e.def.App]++
	}
	if len(first) != 100 || seen["default modest"] != 1 || seen["quiet quiet"] != 1 || seen["default greedy"] < 40 {
		t.Errorf("a pass of %d has %v", len(first), seen)
	}
	all := map[jobs.Key]bool{}
	for due := first; len(due) > 0; due, _ = c.dueBy(now, 1000) {
		for _, e := range due {
			if all[e.def.Key] {
				t.Fatalf("%s is decided twice", e.def.Key)
			}
			all[e.def.Key] = true
		}
	}
	if len(all) != 10_002 {
		t.Errorf("%d jobs are decided, want 10,002", len(all))
	}
}

// The jobs of a pass share the runs that it makes of late due times: a pass takes as long with many busy ones.
func TestAPassMakesFewRuns(t *testing.T) {
	began := clock(t, "00:00:00")
	d := &kernel.Definition{Key: "busy", Kind: kernel.Recurring, Anchor: began, Cursor: began,
		Policy: kernel.Policy{Schedule: "1s", Misfire: jobs.MisfireAll}}
	for beside, want := range map[int]int{1: 1000, 100: 10, 5000: 1} {
		e := &entry{def: d, schedule: compile(d), beside: beside}
		e.next, _ = e.schedule.Next(d.Since())
		if f, _ := decide(e, &kernel.Global{}, nil, began.Add(time.Hour)); len(f.Due) != want {
			t.Errorf("beside %d jobs, %d due times become runs, want %d", beside, len(f.Due), want)
		}
	}
}
