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
	"math"
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

// share is how many runs of an app start before it is another app's turn, and another tenant's.
const share = 32

// Board is what the leader of a term knows of runs that can start, and of the workers that may run them. Its methods
// are not safe for concurrent use.
type Board struct {
	sender  *dispatch.Sender
	most    bounds
	known   dispatch.Stamp // from when on all workers are known
	apps    map[App]*app
	turns   []*tenant // those with apps; the first is next
	tenants map[jobs.Tenant]*tenant
	rules   map[jobs.Tenant]*rule // of those with one
	commits map[jobs.Tenant]int   // under way, with starts
	workers map[dispatch.Worker]*member
	expand  []*broadcast
	past    past
}

// past is the newest rows of runs that could neither start nor have an attempt: older effects of them may still come.
// One that comes when it is forgotten has a start proposed, which is refused.
type past struct{ last, before map[dispatch.Run]uint64 }

// mostPast is more than what is committed while an effect is on its way: at least as many are known.
const mostPast = 1 << 14

// settled is the version of a run that nothing changes again: its row has none.
const settled = math.MaxUint64

func (p *past) add(run dispatch.Run, version uint64) {
	if len(p.last) >= mostPast {
		p.last, p.before = p.before, p.last
		clear(p.last)
	}
	p.last[run] = version
}

// of returns the version of the newest row of a run; 0 = none is known.
func (p *past) of(run dispatch.Run) uint64 { return max(p.last[run], p.before[run]) }

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
	queue  kernel.Queue
}

// Expansion is a broadcast that is to become one run for each worker.
type Expansion struct {
	App     App
	Command kernel.Expand
}

// New returns the board of a leader whose term begins. From known on, it has heard all workers that live.
func New(lease time.Duration, now, known dispatch.Stamp) *Board {
	return &Board{sender: dispatch.NewSender(lease, now), most: usual, known: known, apps: map[App]*app{},
		tenants: map[jobs.Tenant]*tenant{}, rules: map[jobs.Tenant]*rule{}, commits: map[jobs.Tenant]int{},
		workers: map[dispatch.Worker]*member{}, past: past{map[dispatch.Run]uint64{}, map[dispatch.Run]uint64{}}}
}

// Load records an attempt that the rows had when the term began, or that an unknown leader started, and returns the
// run's current one.
func (b *Board) Load(run *kernel.Run, now dispatch.Stamp) *dispatch.Sent {
	m, a := b.member(run.Tenant, run.Worker), b.app(App{run.Tenant, run.App})
	sent := b.sender.Current(runOf(run))
	if b.version(a, run, sent) > run.Version {
		return sent
	}
	if sent != nil {
		if sent.N >= run.Attempt {
			return sent
		}
		b.ended(sent, a, run.Key, run.Version)
	}
	a.remove(run.ID)
	sent = b.sender.Load(attemptOf(run), m.id, now)
	if sent.Version = run.Version; run.Lingering {
		b.sender.Lingers(sent)
	}
	m.count(run.Key, 1)
	return sent
}

// version returns the version of the newest row of a run that is known; 0 = none is.
func (b *Board) version(a *app, run *kernel.Run, sent *dispatch.Sent) uint64 {
	if sent != nil {
		return sent.Version
	}
	if r := a.all[run.ID]; r != nil {
		return r.version
	}
	if s := a.spread[run.ID]; s != nil {
		return s.run.Version
	}
	return b.past.of(runOf(run))
}

// Note follows a run as a commit left it. The run's current attempt was sent; Note returns what it is now; nil is none.
// Effects come in any order: what is older than what is known changes nothing.
func (b *Board) Note(run *kernel.Run, sent *dispatch.Sent, now dispatch.Stamp, acts *dispatch.Acts) *dispatch.Sent {
	at, version := b.of(run, sent), run.Version
	if run.Settled() {
		version = settled
	}
	if b.version(at, run, sent) > version {
		return sent
	}
	if sent != nil {
		sent.Version = version
	}
	if run.State == jobs.Processing || run.Lingering {
		if sent != nil && sent.N == run.Attempt && sent.Worker().Name != run.Worker && run.State == jobs.Processing { // another leader has started it
			b.free(sent, at, run.Key)
			sent = nil
		}
		switch {
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
		b.ended(sent, at, run.Key, version)
	}
	if run.Ready() {
		at.ready(run)
		return nil
	}
	at.remove(run.ID)
	b.past.add(runOf(run), version)
	return nil
}

// of returns the app of a run. What is left of a settled run does not name it.
func (b *Board) of(run *kernel.Run, sent *dispatch.Sent) *app {
	if t := b.tenants[run.Tenant]; t != nil && run.App == "" {
		for _, a := range t.apps {
			if a.all[run.ID] != nil || a.spread[run.ID] != nil || sent != nil && slices.Contains(a.order, b.workers[sent.Worker()]) {
				return a
			}
		}
	}
	return b.app(App{run.Tenant, run.App})
}

// ended records that an attempt has ended, by a version of its row, and frees what it took.
func (b *Board) ended(sent *dispatch.Sent, at *app, key jobs.Key, version uint64) {
	b.free(sent, at, key)
	b.past.add(sent.Run, version)
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
		b.ended(sent, s.app, s.key, sent.Version)
		s.app.refused = true
		if c := s.app.cuts[s.queue]; c != nil {
			c.refused = true
		}
	}
}

// Reread has the rows of refused starts and broadcasts read again.
func (b *Board) Reread() {
	for _, a := range b.apps {
		if a.refused {
			a.reread()
		}
	}
}

// Forget drops an attempt that the store does not have.
func (b *Board) Forget(sent *dispatch.Sent, key jobs.Key, name App) {
	b.ended(sent, b.app(name), key, sent.Version)
}

// Retry records that a broadcast was not expanded. Its row is read again after Reread.
func (b *Board) Retry(e Expansion) {
	a := b.app(e.App)
	if s := a.spread[e.Command.ID]; s != nil && s.asked {
		delete(a.spread, e.Command.ID)
		a.refused = true
	}
}

// Broadcasts has those among the ready runs of an app expanded that are to become one for each worker, also those that
// the board has no room for. There may be no worker: then they are skipped.
func (b *Board) Broadcasts(name App, ready []*kernel.Run) {
	a := b.app(name)
	for _, run := range ready {
		if run.Place.Unexpanded() && (len(a.order) == 0 || !a.expects(rank{run.Priority, run.Turn}, run.Queue())) {
			b.take(a, run)
		}
	}
}

// Deserted reports whether no worker of an app takes runs.
func (b *Board) Deserted(name App) bool { a := b.apps[name]; return a == nil || a.live == 0 }

// Starts chooses at most so many starts. Tenants take turns, and so do the apps of each.
func (b *Board) Starts(most int, now dispatch.Stamp) (list []Start) {
	for idle := 0; idle < len(b.turns) && len(list) < most; {
		t := b.turns[0]
		before := len(list)
		for range t.apps {
			if b.commits[t.name] >= commitsAtOnce {
				break
			}
			a := t.apps[0]
			t.apps = append(t.apps[1:], a)
			if list = b.pick(a, list, b.room(t.name, min(share, most-len(list)), now), now); len(list) > before {
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

// pick appends starts of an app.
func (b *Board) pick(a *app, list []Start, most int, now dispatch.Stamp) []Start {
	for most > 0 && a.dry == 0 {
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
		list = append(list, b.start(a, m, dispatch.Attempt{Run: dispatch.Run{Tenant: a.name.Tenant, ID: r.id}, N: r.next}, r))
		most--
	}
	return list
}

// start takes what an attempt needs.
func (b *Board) start(a *app, m *member, of dispatch.Attempt, r *ready) Start {
	b.sender.Propose(of, m.id).Version = r.version
	b.spend(of.Tenant)
	m.count(r.key, 1)
	a.starting++
	return Start{of, m.id.Name, a, r.key, r.queue}
}

// broadcast has a run expanded that is to become one for each worker.
func (a *app) broadcast(run *kernel.Run) {
	s := &broadcast{run: run}
	a.spread[run.ID] = s
	a.board.expand = append(a.board.expand, s)
}

// Expansions returns broadcasts to expand, once each, once all workers are known. wait is how long until then; 0 = none
// waits.
func (b *Board) Expansions(now dispatch.Stamp) (list []Expansion, wait time.Duration) {
	if len(b.expand) == 0 {
		return nil, 0
	}
	if now < b.known {
		return nil, b.known - now
	}
	for _, s := range b.expand {
		a := b.apps[App{s.run.Tenant, s.run.App}]
		if a == nil || a.spread[s.run.ID] != s {
			continue // it has changed, or ended
		}
		s.asked = true
		list = append(list, Expansion{a.name, kernel.Expand{ID: s.run.ID, Workers: b.all(a, s.run)}})
	}
	b.expand = nil
	return list, 0
}

// AllKnown reports whether all workers that live are known.
func (b *Board) AllKnown(now dispatch.Stamp) bool { return now >= b.known }

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

// Compare looks for runs that the board should have: rows are the first of an app that the store has, of queues that
// Looks allows. A run that it lacked in the last two looks is taken up: Compare returns how many were. Effects that are
// on their way arrive between two looks.
func (b *Board) Compare(name App, rows []*kernel.Run) (mended int) {
	a := b.app(name)
	last := a.lacking
	a.lacking = nil
	if a.refused || len(a.order) == 0 {
		return 0
	}
	for _, run := range rows {
		if !a.expects(rank{run.Priority, run.Turn}, run.Queue()) || b.has(a, run) {
			continue
		}
		if version, twice := last[run.ID]; twice && version == run.Version && b.take(a, run) {
			mended++
			continue
		}
		if a.lacking == nil {
			a.lacking = map[jobs.ID]uint64{}
		}
		a.lacking[run.ID] = run.Version
	}
	return mended
}

// has reports whether the board knows that a run can start, or has its start on its way.
func (b *Board) has(a *app, run *kernel.Run) bool {
	if sent := b.sender.Current(runOf(run)); sent != nil {
		return sent.N > run.Attempt || sent.Version > run.Version
	}
	return a.all[run.ID] != nil || a.spread[run.ID] != nil || b.past.of(runOf(run)) > run.Version
}

// Looks returns of which queues of an app Compare is to be given runs: of those of which a worker may take one now.
// none = no worker may take any.
func (b *Board) Looks(name App) (has func(kernel.Queue) bool, none bool) {
	a := b.apps[name]
	if a == nil || len(a.order) == 0 {
		return nil, true
	}
	if c := a.classes[kernel.Queue{}]; c != nil && c.wait {
		return nil, true
	}
	full := map[kernel.Queue]struct{}{}
	for q, c := range a.classes {
		if c.wait {
			full[q] = struct{}{}
		}
	}
	return func(q kernel.Queue) bool { _, waits := full[q]; return !waits }, false
}
