package dispatch

import "time"

// Stamp is a time on one process's steady clock.
type Stamp = time.Duration

// Verdict is a worker's answer about a pushed attempt.
type Verdict uint8

// The verdicts. A push that is too old is not answered.
const (
	// Began: the attempt is the worker's; its handler begins now or has begun.
	Began Verdict = iota + 1
	// Refused: it never begins on this worker.
	Refused
	// Over: it began, and the store knows how it ended.
	Over
)

// Push is what a leader sends to a worker: begin these attempts.
type Push struct {
	Process int64         // of the process that it is for: Heartbeat.Process
	Heard   Stamp         // when the worker sent the last heartbeat that the leader has received, on the worker's clock
	Lease   time.Duration // that attempts are the worker's after each heartbeat that names them
}

// Receiver is a worker's end: what it runs, and what it will not begin again. Its methods are not safe for concurrent
// use.
type Receiver struct {
	process int64
	slots   int  // 0 = unlimited
	away    bool // takes nothing new
	held    map[Attempt]*holding
	busy    map[Run]Attempt // those whose handlers have not returned: one attempt of a run at most
	past    map[begun]past
	order   []ending // of past, the oldest first
	rules   rules
}

// begun names an attempt in every history: a store that was restored from a backup gives the same number again, and
// its attempt has not ended. The time at which the store started an attempt does not come again.
type begun struct {
	Attempt
	started int64 // Unix nanoseconds, by the store
}

// holding is an attempt that the worker runs, or has run and not yet reported.
type holding struct {
	started int64
	stray   bool // it is not the worker's any more, and its handler has not returned
}

// past is how an attempt ended for a worker.
type past struct {
	verdict Verdict
	at      Stamp
}

type ending struct {
	attempt begun
	at      Stamp
}

// NewReceiver returns the end of a worker with so many slots; 0 is no limit. Of several processes that act for the same
// worker, one after the other, each has another number: a push that follows a heartbeat of another process is not
// accepted, because what that one has begun is not known here.
func NewReceiver(process int64, slots int) *Receiver {
	return &Receiver{process: process, slots: slots, rules: sabotaged(), held: map[Attempt]*holding{}, busy: map[Run]Attempt{}, past: map[begun]past{}}
}

// Away has the worker take nothing new, or take runs again.
func (r *Receiver) Away(on bool) { r.away = on }

// Limit sets the number of slots.
func (r *Receiver) Limit(slots int) { r.slots = slots }

// Busy returns how many slots are taken.
func (r *Receiver) Busy() int { return len(r.busy) }

// Adopt takes over an attempt that another process of the worker has begun, even without a free slot or while the
// worker is away. It reports whether that is possible.
func (r *Receiver) Adopt(a Attempt, started int64) bool {
	if _, running := r.busy[a.Run]; running || r.held[a] != nil {
		return false
	}
	r.held[a], r.busy[a.Run] = &holding{started: started}, a
	return true
}

// Accepts reports whether a push may be answered at all. If not, nothing is known of its attempts.
func (r *Receiver) Accepts(p Push, now Stamp) bool {
	r.forget(now - 2*p.Lease)
	return p.Process == r.process && (r.rules.off(Fresh) || now-p.Heard <= p.Lease*2/3)
}

// Receive decides about one attempt, which the store started at a time, of a push that Accepts has accepted. On Began
// with begin, the caller begins it, after the answer has been sent. able says whether the worker has the code for it.
func (r *Receiver) Receive(a Attempt, started int64, able bool, now Stamp) (v Verdict, begin bool) {
	h := r.held[a]
	if h != nil && h.started == started {
		return Began, false
	}
	if p, known := r.past[begun{a, started}]; known && !r.rules.off(Once) {
		return p.verdict, false
	}
	_, running := r.busy[a.Run]
	if r.away || !able || running || h != nil || r.slots > 0 && len(r.busy) >= r.slots {
		r.end(begun{a, started}, Refused, now)
		return Refused, false
	}
	r.held[a], r.busy[a.Run] = &holding{started: started}, a
	return Began, true
}

// MayBegin reports whether the handler of an accepted attempt may begin: its lease, which was renewed at some time, has
// certainly not expired. If it may not, another worker may have the run: the attempt is to be given back.
func (r *Receiver) MayBegin(renewed, now Stamp, lease time.Duration) bool {
	return r.rules.off(Fresh) || now-renewed < lease
}

// Forgo has an attempt never begin that is not held: it ended before its push came.
func (r *Receiver) Forgo(a Attempt, started int64, now Stamp) {
	if r.held[a] == nil {
		r.end(begun{a, started}, Over, now)
	}
}

// Returned records that the handler of an attempt has returned: its slot is free.
func (r *Receiver) Returned(a Attempt) {
	if r.busy[a.Run] == a {
		delete(r.busy, a.Run)
	}
	if h := r.held[a]; h != nil && h.stray {
		delete(r.held, a)
	}
}

// Ended records that the store knows how an attempt ended, or that the attempt is not the worker's any more.
func (r *Receiver) Ended(a Attempt, now Stamp) {
	h := r.held[a]
	if h == nil {
		return
	}
	r.end(begun{a, h.started}, Over, now)
	if r.busy[a.Run] == a {
		h.stray = true
		return
	}
	delete(r.held, a)
}

// Names calls yield for each attempt that a heartbeat names, and returns how many slots others take.
func (r *Receiver) Names(yield func(Attempt)) (strays int) {
	for a, h := range r.held {
		if h.stray {
			strays++
			continue
		}
		yield(a)
	}
	return strays
}

func (r *Receiver) end(a begun, v Verdict, now Stamp) {
	if p, known := r.past[a]; known && p.at == now {
		r.past[a] = past{v, now}
		return
	}
	r.order = append(r.order, ending{a, now})
	r.past[a] = past{v, now}
}

// forget drops what ended before some time.
func (r *Receiver) forget(before Stamp) {
	n := 0
	for n < len(r.order) && r.order[n].at < before {
		if e := r.order[n]; r.past[e.attempt].at == e.at { // it has not ended again since
			delete(r.past, e.attempt)
		}
		n++
	}
	r.order = r.order[n:]
}
