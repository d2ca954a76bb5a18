package controlplane

import (
	"context"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
)

// hear serves the beats of workers, and hears which offers they return.
func (cp *ControlPlane) hear(ctx context.Context) error {
	err := cp.cfg.Bus.Serve(ctx, bus.ServiceBeat, func(ctx context.Context, from bus.Principal, request []byte) ([]byte, error) {
		b, err := bus.Decode[bus.Beat](request)
		if err != nil {
			return nil, err
		}
		if b.Worker == "" && from.Role == bus.Node {
			return nil, nil // the leader asks whether it can be reached
		}
		answer, err := cp.beat(ctx, from, b)
		if err != nil {
			return nil, err
		}
		return bus.Encode(answer), nil
	})
	if err != nil {
		return err
	}
	return cp.cfg.Bus.Listen(ctx, "*", bus.TopicBack, "", func(s bus.Signal) {
		if back, err := bus.Decode[bus.Back](s.Data); err == nil {
			cp.router.back(s.From.Tenant, back.App, back.Offers)
			poke(cp.router.changed)
		}
	})
}

// beat renews what a worker holds and tells it what to stop.
func (cp *ControlPlane) beat(ctx context.Context, from bus.Principal, b bus.Beat) (bus.BeatAnswer, error) {
	now := time.Now()
	if err := checkBeat(from, &b); err != nil {
		return bus.BeatAnswer{}, err
	}
	known := cp.router.beat(from, b, now)
	stop, unknown := cp.leases.beat(b.Worker, b.Running, now)
	for _, h := range unknown {
		if s, over := cp.judge(ctx, from, b.Worker, h, now); over {
			stop = append(stop, s)
		}
	}
	cp.router.mu.Lock()
	queue := cp.router.queue
	cp.router.mu.Unlock()
	return bus.BeatAnswer{Queue: queue, Unknown: !known && !b.Leaving, Stop: stop, Lease: cp.cfg.Lease.Milliseconds()}, nil
}

// judge looks an attempt up that the leader does not know: the store decides whether it is the worker's.
func (cp *ControlPlane) judge(ctx context.Context, from bus.Principal, worker string, h bus.Held, now time.Time) (bus.Stop, bool) {
	in, err := cp.cfg.Store.Instance(ctx, from.Tenant, h.ID)
	switch {
	case err != nil && jobs.CodeOf(err) != jobs.NotFound:
		return bus.Stop{}, false // nothing is known: let it run
	case err == nil && in.Worker == worker && in.Attempt == h.Attempt && (in.State == jobs.Processing || in.Lingering):
		cp.leases.mu.Lock()
		cp.leases.note(in, now)
		cp.leases.mu.Unlock()
		if in.Lingering {
			return *stopOf(in), true
		}
		return bus.Stop{}, false
	case err == nil && in.Worker == worker && in.Attempt == h.Attempt:
		return bus.Stop{}, false // it has just ended, by the worker's own word
	}
	return bus.Stop{ID: h.ID, Attempt: h.Attempt, Stale: true}, true
}

// checkBeat keeps a worker from speaking for another, and from claims that make no sense.
func checkBeat(from bus.Principal, b *bus.Beat) error {
	if err := jobs.CheckName("worker", b.Worker); err != nil {
		return err
	}
	if from.Role == bus.Worker && !from.SpeaksFor(b.Worker) {
		return jobs.Refuse(jobs.Forbidden, "%s may not beat for worker %s", from.Actor(), b.Worker)
	}
	for i := range b.Running {
		if p := b.Running[i].Progress; p != nil {
			p.Done, p.Total = max(0, p.Done), max(0, p.Total)
			if len(p.Text) > 200 {
				p.Text = strings.ToValidUTF8(p.Text[:200], "")
			}
		}
	}
	if b.Info == nil {
		return nil
	}
	b.Info.Tenant, b.Info.Name = from.Tenant, b.Worker
	if b.Info.Slots < 0 || len(b.Info.Keys) > 10_000 {
		return jobs.Invalid("worker %s: %d slots and %d keys: slots are not negative, and at most 10000 keys are allowed", b.Worker, b.Info.Slots, len(b.Info.Keys))
	}
	return jobs.CheckName("app", b.Info.App)
}
