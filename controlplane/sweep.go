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

// sweep looks for what got lost: ready runs that are not known, workers that fell silent, free slots with waiting runs,
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
		cp.board.thaw()
	}
	for _, name := range cp.board.silent() {
		cp.log.Warn("a worker fell silent", "worker", name)
	}
	apps, err := cp.cfg.Store.ReadyApps(ctx)
	if err != nil {
		return err
	}
	for _, l := range cp.board.sweep(apps) {
		ready, err := cp.cfg.Store.Ready(ctx, l.Tenant, l.Name, fireRuns)
		if err != nil {
			return err
		}
		cp.board.broadcasts(l, ready)
	}
	poke(cp.board.changed)
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
	// A definition that has changed follows the defaults of that time. All others have to be read only after the
	// defaults of a tenant have changed.
	since, revisions := cp.refreshed, map[jobs.Tenant]uint64{}
	revision := func(t jobs.Tenant) (uint64, error) {
		rev, ok := revisions[t]
		if !ok {
			g, err := cp.cfg.Store.Global(ctx, t)
			if err != nil {
				return 0, err
			}
			rev = g.Revision
			revisions[t] = rev
		}
		return rev, nil
	}
	for _, t := range cp.catalog.tenants() {
		rev, err := revision(t)
		if err != nil {
			return err
		}
		if known, ok := cp.defaults[t]; !ok || known != rev {
			since = 0
		}
	}
	err = metastore.EachChange(ctx, cp.cfg.Store, since, func(part []*kernel.Definition) error {
		var batch []kernel.Envelope
		for _, d := range part {
			rev, err := revision(d.Tenant)
			if err != nil {
				return err
			}
			if d.Defaults != rev && !d.Gone() {
				batch = append(batch, cp.envelope(d.Tenant, kernel.Refresh{Key: d.Key}))
			}
		}
		if len(batch) == 0 {
			return nil
		}
		for _, r := range cp.store.Apply(ctx, batch) {
			if r.Err != nil && !errors.Is(r.Err, jobs.NotFound) {
				return r.Err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	cp.refreshed, cp.defaults = state.Changes, revisions
	return nil
}
