// Package assign decides which ready run starts on which worker. It has no clock, lock or I/O: its caller passes in
// what commits, heartbeats and answers say, and commits and sends what comes out.
//
// It is not promised to programs outside this module.
//
// Where to start: [Board]; ready.go keeps the runs that can start, place.go chooses the worker. Package
// internal/dispatch is the protocol with the workers that are chosen.
//
// Sharp edges: what a Board remembers (whose turn it is, which worker got how many) is the leader's memory, and begins
// anew with another leader. It makes loads even; correctness does not depend on it. Times are of the leader's steady
// clock.
package assign

import (
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/dispatch"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// App names a group of workers that share jobs.
type App struct {
	Tenant jobs.Tenant
	Name   string
}

// Settling is how long after the beginning of a term the workers are not all known: they answer the leader's call
// within that.
const Settling = 2 * time.Second

// share is how many runs of an app start before it is another app's turn, and another tenant's.
const share = 32

// Board is what the leader of a term knows of runs that can start, and of the workers that may run them. Its methods
// are not safe for concurrent use.
type Board struct {
	sender  *dispatch.Sender
	most    bounds
	began   dispatch.Stamp
	settled bool
	apps    map[App]*app
	turns   []*tenant // those with apps; the first is next
	tenants map[jobs.Tenant]*tenant
	workers map[dispatch.Worker]*member
	expand  []Expansion
	past    past
}

// past is which attempts ended last: their effects may still come, in another order.
type past struct {
	last  map[dispatch.Run]uint32
	order []dispatch.Attempt
	next  int
}

// mostPast is more than what is committed while an effect is on its way.
const mostPast = 1 << 14

func (p *past) add(a dispatch.Attempt) {
	if len(p.order) < mostPast {
		p.order = append(p.order, a)
	} else {
		if old := p.order[p.next]; p.last[old.Run] == old.N {
			delete(p.last, old.Run)
		}
		p.order[p.next] = a
		p.next = (p.next + 1) % mostPast
	}
	p.last[a.Run] = a.N
}

// tenant is the apps of a tenant; the first is next.
type tenant struct{ apps []*app }

// Start is an attempt to commit.
type Start struct {
	dispatch.Attempt
	Worker string
	app    *app
	key    jobs.Key
}

// Expansion is a broadcast that is to become one run for each worker.
type Expansion struct {
	App     App
	Command kernel.Expand
}

// New returns the board of a leader whose term begins.
func New(lease time.Duration, now dispatch.Stamp) *Board {
	return &Board{sender: dispatch.NewSender(lease, now), most: usual, began: now, apps: map[App]*app{}, tenants: map[jobs.Tenant]*tenant{},
		workers: map[dispatch.Worker]*member{}, past: past{last: map[dispatch.Run]uint32{}}}
}

// Load records an attempt that the rows had when the term began, or that an unknown leader started.
func (b *Board) Load(run *kernel.Run, now dispatch.Stamp) {
	m := b.member(run.Tenant, run.Worker)
	if at, _, known := b.sender.Current(attemptOf(run).Run); known && at.N >= run.Attempt {
		return
	}
	b.sender.Load(attemptOf(run), m.id, now)
	if run.Lingering {
		b.sender.Lingers(attemptOf(run))
	}
	m.count(run.Key, 1)
}

// Note follows a run as a commit left it. Effects may be overtaken by those of later commits: numbers of attempts only
// grow, and an effect of an older attempt than the known one changes nothing.
func (b *Board) Note(run *kernel.Run, now dispatch.Stamp, acts *dispatch.Acts) {
	a := attemptOf(run)
	held, w, known := b.sender.Current(a.Run)
	ended := b.past.last[a.Run]
	if known && held.N > run.Attempt && held.N != run.Next() || ended > run.Attempt {
		return
	}
	at := b.app(App{run.Tenant, run.App})
	if run.State == jobs.Processing || run.Lingering {
		if ended == run.Attempt {
			return
		}
		at.remove(run.ID)
		switch {
		case !known || held.N < a.N:
			if known {
				b.ended(held, at, w, run.Key)
			}
			b.Load(run, now)
		case held.N > a.N: // its next start is on its way to the log, and will be refused
		case run.Lingering:
			b.sender.Lingers(a)
		case b.sender.Proposed(a):
			at.starting--
			b.sender.Started(a, now, acts)
		}
		return
	}
	if known && held.N <= run.Attempt {
		b.ended(held, at, w, run.Key)
		known = false
	}
	switch {
	case !run.Offerable():
		at.remove(run.ID)
	case !known: // else its start is on its way to the log
		at.ready(run)
	}
}

// ended frees what an attempt took.
func (b *Board) ended(a dispatch.Attempt, at *app, w dispatch.Worker, key jobs.Key) {
	if b.sender.Proposed(a) {
		at.starting--
	}
	b.sender.Ended(a)
	b.past.add(a)
	if m := b.workers[w]; m != nil {
		m.count(key, -1)
		b.freed(m)
	}
}

// freed has the runs that wait for a worker tried again.
func (b *Board) freed(m *member) {
	for c := range m.waits {
		c.resume()
	}
	clear(m.waits)
}

// Withdraw records that a start was not committed, and never will be. Why is in the run's row, which may be read again.
func (b *Board) Withdraw(s Start) {
	if b.sender.Proposed(s.Attempt) {
		b.ended(s.Attempt, s.app, dispatch.Worker{Tenant: s.Tenant, Name: s.Worker}, s.key)
	}
	s.app.more = true
}

// Retry records that a broadcast was not expanded. Its row is read again.
func (b *Board) Retry(e Expansion) {
	a := b.app(e.App)
	delete(a.expanding, e.Command.ID)
	a.more = true
}

// Starts chooses at most so many starts. Tenants take turns, and so do the apps of each.
func (b *Board) Starts(most int, now dispatch.Stamp) (list []Start) {
	b.settle(now)
	for idle := 0; idle < len(b.turns) && len(list) < most; {
		t := b.turns[0]
		before := len(list)
		for range t.apps {
			a := t.apps[0]
			t.apps = append(t.apps[1:], a)
			if list = b.take(a, list, min(share, most-len(list)), now); len(list) > before {
				break
			}
		}
		b.turns = append(b.turns[1:], t)
		if idle++; len(list) > before {
			idle = 0
		}
	}
	return list
}

// take appends starts of an app.
func (b *Board) take(a *app, list []Start, most int, now dispatch.Stamp) []Start {
	for most > 0 {
		c := a.best()
		if c == nil {
			break
		}
		r := c.first()
		m := b.choose(a, c, r, now)
		if m == nil {
			a.pause(c)
			continue
		}
		a.remove(r.id)
		s := Start{dispatch.Attempt{Run: dispatch.Run{Tenant: a.name.Tenant, ID: r.id}, N: r.next}, m.id.Name, a, r.key}
		b.sender.Propose(s.Attempt, m.id)
		m.count(r.key, 1)
		a.starting++
		list = append(list, s)
		most--
	}
	return list
}

// settle has broadcasts expanded once the workers are known.
func (b *Board) settle(now dispatch.Stamp) {
	if b.settled || now-b.began < Settling {
		return
	}
	b.settled = true
	for _, a := range b.apps {
		for _, run := range a.early {
			b.broadcast(a, run)
		}
		a.early = nil
	}
}

// broadcast has a run expanded that is to become one for each worker.
func (b *Board) broadcast(a *app, run *kernel.Run) {
	if a.expanding[run.ID] {
		return
	}
	if !b.settled {
		a.early = append(a.early, run)
		return
	}
	a.expanding[run.ID] = true
	b.expand = append(b.expand, Expansion{a.name, kernel.Expand{ID: run.ID, Workers: b.all(a, run)}})
}

// Expansions returns broadcasts to expand, once each.
func (b *Board) Expansions(now dispatch.Stamp) (list []Expansion) {
	b.settle(now)
	list, b.expand = b.expand, nil
	return list
}

func (b *Board) app(name App) *app {
	a := b.apps[name]
	if a == nil {
		a = newApp(b, name)
		b.apps[name] = a
		t := b.tenants[name.Tenant]
		if t == nil {
			t = new(tenant)
			b.tenants[name.Tenant] = t
			b.turns = append(b.turns, t)
		}
		t.apps = append(t.apps, a)
	}
	return a
}

// drop forgets an app without workers.
func (b *Board) drop(a *app) {
	delete(b.apps, a.name)
	t := b.tenants[a.name.Tenant]
	if t.apps = slices.DeleteFunc(t.apps, func(o *app) bool { return o == a }); len(t.apps) == 0 {
		delete(b.tenants, a.name.Tenant)
		b.turns = slices.DeleteFunc(b.turns, func(o *tenant) bool { return o == t })
	}
}

func attemptOf(run *kernel.Run) dispatch.Attempt {
	return dispatch.Attempt{Run: dispatch.Run{Tenant: run.Tenant, ID: run.ID}, N: run.Attempt}
}

// Answer handles a worker's verdict about an attempt of a job.
func (b *Board) Answer(a dispatch.Attempt, w dispatch.Worker, v dispatch.Verdict, acts *dispatch.Acts) {
	b.sender.Answer(a, w, v, acts)
	if m := b.workers[w]; m != nil {
		b.freed(m)
	}
}

// Undelivered handles the bus's proof that no process received the last push of an attempt.
func (b *Board) Undelivered(a dispatch.Attempt, acts *dispatch.Acts) { b.sender.Undelivered(a, acts) }

// Sender returns the leader's end of the protocol, for what needs no choice: Confirm, Tick, Lapsed, Push.
func (b *Board) Sender() *dispatch.Sender { return b.sender }

// Backlog reports whether an app has ready runs in the store that the board does not have.
func (b *Board) Backlog(name App, ready int) {
	if a := b.app(name); ready > len(a.all)+len(a.expanding)+len(a.early) {
		a.more = true
	}
}
