package assign

import (
	"cmp"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/dispatch"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// This file chooses the worker of a run.

// dayOf is how long runs count for least_frequent.
const dayOf = 24 * time.Hour

// routing is the leader's memory of a job's route.
type routing struct {
	last   place            // round_robin: who was the last
	used   map[string]int64 // least_recent: when, as a count of picks
	given  map[string]int   // least_frequent: how many since begun
	picks  int64
	begun  dispatch.Stamp
	latest dispatch.Stamp
}

// capable returns the workers that have what the runs of a class need, with room or without, by rank.
func (a *app) capable(c *class) []*member {
	if c.fleet == a.fleet {
		return c.able
	}
	r := c.runs[0]
	c.fleet, c.able = a.fleet, nil
	for _, m := range a.order {
		if !m.off && m.info.Lacks(r.queue.Handler, r.queue.Work, r.place) == "" {
			c.able = append(c.able, m)
		}
	}
	return c.able
}

// choose returns the worker that the first run of a class starts on now, or nil.
func (b *Board) choose(a *app, c *class, r *ready, now dispatch.Stamp) *member {
	able := a.capable(c)
	if p := r.place; p != nil {
		return b.chooseBy(a, able, r, p, now)
	}
	var best freest
	for _, m := range able { // without a copy: most runs come here
		best.look(m, r.queue.Handler, now)
	}
	return best.member
}

// freest finds the worker with the most free slots. Workers for all jobs come after those that have the job by name.
type freest struct {
	*member
	credit int
	byName bool
}

// look compares one more worker that has the code of a job.
func (f *freest) look(m *member, handler jobs.Key, now dispatch.Stamp) {
	if !m.seat.Reachable(now) {
		return
	}
	_, named := m.info.Keys[handler]
	if f.byName && !named {
		return
	}
	if named && !f.byName {
		*f = freest{byName: true}
	}
	if n := m.seat.Credit(now); n > f.credit {
		f.member, f.credit = m, n
	}
}

// chooseBy chooses by a run's place.
func (b *Board) chooseBy(a *app, able []*member, r *ready, p *kernel.Place, now dispatch.Stamp) *member {
	if !slices.ContainsFunc(able, func(m *member) bool { return room(m, r.key, p, now) > 0 }) {
		return nil // most often, and for the least effort
	}
	able = slices.DeleteFunc(slices.Clone(able), func(m *member) bool { return !m.seat.Reachable(now) })
	able = pinned(byName(able, r.queue.Handler), p)
	switch p.Route {
	case jobs.RouteHash:
		able = highest(able, p.Hash)
	case jobs.RouteFailover:
		able = able[:min(1, len(able))]
	}
	free := slices.DeleteFunc(able, func(m *member) bool { return room(m, r.key, p, now) <= 0 })
	if len(free) == 0 {
		return nil
	}
	t := a.routing(r.key, p.Route, now)
	m := free[0]
	switch p.Route {
	case jobs.RouteLast:
		m = free[len(free)-1]
	case jobs.RouteRandom:
		m = free[rand.IntN(len(free))]
	case jobs.RouteRoundRobin:
		if i := slices.IndexFunc(free, func(m *member) bool { return m.place().compare(t.last) > 0 }); i > 0 {
			m = free[i]
		}
	case jobs.RouteLeastRecent:
		m = slices.MinFunc(free, func(x, y *member) int { return cmp.Compare(t.used[x.info.Name], t.used[y.info.Name]) })
	case jobs.RouteLeastFrequent:
		m = slices.MinFunc(free, func(x, y *member) int { return cmp.Compare(t.given[x.info.Name], t.given[y.info.Name]) })
	case jobs.RouteAny, jobs.RouteBroadcast:
		m = slices.MaxFunc(free, func(x, y *member) int { return cmp.Compare(room(x, r.key, p, now), room(y, r.key, p, now)) })
	}
	if t != nil {
		t.picks++
		t.last, t.used[m.info.Name] = m.place(), t.picks
		t.given[m.info.Name]++
	}
	return m
}

// room returns how many more runs of a job a worker may be sent.
func room(m *member, key jobs.Key, p *kernel.Place, now dispatch.Stamp) int {
	n := m.seat.Credit(now)
	switch {
	case p.Route == jobs.RouteIdle && m.runs[key] > 0:
		return 0
	case p.Slots > 0:
		n = min(n, p.Slots-m.runs[key])
	}
	return n
}

// byName leaves those that have a handler by its name, if there are any: workers for all jobs come after them.
func byName(able []*member, handler jobs.Key) []*member {
	named := func(m *member) bool { _, has := m.info.Keys[handler]; return has }
	if !slices.ContainsFunc(able, named) {
		return able
	}
	return slices.DeleteFunc(able, func(m *member) bool { return !named(m) })
}

// pinned leaves those that a run names, if it names one.
func pinned(able []*member, p *kernel.Place) []*member {
	if p.Pin == "" {
		return able
	}
	var meant []*member
	for _, m := range able {
		if isPinned(m, p) {
			meant = append(meant, m)
		}
	}
	if meant == nil && p.PinAway == jobs.PinAny {
		return able
	}
	return meant
}

func isPinned(m *member, p *kernel.Place) bool { return m.info.Name == p.Pin || m.info.Label == p.Pin }

// highest returns the worker with the highest hash of its name and the text: when one comes or goes, only what is its
// own moves (rendezvous hashing).
func highest(able []*member, text string) []*member {
	if len(able) == 0 {
		return nil
	}
	best := slices.MaxFunc(able, func(x, y *member) int {
		return cmp.Or(cmp.Compare(Weight(x.info.Label, text), Weight(y.info.Label, text)), cmp.Compare(Weight(x.info.Name, text), Weight(y.info.Name, text)))
	})
	return []*member{best}
}

// Weight returns the hash of a name and a text by which one of several names is chosen (rendezvous hashing).
func Weight(name, text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(text))
	// The last bytes of an FNV hash move its high bits too little: names that end alike would stay in one order.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// routing returns the memory of a job's route; nil if its route needs none.
func (a *app) routing(key jobs.Key, route jobs.Route, now dispatch.Stamp) *routing {
	switch route {
	case jobs.RouteRoundRobin, jobs.RouteLeastRecent, jobs.RouteLeastFrequent:
	default:
		return nil
	}
	t := a.memory[key]
	if t == nil {
		t = &routing{used: map[string]int64{}, given: map[string]int{}, begun: now}
		a.memory[key] = t
	}
	if now-t.begun >= dayOf {
		clear(t.given)
		t.begun = now
	}
	t.latest = now
	return t
}

// forgetRouting drops what is remembered of workers that have left, and of jobs without runs for a day.
func (a *app) forgetRouting(now dispatch.Stamp) {
	for key, t := range a.memory {
		if now-t.latest > dayOf {
			delete(a.memory, key)
			continue
		}
		for name := range t.used {
			if !slices.ContainsFunc(a.order, func(m *member) bool { return m.info.Name == name }) {
				delete(t.used, name)
				delete(t.given, name)
			}
		}
	}
}

// all returns the workers that a broadcast goes to, by rank.
func (b *Board) all(a *app, run *kernel.Run) (names []string) {
	for _, m := range a.order {
		if !m.off && m.info.Lacks(run.HandlerKey(), run.Work, run.Place) == "" && len(names) < kernel.MaxParts &&
			(run.Place.Pin == "" || isPinned(m, run.Place)) {
			names = append(names, m.info.Name)
		}
	}
	return names
}
