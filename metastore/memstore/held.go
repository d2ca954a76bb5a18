package memstore

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// holder is a pause of a job, with its end, or a debug mode of a tenant, and the runs that it holds.
type holder struct {
	space *space
	holds
	runs heap[*node]
}

// holds identifies what holds a run.
type holds struct {
	key   jobs.Key // of the job; "" = a debug mode
	uid   jobs.ID
	until int64       // Unix nanoseconds; 0 = without an end
	kind  kernel.Kind // of jobs, of a debug mode
}

// holder is what holds a run, made when it is first needed.
func (s *space) holder(run *kernel.Run) *holder {
	of := holds{kind: run.Kind}
	if run.Cause == kernel.ByPause {
		of = holds{key: run.Key, uid: run.Job, until: nanos(run.RetryAt)}
	}
	for _, h := range s.holders[of.key] {
		if h.holds == of {
			return h
		}
	}
	h := &holder{space: s, holds: of}
	h.runs = heap[*node]{before: byAge, place: func(n *node) *int32 { return &n.waits }}
	s.holders[of.key] = append(s.holders[of.key], h)
	return h
}

func byAge(a, b *node) bool {
	return cmp.Or(cmp.Compare(a.created, b.created), bytes.Compare(a.id[:], b.id[:])) < 0
}

// stands reports whether no change has ended it. A pause that ends at a time stands: its runs wake then.
func (h *holder) stands() bool {
	if h.key == "" {
		return h.space.global != nil && h.space.global.DebugOf(h.kind).On
	}
	d := h.space.definitions[h.key]
	if d == nil || d.gone || d.uid != h.uid {
		return false
	}
	p := d.get().Paused
	return p != nil && nanos(p.Until) == h.until
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func (r *rows) hold(n *node) {
	h := n.space.holder(n.row)
	h.runs.add(n)
	r.look(h)
}

func (r *rows) unhold(n *node, old *kernel.Run) {
	h := n.space.holder(old)
	h.runs.remove(n.waits)
	r.look(h)
}

// changed looks at what holds the runs of a job, or with the empty key at the debug modes, after a change.
func (r *rows) changed(s *space, key jobs.Key) {
	for _, h := range s.holders[key] {
		r.look(h)
	}
}

// look updates the list of those whose runs nothing holds any more, and drops one that has no run.
func (r *rows) look(h *holder) {
	switch {
	case r.restoring: // see restored
	case h.runs.len() == 0:
		s := h.space
		if s.holders[h.key] = slices.DeleteFunc(s.holders[h.key], func(o *holder) bool { return o == h }); len(s.holders[h.key]) == 0 {
			delete(s.holders, h.key)
		}
		delete(r.unheld, h)
	case h.stands():
		delete(r.unheld, h)
	default:
		r.unheld[h] = struct{}{}
	}
}
