package controlplane

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// The workers of an app, as their heartbeats report.

// heartbeat records that a worker lives. It returns whether the worker is known, or that there are too many of its
// name.
func (r *router) heartbeat(from bus.Principal, b bus.Heartbeat, now time.Time) (known bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.Info != nil {
		info := *b.Info
		a := r.app(bus.Lane{Tenant: from.Tenant, App: info.App})
		m := a.workers[b.Worker]
		if m == nil {
			if a.starts(from.Name) >= mostStarts {
				return false, kernel.Refuse(jobs.Exhausted, "%d workers of the name %s are at work: give others another name", mostStarts, from.Name)
			}
			m = &member{of: from.Name, offered: map[jobs.Key]int{}}
			a.workers[b.Worker] = m
		}
		m.info = info
		a.measure()
		a.backlog = true
	}
	for _, a := range r.apps {
		m := a.workers[b.Worker]
		if m == nil || a.lane.Tenant != from.Tenant || from.App != "" && a.lane.App != from.App {
			continue
		}
		m.seen = now
		if m.mute || m.full {
			m.unmute()
			a.stir = true
		}
		r.rested(a, m, b.Resting)
		m.pending += len(b.Running)
		if !b.More {
			m.running, m.pending = m.pending, 0
		}
		if b.Leaving || b.Draining != m.leaving {
			m.leaving = b.Draining || b.Leaving
			if b.Leaving {
				r.drop(a, b.Worker)
			}
			a.measure()
		}
		poke(r.changed)
		return true, nil
	}
	return false, nil
}

// starts returns how many workers of a name there are.
func (a *app) starts(name string) (n int) {
	for _, m := range a.workers {
		if m.of == name {
			n++
		}
	}
	return n
}

// drop forgets a worker; offers to it alone are made again.
func (r *router) drop(a *app, name string) {
	delete(a.workers, name)
	for id, o := range a.out {
		if o.to == name {
			delete(a.out, id)
			a.backlog = true
		}
	}
}

// spare has all workers count as alive now: this process stood still, and has not read their heartbeats meanwhile.
func (r *router) spare(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.apps {
		for _, m := range a.workers {
			m.seen = now
		}
	}
}

// expire forgets workers that no longer send heartbeats, and apps without workers and offers: ready runs bring them
// back.
func (r *router) expire(now time.Time) (lost []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for lane, a := range r.apps {
		for name, m := range a.workers {
			if now.Sub(m.seen) > r.lease {
				r.drop(a, name)
				lost = append(lost, name)
				a.measure()
			}
		}
		a.stir = a.stir || len(a.parked) > 0 // even if some were forgotten
		a.forgetTurns(now)
		if len(a.workers)+len(a.out)+len(a.fresh)+len(a.parked) == 0 {
			delete(r.apps, lane)
		}
	}
	return lost
}

// measure computes the window, the length of lists and the keys of the shared lane anew.
func (a *app) measure() {
	a.stir = true
	a.fleet++
	a.order = slices.SortedFunc(maps.Values(a.workers), func(x, y *member) int { return x.rank().compare(y.rank()) })
	slots, least := 0, unlimitedSlots
	served := map[jobs.Key]int{}
	live, any := 0, map[string]int{}
	for _, m := range a.workers {
		if m.off() {
			continue
		}
		live++
		n := m.info.Slots
		if n <= 0 {
			n = unlimitedSlots
		}
		slots += n
		least = min(least, n)
		for k := range m.info.Keys {
			served[k]++
		}
		if m.info.Any {
			any[m.info.Only]++
		}
	}
	a.window, a.list = 0, 1
	if live > 0 {
		a.window = min(max(2*slots, leastWindow), mostWindow)
		a.list = max(1, min(bus.MaxList, least/4))
	}
	a.live, a.any = live, any
	a.learn()
	clear(a.shared)
	for k, n := range served {
		a.shared[k] = n == live
	}
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
	r := &cp.router
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []Member
	for lane, a := range r.apps {
		if tenant != "*" && lane.Tenant != tenant {
			continue
		}
		for _, m := range a.workers {
			list = append(list, Member{WorkerInfo: m.info, Seen: m.seen, Running: m.running, Leaving: m.leaving, Drained: m.resting})
		}
	}
	slices.SortFunc(list, func(x, y Member) int {
		return cmp.Or(cmp.Compare(x.Tenant, y.Tenant), cmp.Compare(x.App, y.App), cmp.Compare(x.Name, y.Name))
	})
	return list
}
