package controlplane

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// Which node led when, and why that ended, for people who ask what happened last night. Each node remembers its own
// terms and those that others reported, and sends them with the answer to a heartbeat; a restarted node gets them from
// there.

// mostTerms is how many terms are remembered.
const mostTerms = 20

// Term is a term in which a node led.
type Term struct {
	Node  string
	Term  uint64
	Since time.Time // zero = not known
	Until time.Time // zero = it leads, or it is not known when that ended
	Why   string    // it ended; "" = it has not, or the reason is unknown
}

type termHistory struct {
	mu    sync.Mutex
	known []Term // by term
	why   string // this node's own is about to end
}

// note adds what is known of a term to what was known before.
func (r *termHistory) note(n Term) {
	if n.Term == 0 || n.Node == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	i, known := slices.BinarySearchFunc(r.known, n.Term, func(k Term, term uint64) int { return cmp.Compare(k.Term, term) })
	if !known {
		r.known = slices.Insert(r.known, i, n)
		if len(r.known) > mostTerms {
			r.known = slices.Delete(r.known, 0, 1)
		}
		return
	}
	k := &r.known[i]
	if k.Since.IsZero() {
		k.Since = n.Since
	}
	if k.Until.IsZero() {
		k.Until = n.Until
	}
	k.Why = cmp.Or(k.Why, n.Why)
}

// ended records that this node leads no more.
func (r *termHistory) ended(node string, term uint64, err error) {
	r.mu.Lock()
	why := r.why
	r.why = ""
	r.mu.Unlock()
	if why == "" {
		switch {
		case err == nil, errors.Is(err, context.Canceled):
			why = "leadership was lost"
		default:
			why = err.Error()
		}
	}
	if len(why) > 200 {
		why = why[:200]
	}
	r.note(Term{Node: node, Term: term, Until: time.Now(), Why: why})
}

// Because sets why this node will stop to lead, before it does.
func (cp *ControlPlane) Because(why string) {
	cp.terms.mu.Lock()
	defer cp.terms.mu.Unlock()
	cp.terms.why = why
}

// Elections returns the last terms, newest first: which node led, from when to when, and why it ended. A term ends at the
// latest when the next one begins: a leader that was frozen, or cut off, notices that it was replaced only later.
func (cp *ControlPlane) Elections() []Term {
	r := &cp.terms
	r.mu.Lock()
	list := slices.Clone(r.known)
	r.mu.Unlock()
	var next time.Time // when a later term began, as far as known
	for i, k := range slices.Backward(list) {
		if i < len(list)-1 {
			if !next.IsZero() && (k.Until.IsZero() || k.Until.After(next)) {
				k.Until = next
				if k.Since.After(next) { // the next leader's clock is behind
					k.Until = k.Since
				}
			}
			k.Why = cmp.Or(k.Why, "another node took over")
			list[i] = k
		}
		if !k.Since.IsZero() {
			next = k.Since
		}
	}
	slices.Reverse(list)
	return list
}

// report returns the terms that this node knows, for the other nodes.
func (r *termHistory) report() []bus.Term {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]bus.Term, len(r.known))
	for i, k := range r.known {
		list[i] = bus.Term{Node: k.Node, Term: k.Term, Why: k.Why}
		if !k.Since.IsZero() {
			list[i].Since = kernel.Instant(k.Since)
		}
		if !k.Until.IsZero() {
			list[i].Until = kernel.Instant(k.Until)
		}
	}
	return list
}

// merge takes in the terms that another node knows.
func (r *termHistory) merge(list []bus.Term) {
	for _, n := range list[max(0, len(list)-mostTerms):] {
		r.note(Term(n))
	}
}
