package controlplane_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
	"github.com/carillon-scheduler/carillon/worker"
)

// in is a tenant in tests.
type in struct {
	*fixture
	tenant jobs.Tenant
}

func (h in) apply(k kernel.Command) metastore.Result {
	return h.store.Apply(h.ctx, []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: h.tenant, Actor: "person:bob", Command: k}})[0]
}

func (h in) create(n int, key jobs.Key) {
	h.t.Helper()
	for range n {
		if r := h.apply(kernel.Create{ID: jobs.NewID(time.Now()), Key: key}); r.Err != nil {
			h.t.Fatal(r.Err)
		}
	}
}

func (h in) count(state jobs.State) int {
	h.t.Helper()
	n := 0
	for q := (metastore.RunQuery{Tenant: h.tenant, State: state, Limit: metastore.MaxPage}); ; {
		page, err := h.store.Runs(h.ctx, q)
		if err != nil {
			h.t.Fatal(err)
		}
		n += len(page.Runs)
		if q.Cursor = page.Next; q.Cursor == "" {
			return n
		}
	}
}

// worker is a worker of the tenant. The returned function ends it, with its error.
func (h in) worker(name string, js ...jobs.Job) (stop func() error) {
	h.t.Helper()
	as := bus.Principal{Tenant: h.tenant, Role: bus.Worker, Name: name}
	b := busstore.Heed(h.hub.As(as), as)
	w, err := worker.New(worker.Config{Tenant: h.tenant, Name: name, Slots: 100}, busstore.New(b, as), b, js...)
	if err != nil {
		h.t.Fatal(err)
	}
	h.served.Do(func() {
		if err := busstore.Serve(h.ctx, h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "n1"}), h.store, busstore.Config{}); err != nil {
			h.t.Fatal(err)
		}
	})
	ctx, cancel := context.WithCancel(h.ctx)
	ended := make(chan error, 1)
	go func() { ended <- errors.Join(w.Run(ctx), b.Close()) }()
	stop = func() error { cancel(); err := <-ended; ended <- err; return err }
	h.done = append(h.done, func() { _ = stop() })
	synctest.Wait()
	return stop
}

func quick(key jobs.Key) jobs.Job {
	return jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error { return nil }), jobs.Options{Key: key})
}

// The starts of a tenant are limited to a rate: more wait, and those of another tenant do not.
func TestStartsOfATenantAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		acme, other := in{h, "acme"}, in{h, "other"}
		h.must(kernel.SetTenant{Name: "acme", Create: true, Limits: &kernel.TenantLimits{Starts: jobs.Rate{Max: 10, Per: time.Second}}})
		h.must(kernel.SetTenant{Name: "other", Create: true})
		acme.worker("w", quick("job"))
		other.worker("w", quick("job"))
		began := time.Now()
		acme.create(35, "job")
		other.create(35, "job")
		for second, want := range []int{10, 20, 30, 35} { // a full bucket, and then one each tenth of a second
			time.Sleep(time.Until(began.Add(time.Duration(second)*time.Second + 50*time.Millisecond)))
			synctest.Wait()
			if got := acme.count(jobs.Succeeded); got != want {
				t.Errorf("after %d s %d runs have succeeded, want %d", second, got, want)
			}
			if got := other.count(jobs.Succeeded); got != 35 {
				t.Errorf("after %d s %d of 35 runs of another tenant have succeeded", second, got)
			}
		}
		h.must(kernel.SetTenant{Name: "acme", Limits: &kernel.TenantLimits{}})
		acme.create(50, "job")
		synctest.Wait()
		if got := acme.count(jobs.Succeeded); got != 85 {
			t.Errorf("without the limit %d of 85 runs have succeeded", got)
		}
	})
}

// While a tenant is suspended nothing of it starts: its runs wait, and its due times are in the ledger.
func TestASuspendedTenantWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		acme := in{h, "acme"}
		h.must(kernel.SetTenant{Name: "acme", Create: true})
		long, freed := make(chan struct{}), false
		slow := jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error { <-long; freed = true; return nil }), jobs.Options{Key: "slow"})
		each := jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return nil }), jobs.Options{Key: "each", Cron: "* * * * * *"})
		acme.worker("w", quick("job"), slow, each)
		acme.create(1, "slow")
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		fired := acme.count(jobs.Succeeded)
		for range 3 {
			if r := acme.apply(kernel.Create{ID: jobs.NewID(time.Now()), Key: "job", Delay: 5 * time.Second}); r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		h.must(kernel.SuspendTenant{Name: "acme", On: true})
		h.stop() // the next leader knows
		h.start()
		time.Sleep(10 * time.Second)
		close(long)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := acme.count(jobs.Succeeded); got != fired+1 || !freed {
			t.Errorf("%d runs have succeeded, before %d, and one was under way", got, fired)
		}
		if r := acme.apply(kernel.Create{ID: jobs.NewID(time.Now()), Key: "job"}); !errors.Is(r.Err, jobs.Conflict) {
			t.Errorf("a new run: %v", r.Err)
		}
		if got := acme.count(jobs.Enqueued); got != 3 {
			t.Errorf("%d runs wait, want 3", got)
		}
		d, err := h.store.Definition(h.ctx, "acme", "each")
		if err != nil {
			t.Fatal(err)
		}
		missed, err := h.store.Ledger(h.ctx, "acme", d.UID, 10)
		if err != nil || len(missed) == 0 || missed[0].Reason != kernel.MissedSuspended || missed[0].Count < 10 {
			t.Errorf("the ledger has %+v, %v", missed, err)
		}
		h.must(kernel.SuspendTenant{Name: "acme"})
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if got, waiting := acme.count(jobs.Succeeded), acme.count(jobs.Enqueued); got < fired+1+3+1 || waiting > 0 {
			t.Errorf("after it was resumed %d runs have succeeded, before %d, and %d wait", got, fired, waiting)
		}
	})
}

// A worker of a tenant that does not exist ends with the reason, and a tenant has no more workers than it may.
func TestWorkersOfTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		acme := in{h, "acme"}
		lost := acme.worker("lost", quick("job"))
		time.Sleep(time.Minute)
		if err := lost(); !errors.Is(err, jobs.NotFound) {
			t.Errorf("a worker of an unknown tenant ended with %v", err)
		}
		h.must(kernel.SetTenant{Name: "acme", Create: true, Limits: &kernel.TenantLimits{Workers: 2}})
		for _, name := range []string{"a", "b", "c"} {
			acme.worker(name, quick("job"))
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := len(h.cp.Workers("acme")); n != 2 {
			t.Errorf("%d workers, want 2", n)
		}
	})
}

// A deleted tenant leaves nothing: not in the rows, not in the archive, and a new one of its name sees nothing of it.
func TestADeletedTenantIsGone(t *testing.T) {
	forgetting(t, func(h *fixture) {
		acme, other := in{h, "acme"}, in{h, "other"}
		for _, a := range []in{acme, other} {
			h.must(kernel.SetTenant{Name: a.tenant, Create: true})
			stop := a.worker("w", quick("job"), jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return nil }), jobs.Options{Key: "each", Cron: "* * * * * *"}))
			a.create(50, "job")
			for _, k := range []kernel.Command{kernel.SetCalendar{Name: "days", Rules: []string{"SAT"}}, kernel.Edit{Key: "job", Set: kernel.Settings{Retries: new(7)}},
				kernel.Create{ID: jobs.NewID(time.Now()), Key: "job", Delay: time.Hour, Idempotency: "x"}, kernel.Pause{Key: "each"},
				kernel.Grant{Token: kernel.Token{ID: "aaaaaaaa", Name: "bob", Role: kernel.RoleAdmin, Hash: make([]byte, 32)}}} {
				if r := a.apply(k); r.Err != nil {
					t.Fatal(r.Err)
				}
			}
			time.Sleep(10 * time.Second)
			_ = stop()
		}
		synctest.Wait()
		h.must(kernel.SuspendTenant{Name: "acme", On: true})
		h.must(kernel.DeleteTenant{Name: "acme"})
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if list, err := h.store.Tenants(h.ctx); err != nil || len(list) != 1 || list[0].Tenant != "other" {
			t.Fatalf("tenants: %v, %v", list, err)
		}
		h.must(kernel.SetTenant{Name: "acme", Create: true})
		if refs, err := h.full.TenantRows(h.ctx, "acme", 10); err != nil || len(refs) > 0 {
			t.Errorf("rows are left: %v, %v", refs, err)
		}
		page, err := h.store.Runs(h.ctx, metastore.RunQuery{Tenant: "acme"})
		counts, failed := h.store.Counts(h.ctx, metastore.CountQuery{Tenant: "acme", From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Hour)})
		if err = errors.Join(err, failed); err != nil || len(page.Runs) > 0 || len(counts.Live) > 0 || len(counts.Tallies) > 0 {
			t.Errorf("the new one sees %d runs and counts of %v, %v", len(page.Runs), counts, err)
		}
		if got, delayed := other.count(jobs.Succeeded), other.count(jobs.Scheduled); got < 50 || delayed != 1 {
			t.Errorf("of the other %d runs are left, and %d", got, delayed)
		}
	})
}

// A tenant with few rows is gone soon after it was deleted.
func TestASmallTenantIsGoneSoon(t *testing.T) {
	forgetting(t, func(h *fixture) {
		acme := in{h, "acme"}
		h.must(kernel.SetTenant{Name: "acme", Create: true})
		stop := acme.worker("w", quick("job"))
		acme.create(50, "job")
		time.Sleep(10 * time.Second)
		if r := acme.apply(kernel.Create{ID: jobs.NewID(time.Now()), Key: "job", Delay: time.Hour}); r.Err != nil {
			t.Fatal(r.Err)
		}
		h.must(kernel.SuspendTenant{Name: "acme", On: true})
		time.AfterFunc(700*time.Millisecond, func() { _ = stop() })
		h.must(kernel.DeleteTenant{Name: "acme"})
		began := time.Now()
		for range 30_000 { // 5 minutes
			list, err := h.store.Tenants(h.ctx)
			if err != nil {
				t.Fatal(err)
			}
			if len(list) == 0 {
				break
			}
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
		}
		if took := time.Since(began); took >= 2*time.Second {
			t.Errorf("it took %s, want less than 2s", took)
		}
	})
}
