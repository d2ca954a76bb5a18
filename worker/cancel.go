package worker

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
)

// heed handles a signal of the leader to end an attempt. What a lost signal asked for comes with the next heartbeat's
// answer.
func (w *Worker) heed(ctx context.Context, s bus.Signal) {
	if s.From.Role != bus.Node {
		return // only a control plane may stop runs
	}
	stop, err := bus.Decode[bus.Stop](s.Data)
	if err != nil {
		w.episodes.Failed(slog.LevelWarn, "", "invalid signal", "topic", s.Topic, "err", err)
		return
	}
	if stop.Rest != "" {
		w.rest(stop.Rest)
		return
	}
	if stop.Term > 0 {
		w.called(stop.Term)
		return
	}
	w.stop(ctx, stop)
}

// rest pauses or resumes accepting new runs, and logs the change.
func (w *Worker) rest(request bus.Rest) {
	if request != "" && w.held.rest(request == bus.RestDrain) {
		w.log.Info("worker is asked to pause or resume new runs", "signal", request)
		w.heartbeatNow()
	}
}

// callJitter is the time over which the workers of a new leader spread their first heartbeats.
const callJitter = 50 * time.Millisecond

// called sends a heartbeat because another node leads, which does not know this worker yet: once in a term, and again
// while no heartbeat is answered.
func (w *Worker) called(term uint64) {
	answers, _ := w.leader.contact()
	if w.term.Swap(term) != term || !answers {
		time.AfterFunc(rand.N(callJitter), w.heartbeatNow)
	}
}

// stop ends an attempt because the leader asked for it.
func (w *Worker) stop(ctx context.Context, s bus.Stop) {
	t := token{s.ID, s.Attempt}
	if w.held.forgo(t, s.Started) {
		if !s.Stale {
			// This worker holds no such attempt, so its handler does not run, and never will: report that, so that its
			// slots are freed.
			go w.sendReturned(ctx, t)
		}
		return
	}
	a := w.held.find(t)
	if a == nil {
		return // it has ended just now
	}
	cause := error(&jobs.CancelledError{By: s.By, Reason: s.Reason})
	switch {
	case s.Stale:
		cause = jobs.ErrLeaseLost
	case s.Timeout:
		cause = jobs.ErrTimeout
	}
	if a.endedBy(cause) {
		w.log.Info("attempt is stopped", "key", a.key, "run", a.ID, "attempt", a.Attempt, "cause", cause)
		w.held.count(0)
	}
	if s.Stale {
		w.held.disown(a)
	}
	a.end(cause)
}

// endedBy records that the attempt was ended elsewhere, and reports whether that is new.
func (a *attempt) endedBy(cause error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended != nil {
		return false
	}
	a.ended = cause
	return true
}

// disown is part of held.disown.
func (a *attempt) disown() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stale = true
	if a.ended == nil {
		a.ended = jobs.ErrLeaseLost
	}
}

// leased reports whether the lease of an attempt has certainly not expired: before that no handler begins. This process
// may have stood still since the attempt was accepted.
func (w *Worker) leased(a *attempt) bool {
	return w.held.mayBegin(a, time.Now(), w.leader.leaseTime())
}

// fresh is leased with a third of a lease to spare: for an attempt that begins elsewhere.
func (w *Worker) fresh(a *attempt) bool {
	return time.Since(w.held.renewed(a)) <= w.leader.leaseTime()*2/3
}

// guard ends the context of an attempt whose job has LeaseCancel when its lease has expired as far as this worker can
// know: no heartbeat that names it was answered for a lease less one heartbeat. The handler then has one heartbeat's
// time to return before another worker starts the next attempt.
func (w *Worker) guard(ctx context.Context, a *attempt) {
	for {
		left := time.Until(w.leader.until(w.held.renewed(a)).Add(-w.config.HeartbeatEvery))
		if left <= 0 {
			w.episodes.Failed(slog.LevelWarn, "", "lease is lost, the attempt is stopped", "key", a.key, "run", a.ID, "attempt", a.Attempt)
			a.end(jobs.ErrLeaseLost)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(left):
		}
	}
}
