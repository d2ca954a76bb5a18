package ops_test

import (
	"fmt"
	"testing"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// listing counts how often the workers are listed, of which tenant.
type listing struct {
	members
	asked []jobs.Tenant
}

func (c *listing) Workers(t jobs.Tenant) []ops.Worker {
	c.asked = append(c.asked, t)
	return c.workers
}

// Pages of tenants have each of them once, with its workers, which are listed once for a page.
func TestTenantsHavePages(t *testing.T) {
	d := newFixture(t)
	for i := range 25 {
		d.apply(kernel.SetTenant{Name: jobs.Tenant(fmt.Sprintf("t%02d", i)), Create: true})
	}
	live := &listing{}
	for i := range 7 {
		live.workers = append(live.workers, ops.Worker{WorkerInfo: bus.WorkerInfo{Tenant: []jobs.Tenant{"t03", "t24"}[i%2], Name: fmt.Sprint("w", i)}})
	}
	o := ops.New(ops.Config{Store: d.store, Live: live})
	found, workers := 0, map[jobs.Tenant]int{}
	for q := (ops.TenantQuery{Limit: 10}); ; {
		list, more, err := o.Tenants(t.Context(), ann, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, of := range list {
			if want := jobs.Tenant(fmt.Sprintf("t%02d", found)); of.Global.Tenant != want {
				t.Fatalf("tenant %s, want %s", of.Global.Tenant, want)
			}
			found++
			workers[of.Global.Tenant] = of.Workers
		}
		if !more {
			break
		}
		q.After = list[len(list)-1].Global.Tenant
	}
	if found != 25 || workers["t03"] != 4 || workers["t24"] != 3 || workers["t05"] != 0 {
		t.Errorf("%d tenants, with workers %v", found, workers)
	}
	if len(live.asked) != 3 || live.asked[0] != "*" {
		t.Errorf("workers were listed of %q", live.asked)
	}
}
