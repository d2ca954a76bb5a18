package worker

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
)

// token names an attempt.
type token struct {
	ID      jobs.ID
	Attempt uint32
}

// phase is how far an attempt is in this worker.
type phase uint8

const (
	claiming  phase = iota // the claim is on its way
	running                // the handler has not returned
	reporting              // it has; the store has not answered yet
)

// mostClaiming bounds the offers whose claims are under way, and is how much a worker without a limit asks for.
const mostClaiming = 2048

// held is what a worker has in hand: its attempts, from the offer on until the store knows how they ended, and
// the slots that they take, from the offer on until the handler has returned.
type held struct {
	slots int           // 0 = no limit
	freed chan struct{} // gets a token when an offer may fit again

	mu       sync.Mutex
	attempts map[token]*attempt
	slotOf   map[jobs.ID]*attempt // those that take a slot: one attempt of a run at most
	claiming int
	closed   bool          // takes nothing more
	empty    chan struct{} // closed when nothing is held; made when somebody asks

	claimed  uint64
	stopped  uint64
	returned uint64
	finished map[jobs.Outcome]uint64
}

func newHeld(slots int) *held {
	return &held{
		slots: slots, freed: make(chan struct{}, 1),
		attempts: map[token]*attempt{}, slotOf: map[jobs.ID]*attempt{}, finished: map[jobs.Outcome]uint64{},
	}
}

// room is how many offers would fit now. Call it with mu held.
func (h *held) room() int {
	if h.closed {
		return 0
	}
	free := mostClaiming - h.claiming
	if h.slots > 0 {
		free = min(free, h.slots-len(h.slotOf))
	}
	return free
}

// await waits until an offer would fit, and says how many would. It answers 0 when ctx ends.
func (h *held) await(ctx context.Context) int {
	for ctx.Err() == nil {
		h.mu.Lock()
		room := h.room()
		h.mu.Unlock()
		if room > 0 {
			return room
		}
		select {
		case <-ctx.Done():
		case <-h.freed:
		}
	}
	return 0
}

// admit takes what fits into hand, and says which offers go back. What is neither is known already: a second
// offer of an attempt in hand, or of a run that is still running here under an older attempt.
func (h *held) admit(list []bus.Offer, serves func(jobs.Key) bool) (taken []*attempt, back []bus.Offer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range list {
		t := token{o.ID, o.Attempt}
		switch {
		case h.attempts[t] != nil || h.slotOf[o.ID] != nil:
		case h.room() <= 0 || !serves(o.Key):
			back = append(back, o)
		default:
			a := &attempt{token: t, key: o.Key}
			h.attempts[t], h.slotOf[o.ID] = a, a
			h.claiming++
			taken = append(taken, a)
		}
	}
	h.returned += uint64(len(back))
	return taken, back
}

// begun says that the claim succeeded: the run is ours.
func (h *held) begun(a *attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a.phase = running
	h.claiming--
	h.claimed++
	if h.slots == 0 {
		h.ring()
	}
}

// left says that the attempt's handler has returned, or never began: its slot is free.
func (h *held) left(a *attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.vacate(a)
	a.phase = reporting
}

// drop forgets an attempt.
func (h *held) drop(a *attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.vacate(a)
	delete(h.attempts, a.token)
	if len(h.attempts) == 0 && h.empty != nil {
		close(h.empty)
		h.empty = nil
	}
}

func (h *held) vacate(a *attempt) {
	if a.phase == claiming {
		h.claiming--
		a.phase = reporting
	}
	if h.slotOf[a.ID] == a {
		delete(h.slotOf, a.ID)
	}
	h.ring()
}

func (h *held) ring() {
	select {
	case h.freed <- struct{}{}:
	default:
	}
}

// find is the attempt in hand with this name, or nil.
func (h *held) find(t token) *attempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.attempts[t]
}

// list is what a beat says: every attempt that is ours as far as we know.
func (h *held) list() []bus.Held {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]bus.Held, 0, len(h.attempts))
	for t, a := range h.attempts {
		if a.phase == claiming {
			continue
		}
		if line, ours := a.line(t); ours {
			list = append(list, line)
		}
	}
	return list
}

// all is every attempt in hand.
func (h *held) all() []*attempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*attempt, 0, len(h.attempts))
	for _, a := range h.attempts {
		all = append(all, a)
	}
	return all
}

// close makes the worker take nothing more.
func (h *held) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
}

func (h *held) isClosed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}

// drained waits until nothing is in hand, at most for a time, and says whether it came to that.
func (h *held) drained(most time.Duration) bool {
	h.mu.Lock()
	if len(h.attempts) == 0 {
		h.mu.Unlock()
		return true
	}
	if h.empty == nil {
		h.empty = make(chan struct{})
	}
	empty := h.empty
	h.mu.Unlock()
	select {
	case <-empty:
		return true
	case <-time.After(most):
		return false
	}
}

// count notes how an attempt ended.
func (h *held) count(o jobs.Outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o == 0 {
		h.stopped++
		return
	}
	h.finished[o]++
}

func (h *held) stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := Stats{Free: -1, Claimed: h.claimed, Stopped: h.stopped, Returned: h.returned, Finished: maps.Clone(h.finished)}
	for _, a := range h.slotOf {
		if a.phase == running {
			s.Running++
		}
		if a.isStuck() {
			s.Stuck++
		}
	}
	if h.slots > 0 {
		s.Free = h.slots - len(h.slotOf)
	}
	return s
}
