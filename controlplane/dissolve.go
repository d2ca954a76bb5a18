package controlplane

import (
	"context"
	"log/slog"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

const (
	// dissolveEvery is how often tenants are looked for that are still to be deleted.
	dissolveEvery = time.Minute
	// dissolveRows is how long after its jobs a tenant's other rows are deleted: caches and tables of jobs, which follow
	// changes, have followed by then.
	dissolveRows = 750 * time.Millisecond
	// While something of a tenant is left, it is looked at again after dissolveFirst, and then less and less often.
	dissolveFirst = 100 * time.Millisecond
	dissolveMost  = time.Second
)

// dissolve deletes the rows of deleted tenants, in small commits.
func (cp *ControlPlane) dissolve(ctx context.Context) error {
	timer := time.NewTimer(dissolveEvery) // set anew before each wait
	defer timer.Stop()
	d := cp.duty("dissolve")
	jobless := map[jobs.Tenant]time.Time{} // when the last job of a tenant was deleted
	for again := dissolveFirst; ; {
		d.begin()
		left, err := cp.dissolveAll(ctx, jobless)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			cp.episodes.Failed(slog.LevelWarn, "", "a tenant could not be deleted yet", "err", err)
		}
		if err := d.end(err); err != nil {
			return err
		}
		if timer.Reset(dissolveEvery); left || err != nil {
			timer.Reset(again)
		}
		select {
		case <-timer.C:
			again = min(again+dissolveFirst, dissolveMost)
		case <-cp.dissolving:
			again = dissolveFirst
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// dissolveAll reports whether something of a tenant is left.
func (cp *ControlPlane) dissolveAll(ctx context.Context, jobless map[jobs.Tenant]time.Time) (left bool, err error) {
	tenants, err := cp.cfg.Store.Tenants(ctx)
	if err != nil {
		return false, err
	}
	for _, g := range tenants {
		if !g.Tenancy.Deleted.On {
			continue
		}
		gone, err := cp.dissolveOne(ctx, g.Tenant, jobless)
		if err != nil {
			return left, err
		}
		if left = left || !gone; gone {
			delete(jobless, g.Tenant)
			cp.log.Info("a tenant is deleted", "tenant", g.Tenant, "actor", g.Tenancy.Deleted.By, "took", cp.cfg.Clock.Now().Sub(g.Tenancy.Deleted.At))
		}
	}
	return left, nil
}

// dissolveOne deletes the rows of a tenant: the jobs as such, and then, in a later pass, all rows. It is gone when the
// archive has nothing of it either: until then a new tenant of that name could see it.
func (cp *ControlPlane) dissolveOne(ctx context.Context, tenant jobs.Tenant, jobless map[jobs.Tenant]time.Time) (gone bool, err error) {
	err = metastore.EachDefinition(ctx, cp.cfg.Store, tenant, func(part []*kernel.Definition) error {
		batch := make([]kernel.Envelope, len(part))
		for i, d := range part {
			batch[i] = cp.envelope(tenant, kernel.Delete{Key: d.Key})
		}
		jobless[tenant] = time.Now()
		return cp.done(ctx, batch)
	})
	if err != nil || time.Since(jobless[tenant]) < dissolveRows {
		return false, err
	}
	for {
		refs, err := cp.cfg.Store.TenantRows(ctx, tenant, kernel.MaxTrim)
		if err != nil {
			return false, err
		}
		if len(refs) == 0 {
			break
		}
		if err := cp.done(ctx, []kernel.Envelope{cp.envelope(jobs.DefaultTenant, kernel.DropTenant{Name: tenant, Refs: refs})}); err != nil {
			return false, err
		}
	}
	select {
	case cp.purged <- struct{}{}: // retain takes what the archive has: see Global.Purged
	default:
	}
	page, err := cp.cfg.Store.Runs(ctx, metastore.RunQuery{Tenant: tenant, Limit: 1})
	if err != nil {
		return false, err
	}
	if cp.cfg.Retain != nil && (len(page.Runs) > 0 || page.Next != "") {
		return false, nil // looked at again
	}
	return true, cp.done(ctx, []kernel.Envelope{cp.envelope(jobs.DefaultTenant, kernel.DropTenant{Name: tenant, Last: true})})
}

// done applies commands that nothing may refuse.
func (cp *ControlPlane) done(ctx context.Context, batch []kernel.Envelope) error {
	for _, r := range cp.store.Apply(ctx, batch) {
		if r.Err != nil && jobs.CodeOf(r.Err) != jobs.NotFound {
			return r.Err
		}
	}
	return nil
}
