package controlplane

import (
	"context"
	"log/slog"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// How often tenants are looked for that are still to be deleted: while the archive has something of one, soon again.
const (
	dissolveEvery = time.Minute
	dissolveAgain = time.Second
)

// dissolve deletes the rows of deleted tenants, in small commits.
func (cp *ControlPlane) dissolve(ctx context.Context) error {
	timer := time.NewTimer(dissolveEvery) // set anew before each wait
	defer timer.Stop()
	d := cp.duty("dissolve")
	for {
		d.begin()
		left, err := cp.dissolveAll(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			cp.episodes.Failed(slog.LevelWarn, "", "a tenant could not be deleted yet", "err", err)
		}
		if err := d.end(err); err != nil {
			return err
		}
		if timer.Reset(dissolveEvery); left {
			timer.Reset(dissolveAgain)
		}
		select {
		case <-timer.C:
		case <-cp.dissolving:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// dissolveAll reports whether a tenant is left of which the archive has something.
func (cp *ControlPlane) dissolveAll(ctx context.Context) (left bool, err error) {
	tenants, err := cp.cfg.Store.Tenants(ctx)
	if err != nil {
		return false, err
	}
	for _, g := range tenants {
		if !g.Tenancy.Deleted.On {
			continue
		}
		began := time.Now()
		gone, err := cp.dissolveOne(ctx, g.Tenant)
		if err != nil {
			return left, err
		}
		if left = left || !gone; gone {
			cp.log.Info("a tenant is deleted", "tenant", g.Tenant, "actor", g.Tenancy.Deleted.By, "took", time.Since(began))
		}
	}
	return left, nil
}

// dissolveOne deletes the rows of a tenant: the jobs as such, then, in another pass, so that caches and tables of jobs
// have followed, all rows. It is gone when the archive has nothing of it either: until then a new tenant of that name
// could see it.
func (cp *ControlPlane) dissolveOne(ctx context.Context, tenant jobs.Tenant) (gone bool, err error) {
	deleted := false
	err = metastore.EachDefinition(ctx, cp.cfg.Store, tenant, func(part []*kernel.Definition) error {
		deleted = deleted || len(part) > 0
		batch := make([]kernel.Envelope, len(part))
		for i, d := range part {
			batch[i] = cp.envelope(tenant, kernel.Delete{Key: d.Key})
		}
		return cp.done(ctx, batch)
	})
	if err != nil || deleted {
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
