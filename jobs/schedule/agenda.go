package schedule

import "time"

// Agenda holds things that are due and hands them out in the order of their
// times; things due at the same time come in no particular order. The zero
// value is an empty agenda. It is not safe for concurrent use.
type Agenda[T any] struct {
	// A heap with four children a node: half as deep as one with two. The first
	// three places stay empty, so that the children of place i begin at place
	// 4(i-2): four small entries then share a line of the cache, and fetching
	// those lines is where the time goes.
	heap []entry[T]
}

// root is the place of what is due first.
const root = 3

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
		a.heap = make([]entry[T], root, 16)
	}
	e := entry[T]{due.UnixNano(), value}
	a.heap = append(a.heap, e)
	i := len(a.heap) - 1
	for i > root {
		parent := i/4 + 2
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
		child := 4 * (i - 2)
		if child >= len(heap) {
			break
		}
		least := child + leastOf(heap[child:min(child+4, len(heap))])
		if heap[least].due >= e.due {
			break
		}
		heap[i] = heap[least]
		i = least
	}
	heap[i] = e
}

// leastOf returns the index of what is due first among one to four entries. Four
// are compared like players in a cup: the first two rounds do not wait for each
// other.
func leastOf[T any](few []entry[T]) int {
	left, right := 0, 2
	if len(few) < 4 {
		for i := range few {
			if few[i].due < few[left].due {
				left = i
			}
		}
		return left
	}
	if few[1].due < few[0].due {
		left = 1
	}
	if few[3].due < few[2].due {
		right = 3
	}
	if few[right].due < few[left].due {
		left = right
	}
	return left
}
