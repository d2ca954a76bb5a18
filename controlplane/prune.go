package controlplane

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// pruneEvery is how often what is over is cleared away.
const pruneEvery = time.Minute

// prune drops unique keys whose time is over, and what the archive need not keep any longer.
func (cp *ControlPlane) prune(ctx context.Context) error {
	ticker := time.NewTicker(pruneEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := cp.forget(ctx, time.Now()); err != nil && ctx.Err() == nil {
			cp.log.Error("unique keys could not be dropped", "err", err)
		}
		if cp.cfg.Prune == nil {
			continue
		}
		if err := cp.cfg.Prune(time.Now()); err != nil {
			cp.log.Error("the archive could not be pruned", "err", err)
		}
	}
}

func (cp *ControlPlane) forget(ctx context.Context, now time.Time) error {
	for {
		refs, err := cp.cfg.Store.Lapsed(ctx, now, 1000)
		if err != nil || len(refs) == 0 {
			return err
		}
		batch := make([]jobs.Envelope, len(refs))
		for i, r := range refs {
			batch[i] = cp.envelope(r.Tenant, jobs.Forget{Name: r.Name})
		}
		for _, r := range cp.store.Apply(ctx, batch) {
			if r.Err != nil {
				return r.Err
			}
		}
	}
}
