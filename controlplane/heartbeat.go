package controlplane

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/dispatch"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
)

// serveHeartbeats serves the heartbeats of workers.
func (cp *ControlPlane) serveHeartbeats(ctx context.Context, term uint64) error {
	return bus.InTerm(cp.cfg.Bus, term).Serve(ctx, bus.ServiceHeartbeat, func(ctx context.Context, from bus.Principal, request []byte) ([]byte, error) {
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
}

// heartbeat renews what a worker holds and answers with what it is to stop.
func (cp *ControlPlane) heartbeat(ctx context.Context, from bus.Principal, b bus.Heartbeat) (bus.HeartbeatAnswer, error) {
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
	next, err := cp.board.heartbeat(from, b)
	if err != nil {
		cp.Refused(from.Tenant, err)
		return bus.HeartbeatAnswer{}, err
	}
	cp.begun(next.begun)
	cp.deliver(next.deliveries)
	poke(cp.board.changed)
	for _, a := range next.unknown {
		if cp.judge(ctx, from, b.Worker, a) {
			next.stop = append(next.stop, bus.Stop{ID: a.ID, Attempt: a.N, Stale: true})
		}
	}
	return bus.HeartbeatAnswer{Rest: next.rest, Unknown: !next.known && !b.Leaving, Stop: next.stop, Lease: cp.cfg.Lease.Milliseconds()}, nil
}

// sequel is what a heartbeat leads to.
type sequel struct {
	known      bool // who the worker is
	rest       bus.Rest
	stop       []bus.Stop
	unknown    []dispatch.Attempt // that it names, and that this leader does not know
	begun      []*kernel.Run
	deliveries []delivery // that it has not received
}

// heartbeat takes in what a worker reports.
func (b *board) heartbeat(from bus.Principal, h bus.Heartbeat) (n sequel, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	m, err := b.attend(from, &h, now)
	if err != nil {
		return n, err
	}
	report := dispatch.Heartbeat{Worker: dispatch.Worker{Tenant: from.Tenant, Name: h.Worker}, Process: h.Process, Sent: time.Duration(h.Sent), Strays: h.Strays,
		Away: h.Draining || h.Leaving || h.Resting, More: h.More, Names: make([]dispatch.Attempt, 0, len(h.Running))}
	if m != nil {
		n.known, n.rest, report.Slots = true, m.request, cmp.Or(h.Slots, m.info.Slots)
		report.Away = report.Away || m.request == bus.RestDrain
	}
	if h.Away { // and still one of the app's workers
		report.Slots, report.Strays = 1, 1
	}
	for _, held := range h.Running {
		a := dispatch.Attempt{Run: dispatch.Run{Tenant: from.Tenant, ID: held.ID}, N: held.Attempt}
		k := b.find(a)
		if k == nil || k.Worker().Name != h.Worker {
			report.Names = append(report.Names, a) // to be stopped, or looked up
			continue
		}
		if from.App != "" && k.app != from.App { // another app's worker of the same name has it
			n.stop = append(n.stop, bus.Stop{ID: a.ID, Attempt: a.N, Stale: true})
			continue
		}
		report.Names = append(report.Names, a)
		if k.stuck = held.Stuck; held.Progress != nil {
			k.progress = held.Progress
		}
		if k.over != nil {
			n.stop = append(n.stop, *k.over)
		}
		if run := k.confirm(now); run != nil {
			n.begun = append(n.begun, run)
		}
	}
	var acts dispatch.Acts
	b.Heartbeat(report, now, &acts)
	b.wakeCancels()
	for _, a := range acts.Stop {
		n.stop = append(n.stop, bus.Stop{ID: a.ID, Attempt: a.N, Stale: true})
	}
	n.unknown = acts.Unknown
	b.repeated += uint64(len(acts.Push))
	n.deliveries = b.deliveries(acts.Push)
	if m != nil && h.Leaving {
		b.dismiss(report.Worker)
	}
	return n, nil
}

// judge looks up an attempt that the leader does not know. It reports whether the worker is to stop it.
func (cp *ControlPlane) judge(ctx context.Context, from bus.Principal, worker string, a dispatch.Attempt) (stop bool) {
	run, err := cp.cfg.Store.Run(ctx, from.Tenant, a.ID)
	switch {
	case err != nil && jobs.CodeOf(err) != jobs.NotFound:
		return false // nothing is known: let it run
	case err != nil, run.Worker != worker, run.Attempt != a.N, from.App != "" && run.App != from.App:
		return true
	case run.State == jobs.Processing || run.Lingering:
		b := &cp.board
		b.mu.Lock()
		defer b.mu.Unlock()
		b.follow(run, b.Load(run, b.now()), b.now())
	}
	return false // or it has just ended, by the worker's own report
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
			p.Text = plain.Short(p.Text, mostWords)
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
		i.Tags[n] = plain.Short(i.Tags[n], mostWords)
	}
	for k, why := range i.Faults {
		if k.Check() != nil || len(i.Faults) > bus.MostJobs {
			return kernel.Invalid("worker %s: unserved job %.40q: invalid key, or too many of them", i.Name, k)
		}
		i.Faults[k] = plain.Short(why, mostWords)
	}
	i.Label, i.Host, i.Version = plain.Short(i.Label, mostWords), plain.Short(i.Host, mostWords), plain.Short(i.Version, mostWords)
	return kernel.CheckName("app", i.App)
}
