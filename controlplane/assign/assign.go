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
	rules   map[jobs.Tenant]*rule // of those with one
	commits map[jobs.Tenant]int   // under way, with starts
	workers map[dispatch.Worker]*member
	expand  []Expansion
	past    past
}

// past is which attempts ended last: their effects may still come, in another order.
type past struct{ last, before map[dispatch.Run]uint32 }

// mostPast is more than what is committed while an effect is on its way: at least as many are known.
const mostPast = 1 << 14

func (p *past) add(a dispatch.Attempt) {
	if len(p.last) >= mostPast {
		p.last, p.before = p.before, p.last
		clear(p.last)
	}
	p.last[a.Run] = a.N
}

// of returns the last attempt of a run that has ended; 0 = none is known.
func (p *past) of(run dispatch.Run) uint32 { return max(p.last[run], p.before[run]) }

// tenant is the apps of a tenant; the first is next.
type tenant struct {
	name jobs.Tenant
	apps []*app
}

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
	return &Board{sender: dispatch.NewSender(lease, now), most: usual, began: now, apps: map[App]*app{}, tenants: map[jobs.Tenant]*tenant{}, rules: map[jobs.Tenant]*rule{}, commits: map[jobs.Tenant]int{},
		workers: map[dispatch.Worker]*member{}, past: past{map[dispatch.Run]uint32{}, map[dispatch.Run]uint32{}}}
}

// Load records an attempt that the rows had when the term began, or that an unknown leader started, and returns the
// run's current one.
func (b *Board) Load(run *kernel.Run, now dispatch.Stamp) *dispatch.Sent {
	m, a := b.member(run.Tenant, run.Worker), b.app(App{run.Tenant, run.App})
	sent := b.sender.Current(runOf(run))
	if sent != nil {
		if sent.N >= run.Attempt {
			return sent
		}
		b.ended(sent, a, run.Key)
	}
	a.remove(run.ID)
	sent = b.sender.Load(attemptOf(run), m.id, now)
	if run.Lingering {
		b.sender.Lingers(sent)
	}
	m.count(run.Key, 1)
	return sent
}

// Note follows a run as a commit left it. The run's current attempt was sent; Note returns what it is now; nil is none.
// Effects may be overtaken by those of later commits: numbers of attempts only grow, and an effect of an older attempt
// than the known one changes nothing.
func (b *Board) Note(run *kernel.Run, sent *dispatch.Sent, now dispatch.Stamp, acts *dispatch.Acts) *dispatch.Sent {
	var ended uint32
	if sent == nil || sent.N != run.Attempt { // else it has not ended yet
		ended = b.past.of(runOf(run))
	}
	if sent != nil && sent.N > run.Attempt && sent.N != run.Next() || ended > run.Attempt {
		return sent
	}
	at := b.app(App{run.Tenant, run.App})
	if run.State == jobs.Processing || run.Lingering {
		if sent != nil && sent.N == run.Attempt && sent.Worker().Name != run.Worker && run.State == jobs.Processing { // another leader has started it
			b.free(sent, at, run.Key)
			sent = nil
		}
		switch {
		case ended == run.Attempt:
		case sent == nil || sent.N < run.Attempt:
			return b.Load(run, now)
		case sent.N > run.Attempt: // its next start is on its way to the log, and will be refused
		case run.Lingering:
			b.sender.Lingers(sent)
		case sent.Proposed():
			at.starting--
			b.sender.Started(sent, now, acts)
		}
		return sent
	}
	if sent != nil {
		if sent.N > run.Attempt { // its start is on its way to the log
			return sent
		}
		b.ended(sent, at, run.Key)
	}
	switch {
	case run.Ready():
		at.ready(run)
	case sent == nil: // else it is not among the ready ones
		at.remove(run.ID)
	}
	return nil
}

// ended records that an attempt has ended, and frees what it took.
func (b *Board) ended(sent *dispatch.Sent, at *app, key jobs.Key) {
	b.free(sent, at, key)
	b.past.add(sent.Attempt)
}

// free frees what an attempt took.
func (b *Board) free(sent *dispatch.Sent, at *app, key jobs.Key) {
	if sent.Proposed() {
		at.starting--
	}
	b.sender.Ended(sent)
	if m := b.workers[sent.Worker()]; m != nil {
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

// Withdraw records that a start was not committed, and never will be. Why is in the run's row, which is read again after
// Reread: what was refused is refused again if nothing has changed. It does nothing if the effect of the start is known.
func (b *Board) Withdraw(s Start) {
	if sent := b.sender.Find(s.Attempt); sent != nil && sent.Proposed() {
		b.free(sent, s.app, s.key)
		s.app.refused = true
	}
}

// Reread has the rows of refused starts and broadcasts read again.
func (b *Board) Reread() {
	for _, a := range b.apps {
		a.more, a.refused = a.more || a.refused, false
	}
}

// Forget drops an attempt that the store does not have.
func (b *Board) Forget(sent *dispatch.Sent, key jobs.Key, name App) { b.ended(sent, b.app(name), key) }

// Retry records that a broadcast was not expanded. Its row is read again after Reread.
func (b *Board) Retry(e Expansion) {
	a := b.app(e.App)
	delete(a.expanding, e.Command.ID)
	a.refused = true
}

// Broadcasts has those among the ready runs of an app expanded that are to become one for each worker. There may be no
// worker: then they are skipped.
func (b *Board) Broadcasts(name App, ready []*kernel.Run) {
	for _, run := range ready {
		if run.Place.Unexpanded() {
			b.broadcast(b.app(name), run)
		}
	}
}

// Deserted reports whether no worker of an app takes runs.
func (b *Board) Deserted(name App) bool { a := b.apps[name]; return a == nil || a.live == 0 }

// Starts chooses at most so many starts. Tenants take turns, and so do the apps of each.
func (b *Board) Starts(most int, now dispatch.Stamp) (list []Start) {
	b.settle(now)
	for idle := 0; idle < len(b.turns) && len(list) < most; {
		t := b.turns[0]
		before := len(list)
		for range t.apps {
			if b.commits[t.name] >= commitsAtOnce {
				break
			}
			a := t.apps[0]
			t.apps = append(t.apps[1:], a)
			if list = b.take(a, list, b.room(t.name, min(share, most-len(list)), now), now); len(list) > before {
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

// commitsAtOnce is how many commits with starts of one tenant may be under way: what is chosen meanwhile goes together.
const commitsAtOnce = 4

// Committing counts the commits with starts of a tenant that are under way: by is 1 as one begins, and -1 as it ends.
func (b *Board) Committing(of jobs.Tenant, by int) {
	if b.commits[of] += by; b.commits[of] == 0 {
		delete(b.commits, of)
	}
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
		list = append(list, b.start(a, m, dispatch.Attempt{Run: dispatch.Run{Tenant: a.name.Tenant, ID: r.id}, N: r.next}, r.key))
		most--
	}
	return list
}

// start takes what an attempt needs.
func (b *Board) start(a *app, m *member, of dispatch.Attempt, key jobs.Key) Start {
	b.sender.Propose(of, m.id)
	b.spend(of.Tenant)
	m.count(key, 1)
	a.starting++
	return Start{of, m.id.Name, a, key}
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
			t = &tenant{name: name.Tenant}
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

func runOf(run *kernel.Run) dispatch.Run { return dispatch.Run{Tenant: run.Tenant, ID: run.ID} }

func attemptOf(run *kernel.Run) dispatch.Attempt {
	return dispatch.Attempt{Run: runOf(run), N: run.Attempt}
}

// Answer handles a worker's verdict about an attempt of a job.
func (b *Board) Answer(sent *dispatch.Sent, w dispatch.Worker, v dispatch.Verdict, acts *dispatch.Acts) {
	b.sender.Answer(sent, w, v, acts)
	if m := b.workers[w]; m != nil {
		b.freed(m)
	}
}

// Undelivered handles the bus's proof that no process received the last push of an attempt.
func (b *Board) Undelivered(a dispatch.Attempt, acts *dispatch.Acts) {
	if sent := b.sender.Find(a); sent != nil {
		b.sender.Undelivered(sent, acts)
	}
}

// Sender returns the leader's end of the protocol, for what needs no choice: Confirm, Tick, Lapsed, Push.
func (b *Board) Sender() *dispatch.Sender { return b.sender }

// Backlog reports whether an app has ready runs in the store that the board does not have.
func (b *Board) Backlog(name App, ready int) {
	if a := b.app(name); ready > len(a.all)+len(a.expanding)+len(a.early) {
		a.more = true
	}
}
