package controlplane

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/controlplane/assign"
	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/sabotage"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// sweep looks for what got lost: ready runs that the board lost, workers that fell silent, free slots with waiting runs,
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
	if err := cp.compare(ctx, apps); err != nil {
		return err
	}
	poke(cp.board.changed)
	marked := cp.markStopped(ctx, now) // marks on jobs must not delay runs
	return cmp.Or(cp.sweepRows(ctx), marked)
}

const (
	// lookRuns is how many ready runs of an app a sweep compares: those that can start first, of queues that a worker can
	// take runs of. What is lost behind them is among them before it could start.
	lookRuns = 1000
	// sweepRuns is after how many runs of all apps a sweep leaves the other apps to the next one.
	sweepRuns = 20_000
)

// compare has the board take up ready runs of the store that it lost, which is counted: none should be. It also has
// broadcasts expanded that the board has no room for.
func (cp *ControlPlane) compare(ctx context.Context, apps []metastore.ReadyApp) error {
	b := &cp.board
	b.mu.Lock()
	b.Sweep(b.now())
	b.mu.Unlock()
	slices.SortFunc(apps, func(x, y metastore.ReadyApp) int {
		return cmp.Or(cmp.Compare(x.Tenant, y.Tenant), cmp.Compare(x.App, y.App))
	})
	first, _ := slices.BinarySearchFunc(apps, cp.swept, func(x metastore.ReadyApp, y assign.App) int {
		return cmp.Or(cmp.Compare(x.Tenant, y.Tenant), cmp.Compare(x.App, y.Name))
	})
	cp.swept = assign.App{}
	looked := 0
	for n := range apps {
		l := apps[(first+n)%len(apps)]
		name := assign.App{Tenant: l.Tenant, Name: l.App}
		if looked >= sweepRuns {
			cp.swept = name
			break
		}
		b.mu.Lock()
		has, none := b.Looks(name)
		b.mu.Unlock()
		if !none {
			ready, err := cp.cfg.Store.Ready(ctx, metastore.ReadyQuery{Tenant: l.Tenant, App: l.App, Limit: lookRuns, Has: has})
			if err != nil {
				return err
			}
			looked += len(ready)
			b.mu.Lock()
			mended := b.Compare(name, ready)
			b.mended += uint64(mended)
			b.mu.Unlock()
			if mended > 0 {
				cp.log.Warn("the leader had lost ready runs; the sweep has found them", "app", l.App, "tenant", l.Tenant, "count", mended)
			}
		}
		spread, err := cp.cfg.Store.Ready(ctx, metastore.ReadyQuery{Tenant: l.Tenant, App: l.App, Limit: lookRuns, Has: unexpanded})
		if err != nil {
			return err
		}
		b.mu.Lock()
		b.Broadcasts(name, spread)
		b.mu.Unlock()
	}
	return nil
}

func unexpanded(q kernel.Queue) bool { return q.Broadcast }

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
