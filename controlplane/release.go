package controlplane

import (
	"context"
	"log/slog"
	"time"

	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// releaseMost is how many runs are released in a commit.
const releaseMost = 1000

// release handles due runs: delayed runs become Enqueued, retries queue. It sleeps until the next wake time, or until a
// commit brings an earlier one.
func (cp *ControlPlane) release(ctx context.Context) error {
	timer := time.NewTimer(cp.cfg.Watch) // set anew before each wait
	defer timer.Stop()
	d := cp.duty("release")
	for {
		if cp.clockIsWrong() { // see skew.go
			if err := wait(ctx, time.Second/10); err != nil {
				return err
			}
			continue
		}
		now := cp.cfg.Clock.Now()
		d.begin()
		due, next, err := cp.cfg.Store.Waking(ctx, now, releaseMost)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			cp.episodes.Failed(episode.Level(err), "", "due runs cannot be read", "err", err)
			if err := d.end(err); err != nil {
				return err
			}
			if err := wait(ctx, time.Second); err != nil {
				return err
			}
			continue
		}
		if len(due) > 0 {
			batch := make([]kernel.Envelope, len(due))
			for i, n := range due {
				batch[i] = cp.envelope(n.Tenant, kernel.Release{ID: n.ID})
			}
			var failed error
			moved := false
			for _, r := range cp.store.Apply(ctx, batch) {
				moved = moved || r.Err == nil && !r.Existing
				if r.Err != nil && jobs.CodeOf(r.Err) != jobs.NotFound {
					failed = r.Err
				}
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := d.end(failed); err != nil {
				return err
			}
			if failed != nil {
				cp.episodes.Failed(slog.LevelWarn, "", "a due run was not released yet", "err", failed)
			}
			if !moved { // by the store's clock nothing is due yet: no reason to retry at full speed
				if err := wait(ctx, 50*time.Millisecond); err != nil {
					return err
				}
			}
			continue
		}
		_ = d.end(nil)
		sleep := cp.cfg.Watch // at most: the wall clock may be set, which no timer notices
		if !next.IsZero() {
			sleep = min(sleep, next.Sub(now))
		}
		timer.Reset(sleep)
		select {
		case <-timer.C:
		case <-cp.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
