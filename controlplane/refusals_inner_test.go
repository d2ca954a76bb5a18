package controlplane

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// However many tenants are refused, the labels of metrics are few; and a deleted tenant's episodes are not those of a
// tenant that gets its name.
func TestRefusalsAreFew(t *testing.T) {
	var r refusals
	now := time.Now()
	for i := range 1_000 {
		r.note(jobs.Tenant(fmt.Sprint("t", i)), kernel.BoundJobs, errors.New("no"), now)
	}
	all := r.totals()
	if len(all) != MaxTenants+1 || all["t0"][kernel.BoundJobs] != 1 || all[OtherTenants][kernel.BoundJobs] != 1_000-MaxTenants {
		t.Errorf("%d tenants are counted: %v", len(all), all)
	}
	synctest.Test(t, func(t *testing.T) {
		cp := &ControlPlane{cfg: Config{Clock: new(metastore.Clock)}}
		cp.Refused("acme", kernel.Exhausted(kernel.BoundJobs, "too many"))
		cp.Refused("acme", kernel.Refuse(jobs.Conflict, "not at a bound"))
		if got := cp.Refusals("acme"); len(got) != 1 || got[0].N != 1 {
			t.Errorf("there are %v", got)
		}
		cp.refusals.forget("acme")
		if got := cp.Refusals("acme"); len(got) != 0 {
			t.Errorf("another tenant of the name sees %v", got)
		}
		if got := cp.refusals.totals()["acme"][kernel.BoundJobs]; got != 1 {
			t.Errorf("the counter went back to %d", got)
		}
	})
}
