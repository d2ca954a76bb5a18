package controlplane

import (
	"context"
	"log/slog"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/sabotage"
	"github.com/carillon-scheduler/carillon/jobs"
)

// timeoutGrace is how long after its deadline the leader waits for a worker's own report that an attempt timed out.
const timeoutGrace = 5 * time.Second

// expire ends attempts whose worker no longer sends heartbeats, and those that outlived their timeout. It first makes
// sure that it can be reached itself: while the bus is unavailable, missing heartbeats prove nothing.
func (cp *ControlPlane) expire(ctx context.Context, term uint64) error {
	ticker := time.NewTicker(cp.cfg.Lease / 10)
	defer ticker.Stop()
	if sabotage.Off(sabotage.Lease) {
		<-ctx.Done()
	}
	d := cp.duty("expire")
	last := time.Now()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if cp.leases.empty() {
			last = time.Now()
			continue
		}
		answers, now := cp.reachable(ctx, term), time.Now()
		if stoodStill(last, now, cp.cfg.Lease/3) {
			cp.leases.reach(false, now)
		}
		cp.leases.reach(answers, now)
		last = now
		lapsed := cp.leases.lapsed(now, cp.cfg.Clock.Now().Add(-timeoutGrace))
		if len(lapsed) == 0 {
			continue
		}
		batch := make([]kernel.Envelope, len(lapsed))
		for i, l := range lapsed {
			batch[i] = cp.envelope(l.tenant, l.expire)
		}
		d.begin()
		var failed error
		for i, r := range cp.store.Apply(ctx, batch) {
			k, of := lapsed[i].expire, runRef{lapsed[i].tenant, lapsed[i].expire.ID}
			switch {
			case r.Err == nil && r.Existing && k.Cause == kernel.ByLoss: // it had ended before its lease
				cp.leases.forget(of, k.Attempt)
			case r.Err == nil:
				cp.log.Info("an attempt expired", "run", k.ID, "attempt", k.Attempt, "cause", k.Cause)
			case jobs.CodeOf(r.Err) == jobs.NotFound, jobs.CodeOf(r.Err) == jobs.Stale:
				cp.leases.forget(of, k.Attempt)
			default:
				failed = r.Err
				cp.episodes.Failed(slog.LevelWarn, "", "an attempt could not be expired yet", "run", k.ID, "err", r.Err)
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := d.end(failed); err != nil {
			return err
		}
	}
}

// stoodStill reports whether a regular check is later than it may be: the process was frozen, or its machine was.
// Messages of that time may still be unread, so that missing heartbeats prove nothing.
func stoodStill(last, now time.Time, bears time.Duration) bool { return now.Sub(last) > bears }

// reachable asks this leader's own service over the bus, as a worker would.
func (cp *ControlPlane) reachable(ctx context.Context, term uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, cp.cfg.Lease/15)
	defer cancel()
	_, err := cp.cfg.Bus.Call(ctx, bus.ServiceIn(bus.ServiceHeartbeat, term), bus.Encode(bus.Heartbeat{}))
	return err == nil
}

// forget drops a lease that the store does not know.
func (l *leases) forget(of runRef, attempt uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.held[of]; k != nil && k.attempt == attempt {
		l.count(k, -1)
		delete(l.held, of)
	}
}
