package metastore_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

// A token and a tenant may have so many waiting runs; workers of an app may register so many jobs. The refusal names
// the limit, runs that started or were cancelled make room, and a repeated request gets its old answer.
func TestQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := memstore.Open(memstore.Config{})
		store := metastore.NewQuota(metastore.Quotas{Waiting: 5, WaitingPerPayer: 3, JobsPerApp: 2}, nil).Bound(rows)
		apply := func(limit, actor string, commands ...kernel.Command) (effects []metastore.Result) {
			t.Helper()
			batch := make([]kernel.Envelope, len(commands))
			for i, k := range commands {
				batch[i] = kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: actor, Command: k}
			}
			effects = store.Apply(t.Context(), batch)
			for i, r := range effects[:len(effects)-1] {
				if r.Err != nil {
					t.Errorf("command %d of %s: %v", i, actor, r.Err)
				}
			}
			err := effects[len(effects)-1].Err
			if limit == "" && err != nil || limit != "" && (jobs.CodeOf(err) != jobs.Exhausted || !strings.Contains(err.Error(), limit+" is ")) {
				t.Errorf("%s: %v, want the limit %q", actor, err, limit)
			}
			return effects
		}
		job := func(app, worker string, key jobs.Key) kernel.Command {
			declared, err := kernel.Declare(jobs.NewTriggered(jobs.TriggeredFunc[struct{}](nil), jobs.Options{Key: key}))
			if err != nil {
				t.Fatal(err)
			}
			return kernel.Register{App: app, Worker: worker, Start: true, Job: declared}
		}
		run := func() kernel.Create { return kernel.Create{ID: jobs.NewID(time.Now()), Key: "a"} }

		apply("", "worker:w1", job("shop", "w1", "a"), job("shop", "w1", "b"))
		apply("limits.jobs-per-app", "worker:w2", job("shop", "w2", "c"))
		apply("", "worker:w2", job("shop", "w2", "a"))             // it is there
		apply("", "worker:w2", job("bank", "w2", "c"))             // another app
		apply("", "person:ann", job("shop", kernel.NoWorker, "d")) // a person

		first := run()
		apply("limits.waiting-runs-per-token", "client:one", first, run(), run(), run())
		apply("limits.waiting-runs-per-token", "client:two", run()) // clients choose their names
		if again := apply("", "client:one", first)[0]; !again.Existing {
			t.Error("a repeated request makes another run")
		}
		later := run()
		later.Delay = time.Hour
		apply("", "worker:w1", later)
		apply("limits.waiting-runs", "person:ann", run(), run())
		apply("", "leader:n1", run()) // the system

		apply("", "person:bob", kernel.Cancel{ID: first.ID}, kernel.Cancel{ID: later.ID})
		time.Sleep(2 * time.Second) // a full purse is counted again
		apply("limits.waiting-runs", "person:bob", run(), run())
	})
}

// However many names there are, few are remembered.
func TestQuotaRemembersFew(t *testing.T) {
	rows := memstore.Open(memstore.Config{})
	q := metastore.NewQuota(metastore.Quotas{Waiting: 5, WaitingPerPayer: 3, JobsPerApp: 2}, nil)
	for i := range 20_001 {
		q.Bound(rows).Apply(t.Context(), []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: fmt.Sprint("person:", i), Command: kernel.Create{ID: jobs.NewID(time.Now()), Key: "none"}}})
	}
	if n := q.Remembered(); n > 10_000 {
		t.Errorf("%d names are remembered", n)
	}
}

// A tenant has limits of its own, of waiting runs and of the bytes of unfinished ones, for programs and people alike.
func TestQuotasOfATenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := memstore.Open(memstore.Config{})
		store := metastore.NewQuota(metastore.Quotas{Waiting: 1000, WaitingPerPayer: 1000, JobsPerApp: 10}, nil).Bound(rows)
		apply := func(tenant jobs.Tenant, actor string, k kernel.Command) error {
			return store.Apply(t.Context(), []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: tenant, Actor: actor, Command: k}})[0].Err
		}
		run := func(bytes int) kernel.Create {
			return kernel.Create{ID: jobs.NewID(time.Now()), Key: "a", Args: []byte(`{"a":"` + strings.Repeat("x", bytes-8) + `"}`)}
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		exhausted := func(err error, says string) {
			t.Helper()
			if jobs.CodeOf(err) != jobs.Exhausted || !strings.Contains(err.Error(), says) {
				t.Errorf("%v, want a refusal that says %q", err, says)
			}
		}
		must(apply(jobs.DefaultTenant, "person:root", kernel.SetTenant{Name: "acme", Create: true, Limits: &kernel.TenantLimits{Waiting: 3, Bytes: 100}}))
		must(apply(jobs.DefaultTenant, "person:root", kernel.SetTenant{Name: "other", Create: true}))
		for _, tenant := range []jobs.Tenant{"acme", "other"} {
			must(apply(tenant, "person:ann", kernel.Register{App: "app", Worker: kernel.NoWorker, Start: true, Job: kernel.Declaration{Key: "a", Kind: kernel.Triggered}}))
		}
		first := run(10)
		must(apply("acme", "client:one", first))
		must(apply("acme", "person:ann", run(10)))
		must(apply("acme", "client:one", run(10)))
		exhausted(apply("acme", "person:ann", run(10)), "tenant acme has 3, and its limit is 3")
		exhausted(apply("acme", "person:ann", kernel.Backfill{ID: jobs.NewID(time.Now()), Key: "a"}), "tenant acme has 3, and its limit is 3")
		must(apply("other", "client:one", run(10_000)))
		must(apply("acme", "person:ann", kernel.Cancel{ID: first.ID}))
		time.Sleep(2 * time.Second) // a full purse is counted again
		must(apply("acme", "client:one", run(90)))
		must(apply(jobs.DefaultTenant, "person:root", kernel.SetTenant{Name: "acme", Limits: &kernel.TenantLimits{Bytes: 100}}))
		exhausted(apply("acme", "client:one", run(10)), "tenant acme has 110, and its limit is 100")
	})
}
