package controlplane

import (
	"context"
	"errors"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// sweep looks for what got lost: offers that nobody claimed, workers that fell silent, free slots with somebody
// waiting, definitions whose change was not signalled.
func (cp *ControlPlane) sweep(ctx context.Context) error {
	ticker := time.NewTicker(cp.cfg.Sweep)
	defer ticker.Stop()
	for {
		if err := cp.sweepOnce(ctx); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			cp.log.Error("sweep failed", "err", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (cp *ControlPlane) sweepOnce(ctx context.Context) error {
	now := time.Now()
	for _, name := range cp.router.expire(now) {
		cp.log.Warn("a worker fell silent", "worker", name)
	}
	for _, o := range cp.router.overdue(now) {
		in, err := cp.cfg.Store.Instance(ctx, o.lane.Tenant, o.id)
		if err != nil && !errors.Is(err, jobs.NotFound) {
			return err
		}
		cp.router.retry(o, in, now)
	}
	lanes, err := cp.cfg.Store.Lanes(ctx)
	if err != nil {
		return err
	}
	for _, l := range lanes {
		cp.router.backlogged(l.Tenant, l.App, l.Ready)
	}
	poke(cp.router.changed)

	gates, err := cp.cfg.Store.Unserved(ctx, 100)
	if err != nil {
		return err
	}
	if len(gates) > 0 {
		batch := make([]jobs.Envelope, len(gates))
		for i, g := range gates {
			batch[i] = cp.envelope(g.Tenant, jobs.Hand{Gate: g.Name})
		}
		for _, r := range cp.store.Apply(ctx, batch) {
			if r.Err != nil {
				return r.Err
			}
		}
	}
	if err := cp.catalog.look(ctx, cp.cfg.Store); err != nil {
		return err
	}
	return cp.refresh(ctx)
}

// refresh has definitions follow the tenant's defaults after those have changed.
func (cp *ControlPlane) refresh(ctx context.Context) error {
	state, err := cp.cfg.Store.State(ctx)
	if err != nil || state.Changes == cp.refreshed {
		return err
	}
	defs, err := cp.cfg.Store.Definitions(ctx, metastore.DefinitionQuery{Tenant: "*"})
	if err != nil {
		return err
	}
	globals := map[jobs.Tenant]uint64{}
	var batch []jobs.Envelope
	for _, d := range defs {
		rev, ok := globals[d.Tenant]
		if !ok {
			g, err := cp.cfg.Store.Global(ctx, d.Tenant)
			if err != nil {
				return err
			}
			rev = g.Revision
			globals[d.Tenant] = rev
		}
		if d.Defaults != rev {
			batch = append(batch, cp.envelope(d.Tenant, jobs.Refresh{Key: d.Key}))
		}
	}
	for len(batch) > 0 {
		n := min(len(batch), 1000)
		for _, r := range cp.store.Apply(ctx, batch[:n]) {
			if r.Err != nil && !errors.Is(r.Err, jobs.NotFound) {
				return r.Err
			}
		}
		batch = batch[n:]
	}
	cp.refreshed = state.Changes
	return nil
}
