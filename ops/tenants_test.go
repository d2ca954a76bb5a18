package ops_test

import (
	"fmt"
	"testing"
	"time"

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

// A tenant that exists is not created again, and stays as it is, whatever became of its first token.
func TestATenantThatExistsIsNotCreated(t *testing.T) {
	d := newFixture(t)
	o := ops.New(ops.Config{Store: d.store, Live: &listing{}, Authenticates: true, Now: func() time.Time { return d.now }})
	berlin := ops.NewTenant{Name: "acme", Zone: "Europe/Berlin"}
	created, token, err := o.CreateTenant(t.Context(), ann, berlin)
	if err != nil || *created.Defaults.Zone != berlin.Zone {
		t.Fatalf("the created tenant has %+v: %v", created.Global, err)
	}
	inside, err := o.Inside(t.Context(), ann, "acme")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := o.Grant(t.Context(), inside, ops.NewToken{Name: "second", Role: kernel.RoleAdmin}); err != nil {
		t.Fatal(err)
	}
	_, id, _, _ := kernel.CutToken(token)
	if err := o.Revoke(t.Context(), ops.Who{Tenant: "acme", Actor: "person:first", Role: ops.Admin}, id); err != nil {
		t.Fatal(err)
	}
	for _, again := range []ops.NewTenant{berlin, {Name: "acme", Zone: "America/New_York"}} {
		if _, _, err := o.CreateTenant(t.Context(), ann, again); jobs.CodeOf(err) != jobs.Conflict {
			t.Errorf("a second creation, %+v: %v", again, err)
		}
	}
	if g, err := d.store.Global(t.Context(), "acme"); err != nil || *g.Defaults.Zone != berlin.Zone {
		t.Errorf("the zone of the tenant is %s, want %s: %v", *g.Defaults.Zone, berlin.Zone, err)
	}
}
