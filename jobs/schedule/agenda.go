package schedule

import "time"

// Agenda holds things that are due and hands them out in the order of their
// times; things due at the same time come in no particular order. The zero
// value is an empty agenda. It is not safe for concurrent use.
type Agenda[T any] struct {
	// A heap with eight children a node, a third as deep as one with two. The
	// first seven places stay empty, so that siblings begin at a multiple of
	// eight: small ones then share two neighbouring lines of the cache, and
	// fetching those lines is where the time goes.
	heap []entry[T]
}

const (
	arity = 8
	root  = arity - 1 // the place of what is due first

	// The children of place i begin at place arity * (i - shift).
	shift = arity - 2
)

// entry keeps the time as Unix nanoseconds, which the calendar of this package
// fits into: small entries are fast entries.
type entry[T any] struct {
	due   int64
	value T
}

// Len is how many things are on the agenda.
func (a *Agenda[T]) Len() int { return max(0, len(a.heap)-root) }

// Push puts a thing on the agenda. Its time lies within 1678-2261, as that of
// every schedule does.
func (a *Agenda[T]) Push(due time.Time, value T) {
	if len(a.heap) == 0 {
		a.heap = make([]entry[T], root, 2*arity)
	}
	e := entry[T]{due.UnixNano(), value}
	a.heap = append(a.heap, e)
	i := len(a.heap) - 1
	for i > root {
		parent := i/arity + shift
		if e.due >= a.heap[parent].due {
			break
		}
		a.heap[i] = a.heap[parent]
		i = parent
	}
	a.heap[i] = e
}

// Peek returns what is due first and leaves it there; false if the agenda is
// empty.
func (a *Agenda[T]) Peek() (due time.Time, value T, ok bool) {
	if a.Len() == 0 {
		return due, value, false
	}
	first := &a.heap[root]
	return time.Unix(0, first.due).UTC(), first.value, true
}

// Pop takes what is due first off the agenda; false if it is empty.
func (a *Agenda[T]) Pop() (due time.Time, value T, ok bool) {
	due, value, ok = a.Peek()
	if !ok {
		return due, value, false
	}
	last := len(a.heap) - 1
	e := a.heap[last]
	a.heap[last] = entry[T]{} // let go of what it points to
	a.heap = a.heap[:last]
	if last > root {
		a.sink(e)
	}
	return due, value, true
}

// sink fills the hole at the root with e.
func (a *Agenda[T]) sink(e entry[T]) {
	heap, i := a.heap, root
	for {
		child := arity * (i - shift)
		if child >= len(heap) {
			break
		}
		least := child + leastOf(heap[child:min(child+arity, len(heap))])
		if heap[least].due >= e.due {
			break
		}
		heap[i] = heap[least]
		i = least
	}
	heap[i] = e
}

// leastOf returns the index of what is due first among siblings.
func leastOf[T any](siblings []entry[T]) int {
	least, due := 0, siblings[0].due
	for i := 1; i < len(siblings); i++ {
		if d := siblings[i].due; d < due {
			least, due = i, d
		}
	}
	return least
}
