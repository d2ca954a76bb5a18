package controlplane

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// releaseMost is how many runs are released in a commit.
const releaseMost = 1000

// release does what is due: delayed runs become Enqueued, retries queue. It sleeps until the next wake time, or
// until a commit brings an earlier one.
func (cp *ControlPlane) release(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		due, next, err := cp.cfg.Store.Waking(ctx, now, releaseMost)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			cp.log.Error("due runs cannot be read", "err", err)
			if err := wait(ctx, time.Second); err != nil {
				return err
			}
			continue
		}
		if len(due) > 0 {
			batch := make([]jobs.Envelope, len(due))
			for i, n := range due {
				batch[i] = cp.envelope(n.Tenant, jobs.Release{ID: n.ID})
			}
			var failed error
			for _, r := range cp.store.Apply(ctx, batch) {
				if r.Err != nil && jobs.CodeOf(r.Err) != jobs.NotFound {
					failed = r.Err
				}
			}
			if failed != nil {
				cp.log.Warn("a due run was not released yet", "err", failed)
				if err := wait(ctx, 50*time.Millisecond); err != nil {
					return err
				}
			}
			continue
		}
		sleep := time.Second // at most: somebody may set the wall clock, and no timer tells
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
