package controlplane

import (
	"github.com/carillon-scheduler/carillon/jobs"
)

// turns has the jobs that are due: the tenants take turns, and so do the apps of each, so that many due times of one
// app delay those of others by one job. Within an app the order is that in which they were added. The zero value is
// empty.
type turns struct {
	tenants []*tenantTurns // the first is next
	of      map[jobs.Tenant]*tenantTurns
}

type tenantTurns struct {
	tenant jobs.Tenant
	apps   []*appTurns // the first is next
	of     map[string]*appTurns
}

type appTurns struct {
	app string
	due []dueAt
}

// dueAt is a job at a place of the agenda that it may have left.
type dueAt struct {
	*planned
	at int64
}

func (t *turns) add(app string, p dueAt) {
	tenant := t.of[p.tenant]
	if tenant == nil {
		tenant = &tenantTurns{tenant: p.tenant, of: map[string]*appTurns{}}
		if t.of == nil {
			t.of = map[jobs.Tenant]*tenantTurns{}
		}
		t.of[p.tenant] = tenant
		t.tenants = append(t.tenants, tenant)
	}
	own := tenant.of[app]
	if own == nil {
		own = &appTurns{app: app}
		tenant.of[app] = own
		tenant.apps = append(tenant.apps, own)
	}
	own.due = append(own.due, p)
}

// take removes the next job.
func (t *turns) take() (p dueAt, ok bool) {
	if len(t.tenants) == 0 {
		return p, false
	}
	tenant := t.tenants[0]
	own := tenant.apps[0]
	p, own.due = own.due[0], own.due[1:]
	if tenant.apps = tenant.apps[1:]; len(own.due) > 0 {
		tenant.apps = append(tenant.apps, own)
	} else {
		delete(tenant.of, own.app)
	}
	if t.tenants = t.tenants[1:]; len(tenant.apps) > 0 {
		t.tenants = append(t.tenants, tenant)
	} else {
		delete(t.of, tenant.tenant)
	}
	return p, true
}
