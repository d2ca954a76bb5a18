package controlplane_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A tenant with the name of a deleted one begins with nothing: no counts of the last hour, no workers, and no calendars
// that this leader remembers.
func TestATenantOfADeletedName(t *testing.T) {
	forgetting(t, func(h *fixture) {
		acme := in{h, "acme"}
		days := func(rules ...string) {
			if r := acme.apply(kernel.SetCalendar{Name: "days", Rules: rules}); r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		var before, after atomic.Int32 // attempts of each worker
		each := func(ran *atomic.Int32) jobs.Job {
			return jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { ran.Add(1); return nil }), jobs.Options{Key: "each", Cron: "* * * * * *", Calendars: []string{"days"}})
		}
		h.must(kernel.SetTenant{Name: "acme", Create: true})
		days("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN") // never
		stop := acme.worker("old", quick("job"), each(&before))
		acme.create(50, "job")
		time.Sleep(10 * time.Second)
		h.must(kernel.SuspendTenant{Name: "acme", On: true})
		h.must(kernel.DeleteTenant{Name: "acme"})
		time.Sleep(3 * time.Minute)
		if list, err := h.store.Tenants(h.ctx); err != nil || len(list) != 0 {
			t.Fatalf("tenants: %v, %v", list, err)
		}
		h.must(kernel.SetTenant{Name: "acme", Create: true})
		for _, m := range h.cp.Pulse("acme") {
			if m.Started > 0 || m.Succeeded > 0 {
				t.Errorf("the new tenant sees %+v", m)
			}
		}
		if list := h.cp.Workers("acme"); len(list) > 0 {
			t.Errorf("the new tenant has the workers %+v", list)
		}
		if err := stop(); err != nil { // its connection would have ended with its token
			t.Error(err)
		}
		days("WED") // not today
		if g, err := h.store.Global(h.ctx, "acme"); err != nil || g.Calendars != 2 {
			t.Errorf("after a second change the calendars have revision %d (%v)", g.Calendars, err)
		}
		acme.worker("new", quick("job"), each(&after))
		time.Sleep(10 * time.Second)
		if before.Load() > 0 || after.Load() < 5 {
			t.Errorf("the old worker has made %d attempts, the new one %d", before.Load(), after.Load())
		}
	})
}
