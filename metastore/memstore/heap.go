package memstore

// heap is a binary heap whose members know their places, so that any of them can be removed. A place is a number from
// 1; 0 means not in the heap.
type heap[T any] struct {
	items  []T
	before func(a, b T) bool
	place  func(T) *int32
}

func (h *heap[T]) len() int { return len(h.items) }

// first is the first member. There must be one.
func (h *heap[T]) first() T { return h.items[0] }

func (h *heap[T]) add(v T) {
	h.items = append(h.items, v)
	h.up(len(h.items) - 1)
}

// remove removes the member at a place.
func (h *heap[T]) remove(place int32) {
	i, last := int(place)-1, len(h.items)-1
	*h.place(h.items[i]) = 0
	moved := h.items[last]
	clear(h.items[last:])
	h.items = h.items[:last]
	if cap(h.items) > 1024 && last < cap(h.items)/8 {
		h.items = append(make([]T, 0, 2*last), h.items...)
	}
	if i < last {
		h.set(i, moved)
		h.up(i)
		h.down(int(*h.place(moved)) - 1)
	}
}

func (h *heap[T]) set(i int, v T) {
	h.items[i] = v
	*h.place(v) = int32(i + 1)
}

func (h *heap[T]) up(i int) {
	v := h.items[i]
	for i > 0 {
		above := (i - 1) / 2
		if !h.before(v, h.items[above]) {
			break
		}
		h.set(i, h.items[above])
		i = above
	}
	h.set(i, v)
}

func (h *heap[T]) down(i int) {
	v := h.items[i]
	for {
		below := 2*i + 1
		if below >= len(h.items) {
			break
		}
		if below+1 < len(h.items) && h.before(h.items[below+1], h.items[below]) {
			below++
		}
		if !h.before(h.items[below], v) {
			break
		}
		h.set(i, h.items[below])
		i = below
	}
	h.set(i, v)
}

// inOrder walks the heap from its first member on, without changing it, until yield is false. Its cost depends on how
// far it goes, not on the size of the heap.
func (h *heap[T]) inOrder(yield func(T) bool) {
	if len(h.items) == 0 {
		return
	}
	// The next member is always below a visited one: a heap of candidates, by their places.
	seen := make(map[int]*int32)
	next := heap[int]{
		before: func(a, b int) bool { return h.before(h.items[a], h.items[b]) },
		place: func(i int) *int32 {
			if seen[i] == nil {
				seen[i] = new(int32)
			}
			return seen[i]
		},
	}
	next.add(0)
	for next.len() > 0 {
		i := next.first()
		next.remove(1)
		if !yield(h.items[i]) {
			return
		}
		for below := 2*i + 1; below <= 2*i+2 && below < len(h.items); below++ {
			next.add(below)
		}
	}
}
