package dispatch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// world is a store, up to two leaders, two workers and a network, in which each step is either taken as usual or struck
// by a fault. It drives the very Sender and Receiver of the program. Time passes in ticks of a second.
type world struct {
	scene  scene
	script []strike
	rules  rules

	now     int
	points  []int // faults that were possible at each point so far
	rows    []row
	term    uint64 // of the leader that the store accepts
	leaders []*leader
	workers []*process
	queue   []message
	later   []message
	begun   map[Attempt]int
	said    map[Attempt]bool // the worker's word that it began has been lost or is late
	trace   []string         // nil = not wanted
	tracing bool
	fault   string // the violation

	cancelled    Attempt // is not to begin any more once that is acknowledged
	acknowledged bool
}

// scene is what is to be done: runs, how long their handlers take, and the slots of each worker.
type scene struct {
	name  string
	runs  int
	takes int // ticks of each handler
	slots []int
	// deadly runs end the process of the worker that first begins them.
	deadly bool
	// cancels: the first run may be cancelled. The signal to its worker is lost.
	cancels bool
}

const (
	leaseTicks     = 9
	heartbeatTicks = 2
	lease          = leaseTicks * time.Second
	faultsUpTo     = 10  // the tick after which no fault begins
	lastTick       = 120 // by which every run must have ended
)

// strike is a fault at one point.
type strike struct{ point, fault int }

type row struct {
	ready, done bool
	n           uint32
	worker      int
	failures    int // lapses that count as losses
}

type leader struct {
	*Sender
	term   uint64
	stale  bool // it has noticed that another leads
	ready  map[int]uint32
	frozen int // until this tick
	inbox  []message
}

type process struct {
	*Receiver
	id      int
	dead    bool
	frozen  int
	inbox   []message
	knows   uint64            // the term whose leader it sends heartbeats to
	silent  int               // ticks without an answer
	ends    map[Attempt]int   // when handlers return
	reports map[Attempt]bool  // not answered yet
	renewed map[Attempt]int   // when the last answered heartbeat that named it was sent
	named   map[int][]Attempt // what the heartbeat of each tick named
	strays  map[Attempt]bool  // handlers of attempts that are not its own any more
}

type kind int

const (
	push kind = iota
	answer
	heartbeat
	heard
	commit
	result
	report
	reported
	hello
	begins
)

func (k kind) String() string {
	return [...]string{"push", "answer", "heartbeat", "heard", "commit", "result", "report", "reported", "hello", "begins"}[k]
}

type message struct {
	kind    kind
	term    uint64 // of the leader that sends or gets it
	worker  int
	at      int // delivered at this tick, if it is late
	push    Push
	a       Attempt
	verdict Verdict
	reports Heartbeat
	stop    []Attempt
	op      op
	refused bool // or given back: a report of an attempt that never began
	copied  bool // a second copy
}

type op int

const (
	opStart op = iota
	opUnstart
	opLapse
	opLapseUnbegun
)

func (o op) String() string { return [...]string{"start", "unstart", "lapse", "lapse unbegun"}[o] }

func (m message) String() string {
	switch m.kind {
	case commit:
		return fmt.Sprintf("leader %d commits %s %s", m.term, m.op, name(m.a))
	case result:
		return fmt.Sprintf("leader %d learns %s %s refused=%v", m.term, m.op, name(m.a), m.refused)
	case push:
		return fmt.Sprintf("leader %d pushes %s to worker %d, heard %v", m.term, name(m.a), m.worker, m.push.Heard)
	case answer:
		return fmt.Sprintf("worker %d answers leader %d about %s: %d", m.worker, m.term, name(m.a), m.verdict)
	}
	return fmt.Sprintf("%v between leader %d and worker %d %s", m.kind, m.term, m.worker, name(m.a))
}

func name(a Attempt) string {
	if a.N == 0 {
		return ""
	}
	return fmt.Sprintf("run %d attempt %d", runOf(a), a.N)
}

func runOf(a Attempt) int { return int(a.ID[0]) }

func attempt(run int, n uint32) Attempt { return Attempt{Run{"t", jobs.ID{byte(run)}}, n} }

func workerOf(i int) Worker { return Worker{"t", fmt.Sprint(i)} }

func compare(a, b Attempt) int { return cmp.Or(cmp.Compare(a.ID[0], b.ID[0]), cmp.Compare(a.N, b.N)) }

func stamp(tick int) Stamp { return time.Duration(tick) * time.Second }

// play runs a scene with the faults of a script, until known stops it. The violation is "" if there is none.
func play(s scene, script []strike, off rules, tracing bool, known func(*world) bool) *world {
	w := &world{scene: s, script: script, rules: off, term: 1, begun: map[Attempt]int{}, said: map[Attempt]bool{}, tracing: tracing}
	for range s.runs {
		w.rows = append(w.rows, row{ready: true})
	}
	for i, slots := range s.slots {
		r := NewReceiver(0, slots)
		r.rules = off
		w.workers = append(w.workers, &process{Receiver: r, id: i, knows: 1, ends: map[Attempt]int{}, reports: map[Attempt]bool{},
			renewed: map[Attempt]int{}, named: map[int][]Attempt{}, strays: map[Attempt]bool{}})
	}
	w.elect(1)
	for w.now = 1; w.now <= lastTick && w.fault == "" && !w.quiet(); w.now++ {
		if known != nil && known(w) {
			return w
		}
		w.tick()
	}
	if w.fault == "" {
		for i, r := range w.rows {
			if !r.done && w.alive() {
				w.fail("run %d has not ended", i)
			}
		}
	}
	return w
}

func (w *world) alive() bool {
	return slices.ContainsFunc(w.workers, func(p *process) bool { return !p.dead })
}

// quiet reports whether nothing can happen any more.
func (w *world) quiet() bool {
	if w.now <= faultsUpTo || len(w.later) > 0 {
		return false
	}
	for _, r := range w.rows {
		if !r.done {
			return false
		}
	}
	return true
}

func (w *world) fail(format string, args ...any) {
	if w.fault == "" {
		w.fault = fmt.Sprintf(format, args...)
		w.say("VIOLATION: %s", w.fault)
	}
}

func (w *world) say(format string, args ...any) {
	if w.tracing {
		w.trace = append(w.trace, fmt.Sprintf("%2d  ", w.now)+fmt.Sprintf(format, args...))
	}
}

// choose is a point at which one of some faults may strike: it returns 0 for none.
func (w *world) choose(faults int) int {
	if w.now > faultsUpTo {
		return 0
	}
	at := len(w.points)
	w.points = append(w.points, faults)
	for _, s := range w.script {
		if s.point == at {
			return s.fault
		}
	}
	return 0
}

// elect makes a new leader, which knows the rows as they are.
func (w *world) elect(term uint64) {
	w.term = term
	s := NewSender(lease, stamp(w.now))
	s.rules = w.rules
	l := &leader{Sender: s, term: term, ready: map[int]uint32{}}
	for i, r := range w.rows {
		switch {
		case r.ready:
			l.ready[i] = r.n + 1
		case !r.done:
			s.Load(attempt(i, r.n), workerOf(r.worker), stamp(w.now))
		case w.cancelled.N > 0 && w.cancelled == attempt(i, r.n):
			s.Lingers(s.Load(w.cancelled, workerOf(r.worker), stamp(w.now)))
		}
	}
	w.leaders = append(w.leaders, l)
	for i := range w.workers {
		w.send(message{kind: hello, term: term, worker: i})
	}
}

func (w *world) leader(term uint64) *leader {
	for _, l := range w.leaders {
		if l.term == term {
			return l
		}
	}
	return nil
}

func (w *world) send(m message) { w.queue = append(w.queue, m) }

// The faults of a process, at the beginning of a tick.
var freezes = []int{2, 5, 11}

// tick lets a second pass.
func (w *world) tick() {
	w.strikeProcesses()
	late := w.later
	w.later = nil
	for _, m := range late {
		if m.at <= w.now {
			w.say("late: %v", m)
			w.deliver(m)
		} else {
			w.later = append(w.later, m)
		}
	}
	w.drain()
	for _, l := range w.leaders {
		if l.frozen > w.now {
			continue
		}
		inbox := l.inbox
		l.inbox = nil
		for _, m := range inbox {
			w.deliver(m)
		}
		w.leads(l)
	}
	w.drain()
	for _, p := range w.workers {
		if p.dead || p.frozen > w.now {
			continue
		}
		inbox := p.inbox
		p.inbox = nil
		for _, m := range inbox {
			w.deliver(m)
		}
		w.works(p)
	}
	w.drain()
	if w.choose(1) == 1 {
		w.depose()
	}
	if w.scene.cancels && w.cancelled.N == 0 && w.choose(1) == 1 {
		w.cancel()
	}
	w.acknowledge()
}

// cancel ends the first run's attempt, which its leader knows at once, and its worker does not.
func (w *world) cancel() {
	r := &w.rows[0]
	l := w.leader(w.term)
	if r.ready || r.done || r.n == 0 || l.frozen > w.now || l.stale {
		return
	}
	w.cancelled, r.done = attempt(0, r.n), true
	w.say("%s is cancelled", name(w.cancelled))
	if k := l.Find(w.cancelled); k != nil {
		if k.Proposed() {
			var acts Acts
			l.Started(k, stamp(w.now), &acts)
			w.does(l, acts)
		}
		l.Lingers(k)
	}
}

// acknowledge has the caller of a cancel get its answer, if the leader may give it.
func (w *world) acknowledge() {
	l := w.leader(w.term)
	if w.cancelled.N == 0 || w.acknowledged || l.frozen > w.now || l.stale {
		return
	}
	if k := l.Find(w.cancelled); k == nil || l.MayBegin(k, stamp(w.now)) == 0 {
		w.acknowledged = true
		w.say("the cancel of %s is acknowledged", name(w.cancelled))
	}
}

// strikeProcesses freezes, ends or deposes.
func (w *world) strikeProcesses() {
	n := 1 + len(freezes)*(len(w.workers)+1) + len(w.workers)
	f := w.choose(n) - 1
	switch {
	case f < 0:
	case f == 0:
		w.depose()
	case f <= len(freezes):
		w.leaders[0].frozen = w.now + freezes[f-1]
		w.say("leader 1 is frozen until %d", w.leaders[0].frozen)
	case f <= len(freezes)*(len(w.workers)+1):
		f -= len(freezes) + 1
		p := w.workers[f/len(freezes)]
		p.frozen = w.now + freezes[f%len(freezes)]
		w.say("worker %d is frozen until %d", p.id, p.frozen)
	default:
		p := w.workers[f-len(freezes)*(len(w.workers)+1)-1]
		w.kill(p)
	}
}

// depose has another leader elected, which the first one does not know.
func (w *world) depose() {
	if w.term == 1 {
		w.say("leader 2 is elected")
		w.elect(2)
	}
}

func (w *world) kill(p *process) {
	p.dead = true
	w.say("worker %d ends", p.id)
}

// Faults of a message.
var delays = []int{1, 4, 7, 11}

const (
	asUsual = iota
	lost
	bounced // lost, with the proof that no process received it
	crashed // the worker ends as it handles it
	delayed // from here: late by delays
)

func doubled() int { return delayed + len(delays) }

// drain delivers what was sent, in its order.
func (w *world) drain() {
	for len(w.queue) > 0 && w.fault == "" {
		m := w.queue[0]
		w.queue = w.queue[1:]
		if m.kind == begins { // no message: but its process may stand still before it
			if p := w.workers[m.worker]; w.choose(1) == 1 && p.frozen <= w.now {
				p.frozen = w.now + leaseTicks + 1
				w.say("worker %d is frozen before %s begins, until %d", p.id, name(m.a), p.frozen)
			}
			w.deliver(m)
			continue
		}
		f := w.choose(doubled() + len(delays) - 1)
		switch {
		case f == asUsual:
			w.deliver(m)
		case f < delayed && (m.kind == commit || m.kind == result): // a log loses nothing
			w.deliver(m)
		case f == lost:
			w.note(m)
			w.say("lost: %v", m)
		case f == bounced:
			w.note(m)
			if m.kind == push {
				w.say("no process receives: %v", m)
				w.bounce(m)
			}
		case f == crashed:
			if m.kind == push && !w.workers[m.worker].dead {
				w.say("crash on: %v", m)
				w.receives(m, true)
			} else {
				w.deliver(m)
			}
		case f < doubled():
			w.note(m)
			m.at = w.now + delays[f-delayed]
			w.say("delayed until %d: %v", m.at, m)
			w.later = append(w.later, m)
		default:
			if m.kind == commit || m.kind == result {
				w.deliver(m)
				continue
			}
			again := m
			again.at, again.copied = w.now+delays[f-doubled()], true
			w.say("doubled at %d: %v", again.at, m)
			w.later = append(w.later, again)
			w.deliver(m)
		}
	}
}

// note records that a worker's word did not come in time.
func (w *world) note(m message) {
	if m.kind == answer {
		w.said[m.a] = true
	}
}

// bounce tells the leader that its push reached no process.
func (w *world) bounce(m message) {
	if l := w.leader(m.term); l != nil && l.frozen <= w.now && !l.stale {
		var acts Acts
		if k := l.Find(m.a); k != nil {
			l.Undelivered(k, &acts)
		}
		w.does(l, acts)
	}
}

func (w *world) deliver(m message) {
	if m.kind == commit {
		w.commits(m)
		return
	}
	if m.kind == report {
		w.finishes(m)
		return
	}
	if m.kind == push || m.kind == heard || m.kind == reported || m.kind == hello || m.kind == begins {
		p := w.workers[m.worker]
		switch {
		case p.dead:
		case p.frozen > w.now:
			p.inbox = append(p.inbox, m)
		default:
			w.say("%v", m)
			w.receives(m, false)
		}
		return
	}
	l := w.leader(m.term)
	switch {
	case l == nil || l.stale:
	case l.frozen > w.now:
		l.inbox = append(l.inbox, m)
	default:
		w.say("%v", m)
		w.hears(l, m)
	}
}

// receives is a worker that gets a message.
func (w *world) receives(m message, crash bool) {
	p, now := w.workers[m.worker], stamp(w.now)
	switch m.kind {
	case hello:
		p.knows, p.silent = max(p.knows, m.term), 0
	case heard:
		if m.term >= p.knows {
			p.silent = 0
		}
		at := int(m.reports.Sent / time.Second)
		for _, a := range p.named[at] {
			p.renewed[a] = max(p.renewed[a], at)
		}
		for _, a := range m.stop {
			if p.held[a] != nil {
				w.say("worker %d loses %s", p.id, name(a))
				p.Ended(a, now)
				delete(p.reports, a)
				p.strays[a] = true
			}
		}
	case reported:
		p.Ended(m.a, now)
		delete(p.reports, m.a)
	case push:
		if !p.Accepts(m.push, now) {
			w.say("worker %d does not accept it", p.id)
			return
		}
		free := p.slots - len(p.busy)
		v, begin := p.Receive(m.a, 0, true, now)
		if v == Refused && free <= 0 && p.past[begun{Attempt: m.a}].at == now && !p.excused() {
			w.fail("worker %d has no slot for %s", p.id, name(m.a))
		}
		reply := message{kind: answer, term: m.term, worker: p.id, a: m.a, verdict: v}
		if begin {
			p.renewed[m.a] = int(m.push.Heard / time.Second) // the leader had pushed after that
		}
		if w.rules.off(AnswerFirst) && begin {
			w.begins(p, m.a)
		}
		if crash {
			w.kill(p)
		}
		if p.dead {
			return
		}
		w.send(reply)
		if begin && !w.rules.off(AnswerFirst) {
			w.send(message{kind: begins, worker: p.id, a: m.a})
		}
	case begins:
		switch {
		case p.held[m.a] == nil || p.held[m.a].stray: // lost meanwhile
			delete(p.strays, m.a)
			p.Returned(m.a)
		case p.MayBegin(stamp(p.renewed[m.a]), now, lease):
			w.begins(p, m.a)
		default:
			p.Returned(m.a)
			w.send(message{kind: report, worker: p.id, a: m.a, refused: true})
		}
	}
}

// excused reports whether a worker has handlers that its leader cannot know of.
func (p *process) excused() bool {
	return len(p.strays) > 0 || p.Names(func(Attempt) {}) > 0
}

// begins checks what must hold when a handler begins.
func (w *world) begins(p *process, a Attempt) {
	w.say("worker %d begins %s", p.id, name(a))
	w.begun[a]++
	r := w.rows[runOf(a)]
	switch {
	case w.begun[a] > 1:
		w.fail("%s begins twice", name(a))
	case a == w.cancelled && w.acknowledged:
		w.fail("%s begins after its cancel was acknowledged", name(a))
	case a == w.cancelled:
	case r.ready || r.done || r.n != a.N || r.worker != p.id:
		w.fail("worker %d begins %s, which is not its own any more", p.id, name(a))
	}
	p.ends[a] = w.now + w.scene.takes
	if w.scene.deadly && w.begun[a] == 1 && a.N == 1 {
		w.kill(p)
	}
}

// works is a worker's second.
func (w *world) works(p *process) {
	for _, a := range sorted(p.ends) {
		if p.ends[a] <= w.now {
			delete(p.ends, a)
			p.Returned(a)
			if p.strays[a] {
				delete(p.strays, a)
			} else {
				p.reports[a] = true
			}
		}
	}
	for _, a := range sorted(p.reports) {
		w.send(message{kind: report, worker: p.id, a: a})
	}
	if p.silent++; p.silent > 2*heartbeatTicks {
		p.knows, p.silent = w.term, 1
	}
	if w.now%heartbeatTicks != p.id%heartbeatTicks && w.now > 1 {
		return
	}
	h := Heartbeat{Worker: workerOf(p.id), Sent: stamp(w.now), Slots: p.slots}
	h.Strays = p.Names(func(a Attempt) { h.Names = append(h.Names, a) })
	slices.SortFunc(h.Names, compare)
	p.named[w.now] = h.Names
	w.send(message{kind: heartbeat, term: p.knows, worker: p.id, reports: h})
}

// leads is a leader's second.
func (w *world) leads(l *leader) {
	now := stamp(w.now)
	if l.term == w.term {
		l.Confirm(now)
	}
	if l.stale {
		return
	}
	if !l.Sender.leads(now) {
		l.stale = true
		w.say("leader %d steps down", l.term)
		return
	}
	var acts Acts
	l.Tick(now, &acts)
	l.Lapsed(now, &acts)
	w.does(l, acts)
	w.fill(l)
}

// fill proposes to start what is ready.
func (w *world) fill(l *leader) {
	for _, run := range sorted2(l.ready) {
		for i := range w.workers {
			if l.Seat(workerOf(i)).Credit(stamp(w.now)) > 0 {
				a := attempt(run, l.ready[run])
				delete(l.ready, run)
				l.Propose(a, workerOf(i))
				w.send(message{kind: commit, term: l.term, worker: i, a: a, op: opStart})
				break
			}
		}
	}
}

// does carries out what a step of a leader asks for.
func (w *world) does(l *leader, acts Acts) {
	slices.SortFunc(acts.Push, func(x, y *Sent) int { return compare(x.Attempt, y.Attempt) })
	for _, k := range acts.Push {
		to := k.Worker()
		w.send(message{kind: push, term: l.term, worker: int(to.Name[0] - '0'), a: k.Attempt, push: l.Push(to)})
	}
	slices.SortFunc(acts.Unstart, compare)
	for _, a := range acts.Unstart {
		w.send(message{kind: commit, term: l.term, a: a, op: opUnstart})
	}
	slices.SortFunc(acts.Lapse, func(x, y Lapse) int { return compare(x.Attempt, y.Attempt) })
	for _, a := range acts.Lapse {
		o := opLapseUnbegun
		if a.Began {
			o = opLapse
		}
		w.send(message{kind: commit, term: l.term, a: a.Attempt, op: o})
	}
}

// hears is a leader that gets a message.
func (w *world) hears(l *leader, m message) {
	var acts Acts
	now := stamp(w.now)
	k := l.Find(m.a)
	switch m.kind {
	case answer:
		if k != nil {
			l.Answer(k, workerOf(m.worker), m.verdict, &acts)
		}
	case heartbeat:
		l.Heartbeat(m.reports, now, &acts)
		if l.Sender.leads(now) {
			w.send(message{kind: heard, term: l.term, worker: m.worker, reports: m.reports, stop: append(acts.Stop, acts.Unknown...)})
		}
	case result:
		switch {
		case m.refused && m.op == opStart:
			l.ends(k)
			if m.term != w.term {
				l.stale = true
			}
		case m.refused:
		case m.op == opStart:
			if k != nil {
				l.Started(k, now, &acts)
			}
		default:
			l.ends(k)
			if r := w.rows[runOf(m.a)]; r.ready && r.n == m.a.N {
				l.ready[runOf(m.a)] = m.a.N + 1
			}
		}
	}
	w.does(l, acts)
	w.fill(l)
}

// ends has a leader forget an attempt, if it knows it.
func (l *leader) ends(k *Sent) {
	if k != nil {
		l.Ended(k)
	}
}

// commits is the store: it accepts entries of its leader, and what the rows allow.
func (w *world) commits(m message) {
	r := &w.rows[runOf(m.a)]
	good := m.term == w.term
	switch m.op {
	case opStart:
		if good = good && r.ready && m.a.N == r.n+1; good {
			*r = row{n: m.a.N, worker: m.worker, failures: r.failures}
		}
	default:
		if good = good && !r.ready && !r.done && r.n == m.a.N; good {
			w.takesBack(m)
			r.ready = true
			if m.op == opLapse {
				r.failures++
			}
		}
	}
	w.say("%v: %v", m, good)
	m.kind, m.refused = result, !good
	w.send(m)
}

// takesBack checks what must hold when an attempt is taken from its worker.
func (w *world) takesBack(m message) {
	r := w.rows[runOf(m.a)]
	p := w.workers[r.worker]
	switch {
	case m.op == opUnstart && w.begun[m.a] > 0:
		w.fail("%s is unstarted, and has begun", name(m.a))
	case m.op == opUnstart:
	case !p.dead && w.begun[m.a] > 0 && p.ends[m.a] != 0 && w.now < p.renewed[m.a]+leaseTicks:
		w.fail("%s expires at %d, although its worker was answered at %d", name(m.a), w.now, p.renewed[m.a])
	case m.op == opLapseUnbegun && w.begun[m.a] > 0 && !w.said[m.a] && len(w.leaders) == 1 && w.leaders[0].frozen == 0:
		w.fail("%s expires as one that never began", name(m.a))
	case w.onlyLost():
		w.fail("%s expires, although its worker lives and few messages were lost", name(m.a))
	}
}

// onlyLost reports whether no process was struck, and no message came late.
func (w *world) onlyLost() bool {
	if len(w.leaders) > 1 {
		return false
	}
	for _, l := range w.leaders {
		if l.frozen > 0 {
			return false
		}
	}
	for _, p := range w.workers {
		if p.dead || p.frozen > 0 {
			return false
		}
	}
	return true
}

// finishes is the store that gets a worker's report.
func (w *world) finishes(m message) {
	r := &w.rows[runOf(m.a)]
	if !r.ready && !r.done && r.n == m.a.N {
		w.say("worker %d reports %s, given back %v", m.worker, name(m.a), m.refused)
		r.ready, r.done = m.refused, !m.refused
		w.ended(m.a)
	}
	w.send(message{kind: reported, worker: m.worker, a: m.a})
}

// ended lets the current leader know of an end, with the entry that has it.
func (w *world) ended(a Attempt) {
	w.send(message{kind: result, term: w.term, a: a, op: opLapse})
}

func sorted(m any) []Attempt {
	var list []Attempt
	switch m := m.(type) {
	case map[Attempt]int:
		for a := range m {
			list = append(list, a)
		}
	case map[Attempt]bool:
		for a := range m {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, compare)
	return list
}

func sorted2(m map[int]uint32) (list []int) {
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}

func (w *world) story() string { return strings.Join(w.trace, "\n") }
