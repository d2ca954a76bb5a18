package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/dispatch"
	"github.com/carillon-scheduler/carillon/jobs"
)

// listen subscribes to pushes until hangUp, if it has not yet; but not while the HTTP worker is absent, because another
// node may act for it and must get its pushes. Only one goroutine at a time calls listen and hangUp.
func (w *Worker) listen(ctx context.Context) error {
	if w.stopPushes != nil || w.absent() {
		return nil
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	at := bus.Address{Tenant: w.config.Tenant, App: w.config.App, Worker: w.name}
	if err := w.bus.Accept(ctx, at, w.accept); err != nil {
		cancel()
		return err
	}
	w.stopPushes = cancel
	return nil
}

// hangUp ends the subscription to pushes.
func (w *Worker) hangUp() {
	if w.stopPushes != nil {
		w.stopPushes()
		w.stopPushes = nil
	}
}

// accept answers a push. The handlers of the runs that this worker accepts begin in then, which the bus calls when the
// answer has left this process.
func (w *Worker) accept(push []byte) (answer []byte, then func()) {
	p, err := bus.DecodePush(push)
	if err != nil {
		w.episodes.Failed(slog.LevelWarn, "", "invalid push", "err", err)
		return bus.Encode(bus.PushAnswer{Late: true}), nil
	}
	begin, verdicts := w.held.accept(&p, time.Now(), func(k jobs.Key) bool { return w.handler(k) != nil })
	if len(begin) == 0 {
		return bus.Encode(verdicts), nil
	}
	return bus.Encode(verdicts), func() {
		for _, a := range begin {
			w.pool.Call(a)
		}
	}
}

// accept decides about each run of a push, and takes a slot for each that is to begin.
func (h *held) accept(p *bus.Push, at time.Time, serves func(jobs.Key) bool) (begin []*attempt, verdicts bus.PushAnswer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.stamp(at)
	if !h.receiver.Accepts(dispatch.Push{Process: p.Process, Heard: p.Heard, Lease: p.Lease}, now) {
		return nil, bus.PushAnswer{Late: true}
	}
	for _, run := range p.Runs {
		t := token{run.ID, run.Attempt}
		verdict, begins := h.receiver.Receive(h.name(t), run.Started.UnixNano(), serves(run.HandlerKey()), now)
		switch verdict {
		case dispatch.Refused:
			verdicts.Refused = append(verdicts.Refused, bus.Attempt{ID: t.ID, N: t.Attempt})
			h.refused++
		case dispatch.Over:
			verdicts.Over = append(verdicts.Over, bus.Attempt{ID: t.ID, N: t.Attempt})
		}
		if begins {
			a := &attempt{token: t, key: run.Key, handler: run.HandlerKey(), in: run, accepted: at, renewed: h.timeOf(p.Heard)}
			h.attempts[t] = a
			h.begun++
			begin = append(begin, a)
		}
	}
	return begin, verdicts
}
