package assign

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/dispatch"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// This file keeps the runs that can start. A board holds some thousands for each app, the first in their order; the
// others stay in the store, from where Fill brings them. Runs that the same workers may take are of one class. When the
// board is full of runs that no worker takes now, it keeps the first few of each class; the rest of their queues is cut:
// it is read when those have started, and delays no others meanwhile.

// bounds limit how many runs of an app a board holds.
type bounds struct {
	ready int // that may start soon: more are read from the store when an eighth is left, so that few are read again
	held  int // together with those that no worker takes now
	cut   int // of a class that no worker takes now, when the board is full
}

var usual = bounds{ready: 4096, held: 20_000, cut: 64}

// app is a group of workers, and its runs that can start.
type app struct {
	name     App
	board    *Board
	order    []*member // its workers, by rank
	fleet    uint64    // counts changes of who they are
	shared   map[jobs.Key]bool
	any      map[string]int // workers that serve what none has by name, by bus.WorkerInfo.Only
	live     int            // workers that take new runs
	memory   map[jobs.Key]*routing
	all      map[jobs.ID]*ready
	classes  map[kernel.Queue]*class
	active   classHeap // those that are not paused and not empty
	paused   int       // runs of classes that wait for a worker
	starting int       // runs whose starts are on their way to the log
	spread   map[jobs.ID]*broadcast

	more    bool // the store may have runs that can start and are not held, also of queues that are not cut
	refused bool // and some of which the start was refused
	horizon rank // while there are more: those before this rank are held
	turned  uint64

	cuts    map[kernel.Queue]*cut
	dry     int                       // cuts of which no run is held: what is next is not known until they are read
	low     map[kernel.Queue]struct{} // cuts of which few are held
	lacking map[jobs.ID]uint64        // what the last Compare did not find, by the version of its row
}

// cut is a queue of which only the first runs are held.
type cut struct {
	horizon rank // those before it are held
	held    int
	low     int  // if so few are held, more are read
	refused bool // the start of one of them was
}

// broadcast is a run that is to become one for each worker.
type broadcast struct {
	run   *kernel.Run
	asked bool // Expansions has returned it
}

// rank is a run's place among those of its app that can start.
type rank struct {
	priority int
	turn     uint64
}

func (r rank) before(o rank) bool {
	return r.priority > o.priority || r.priority == o.priority && r.turn < o.turn
}

func (r rank) compare(o rank) int {
	return cmp.Or(cmp.Compare(o.priority, r.priority), cmp.Compare(r.turn, o.turn))
}

// ready is a run that can start.
type ready struct {
	rank
	id      jobs.ID
	next    uint32 // the attempt that it would be
	version uint64 // of its row
	key     jobs.Key
	queue   kernel.Queue
	place   *kernel.Place
	class   *class
	at      int // in the class's heap
}

// class is the runs that the same workers may take.
type class struct {
	app   *app
	key   kernel.Queue // the queue of all its runs; zero = they are of all queues that every worker of the app may take
	runs  readyHeap
	at    int // in the app's heap; -1 = not there
	wait  bool
	fleet uint64 // for which able was computed
	able  []*member
}

func newApp(b *Board, name App) *app {
	return &app{name: name, board: b, shared: map[jobs.Key]bool{}, memory: map[jobs.Key]*routing{}, all: map[jobs.ID]*ready{},
		classes: map[kernel.Queue]*class{}, spread: map[jobs.ID]*broadcast{}, more: true, horizon: nothing,
		cuts: map[kernel.Queue]*cut{}, low: map[kernel.Queue]struct{}{}}
}

// nothing is the horizon if no run is known to be held.
var nothing = rank{priority: int(^uint(0) >> 1)}

// ready takes up the newest row of a run that can start, if there is room.
func (a *app) ready(run *kernel.Run) {
	at := rank{run.Priority, run.Turn}
	if r := a.all[run.ID]; r != nil && r.next == run.Next() && r.rank == at && r.place == run.Place {
		r.version = run.Version
		return
	}
	if s := a.spread[run.ID]; s != nil && run.Place.Unexpanded() {
		s.run = run
		return
	}
	a.remove(run.ID)
	if run.Place.Unexpanded() {
		a.broadcast(run)
		return
	}
	queue := run.Queue()
	if c := a.cuts[queue]; c != nil && len(a.order) > 0 {
		if !at.before(c.horizon) {
			a.turned++
			return
		}
		a.add(run, at, queue)
		return
	}
	switch {
	case len(a.order) == 0 || a.more && !at.before(a.horizon):
		a.more = true
		a.turned++
		return
	case !a.more && len(a.all) >= a.board.most.ready+a.paused || len(a.all) >= a.board.most.held:
		if !a.more || at.before(a.horizon) {
			a.more, a.horizon = true, at
		}
		a.turned++
		return
	}
	a.add(run, at, queue)
	if len(a.all) > 2*a.board.most.held { // priorities made room again and again: begin anew
		a.clear()
	}
}

func (a *app) add(run *kernel.Run, at rank, queue kernel.Queue) {
	r := &ready{rank: at, id: run.ID, next: run.Next(), version: run.Version, key: run.Key, queue: queue, place: run.Place}
	a.all[run.ID] = r
	if c := a.cuts[queue]; c != nil {
		if c.held++; c.held == 1 {
			a.dry--
		}
	}
	a.join(r)
}

// expects reports whether a run that can start is held, by what is known of the store.
func (a *app) expects(at rank, queue kernel.Queue) bool {
	if c := a.cuts[queue]; c != nil {
		return at.before(c.horizon)
	}
	return !a.more || at.before(a.horizon)
}

// join puts a run into its class.
func (a *app) join(r *ready) {
	key := a.classOf(r)
	c := a.classes[key]
	if c == nil {
		c = &class{app: a, key: key, at: -1}
		a.classes[key] = c
	}
	r.class = c
	heap.Push(&c.runs, r)
	if c.wait {
		a.paused++
		return
	}
	a.moved(c)
}

// remove forgets a run, if it is held.
func (a *app) remove(id jobs.ID) {
	delete(a.spread, id)
	r := a.all[id]
	if r == nil {
		return
	}
	delete(a.all, id)
	if c := a.cuts[r.queue]; c != nil {
		if c.held--; c.held == 0 {
			a.dry++
		}
		if c.held <= c.low {
			a.low[r.queue] = struct{}{}
		}
	}
	c := r.class
	heap.Remove(&c.runs, r.at)
	if c.wait {
		a.paused--
	}
	if len(c.runs) == 0 {
		a.dismiss(c)
		return
	}
	if !c.wait {
		a.moved(c)
	}
}

// dismiss forgets a class without runs.
func (a *app) dismiss(c *class) {
	if c.at >= 0 {
		heap.Remove(&a.active, c.at)
	}
	c.wait = false
	delete(a.classes, c.key)
	for _, m := range c.able {
		delete(m.waits, c)
	}
}

// moved puts a class in its place among the others, which its first run decides.
func (a *app) moved(c *class) {
	if c.at < 0 {
		heap.Push(&a.active, c)
		return
	}
	heap.Fix(&a.active, c.at)
}

// best returns the class whose first run is next, or nil.
func (a *app) best() *class {
	if len(a.active) == 0 {
		return nil
	}
	return a.active[0]
}

func (c *class) first() *ready { return c.runs[0] }

// pause has a class wait until one of its workers may take more.
func (a *app) pause(c *class) {
	heap.Remove(&a.active, c.at)
	c.wait = true
	a.paused += len(c.runs)
	for _, m := range a.capable(c) {
		m.waits[c] = struct{}{}
	}
}

// resume has a class tried again.
func (c *class) resume() {
	if !c.wait || len(c.runs) == 0 {
		return
	}
	c.wait = false
	c.app.paused -= len(c.runs)
	c.app.moved(c)
}

// clear forgets all runs: they are read again.
func (a *app) clear() {
	clear(a.all)
	for _, c := range a.classes {
		for _, m := range c.able {
			delete(m.waits, c)
		}
	}
	clear(a.classes)
	a.active, a.paused = nil, 0
	a.again()
}

// again has everything read again: what of the store is held is not known any more.
func (a *app) again() {
	a.more, a.horizon, a.dry = true, nothing, 0
	clear(a.cuts)
	clear(a.low)
	a.turned++
}

// trim makes room: of each class that waits for a worker it keeps the first runs. The others are in the store.
func (a *app) trim() {
	waiting := 0
	for _, c := range a.classes {
		if c.wait {
			waiting++
		}
	}
	if waiting == 0 {
		return
	}
	keep := max(1, min(a.board.most.cut, a.board.most.held/2/waiting))
	for _, c := range a.classes {
		if !c.wait || len(c.runs) <= keep || c.key == (kernel.Queue{}) {
			continue // while the class of all queues waits, no worker is free for others
		}
		slices.SortFunc(c.runs, func(x, y *ready) int { return x.compare(y.rank) })
		for i, r := range c.runs {
			if r.at = i; i >= keep {
				delete(a.all, r.id)
			}
		}
		if a.cuts[c.key] == nil {
			a.cuts[c.key] = new(cut)
		}
		*a.cuts[c.key] = cut{horizon: c.runs[keep].rank, held: keep, low: keep / 4}
		delete(a.low, c.key)
		a.paused -= len(c.runs) - keep
		c.runs = slices.Clone(c.runs[:keep])
	}
}

// reread has what was refused read again, together with what else the board lacks.
func (a *app) reread() {
	a.refused, a.more, a.horizon = false, true, nothing
	for q, c := range a.cuts {
		if c.refused {
			c.refused, c.horizon = false, nothing
			a.low[q] = struct{}{}
		}
	}
	a.turned++
}

// uncut records that all runs of a queue are held.
func (a *app) uncut(queue kernel.Queue) {
	if c := a.cuts[queue]; c != nil && c.held == 0 {
		a.dry--
	}
	delete(a.cuts, queue)
	delete(a.low, queue)
}

// classOf returns the key of a run's class.
func (a *app) classOf(r *ready) kernel.Queue {
	if r.place == nil && a.common(r) {
		return kernel.Queue{}
	}
	return r.queue
}

// common reports whether every worker of the app has the code of a run.
func (a *app) common(r *ready) bool {
	if everywhere, named := a.shared[r.queue.Handler]; named {
		return everywhere
	}
	serving := a.any[""]
	if r.queue.Work != "" {
		serving += a.any[r.queue.Work]
	}
	return serving == a.live
}

// Shortage is an app that has room for more runs than it has.
type Shortage struct {
	App    App
	Want   int                       // runs to read from the store, the first in their order
	cut    *kernel.Queue             // only of this queue
	skip   map[kernel.Queue]struct{} // not of these; nil = of all
	turned uint64
	fleet  uint64
}

// Has reports whether runs of a queue are to be read. It does not use the Board.
func (s *Shortage) Has(q kernel.Queue) bool {
	if s.cut != nil {
		return q == *s.cut
	}
	_, skipped := s.skip[q]
	return !skipped
}

// Short lists the shortages. An app whose workers are all full has none: what it has is enough until one is free.
func (b *Board) Short(now dispatch.Stamp) (list []Shortage) {
	for name, a := range b.apps {
		if b.room(name.Tenant, 1, now) == 0 || !slices.ContainsFunc(a.order, func(m *member) bool { return m.seat.Credit(now) > 0 }) {
			continue
		}
		for q := range a.low {
			if c := a.classes[q]; c == nil || !c.wait {
				list = append(list, Shortage{App: name, Want: 8*b.most.cut + a.cuts[q].held + a.starting, cut: &q, turned: a.turned, fleet: a.fleet})
			}
		}
		if !a.more || len(a.all)-a.paused >= b.most.ready/8 {
			continue
		}
		if len(a.all) >= b.most.held {
			if a.trim(); len(a.all) >= b.most.held {
				continue // of more classes than there is room for
			}
		}
		s := Shortage{App: name, Want: b.most.ready + len(a.all) + len(a.spread) + a.starting, turned: a.turned, fleet: a.fleet}
		if len(a.cuts) > 0 {
			s.skip = make(map[kernel.Queue]struct{}, len(a.cuts))
			for q, c := range a.cuts {
				s.skip[q] = struct{}{}
				s.Want -= c.held
			}
		}
		list = append(list, s)
	}
	return list
}

// Fill takes up what was read of an app's runs that can start: the first of them, in their order.
func (b *Board) Fill(s Shortage, rows []*kernel.Run) {
	a := b.app(s.App)
	if len(a.order) == 0 {
		return
	}
	last := nothing
	for _, run := range rows {
		last = rank{run.Priority, run.Turn + 1}
		b.take(a, run)
	}
	if s.fleet != a.fleet {
		return // it is short of all again, and no queue is cut
	}
	// Runs that became ready since the shortage was found may be missing from what was read.
	whole := len(rows) < s.Want && a.turned == s.turned
	if s.cut == nil {
		a.more, a.horizon = !whole, last
		return
	}
	switch c := a.cuts[*s.cut]; {
	case c == nil:
	case whole:
		a.uncut(*s.cut)
	case last != nothing:
		c.horizon = last
		if c.held > c.low {
			delete(a.low, *s.cut)
		}
	}
}

// take takes up a row of a run that can start, if no newer one is known, whether there is room or not. It reports
// whether that was news.
func (b *Board) take(a *app, run *kernel.Run) bool {
	sent := b.sender.Current(runOf(run))
	if !run.Ready() || b.version(a, run, sent) > run.Version {
		return false
	}
	switch r := a.all[run.ID]; {
	case sent != nil && sent.N > run.Attempt: // its start is on its way to the log
		return false
	case a.spread[run.ID] != nil && run.Place.Unexpanded(), r != nil && r.version == run.Version:
		return false
	}
	if sent != nil { // the effect of its end has not come yet
		b.ended(sent, a, run.Key, run.Version)
	}
	if a.remove(run.ID); run.Place.Unexpanded() {
		a.broadcast(run)
	} else {
		a.add(run, rank{run.Priority, run.Turn}, run.Queue())
	}
	return true
}

// classHeap orders classes by their first runs.
type classHeap []*class

func (h classHeap) Len() int           { return len(h) }
func (h classHeap) Less(i, j int) bool { return h[i].runs[0].before(h[j].runs[0].rank) }
func (h classHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].at, h[j].at = i, j }
func (h *classHeap) Push(x any)        { c := x.(*class); c.at = len(*h); *h = append(*h, c) }
func (h *classHeap) Pop() any {
	old := *h
	c := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	c.at = -1
	return c
}

// readyHeap orders runs by rank.
type readyHeap []*ready

func (h readyHeap) Len() int           { return len(h) }
func (h readyHeap) Less(i, j int) bool { return h[i].before(h[j].rank) }
func (h readyHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].at, h[j].at = i, j }
func (h *readyHeap) Push(x any)        { r := x.(*ready); r.at = len(*h); *h = append(*h, r) }
func (h *readyHeap) Pop() any {
	old := *h
	r := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return r
}
