package controlplane

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
)

// timeoutGrace is how long after its deadline the leader waits for a worker's own word that an attempt timed out.
const timeoutGrace = 5 * time.Second

// expire ends attempts whose worker no longer beats, and those that outlived their timeout. It first makes sure
// that it can be reached itself: while the bus is away, silence says nothing about workers.
func (cp *ControlPlane) expire(ctx context.Context) error {
	ticker := time.NewTicker(cp.cfg.Lease / 10)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if cp.leases.empty() {
			continue
		}
		cp.leases.reach(cp.reachable(ctx), time.Now())
		lapsed := cp.leases.lapsed(time.Now(), timeoutGrace)
		if len(lapsed) == 0 {
			continue
		}
		batch := make([]jobs.Envelope, len(lapsed))
		for i, l := range lapsed {
			batch[i] = cp.envelope(l.tenant, l.expire)
		}
		for i, r := range cp.store.Apply(ctx, batch) {
			k := lapsed[i].expire
			switch {
			case r.Err == nil:
				cp.log.Info("an attempt expired", "instance", k.ID, "attempt", k.Attempt, "cause", k.Cause)
			case jobs.CodeOf(r.Err) == jobs.NotFound, jobs.CodeOf(r.Err) == jobs.Stale:
				cp.leases.forget(k.ID, k.Attempt)
			default:
				cp.log.Warn("an attempt could not be expired yet", "instance", k.ID, "err", r.Err)
			}
		}
	}
}

// reachable asks this leader's own service over the bus, as a worker would.
func (cp *ControlPlane) reachable(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, cp.cfg.Lease/15)
	defer cancel()
	_, err := cp.cfg.Bus.Call(ctx, bus.ServiceBeat, bus.Encode(bus.Beat{}))
	return err == nil
}

// forget drops a lease that the store knows nothing of.
func (l *leases) forget(id jobs.ID, attempt uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.held[id]; k != nil && k.attempt == attempt {
		delete(l.held, id)
	}
}
