package controlplane_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// Debug modes and suspensions begin and end while no node leads: their due times have no run, and the ledger has the
// reason. A pause meanwhile that lasts ranks below the suspension.
func TestSilencesWhileNothingIsDecidedAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		acme := in{h, "acme"}
		h.must(kernel.SetTenant{Name: "acme", Create: true})
		acme.worker("w", jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return nil }),
			jobs.Options{Key: "tick", Cron: "0 * * * * *", Misfire: jobs.MisfireAll, MaxConcurrency: jobs.None}))
		time.Sleep(30 * time.Second)
		h.stop()
		for _, k := range []kernel.Envelope{
			{Tenant: "acme", Command: kernel.Configure{RecurringDebug: new(true)}}, {Tenant: "acme", Command: kernel.Configure{RecurringDebug: new(false)}},
			{Tenant: jobs.DefaultTenant, Command: kernel.SuspendTenant{Name: "acme", On: true}},
			{Tenant: "acme", Command: kernel.Pause{Key: "tick"}},
			{Tenant: jobs.DefaultTenant, Command: kernel.SuspendTenant{Name: "acme"}},
		} {
			k.ID, k.Actor = jobs.NewID(time.Now()), "person:ann"
			if r := h.full.Apply(h.ctx, []kernel.Envelope{k})[0]; r.Err != nil {
				t.Fatal(r.Err)
			}
			time.Sleep(5 * time.Minute)
		}
		h.start()
		time.Sleep(time.Second)
		d, err := h.store.Definition(h.ctx, "acme", "tick")
		if err != nil {
			t.Fatal(err)
		}
		ranges, err := h.store.Ledger(h.ctx, "acme", d.UID, 100)
		if err != nil {
			t.Fatal(err)
		}
		got := map[kernel.Reason]uint64{}
		for _, m := range ranges {
			got[m.Reason] += m.Count
		}
		if got[kernel.MissedDebug] != 5 || got[kernel.MissedSuspended] != 10 || got[kernel.MissedPaused] != 5 || len(got) != 3 {
			t.Errorf("the ledger has %v, want 5 of the debug mode, 10 of the suspension and 5 of the pause", got)
		}
	})
}

// A default that is changed while no node leads applies to all that the next leader decides, as an edit would.
func TestDefaultsChangedWhileNoNodeLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.worker(worker.Config{Slots: 9}, jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return nil }), jobs.Options{Key: "tick", Cron: "0 * * * * *"}),
			jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return nil }), jobs.Options{Key: "tokyo", Cron: "0 * * * * *", TimeZone: "Asia/Tokyo"}))
		time.Sleep(30 * time.Second)
		h.stop()
		time.Sleep(5*time.Minute + 10*time.Second)
		k := kernel.Configure{Defaults: &kernel.Settings{Zone: new("Europe/Berlin"), Misfire: new(jobs.MisfireSkip)}}
		if r := h.full.Apply(h.ctx, []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "person:ann", Command: k}})[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
		h.start()
		time.Sleep(time.Second)
		for key, why := range map[jobs.Key]kernel.Reason{"tick": kernel.MissedEdited, "tokyo": kernel.MissedLate} {
			runs, ranges := h.records(key)
			if len(runs) != 0 || len(ranges) != 1 || ranges[0].Reason != why || ranges[0].Count != 5 {
				t.Errorf("%s has %d runs and the ledger %v, want 5 due times as %s", key, len(runs), ranges, why)
			}
		}
	})
}
