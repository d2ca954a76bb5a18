package controlplane

import (
	"context"
	"log/slog"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// dissolveEvery is how often tenants are looked for whose rows are still to be deleted.
const dissolveEvery = time.Minute

// dissolve deletes the rows of deleted tenants, in small commits.
func (cp *ControlPlane) dissolve(ctx context.Context) error {
	ticker := time.NewTicker(dissolveEvery)
	defer ticker.Stop()
	d := cp.duty("dissolve")
	for {
		d.begin()
		err := cp.dissolveAll(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			cp.episodes.Failed(slog.LevelWarn, "", "a tenant could not be deleted yet", "err", err)
		}
		if err := d.end(err); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-cp.dissolving:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (cp *ControlPlane) dissolveAll(ctx context.Context) error {
	tenants, err := cp.cfg.Store.Tenants(ctx)
	if err != nil {
		return err
	}
	for _, g := range tenants {
		if !g.Tenancy.Deleted.On {
			continue
		}
		began := time.Now()
		gone, err := cp.dissolveOne(ctx, g.Tenant)
		if err != nil {
			return err
		}
		if gone {
			cp.log.Info("a tenant is deleted", "tenant", g.Tenant, "actor", g.Tenancy.Deleted.By, "took", time.Since(began))
		}
	}
	return nil
}

// dissolveOne deletes the rows of a tenant: the jobs as such, so that all caches know, then all rows. It is gone when
// the archive has nothing of it either: until then a new tenant of that name could see it.
func (cp *ControlPlane) dissolveOne(ctx context.Context, tenant jobs.Tenant) (gone bool, err error) {
	err = metastore.EachDefinition(ctx, cp.cfg.Store, tenant, func(part []*kernel.Definition) error {
		batch := make([]kernel.Envelope, len(part))
		for i, d := range part {
			batch[i] = cp.envelope(tenant, kernel.Delete{Key: d.Key})
		}
		return cp.done(ctx, batch)
	})
	if err != nil {
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
