package worker

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/dispatch"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// token names an attempt.
type token struct {
	ID      jobs.ID
	Attempt uint32
}

// held is what a worker holds: its attempts, from their acceptance until the store knows how they ended, and the slots
// that they take until their handlers have returned.
type held struct {
	tenant jobs.Tenant
	slots  int       // 0 = no limit
	base   time.Time // of the stamps in heartbeats and pushes

	mu       sync.Mutex
	receiver *dispatch.Receiver
	attempts map[token]*attempt
	closed   bool          // accepts nothing more
	resting  bool          // asked to accept nothing for now
	empty    chan struct{} // closed when nothing is held; made on request

	begun    uint64
	stopped  uint64
	refused  uint64
	finished map[string]uint64
	recent   recent
	lost     []*attempt // ended while the worker drained, and the store did not confirm that
}

func newHeld(tenant jobs.Tenant, slots int, started time.Time) *held {
	return &held{
		tenant: tenant, slots: slots, base: started, receiver: dispatch.NewReceiver(started.UnixNano(), slots),
		attempts: map[token]*attempt{}, finished: map[string]uint64{},
	}
}

// stamp is a time on this worker's steady clock. It is never 0.
func (h *held) stamp(t time.Time) dispatch.Stamp { return t.Sub(h.base) + 1 }

// timeOf is the inverse of stamp.
func (h *held) timeOf(s dispatch.Stamp) time.Time { return h.base.Add(s - 1) }

func (h *held) name(t token) dispatch.Attempt {
	return dispatch.Attempt{Run: dispatch.Run{Tenant: h.tenant, ID: t.ID}, N: t.Attempt}
}

// left records when the attempt's handler has returned: its slot is free.
func (h *held) left(a *attempt, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.receiver.Returned(h.name(a.token))
	a.leftAt = at
}

// drop forgets an attempt.
func (h *held) drop(a *attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.receiver.Returned(h.name(a.token))
	h.receiver.Ended(h.name(a.token), h.stamp(time.Now()))
	delete(h.attempts, a.token)
	h.recent.add(a)
	if a.dropped != nil {
		close(a.dropped)
		a.dropped = nil
	}
	if len(h.attempts) == 0 && h.empty != nil {
		close(h.empty)
		h.empty = nil
	}
}

// disown marks an attempt as not this worker's any more: nothing is reported about it from here on. Its slot is taken
// until its handler has returned.
func (h *held) disown(a *attempt) {
	a.disown()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.receiver.Ended(h.name(a.token), h.stamp(time.Now()))
}

// forgo has an attempt never begin that is not held. It reports whether it is not.
func (h *held) forgo(t token, started int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.attempts[t] != nil {
		return false
	}
	h.receiver.Forgo(h.name(t), started, h.stamp(time.Now()))
	return true
}

// limit sets the number of slots.
func (h *held) limit(slots int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.receiver.Limit(slots)
}

// adopt takes over an attempt that is this worker's already. It reports false if the attempt is held, if another one of
// its run is, or if the worker is draining.
func (h *held) adopt(a *attempt) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || !h.receiver.Adopt(h.name(a.token), a.in.Started.UnixNano()) {
		return false
	}
	h.attempts[a.token] = a
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

// find returns the held attempt of this token, or nil.
func (h *held) find(t token) *attempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.attempts[t]
}

// list returns what a heartbeat names: every attempt that is this worker's as far as it knows. strays is the number of
// slots of other attempts, whose handlers have not returned.
func (h *held) list() (list []bus.Held, strays int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list = make([]bus.Held, 0, len(h.attempts))
	strays = h.receiver.Names(func(a dispatch.Attempt) {
		list = append(list, h.attempts[token{a.ID, a.N}].line())
	})
	return list, strays
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

// renewed returns when the attempt's lease was last requested with success: by a heartbeat that named it, or by the one
// that its push followed.
func (h *held) renewed(a *attempt) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return a.renewed
}

// mayBegin reports whether the handler of an attempt may begin: see dispatch.Receiver.MayBegin.
func (h *held) mayBegin(a *attempt, at time.Time, lease time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.receiver.MayBegin(h.stamp(a.renewed), h.stamp(at), lease)
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
		if !a.over() && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return list
}

// close makes the worker accept nothing more.
func (h *held) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.receiver.Away(true)
}

// rest pauses accepting runs, or resumes it. It reports whether that is a change.
func (h *held) rest(on bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.resting == on {
		return false
	}
	h.resting = on
	h.receiver.Away(on || h.closed)
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
	s := Stats{Free: -1, Begun: h.begun, Stopped: h.stopped, Refused: h.refused, Finished: maps.Clone(h.finished)}
	for _, a := range h.attempts {
		if !a.leftAt.IsZero() {
			continue
		}
		s.Running++
		if a.isStuck() {
			s.Stuck++
		}
	}
	if h.slots > 0 {
		s.Free = max(0, h.slots-h.receiver.Busy())
	}
	return s
}
