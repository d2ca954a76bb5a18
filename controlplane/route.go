package controlplane

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
)

// router knows which workers live, and decides which run is offered where. Each app has a window: only so many
// offers are out at once, so that a million waiting runs do not become a million messages, and so that what goes
// first can still be chosen by priority. What does not fit is read from the store when there is room.
type router struct {
	mu       sync.Mutex
	leading  bool
	queue    string // the shared queue of this term, or "" while there is none
	patience time.Duration
	lease    time.Duration
	apps     map[bus.Lane]*app
	changed  chan struct{} // wakes publish
}

// app is a worker group.
type app struct {
	lane    bus.Lane
	workers map[string]*member
	out     map[jobs.ID]*outstanding
	fresh   []*outstanding // to be published
	backlog bool           // the store has more that is ready than is out
	turned  uint64         // counts runs that were left to the backlog
	window  int
	list    int // offers in a message
	shared  map[jobs.Key]bool
	made    string // the queue in which the app's lane has been made
}

// member is a live worker.
type member struct {
	info     bus.WorkerInfo
	seen     time.Time
	running  int
	pending  int // runs listed by the parts of a beat so far
	leaving  bool
	personal int // offers handed to its personal lane that are still out
}

// outstanding is an offer that has neither been claimed nor given up.
type outstanding struct {
	offer bus.Offer
	at    time.Time
	to    string // the worker it was handed to; "" = the shared lane
}

// The window of an app: twice its slots, within bounds. A worker without a limit counts for so many slots.
const (
	leastWindow    = 64
	mostWindow     = 4096
	unlimitedSlots = 2048
)

func (r *router) init(patience, lease time.Duration) {
	r.patience, r.lease, r.changed = patience, lease, make(chan struct{}, 1)
	r.apps = map[bus.Lane]*app{}
}

// lead forgets what was known in another term.
func (r *router) lead(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leading, r.queue, r.apps = on, "", map[bus.Lane]*app{}
}

func (r *router) app(lane bus.Lane) *app {
	lane.Worker = ""
	a := r.apps[lane]
	if a == nil {
		a = &app{lane: lane, workers: map[string]*member{}, out: map[jobs.ID]*outstanding{}, shared: map[jobs.Key]bool{}, backlog: true}
		r.apps[lane] = a
	}
	return a
}

// note follows a run as a commit left it: one that can be claimed is offered if there is room, one that was claimed
// makes room. The lock is held.
func (r *router) note(in *jobs.Instance, now time.Time) {
	a := r.app(bus.Lane{Tenant: in.Tenant, App: in.App})
	o := a.out[in.ID]
	if !in.Offerable() {
		if o != nil {
			a.gone(in.ID)
		}
		return
	}
	switch {
	case o != nil && o.offer.Attempt == in.Next():
	case a.backlog || len(a.out) >= a.window:
		if o != nil {
			a.gone(in.ID)
		}
		a.backlog = true
		a.turned++
	default:
		if o != nil {
			a.gone(in.ID)
		}
		a.offer(in, now)
	}
}

// offer adds a run to what is to be published.
func (a *app) offer(in *jobs.Instance, now time.Time) {
	o := &outstanding{offer: bus.Offer{ID: in.ID, Attempt: in.Next(), Key: in.Key}, at: now}
	a.out[in.ID] = o
	a.fresh = append(a.fresh, o)
}

func (a *app) gone(id jobs.ID) {
	if o := a.out[id]; o != nil {
		if m := a.workers[o.to]; m != nil {
			m.personal--
		}
		delete(a.out, id)
	}
}

// room is how many more offers fit, once half of the window is free: reading the store again for each claim would
// be waste.
func (a *app) room() int {
	free := a.window - len(a.out)
	if free < a.window/2 {
		return 0
	}
	return free
}

// beat notes that a worker lives. It answers whether the worker is known.
func (r *router) beat(from bus.Principal, b bus.Beat, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.Info != nil {
		info := *b.Info
		a := r.app(bus.Lane{Tenant: from.Tenant, App: info.App})
		m := a.workers[b.Worker]
		if m == nil {
			m = &member{}
			a.workers[b.Worker] = m
		}
		m.info = info
		a.measure()
		a.backlog = true
	}
	for _, a := range r.apps {
		m := a.workers[b.Worker]
		if m == nil || a.lane.Tenant != from.Tenant {
			continue
		}
		m.seen = now
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
		return true
	}
	return false
}

// drop forgets a worker; what only it was offered is offered again.
func (r *router) drop(a *app, name string) {
	delete(a.workers, name)
	for id, o := range a.out {
		if o.to == name {
			delete(a.out, id)
			a.backlog = true
		}
	}
}

// expire forgets workers that no longer beat.
func (r *router) expire(now time.Time) (lost []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.apps {
		for name, m := range a.workers {
			if now.Sub(m.seen) > r.lease {
				r.drop(a, name)
				lost = append(lost, name)
				a.measure()
			}
		}
	}
	return lost
}

// measure computes the window, the length of lists and the keys of the shared lane anew.
func (a *app) measure() {
	slots, least := 0, unlimitedSlots
	served := map[jobs.Key]int{}
	live := 0
	for _, m := range a.workers {
		if m.leaving {
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
	}
	a.window, a.list = 0, 1
	if live > 0 {
		a.window = min(max(2*slots, leastWindow), mostWindow)
		a.list = max(1, min(bus.MaxList, least/4))
	}
	clear(a.shared)
	for k, n := range served {
		a.shared[k] = n == live
	}
}

// busy says that all slots of an app are taken, as far as its beats tell.
func (a *app) busy() bool {
	for _, m := range a.workers {
		if !m.leaving && (m.info.Slots <= 0 || m.running < m.info.Slots) {
			return false
		}
	}
	return true
}

// unmade lists the apps whose lane is not there yet in the queue of this term: it is made before the first offer.
func (r *router) unmade() (queue string, lanes []bus.Lane) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for lane, a := range r.apps {
		if r.queue != "" && a.made != r.queue && len(a.workers) > 0 {
			a.made = r.queue
			lanes = append(lanes, lane)
		}
	}
	return r.queue, lanes
}

// shipment is what one call of the bus carries.
type shipment struct {
	lane  bus.Lane
	lists [][]bus.Offer
}

// ship takes what is to be published, in lists: the shared lane for keys that every worker of the app serves, else
// the personal lane of the least loaded one that serves the key.
func (r *router) ship() (queue string, out []shipment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.apps {
		if len(a.fresh) == 0 {
			continue
		}
		to := map[string]*shipment{}
		for _, o := range a.fresh {
			if a.out[o.offer.ID] != o {
				continue // claimed or given up meanwhile
			}
			name := ""
			if r.queue == "" || !a.shared[o.offer.Key] {
				if name = a.pick(o.offer.Key); name == "" {
					delete(a.out, o.offer.ID)
					a.backlog = true // nobody serves it now; the sweep tries again
					continue
				}
				a.workers[name].personal++
			}
			o.to = name
			s := to[name]
			if s == nil {
				s = &shipment{lane: bus.Lane{Tenant: a.lane.Tenant, App: a.lane.App, Worker: name}}
				to[name] = s
			}
			n := len(s.lists)
			if n == 0 || len(s.lists[n-1]) >= a.list {
				s.lists = append(s.lists, make([]bus.Offer, 0, min(a.list, len(a.fresh))))
				n++
			}
			s.lists[n-1] = append(s.lists[n-1], o.offer)
		}
		a.fresh = a.fresh[:0]
		for _, s := range to {
			out = append(out, *s)
		}
	}
	return r.queue, out
}

// pick is the worker with most room among those that serve a key, or "".
func (a *app) pick(key jobs.Key) (name string) {
	best := 0
	for n, m := range a.workers {
		if _, serves := m.info.Keys[key]; !serves || m.leaving {
			continue
		}
		slots := m.info.Slots
		if slots <= 0 {
			slots = unlimitedSlots
		}
		room := slots - m.running - m.personal
		if name == "" || room > best || room == best && n < name {
			name, best = n, room
		}
	}
	return name
}

// failed gives up offers that could not be delivered.
func (r *router) failed(s shipment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.app(s.lane)
	for _, list := range s.lists {
		for _, o := range list {
			a.gone(o.ID)
		}
	}
	a.backlog = true
}

// back gives up offers that a worker returned.
func (r *router) back(tenant jobs.Tenant, app string, offers []bus.Offer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.apps[bus.Lane{Tenant: tenant, App: app}]
	if a == nil {
		return
	}
	for _, o := range offers {
		if k := a.out[o.ID]; k != nil && k.offer.Attempt == o.Attempt {
			a.gone(o.ID)
			a.backlog = true
		}
	}
}

// shortage is an app that has both room and a backlog.
type shortage struct {
	lane   bus.Lane
	want   int // rows to read of the store
	turned uint64
}

// short lists the shortages.
func (r *router) short() (list []shortage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for lane, a := range r.apps {
		if a.backlog && a.room() > 0 {
			list = append(list, shortage{lane, a.window, a.turned})
		}
	}
	return list
}

// fill offers what was read of an app's ready runs.
func (r *router) fill(s shortage, ready []*jobs.Instance, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.app(s.lane)
	// Whoever was turned away since the shortage was seen may be missing from what was read.
	all := len(ready) < s.want && a.turned == s.turned
	for _, in := range ready {
		if len(a.out) >= a.window {
			all = false
			break
		}
		if o := a.out[in.ID]; o != nil {
			if o.offer.Attempt == in.Next() {
				continue
			}
			a.gone(in.ID)
		}
		a.offer(in, now)
	}
	a.backlog = !all
}

// backlogged has apps looked up in the store that have something ready, whatever is known of them.
func (r *router) backlogged(tenant jobs.Tenant, name string, ready int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.app(bus.Lane{Tenant: tenant, App: name}); ready > len(a.out) {
		a.backlog = true
	}
}

// overdue lists offers that nobody has claimed for long, of apps that have a free slot.
func (r *router) overdue(now time.Time) (out []overdueOffer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for lane, a := range r.apps {
		if len(a.workers) == 0 {
			clear(a.out) // they wait for nobody; the first worker to come gets them anew
			a.backlog = true
			continue
		}
		if a.busy() {
			continue
		}
		for id, o := range a.out {
			if now.Sub(o.at) >= r.patience {
				out = append(out, overdueOffer{lane, id})
			}
		}
	}
	return out
}

type overdueOffer struct {
	lane bus.Lane
	id   jobs.ID
}

// retry looks at a row again whose offer is overdue: it is offered anew if it still can be claimed.
func (r *router) retry(o overdueOffer, in *jobs.Instance, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.app(o.lane)
	a.gone(o.id)
	if in != nil && in.Offerable() {
		a.offer(in, now)
	}
}

// again gives up all offers: the queue they were in is lost.
func (r *router) again(queue string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = queue
	for _, a := range r.apps {
		a.made, a.backlog = "", true
		for id, o := range a.out {
			if o.to == "" {
				delete(a.out, id)
			}
		}
	}
	poke(r.changed)
}

// Member is a live worker, as the leader sees it.
type Member struct {
	bus.WorkerInfo
	Seen    time.Time
	Running int
	Leaving bool
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
			list = append(list, Member{WorkerInfo: m.info, Seen: m.seen, Running: m.running, Leaving: m.leaving})
		}
	}
	slices.SortFunc(list, func(x, y Member) int {
		return cmp.Or(cmp.Compare(x.Tenant, y.Tenant), cmp.Compare(x.App, y.App), cmp.Compare(x.Name, y.Name))
	})
	return list
}
