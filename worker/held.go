package worker

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
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

// held is what a worker holds: its attempts, from the offer on until the store knows how they ended, and the slots that
// they take, from the offer on until the handler has returned.
type held struct {
	slots int           // 0 = no limit
	freed chan struct{} // gets a token when an offer may fit again

	mu       sync.Mutex
	attempts map[token]*attempt
	slotOf   map[jobs.ID]*attempt // those that take a slot: one attempt of a run at most
	claiming int
	closed   bool          // takes nothing more
	resting  bool          // asked to take nothing for now
	onDemand bool          // takes only what is asked for
	asked    int           // how many attempts are asked for
	pending  int           // attempts held that no poll was given yet
	empty    chan struct{} // closed when nothing is held; made on request

	claimed  uint64
	stopped  uint64
	returned uint64
	finished map[string]uint64
	recent   recent
	lost     []*attempt // ended while the worker drained, and the store did not confirm that
}

func newHeld(slots int) *held {
	return &held{
		slots: slots, freed: make(chan struct{}, 1),
		attempts: map[token]*attempt{}, slotOf: map[jobs.ID]*attempt{}, finished: map[string]uint64{},
	}
}

// room returns how many offers would fit now. Call it with mu held.
func (h *held) room() int {
	if h.closed || h.resting {
		return 0
	}
	free := mostClaiming - h.claiming
	if h.slots > 0 {
		free = min(free, h.slots-len(h.slotOf))
	}
	if h.onDemand {
		free = min(free, h.asked-h.pending)
	}
	return free
}

// await waits until an offer would fit, and returns how many would. It returns 0 when ctx ends.
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

// admit takes what fits, and returns which offers go back. What is neither is known already: a second offer of an
// attempt that is held, or of a run that is still running here under an older attempt. The latter goes back where
// nothing fits: another worker may take it at once, and a worker without room asks for no more.
func (h *held) admit(list []bus.Offer, serves func(jobs.Key) bool) (taken []*attempt, back []bus.Offer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range list {
		t := token{o.ID, o.Attempt}
		switch {
		case h.attempts[t] != nil:
		case h.room() <= 0 || !serves(o.HandlerKey()):
			back = append(back, o)
		case h.slotOf[o.ID] != nil:
		default:
			a := &attempt{token: t, key: o.Key, handler: o.HandlerKey(), pending: h.onDemand}
			h.attempts[t], h.slotOf[o.ID] = a, a
			h.claiming++
			if a.pending {
				h.pending++
			}
			taken = append(taken, a)
		}
	}
	h.returned += uint64(len(back))
	return taken, back
}

// begun records that the claim succeeded: the run is ours.
func (h *held) begun(a *attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a.phase = running
	if h.claiming == mostClaiming { // else this makes no room where there was none
		h.ring()
	}
	h.claiming--
	h.claimed++
}

// left records when the attempt's handler has returned: its slot is free.
func (h *held) left(a *attempt, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.vacate(a)
	a.leftAt = at
	a.phase = reporting
}

// drop forgets an attempt.
func (h *held) drop(a *attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.vacate(a)
	delete(h.attempts, a.token)
	if a.in != nil { // else its claim was lost
		h.recent.add(a)
	}
	if a.dropped != nil {
		close(a.dropped)
		a.dropped = nil
	}
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
	if a.pending {
		a.pending = false
		h.pending--
	}
	h.ring()
}

// ask sets how many attempts are asked for now, for a worker that takes only those.
func (h *held) ask(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = n
	h.ring()
}

// given records that a poll was given this attempt.
func (h *held) given(a *attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.pending {
		a.pending = false
		h.pending--
	}
}

// adopt takes over an attempt that is this worker's already. It reports whether that is new.
func (h *held) adopt(a *attempt) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.attempts[a.token] != nil || h.slotOf[a.ID] != nil || h.closed {
		return false
	}
	a.phase = running
	h.attempts[a.token], h.slotOf[a.ID] = a, a
	return true
}

// watch returns a channel that is closed when the attempt is forgotten.
func (h *held) watch(a *attempt) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.attempts[a.token] != a {
		gone := make(chan struct{})
		close(gone)
		return gone
	}
	if a.dropped == nil {
		a.dropped = make(chan struct{})
	}
	return a.dropped
}

func (h *held) ring() {
	select {
	case h.freed <- struct{}{}:
	default:
	}
}

// find returns the held attempt of this token, or nil.
func (h *held) find(t token) *attempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.attempts[t]
}

// list returns what a heartbeat names: every attempt that is ours as far as we know.
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

// renew records that a heartbeat was answered which named these attempts, and when it was sent.
func (h *held) renew(list []bus.Held, sent time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, line := range list {
		if a := h.attempts[token{line.ID, line.Attempt}]; a != nil {
			a.renewed = sent
		}
	}
}

// renewed returns when the attempt's lease was last requested with success: with a heartbeat that named it, or its
// claim. A heartbeat that was sent before the claim was answered did not name it, and renewed nothing.
func (h *held) renewed(a *attempt) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.renewed.IsZero() {
		return a.sent
	}
	return a.renewed
}

// all returns every held attempt.
func (h *held) all() []*attempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*attempt, 0, len(h.attempts))
	for _, a := range h.attempts {
		all = append(all, a)
	}
	return all
}

// lose records that the store did not confirm how an attempt ended. Only a draining worker reports that at its end.
func (h *held) lose(a *attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		h.lost = append(h.lost, a)
	}
}

// unreported returns the attempts whose end the store has not confirmed, of those that are still the worker's.
func (h *held) unreported() []*attempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := slices.Clone(h.lost)
	for _, a := range h.attempts {
		if a.phase != claiming && !a.over() && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return list
}

// close makes the worker take nothing more.
func (h *held) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
}

// rest pauses taking runs, or resumes it. It reports whether that is a change.
func (h *held) rest(on bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.resting == on {
		return false
	}
	h.resting = on
	h.ring()
	return true
}

func (h *held) isResting() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.resting
}

func (h *held) isClosed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}

// drained waits until nothing is held, at most for a time, and reports whether it came to that.
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

// count counts how an attempt ended.
func (h *held) count(o kernel.Outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o == 0 {
		h.stopped++
		return
	}
	h.finished[o.String()]++
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
