package assign

import (
	"cmp"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/dispatch"
	"github.com/carillon-scheduler/carillon/jobs"
)

// member is a worker: a live one of an app, or one that only holds attempts (app is nil).
type member struct {
	id    dispatch.Worker
	seat  *dispatch.Seat
	app   *app
	info  bus.WorkerInfo
	off   bool             // it takes nothing new
	runs  map[jobs.Key]int // attempts that it has, by job
	waits map[*class]struct{}
}

// place is a worker's position among the others of its app: by its configured name first, so that it has its place
// again after a start.
type place struct {
	label   string
	started time.Time
	name    string
}

func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(p.label, o.label), p.started.Compare(o.started), cmp.Compare(p.name, o.name))
}

func (m *member) place() place { return place{m.info.Label, m.info.Started, m.info.Name} }

func (m *member) count(key jobs.Key, by int) {
	if m.runs[key] += by; m.runs[key] <= 0 {
		delete(m.runs, key)
	}
}

func (b *Board) member(tenant jobs.Tenant, name string) *member {
	id := dispatch.Worker{Tenant: tenant, Name: name}
	m := b.workers[id]
	if m == nil {
		m = &member{id: id, seat: b.sender.Seat(id), runs: map[jobs.Key]int{}, waits: map[*class]struct{}{}}
		b.workers[id] = m
	}
	return m
}

// Join records who a worker is. Heartbeats of workers that have not joined give no credit.
func (b *Board) Join(info bus.WorkerInfo) {
	m := b.member(info.Tenant, info.Name)
	a := b.app(App{info.Tenant, info.App})
	if m.app != nil && m.app != a {
		m.app.leave(m)
	}
	m.info = info
	if m.app = a; !slices.Contains(a.order, m) {
		a.order = append(a.order, m)
	}
	a.measure()
	a.more = true
}

// Leave forgets a worker. Its attempts stay its own until their leases expire.
func (b *Board) Leave(w dispatch.Worker) {
	m := b.workers[w]
	if m == nil || m.app == nil {
		return
	}
	a := m.app
	a.leave(m)
	m.app = nil
	if b.sender.Leave(w) {
		delete(b.workers, w)
	}
	if len(a.order) == 0 {
		a.clear()
	}
}

// Known reports whether a worker has joined.
func (b *Board) Known(w dispatch.Worker) bool { m := b.workers[w]; return m != nil && m.app != nil }

// Heartbeat handles what a worker reports: see dispatch.Sender.Heartbeat.
func (b *Board) Heartbeat(h dispatch.Heartbeat, now dispatch.Stamp, acts *dispatch.Acts) {
	b.sender.Heartbeat(h, now, acts)
	m := b.workers[h.Worker]
	if m == nil || m.app == nil {
		return
	}
	if m.off != h.Away {
		m.off = h.Away
		m.app.measure()
	}
	b.freed(m)
}

// Rest has a worker take nothing new from now on: it was asked to, and its next heartbeats say so.
func (b *Board) Rest(w dispatch.Worker) {
	m := b.workers[w]
	if m == nil || m.app == nil {
		return
	}
	b.sender.Rest(w)
	m.off = true
	m.app.measure()
}

// Fleet returns a number that changes when the workers do, or what they have.
func (b *Board) Fleet() (n uint64) {
	for _, a := range b.apps {
		n += a.fleet
	}
	return n
}

// Silent lists the workers whose last heartbeat is older than a lease.
func (b *Board) Silent(now dispatch.Stamp) (list []dispatch.Worker) {
	for w, m := range b.workers {
		if m.app != nil && m.seat.Silent(now) {
			list = append(list, w)
		}
	}
	return list
}

// Sweep forgets what is remembered of jobs without runs for a day and of workers without attempts, and apps without
// workers.
func (b *Board) Sweep(now dispatch.Stamp) {
	for _, a := range b.apps {
		a.forgetRouting(now)
		if len(a.order)+len(a.all)+len(a.spread) == 0 {
			b.drop(a)
		}
	}
	for w, m := range b.workers {
		if m.app == nil && b.sender.Leave(w) {
			delete(b.workers, w)
		}
	}
}

func (a *app) leave(m *member) {
	a.order = slices.DeleteFunc(a.order, func(o *member) bool { return o == m })
	clear(m.waits) // measure makes the classes anew, and clears those of the workers that stay
	a.measure()
}

// measure computes anew what depends on who the workers are.
func (a *app) measure() {
	a.fleet++
	slices.SortFunc(a.order, func(x, y *member) int { return x.place().compare(y.place()) })
	served := map[jobs.Key]int{}
	a.live, a.any = 0, map[string]int{}
	for _, m := range a.order {
		clear(m.waits)
		if m.off {
			continue
		}
		a.live++
		for k := range m.info.Keys {
			served[k]++
		}
		if m.info.Any {
			a.any[m.info.Only]++
		}
	}
	clear(a.shared)
	for k, n := range served {
		a.shared[k] = n == a.live
	}
	clear(a.classes)
	a.active, a.paused = nil, 0
	if len(a.cuts) > 0 {
		a.again()
	}
	for _, r := range a.all {
		a.join(r)
	}
}
