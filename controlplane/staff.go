package controlplane

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/dispatch"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// The workers, as their heartbeats report.

// member is a live worker.
type member struct {
	of      string // the name that its starts share
	info    bus.WorkerInfo
	seen    time.Time
	running int
	pending int // runs listed by the parts of a heartbeat so far
	leaving bool
	resting bool     // it was asked to take nothing new
	request bus.Rest // sent until it reports that it does so; "" = it does
}

// attend records that a worker lives, and returns it, or nil if who it is is unknown. It fails if there are too many of
// its name. The lock is held.
func (b *board) attend(from bus.Principal, h *bus.Heartbeat, now dispatch.Stamp) (*member, error) {
	w := dispatch.Worker{Tenant: from.Tenant, Name: h.Worker}
	m := b.members[w]
	if h.Info != nil {
		if m == nil {
			if err := b.admit(from.Tenant); err != nil {
				return nil, err
			}
			if b.starts(from, h.Info.App) >= mostStarts {
				return nil, kernel.Exhausted(kernel.BoundWorkerName, "%d workers of the name %s are at work: give others another name", mostStarts, from.Name)
			}
			m = &member{of: from.Name}
			b.members[w] = m
		}
		m.info = *h.Info
		b.Join(m.info)
	}
	if m == nil || from.App != "" && m.info.App != from.App {
		return nil, nil
	}
	m.seen = time.Now()
	switch {
	case m.request != "" && h.Resting == (m.request == bus.RestDrain):
		m.request = ""
	case m.request == "":
		m.resting = h.Resting
	}
	if m.pending += len(h.Running); !h.More {
		m.running, m.pending = m.pending, 0
	}
	m.leaving = h.Draining || h.Leaving
	return m, nil
}

// starts returns how many workers of an app have a principal's name.
func (b *board) starts(from bus.Principal, app string) (n int) {
	for w, m := range b.members {
		if w.Tenant == from.Tenant && m.of == from.Name && m.info.App == app {
			n++
		}
	}
	return n
}

// dismiss forgets a worker. Its attempts stay its own until their leases expire. The lock is held.
func (b *board) dismiss(w dispatch.Worker) {
	delete(b.members, w)
	b.Leave(w)
}

// vacate forgets the workers of a tenant that is being deleted: they introduce themselves again and are refused, so that
// they are not workers of the next tenant of its name. The lock is held.
func (b *board) vacate(tenant jobs.Tenant) {
	for w := range b.members {
		if w.Tenant == tenant {
			b.dismiss(w)
		}
	}
}

// silent forgets workers that no longer send heartbeats. For a lease after this process stood still there are none: it
// has not read their heartbeats meanwhile.
func (b *board) silent() (lost []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if b.thawed > 0 && now-b.thawed <= b.lease {
		return nil
	}
	for _, w := range b.Silent(now) {
		b.dismiss(w)
		lost = append(lost, w.Name)
	}
	return lost
}

// thaw records that this process stood still.
func (b *board) thaw() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.thawed = b.now()
}

// allKnown reports whether all workers that live are known.
func (b *board) allKnown() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.AllKnown(b.now())
}

// Backlog is the runs of an app that wait for a worker's slot and for nothing else.
type Backlog struct {
	Tenant jobs.Tenant
	App    string
	Runs   int
	Age    time.Duration // how long the oldest has waited for that
}

// Backlog lists the apps that have a backlog; none if this process does not lead.
func (cp *ControlPlane) Backlog(ctx context.Context) ([]Backlog, error) {
	if term, _ := cp.Leading(); term == 0 {
		return nil, nil
	}
	all, err := cp.cfg.Store.Backlog(ctx)
	if err != nil {
		return nil, err
	}
	now := cp.cfg.Clock.Now()
	list := make([]Backlog, len(all))
	for i, b := range all {
		list[i] = Backlog{b.Tenant, b.App, b.Ready, max(0, now.Sub(b.Since))}
	}
	return list, nil
}

// Member is a live worker, as the leader sees it.
type Member struct {
	bus.WorkerInfo
	Seen    time.Time
	Running int
	Leaving bool
	Drained bool // it was asked to take nothing new
}

// Workers lists the live workers of a tenant ("*" = of all), by app and name.
func (cp *ControlPlane) Workers(tenant jobs.Tenant) []Member {
	b := &cp.board
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []Member
	for w, m := range b.members {
		if tenant == "*" || w.Tenant == tenant {
			list = append(list, Member{WorkerInfo: m.info, Seen: m.seen, Running: m.running, Leaving: m.leaving, Drained: m.resting})
		}
	}
	slices.SortFunc(list, func(x, y Member) int {
		return cmp.Or(cmp.Compare(x.Tenant, y.Tenant), cmp.Compare(x.App, y.App), cmp.Compare(x.Name, y.Name))
	})
	return list
}
