package assign

import (
	"container/heap"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/dispatch"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// This file keeps the runs that can start. A board holds some thousands for each app, the first in their order; the
// others stay in the store, from where Fill brings them. Runs that the same workers may take are of one class.

// bounds limit how many runs of an app a board holds.
type bounds struct {
	ready int // that may start soon: more are read from the store when an eighth is left, so that few are read again
	held  int // together with those that no worker takes now. Beyond, runs without a worker delay others
}

var usual = bounds{ready: 4096, held: 20_000}

// app is a group of workers, and its runs that can start.
type app struct {
	name      App
	board     *Board
	order     []*member // its workers, by rank
	fleet     uint64    // counts changes of who they are
	shared    map[jobs.Key]bool
	any       map[string]int // workers that serve what none has by name, by bus.WorkerInfo.Only
	live      int            // workers that take new runs
	memory    map[jobs.Key]*routing
	all       map[jobs.ID]*ready
	classes   map[string]*class
	active    classHeap // those that are not paused and not empty
	paused    int       // runs of classes that wait for a worker
	starting  int       // runs whose starts are on their way to the log
	expanding map[jobs.ID]bool
	early     []*kernel.Run // broadcasts that wait for the workers to be known

	more    bool // the store may have runs that can start and are not held
	refused bool // and some of which the start was refused
	horizon rank // while there are more: those up to this rank are held
	turned  uint64
}

// rank is a run's place among those of its app that can start.
type rank struct {
	priority int
	turn     uint64
}

func (r rank) before(o rank) bool {
	return r.priority > o.priority || r.priority == o.priority && r.turn < o.turn
}

// ready is a run that can start.
type ready struct {
	rank
	id      jobs.ID
	next    uint32 // the attempt that it would be
	key     jobs.Key
	handler jobs.Key
	work    string
	place   *kernel.Place
	class   *class
	at      int // in the class's heap
}

// class is the runs that the same workers may take.
type class struct {
	app   *app
	key   string
	runs  readyHeap
	at    int // in the app's heap; -1 = not there
	wait  bool
	fleet uint64 // for which able was computed
	able  []*member
}

func newApp(b *Board, name App) *app {
	return &app{name: name, board: b, shared: map[jobs.Key]bool{}, memory: map[jobs.Key]*routing{}, all: map[jobs.ID]*ready{},
		classes: map[string]*class{}, expanding: map[jobs.ID]bool{}, more: true, horizon: nothing}
}

// nothing is the horizon if no run is known to be held.
var nothing = rank{priority: int(^uint(0) >> 1)}

// ready takes up a run that can start, if there is room.
func (a *app) ready(run *kernel.Run) {
	at := rank{run.Priority, run.Turn}
	if r := a.all[run.ID]; r != nil {
		if r.next == run.Next() && r.rank == at && r.place == run.Place {
			return
		}
		if r.next > run.Next() {
			return // an effect that was overtaken
		}
		a.remove(run.ID)
	}
	if run.Place.Unexpanded() {
		a.board.broadcast(a, run)
		return
	}
	delete(a.expanding, run.ID)
	switch {
	case len(a.order) == 0 || a.more && !at.before(a.horizon):
		a.more = true
		a.turned++
		return
	case !a.more && len(a.all) >= a.board.most.ready+a.paused || len(a.all) >= a.board.most.held:
		a.more, a.horizon = true, at
		a.turned++
		return
	}
	a.add(run, at)
	if len(a.all) > 2*a.board.most.held { // priorities made room again and again: begin anew
		a.clear()
	}
}

func (a *app) add(run *kernel.Run, at rank) {
	r := &ready{rank: at, id: run.ID, next: run.Next(), key: run.Key, handler: run.HandlerKey(), work: run.Work, place: run.Place}
	a.all[run.ID] = r
	a.join(r)
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
	delete(a.expanding, id)
	r := a.all[id]
	if r == nil {
		return
	}
	delete(a.all, id)
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
	a.active, a.paused, a.more, a.horizon = nil, 0, true, nothing
	a.turned++
}

// classOf returns the key of a run's class; "" = every worker of the app may take it.
func (a *app) classOf(r *ready) string {
	p := r.place
	if p == nil {
		if a.common(r) {
			return ""
		}
		return string(r.handler) + "\x00" + r.work
	}
	return strings.Join([]string{string(r.key), string(r.handler), r.work, string(p.Route), p.Hash, p.Pin, string(p.PinAway), strconv.Itoa(p.Version),
		strconv.Itoa(p.Slots), strings.Join(p.Needs, "\x01")}, "\x00")
}

// common reports whether every worker of the app has the code of a run.
func (a *app) common(r *ready) bool {
	if everywhere, named := a.shared[r.handler]; named {
		return everywhere
	}
	serving := a.any[""]
	if r.work != "" {
		serving += a.any[r.work]
	}
	return serving == a.live
}

// Shortage is an app that has room for more runs than it has.
type Shortage struct {
	App    App
	Want   int // runs to read from the store, the first in their order
	turned uint64
}

// Short lists the shortages. An app whose workers are all full has none: what it has is enough until one is free.
func (b *Board) Short(now dispatch.Stamp) (list []Shortage) {
	for name, a := range b.apps {
		if a.more && b.room(name.Tenant, 1, now) > 0 && len(a.all)-a.paused < a.board.most.ready/8 && len(a.all) < a.board.most.held &&
			slices.ContainsFunc(a.order, func(m *member) bool { return m.seat.Credit(now) > 0 }) {
			list = append(list, Shortage{name, min(b.most.held, b.most.ready+len(a.all)) + a.starting, a.turned})
		}
	}
	return list
}

// Fill takes up what was read of an app's runs that can start: the first of them, in their order.
func (b *Board) Fill(s Shortage, rows []*kernel.Run) {
	a := b.app(s.App)
	if len(a.order) == 0 {
		return
	}
	// Runs that became ready since the shortage was found may be missing from what was read.
	a.more = len(rows) >= s.Want || a.turned != s.turned
	a.horizon = nothing
	for _, run := range rows {
		at := rank{run.Priority, run.Turn}
		a.horizon = at
		sent := b.sender.Current(runOf(run))
		if sent != nil && sent.N <= run.Attempt { // the effect of its end has not come yet
			b.ended(sent, a, run.Key)
			sent = nil
		}
		switch r := a.all[run.ID]; {
		case sent != nil, r != nil && r.next >= run.Next(), !run.Ready():
		case b.past.of(runOf(run)) > run.Attempt: // it has started and ended since it was read
		case run.Place.Unexpanded():
			b.broadcast(a, run)
		default:
			if delete(a.expanding, run.ID); r != nil {
				a.remove(run.ID)
			}
			a.add(run, at)
		}
	}
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
