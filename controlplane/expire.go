package controlplane

import (
	"context"
	"log/slog"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/dispatch"
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
	b := &cp.board
	last := time.Now()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if b.idle() {
			last = time.Now()
			continue
		}
		answers, now := cp.reachable(ctx, term), time.Now()
		b.reach(answers, stoodStill(last, now, cp.cfg.Lease/3))
		last = now
		lapsed := b.lapsed(cp.cfg.Clock.Now().Add(-timeoutGrace))
		if len(lapsed) == 0 {
			continue
		}
		batch := make([]kernel.Envelope, len(lapsed))
		for i, l := range lapsed {
			batch[i] = cp.envelope(l.of.Tenant, l.expire)
		}
		d.begin()
		var failed error
		for i, r := range cp.store.Apply(ctx, batch) {
			k, a := lapsed[i].expire, dispatch.Attempt{Run: lapsed[i].of, N: lapsed[i].expire.Attempt}
			switch {
			case r.Err == nil && r.Existing && k.Cause == kernel.ByLoss: // it had ended before its lease
				b.drop(a)
			case r.Err == nil:
				cp.log.Info("an attempt expired", "run", k.ID, "attempt", k.Attempt, "cause", k.Cause)
			case jobs.CodeOf(r.Err) == jobs.NotFound, jobs.CodeOf(r.Err) == jobs.Stale:
				b.drop(a)
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

type expiry struct {
	of     dispatch.Run
	expire kernel.Expire
}

// lapsed lists the attempts whose lease has expired by now, in steady time, and those whose deadline, a time of the
// store's clock, has passed by overdue. While the bus has not been answering for a full lease, no lease expires: the
// silence may be ours. Refused attempts whose start is not taken back yet go to start.go again.
func (b *board) lapsed(overdue time.Time) (list []expiry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var acts dispatch.Acts
	now := b.now()
	sure := b.answering > 0 && now-b.answering >= b.lease
	b.Sender().Lapsed(now, &acts)
	for _, l := range acts.Lapse {
		if sure {
			list = append(list, expiry{l.Run, kernel.Expire{ID: l.ID, Attempt: l.N, Cause: kernel.ByLoss, Unbegun: !l.Began}})
		}
	}
	for k := range b.attempts {
		if k.run == nil && !k.deadline.IsZero() && overdue.After(k.deadline.Add(k.waited)) {
			list = append(list, expiry{k.Run, kernel.Expire{ID: k.ID, Attempt: k.N, Cause: kernel.ByTimeout}})
		}
	}
	if b.unstart = append(b.unstart, acts.Unstart...); len(acts.Unstart) > 0 {
		poke(b.changed)
	}
	return list
}

// reach records whether the bus has just answered, and whether this process stood still before.
func (b *board) reach(ok, froze bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if froze {
		b.thawed = now
	}
	switch {
	case !ok:
		b.answering = 0
	case froze || b.answering == 0:
		b.answering = now
	}
}

func (b *board) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range b.attempts {
		return false
	}
	return true
}

// drop forgets an attempt that the store does not have.
func (b *board) drop(a dispatch.Attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(a)
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
