package controlplane

import (
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// router knows which workers live, and decides which run is offered where. Each app has a window: only so many
// offers are out at once, so that a million waiting runs do not become a million messages, and so that what goes
// first can still be chosen by priority. What does not fit is read from the store when there is room.
type router struct {
	mu       sync.Mutex
	leading  bool
	queue    string // the shared queue of this term, or "" until it is made
	patience time.Duration
	lease    time.Duration
	apps     map[bus.Lane]*app
	changed  chan struct{} // wakes publish
	since    time.Time     // when the term began
	expand   []expansion   // broadcasts to expand
	chose    bool          // a worker was chosen since the last sweep
	loads    func(worker string, key jobs.Key) (all, same int)

	offered, returned, looked uint64 // offers: sent, given back, looked at again
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
	live    int            // its workers that take new runs
	any     map[string]int // of these, those that serve what none has by name, by bus.WorkerInfo.Only
	making  string         // the queue in which the app's lane is being made, or has been
	made    string         // the queue in which it has been made
	known   string         // the queue that all its workers were answered with
	order   []*member
	fleet   uint64 // counts changes of who the workers are
	turns   map[jobs.Key]*turns

	// The next fields are for runs without a worker now, each in the queue of its class, in the order in which they
	// came.
	parked map[jobs.ID]*outstanding
	queues map[string][]*outstanding
	gaps   int  // entries of the queues whose run is not parked any more, about
	stir   bool // there may be a worker for some of them
}

// member is a live worker.
type member struct {
	of       string // the name that its starts share
	info     bus.WorkerInfo
	seen     time.Time
	running  int
	pending  int // runs listed by the parts of a heartbeat so far
	leaving  bool
	resting  bool             // it was asked to take nothing new
	request  bus.Rest         // sent until it reports that it does so; "" = it does
	answered string           // the queue that it was last answered with
	mute     bool             // it did not take its offers; until it sends a heartbeat
	full     bool             // it gave back its offers; until it sends a heartbeat, or a run of it ends
	personal int              // offers in its personal lane that are still out
	offered  map[jobs.Key]int // those, by job
}

// outstanding is an offer that has neither been claimed nor given up.
type outstanding struct {
	offer bus.Offer
	at    time.Time
	to    string // the worker it was offered to; "" = the shared lane
	work  string // kernel.Run.Work
	place *kernel.Place
}

func offered(run *kernel.Run, now time.Time) *outstanding {
	return &outstanding{offer: bus.Offer{ID: run.ID, Attempt: run.Next(), Key: run.Key, Handler: run.Handler}, at: now, work: run.Work, place: run.Place}
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
	r.leading, r.queue, r.apps, r.since, r.expand = on, "", map[bus.Lane]*app{}, time.Now(), nil
}

func (r *router) app(lane bus.Lane) *app {
	lane.Worker = ""
	a := r.apps[lane]
	if a == nil {
		a = &app{lane: lane, workers: map[string]*member{}, out: map[jobs.ID]*outstanding{}, shared: map[jobs.Key]bool{}, backlog: true,
			turns: map[jobs.Key]*turns{}, parked: map[jobs.ID]*outstanding{}, queues: map[string][]*outstanding{}}
		r.apps[lane] = a
	}
	return a
}

// note follows a run as a commit left it: one that can be claimed is offered if there is room, one that was claimed
// makes room. The lock is held.
func (r *router) note(run *kernel.Run, now time.Time) {
	a := r.app(bus.Lane{Tenant: run.Tenant, App: run.App})
	o := a.out[run.ID]
	if !run.Offerable() {
		if o != nil {
			a.gone(run.ID)
		}
		if len(a.parked) > 0 {
			a.unpark(run.ID)
			a.stir = true
			if m := a.workers[run.Worker]; m != nil {
				m.full = false
			}
		}
		return
	}
	if len(a.parked) > 0 {
		if p := a.parked[run.ID]; p != nil && !p.before(run) {
			return
		}
		a.unpark(run.ID)
	}
	switch {
	case a.window == 0 && run.Place.Unexpanded():
		r.alone(a, run, now)
	case o != nil && !o.before(run):
	case a.backlog || len(a.out) >= a.window:
		if o != nil {
			a.gone(run.ID)
		}
		a.backlog = true
		a.turned++
	default:
		if o != nil {
			a.gone(run.ID)
		}
		a.offer(run, now)
	}
}

// offer adds a run to what is to be published.
func (a *app) offer(run *kernel.Run, now time.Time) {
	o := offered(run, now)
	a.out[run.ID] = o
	a.fresh = append(a.fresh, o)
}

// before reports whether the offer is that of a run as it was before. A row that was read during commits may be older
// than their effects, and effects may be overtaken by those of the next commit: attempts only grow, and a broadcast is
// expanded once.
func (o *outstanding) before(run *kernel.Run) bool {
	return o.offer.Attempt < run.Next() || o.offer.Attempt == run.Next() && o.place.Unexpanded() && !run.Place.Unexpanded()
}

func (a *app) gone(id jobs.ID) {
	if o := a.out[id]; o != nil {
		if m := a.workers[o.to]; m != nil {
			m.personal--
			if m.offered[o.offer.Key]--; m.offered[o.offer.Key] <= 0 {
				delete(m.offered, o.offer.Key)
			}
		}
		delete(a.out, id)
	}
}

// room returns how many more offers fit, once half of the window is free: reading the store again for each claim would
// be waste.
func (a *app) room() int {
	free := a.window - len(a.out)
	if free < a.window/2 {
		return 0
	}
	return free
}

// common reports whether every live worker of the app may run it.
func (a *app) common(o *outstanding) bool {
	shared, named := a.shared[o.offer.HandlerKey()]
	serving := a.any[""]
	if o.work != "" {
		serving += a.any[o.work]
	}
	return shared || !named && serving == a.live
}

// busy reports whether all slots of an app are taken, according to its heartbeats.
func (a *app) busy() bool {
	for _, m := range a.workers {
		if !m.off() && (m.info.Slots <= 0 || m.running < m.info.Slots) {
			return false
		}
	}
	return true
}

// shipment is what one call of the bus carries.
type shipment struct {
	lane  bus.Lane
	lists [][]bus.Offer
}

// ship takes what is to be published, in lists: the shared lane for runs that every worker of the app may take, else
// the personal lane of the chosen one. It also returns the broadcasts to expand.
func (r *router) ship(now time.Time) (queue string, out []shipment, expand []expansion) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.apps {
		if a.stir && len(a.queues) > 0 {
			a.fresh = append(r.stirred(a, now), a.fresh...)
		}
		if len(a.fresh) == 0 {
			continue
		}
		to := map[string]*shipment{}
		for _, o := range a.fresh {
			if a.out[o.offer.ID] != o {
				continue // claimed or given up meanwhile
			}
			if o.to == "" && (o.place != nil || !r.open(a) || !a.common(o)) {
				c := class(o)
				if len(a.queues[c]) > 0 || !r.place(a, o, now) {
					a.park(o, c)
					continue
				}
			}
			if o.to == allWorkers {
				continue
			}
			name := o.to
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
			r.offered++
		}
		a.fresh = a.fresh[:0]
		for _, s := range to {
			out = append(out, *s)
		}
	}
	expand, r.expand = r.expand, nil
	return r.queue, out, expand
}

// failed gives up offers that could not be delivered. A worker that did not take them gets none until it sends a
// heartbeat.
func (r *router) failed(s shipment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.app(s.lane)
	for _, list := range s.lists {
		for _, o := range list {
			a.gone(o.ID)
		}
	}
	if m := a.workers[s.lane.Worker]; m != nil {
		m.mute = true
	}
	a.backlog = true
	poke(r.changed)
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
			if m := a.workers[k.to]; m != nil {
				m.full = true
			}
			a.gone(o.ID)
			a.backlog = true
			r.returned++
		}
	}
}

// expanded gives up the record of a broadcast that was expanded before: it came from an older row. What is there now is
// read anew.
func (r *router) expanded(tenant jobs.Tenant, run *kernel.Run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.apps[bus.Lane{Tenant: tenant, App: run.App}]
	if a == nil {
		return
	}
	if o := a.out[run.ID]; o != nil && o.to == allWorkers {
		a.gone(run.ID)
		a.backlog = true
		poke(r.changed)
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
			list = append(list, shortage{lane, a.window + len(a.parked), a.turned})
		}
	}
	return list
}

// fill offers what was read of an app's ready runs.
func (r *router) fill(s shortage, ready []*kernel.Run, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.app(s.lane)
	// Runs turned away since the shortage was seen may be missing from what was read.
	all := len(ready) < s.want && a.turned == s.turned
	for _, run := range ready {
		if len(a.out) >= a.window {
			all = false
			break
		}
		if o := a.out[run.ID]; o != nil {
			if !o.before(run) {
				continue
			}
			a.gone(run.ID)
		}
		if o := a.parked[run.ID]; o != nil {
			if !o.before(run) {
				continue
			}
			a.unpark(run.ID)
		}
		a.offer(run, now)
	}
	a.backlog = !all
}

// backlogged has apps looked up in the store that have something ready, even if that seems known.
func (r *router) backlogged(tenant jobs.Tenant, name string, ready int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.app(bus.Lane{Tenant: tenant, App: name}); ready > len(a.out)+len(a.parked) {
		a.backlog = true
	}
}

// overdue lists offers that no worker has claimed for long, of apps that have a free slot.
func (r *router) overdue(now time.Time) (out []overdueOffer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for lane, a := range r.apps {
		if len(a.workers) == 0 {
			clear(a.out) // no worker is left for them; the first one to come gets them anew
			clear(a.parked)
			clear(a.queues)
			a.gaps = 0
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

// retry handles a row read again because its offer is overdue: it is offered anew if it still can be claimed.
func (r *router) retry(o overdueOffer, run *kernel.Run, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looked++
	a := r.app(o.lane)
	if k := a.out[o.id]; k != nil {
		if m := a.workers[k.to]; m != nil {
			m.mute = true // it was offered the run, and did not claim it
		}
	}
	a.gone(o.id)
	if run != nil && run.Offerable() {
		a.offer(run, now)
	}
}

// again gives up all offers: the queue they were in is lost.
func (r *router) again(queue string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = queue
	for _, a := range r.apps {
		a.making, a.made, a.backlog = "", "", true
		for id, o := range a.out {
			if o.to == "" {
				delete(a.out, id)
			}
		}
	}
	poke(r.changed)
}
