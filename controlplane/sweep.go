package controlplane

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/sabotage"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// sweep looks for what got lost: offers that no worker claimed, workers that fell silent, free slots with waiting runs,
// definitions whose change was not signalled.
func (cp *ControlPlane) sweep(ctx context.Context) error {
	ticker := time.NewTicker(cp.cfg.Sweep)
	defer ticker.Stop()
	if sabotage.Off(sabotage.Sweep) {
		<-ctx.Done()
	}
	d := cp.duty("sweep")
	last := time.Now()
	for {
		d.begin()
		froze := stoodStill(last, time.Now(), cp.cfg.Sweep+cp.cfg.Lease/3)
		last = time.Now()
		err := cp.sweepOnce(ctx, froze)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			cp.episodes.Failed(episode.Level(err), "", "sweep failed", "err", err)
		}
		if err := d.end(err); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (cp *ControlPlane) sweepOnce(ctx context.Context, froze bool) error {
	now := time.Now()
	if froze {
		cp.router.spare(now)
	}
	for _, name := range cp.router.expire(now) {
		cp.log.Warn("a worker fell silent", "worker", name)
	}
	for _, o := range cp.router.overdue(now) {
		run, err := cp.cfg.Store.Run(ctx, o.lane.Tenant, o.id)
		if err != nil && !errors.Is(err, jobs.NotFound) {
			return err
		}
		cp.router.retry(o, run, now)
	}
	lanes, err := cp.cfg.Store.Lanes(ctx)
	if err != nil {
		return err
	}
	for _, l := range lanes {
		cp.router.backlogged(l.Tenant, l.App, l.Ready)
	}
	cp.uncounted()
	for _, l := range cp.router.deserted(lanes) {
		ready, err := cp.cfg.Store.Ready(ctx, l.Tenant, l.App, fireRuns)
		if err != nil {
			return err
		}
		cp.router.lonely(l, ready, now)
	}
	poke(cp.router.changed)
	marked := cp.markStopped(ctx, now) // marks on jobs must not delay runs
	return cmp.Or(cp.sweepRows(ctx), marked)
}

// sweepRows handles what a lost signal leaves behind in the store: waiting runs at a free gate, and changed
// definitions.
func (cp *ControlPlane) sweepRows(ctx context.Context) error {
	gates, err := cp.cfg.Store.Unserved(ctx, 100)
	if err != nil {
		return err
	}
	if len(gates) > 0 {
		batch := make([]kernel.Envelope, len(gates))
		for i, g := range gates {
			batch[i] = cp.envelope(g.Tenant, kernel.Hand{Gate: g.Name})
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
	var batch []kernel.Envelope
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
			batch = append(batch, cp.envelope(d.Tenant, kernel.Refresh{Key: d.Key}))
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
