package controlplane

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/controlplane/assign"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// This file chooses the worker of a run whose place is not "any", or whose job only some workers have. What it
// remembers (whose turn it is, which worker got how many) is the leader's memory, and begins anew with another leader:
// it makes loads even, and correctness does not depend on it.

// settling is how long a new leader waits before it knows which workers there are: they answer its call within that.
const settling = 2 * time.Second

// dayOf is how long runs count for least_frequent.
const dayOf = 24 * time.Hour

// mostParked is how many runs of an app without a worker the leader remembers. More stay in the store, for the sweep.
const mostParked = 20_000

// turns is the leader's memory of a job's routing.
type turns struct {
	last   rank             // round_robin: who was the last
	used   map[string]int64 // least_recent: when, as a count of picks
	given  map[string]int   // least_frequent: how many since begun
	picks  int64
	begun  time.Time
	latest time.Time
}

// rank is a worker's position among the others of its app: by its configured name first, so that it has its place again
// after a start.
type rank struct {
	label   string
	started time.Time
	name    string
}

func (r rank) compare(o rank) int {
	return cmp.Or(cmp.Compare(r.label, o.label), r.started.Compare(o.started), cmp.Compare(r.name, o.name))
}

func (m *member) rank() rank { return rank{m.info.Label, m.info.Started, m.info.Name} }

// off reports whether a worker gets nothing new.
func (m *member) off() bool { return m.leaving || m.resting }

// may reports whether a worker may be offered a run, with room or without.
func (m *member) may(o *outstanding) bool {
	return !m.off() && !m.mute && m.info.Lacks(o.offer.HandlerKey(), o.work, o.place) == ""
}

// room returns how many more runs of a job fit on a worker.
func (r *router) room(m *member, key jobs.Key, p *kernel.Place) int {
	all, same := r.loads(m.info.Name, key)
	n := m.info.Slots
	if n <= 0 {
		n = unlimitedSlots
	}
	if m.full {
		return 0
	}
	n -= all + m.personal
	if p != nil {
		if p.Slots > 0 {
			n = min(n, p.Slots-same-m.offered[key])
		}
		if p.Route == jobs.RouteIdle && same+m.offered[key] > 0 {
			return 0
		}
	}
	return n
}

// choose returns the worker that a run is offered to now, or nil.
func (r *router) choose(a *app, o *outstanding, now time.Time) *member {
	r.chose = true
	key, p := o.offer.Key, o.place
	var able []*member
	for _, m := range a.order {
		if m.may(o) {
			able = append(able, m)
		}
	}
	able = byName(able, o.offer.HandlerKey())
	route := jobs.RouteAny
	if p != nil {
		route = p.Route
		if able = pinned(able, p); able == nil {
			return nil
		}
	}
	switch route {
	case jobs.RouteHash:
		able = highest(able, p.Hash)
	case jobs.RouteFailover:
		able = able[:min(1, len(able))]
	}
	free := slices.DeleteFunc(able, func(m *member) bool { return r.room(m, key, p) <= 0 })
	if len(free) == 0 {
		return nil
	}
	t := a.turn(key, route, now)
	m := free[0]
	switch route {
	case jobs.RouteLast:
		m = free[len(free)-1]
	case jobs.RouteRandom:
		m = free[rand.IntN(len(free))]
	case jobs.RouteRoundRobin:
		if i := slices.IndexFunc(free, func(m *member) bool { return m.rank().compare(t.last) > 0 }); i > 0 {
			m = free[i]
		}
	case jobs.RouteLeastRecent:
		m = slices.MinFunc(free, func(x, y *member) int { return cmp.Compare(t.used[x.info.Name], t.used[y.info.Name]) })
	case jobs.RouteLeastFrequent:
		m = slices.MinFunc(free, func(x, y *member) int { return cmp.Compare(t.given[x.info.Name], t.given[y.info.Name]) })
	case jobs.RouteAny, jobs.RouteBroadcast:
		m = slices.MaxFunc(free, func(x, y *member) int {
			return cmp.Compare(r.room(x, key, p), r.room(y, key, p))
		})
	}
	if t != nil {
		t.picks++
		t.last, t.used[m.info.Name] = m.rank(), t.picks
		t.given[m.info.Name]++
	}
	return m
}

// byName leaves those that have a handler by its name, if there are any: workers for all jobs come after them.
func byName(able []*member, handler jobs.Key) []*member {
	lacks := func(m *member) bool { _, has := m.info.Keys[handler]; return !has }
	if !slices.ContainsFunc(able, lacks) {
		return able
	}
	if named := slices.DeleteFunc(slices.Clone(able), lacks); len(named) > 0 {
		return named
	}
	return able
}

// pinned leaves those that a run names, if it names one; nil = it waits for that one.
func pinned(able []*member, p *kernel.Place) []*member {
	if p.Pin == "" {
		return able
	}
	var meant []*member
	for _, m := range able {
		if m.info.Name == p.Pin || m.info.Label == p.Pin {
			meant = append(meant, m)
		}
	}
	if meant == nil && p.PinAway == jobs.PinAny {
		return able
	}
	return meant
}

// highest returns the worker with the highest hash of its name and the text: when one comes or goes, only what is its
// own moves (rendezvous hashing).
func highest(able []*member, text string) []*member {
	if len(able) == 0 {
		return nil
	}
	best := slices.MaxFunc(able, func(x, y *member) int {
		return cmp.Or(cmp.Compare(assign.Weight(x.info.Label, text), assign.Weight(y.info.Label, text)), cmp.Compare(assign.Weight(x.info.Name, text), assign.Weight(y.info.Name, text)))
	})
	return []*member{best}
}

// turn returns the memory of a job's routing; nil if its route needs none.
func (a *app) turn(key jobs.Key, route jobs.Route, now time.Time) *turns {
	switch route {
	case jobs.RouteRoundRobin, jobs.RouteLeastRecent, jobs.RouteLeastFrequent:
	default:
		return nil
	}
	t := a.turns[key]
	if t == nil {
		t = &turns{used: map[string]int64{}, given: map[string]int{}, begun: now}
		a.turns[key] = t
	}
	if now.Sub(t.begun) >= dayOf {
		clear(t.given)
		t.begun = now
	}
	t.latest = now
	return t
}

// forgetTurns drops what is remembered of workers that are gone, and of jobs without runs for a day.
func (a *app) forgetTurns(now time.Time) {
	for key, t := range a.turns {
		if now.Sub(t.latest) > dayOf {
			delete(a.turns, key)
			continue
		}
		for name := range t.used {
			if a.workers[name] == nil {
				delete(t.used, name)
				delete(t.given, name)
			}
		}
	}
}

// class is the common key of runs that wait for the same worker.
func class(o *outstanding) string {
	p := o.place
	if p == nil {
		return string(o.offer.Key) + "\x00" + string(o.offer.HandlerKey())
	}
	return strings.Join([]string{string(o.offer.Key), string(o.offer.HandlerKey()), string(p.Route), p.Hash, p.Pin, string(p.PinAway), strconv.Itoa(p.Version), strconv.Itoa(p.Slots),
		strconv.FormatBool(p.Unexpanded()), strings.Join(p.Needs, "\x01")}, "\x00")
}

// park puts a run aside for which there is no worker now, and reports whether there is room for it.
func (a *app) park(o *outstanding, in string) bool {
	delete(a.out, o.offer.ID)
	if len(a.parked) >= mostParked {
		return false
	}
	o.to = ""
	a.parked[o.offer.ID] = o
	a.queues[in] = append(a.queues[in], o)
	return true
}

// unpark forgets a run that was put aside. In its queue it stays until it comes to the front, or until there are more
// such gaps than runs.
func (a *app) unpark(id jobs.ID) {
	if a.parked[id] == nil {
		return
	}
	delete(a.parked, id)
	a.gaps++
	a.stir = true
}

// stirred tries parked runs again: in the order in which they came, as many of each class as find a worker.
func (r *router) stirred(a *app, now time.Time) (found []*outstanding) {
	a.stir = false
	if a.gaps > len(a.parked) {
		for c, queue := range a.queues {
			if a.queues[c] = slices.DeleteFunc(queue, func(o *outstanding) bool { return a.parked[o.offer.ID] != o }); len(a.queues[c]) == 0 {
				delete(a.queues, c)
			}
		}
		a.gaps = 0
	}
	for _, c := range slices.SortedFunc(keysOf(a.queues), func(x, y string) int {
		return cmp.Or(a.queues[x][0].at.Compare(a.queues[y][0].at), cmp.Compare(x, y))
	}) {
		queue := a.queues[c]
		for len(queue) > 0 {
			o := queue[0]
			if a.parked[o.offer.ID] == o {
				if !r.place(a, o, now) {
					break
				}
				delete(a.parked, o.offer.ID)
				a.out[o.offer.ID] = o
				o.at = now
				found = append(found, o)
			}
			queue = queue[1:]
		}
		if a.queues[c] = queue; len(queue) == 0 {
			delete(a.queues, c)
		}
	}
	return found
}

func keysOf[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// place finds the worker of an offer, or records that its run is to expand. It reports whether there is one.
func (r *router) place(a *app, o *outstanding, now time.Time) bool {
	if o.place.Unexpanded() {
		if now.Sub(r.since) < settling {
			return false
		}
		o.to = allWorkers
		r.expand = append(r.expand, expansion{a.lane.Tenant, kernel.Expand{ID: o.offer.ID, Workers: a.all(o)}})
		return true
	}
	m := r.choose(a, o, now)
	if m == nil {
		return false
	}
	o.to = m.info.Name
	m.personal++
	m.offered[o.offer.Key]++
	return true
}

// alone ends a broadcast of an app without workers, once that is certain.
func (r *router) alone(a *app, run *kernel.Run, now time.Time) {
	if a.backlog = true; now.Sub(r.since) < settling || a.out[run.ID] != nil {
		return
	}
	o := offered(run, now)
	a.out[run.ID] = o
	r.place(a, o, now)
}

// deserted lists apps that have runs to claim and no worker that takes any.
func (r *router) deserted(lanes []metastore.Lane) (list []metastore.Lane) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range lanes {
		if r.app(bus.Lane{Tenant: l.Tenant, App: l.App}).window == 0 {
			list = append(list, l)
		}
	}
	return list
}

// lonely looks for broadcasts among the first runs of an app without workers.
func (r *router) lonely(l metastore.Lane, ready []*kernel.Run, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.app(bus.Lane{Tenant: l.Tenant, App: l.App})
	for _, run := range ready {
		if a.window == 0 && run.Place.Unexpanded() {
			r.alone(a, run, now)
		}
	}
}

// allWorkers is in the place of a worker's name while a broadcast is being expanded.
const allWorkers = "*"

// expansion is a broadcast that is to become one run for each worker.
type expansion struct {
	tenant  jobs.Tenant
	command kernel.Expand
}

// all returns the workers that a broadcast goes to, in their order.
func (a *app) all(o *outstanding) (names []string) {
	p := o.place
	for _, m := range a.order {
		if m.may(o) && len(names) < kernel.MaxParts && (p.Pin == "" || m.info.Name == p.Pin || m.info.Label == p.Pin) {
			names = append(names, m.info.Name)
		}
	}
	return names
}

// load is what a worker has under way, according to the store.
type load struct {
	n    int
	keys map[jobs.Key]int
}

// loadOf returns how many runs a worker has under way, and how many of them are a job's. Counting begins with the first
// call: most apps never need it.
func (l *leases) loadOf(worker string, key jobs.Key) (all, same int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loads == nil {
		l.loads = map[string]*load{}
		for _, k := range l.held {
			l.count(k, 1)
		}
	}
	if found := l.loads[worker]; found != nil {
		return found.n, found.keys[key]
	}
	return 0, 0
}

// uncounted ends the counting, if no worker has been chosen since this was called last.
func (cp *ControlPlane) uncounted() {
	cp.router.mu.Lock()
	defer cp.router.mu.Unlock()
	if !cp.router.chose {
		cp.leases.mu.Lock()
		cp.leases.loads = nil
		cp.leases.mu.Unlock()
	}
	cp.router.chose = false
}

// count adds an attempt to its worker's load, or takes it away. The lock is held.
func (l *leases) count(k *lease, by int) {
	if l.loads == nil {
		return
	}
	at := l.loads[k.worker]
	if at == nil {
		at = &load{keys: map[jobs.Key]int{}}
		l.loads[k.worker] = at
	}
	if at.n += by; at.n <= 0 {
		delete(l.loads, k.worker)
	}
	if at.keys[k.key] += by; at.keys[k.key] <= 0 {
		delete(at.keys, k.key)
	}
}

// settle retries what waited for the workers of a new term to be known.
func (r *router) settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.apps {
		a.stir = true
	}
	poke(r.changed)
}

// unmute allows offers to a worker again that did not take some: it has sent a heartbeat.
func (m *member) unmute() { m.mute, m.full = false, false }
