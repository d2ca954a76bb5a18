package controlplane

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// serveHeartbeats serves the heartbeats of workers, and receives the offers that they return.
func (cp *ControlPlane) serveHeartbeats(ctx context.Context, term uint64) error {
	err := bus.InTerm(cp.cfg.Bus, term).Serve(ctx, bus.ServiceHeartbeat, func(ctx context.Context, from bus.Principal, request []byte) ([]byte, error) {
		b, err := bus.Decode[bus.Heartbeat](request)
		if err != nil {
			return nil, err
		}
		if b.Worker == "" && from.Role == bus.Node {
			return nil, nil // the leader asks whether it can be reached
		}
		answer, err := cp.heartbeat(ctx, from, b)
		if err != nil {
			return nil, err
		}
		return bus.Encode(answer), nil
	})
	if err != nil {
		return err
	}
	return cp.cfg.Bus.Listen(ctx, "*", bus.TopicBack, "", func(s bus.Signal) {
		if back, err := bus.Decode[bus.Back](s.Data); err == nil && cp.keeps(s.From, back.App) == nil {
			cp.router.back(s.From.Tenant, back.App, back.Offers)
			poke(cp.router.changed)
		}
	})
}

// heartbeat renews what a worker holds and answers with what it is to stop.
func (cp *ControlPlane) heartbeat(ctx context.Context, from bus.Principal, b bus.Heartbeat) (bus.HeartbeatAnswer, error) {
	now := time.Now()
	if err := checkHeartbeat(from, &b); err != nil {
		return bus.HeartbeatAnswer{}, err
	}
	if b.Info != nil {
		if err := cp.keeps(from, b.Info.App); err != nil {
			return bus.HeartbeatAnswer{}, err
		}
	}
	if !cp.cfg.Kept {
		from.App = "" // only claimed, not authenticated
	}
	cp.heartbeats.Add(1)
	known, err := cp.router.heartbeat(from, b, now)
	if err != nil {
		return bus.HeartbeatAnswer{}, err
	}
	stop, unknown := cp.leases.heartbeat(from, b.Worker, b.Running, now)
	for _, h := range unknown {
		if s, over := cp.judge(ctx, from, b.Worker, h, now); over {
			stop = append(stop, s)
		}
	}
	queue, rest := cp.router.answer(from.Tenant, b.Worker, now)
	return bus.HeartbeatAnswer{Queue: queue, Rest: rest, Unknown: !known && !b.Leaving, Stop: stop, Lease: cp.cfg.Lease.Milliseconds()}, nil
}

// judge looks up an attempt that the leader does not know: the store decides whether it is the worker's.
func (cp *ControlPlane) judge(ctx context.Context, from bus.Principal, worker string, h bus.Held, now time.Time) (bus.Stop, bool) {
	run, err := cp.cfg.Store.Run(ctx, from.Tenant, h.ID)
	switch {
	case err != nil && jobs.CodeOf(err) != jobs.NotFound:
		return bus.Stop{}, false // nothing is known: let it run
	case err == nil && from.App != "" && run.App != from.App: // another app's worker of the same name
	case err == nil && run.Worker == worker && run.Attempt == h.Attempt && (run.State == jobs.Processing || run.Lingering):
		cp.leases.mu.Lock()
		cp.leases.note(run, now)
		cp.leases.mu.Unlock()
		if run.Lingering {
			return *stopOf(run), true
		}
		return bus.Stop{}, false
	case err == nil && run.Worker == worker && run.Attempt == h.Attempt:
		return bus.Stop{}, false // it has just ended, by the worker's own report
	}
	return bus.Stop{ID: h.ID, Attempt: h.Attempt, Stale: true}, true
}

// checkHeartbeat refuses heartbeats for another worker, and invalid ones.
func checkHeartbeat(from bus.Principal, b *bus.Heartbeat) error {
	if err := kernel.CheckName("worker", b.Worker); err != nil {
		return err
	}
	if from.Role != bus.Worker || !from.SpeaksFor(b.Worker) {
		return kernel.Refuse(jobs.Forbidden, "%s may not send heartbeats for worker %s", from.Actor(), b.Worker)
	}
	if len(b.Running) > mostHeld {
		return kernel.Invalid("worker %s: a heartbeat with %d attempts: %d are allowed, and more go into further heartbeats", b.Worker, len(b.Running), mostHeld)
	}
	for i := range b.Running {
		if p := b.Running[i].Progress; p != nil {
			p.Done, p.Total = max(0, p.Done), max(0, p.Total)
			p.Text = cut(p.Text, mostWords)
		}
	}
	if b.Info == nil {
		return nil
	}
	b.Info.Tenant, b.Info.Name = from.Tenant, b.Worker
	return checkInfo(b.Info)
}

// Bounds for what is kept of a worker's description, for as long as it sends heartbeats: a token must not be able to
// fill the server's memory.
const (
	mostHeld   = 10_000    // attempts in a heartbeat
	mostSlots  = 1_000_000 // that are counted
	mostWords  = 200       // bytes of a label, a tag, a host's name, a version
	mostStarts = 256       // workers of one name that live at the same time
)

func checkInfo(i *bus.WorkerInfo) error {
	if i.Slots < 0 || len(i.Keys) > bus.MostJobs {
		return kernel.Invalid("worker %s: %d slots and %d keys: slots are not negative, and at most %d keys are allowed", i.Name, i.Slots, len(i.Keys), bus.MostJobs)
	}
	for k := range i.Keys {
		if err := k.Check(); err != nil {
			return err
		}
	}
	i.Slots = min(i.Slots, mostSlots)
	i.Tags = slices.Clone(i.Tags[:min(len(i.Tags), kernel.MaxTags)])
	for n := range i.Tags {
		i.Tags[n] = cut(i.Tags[n], mostWords)
	}
	for k, why := range i.Faults {
		if k.Check() != nil || len(i.Faults) > bus.MostJobs {
			return kernel.Invalid("worker %s: unserved job %.40q: invalid key, or too many of them", i.Name, k)
		}
		i.Faults[k] = cut(why, mostWords)
	}
	i.Label, i.Host, i.Version = cut(i.Label, mostWords), cut(i.Host, mostWords), cut(i.Version, mostWords)
	return kernel.CheckName("app", i.App)
}

// cut shortens s to at most n bytes, in memory of its own.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.Clone(strings.ToValidUTF8(s[:n], ""))
}
