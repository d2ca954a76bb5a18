package memstore

import (
	"cmp"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A live run is a node in several lists at once. Each list is one of these kinds.
const (
	inAll    = iota // the tenant's runs
	inJob           // those of a job
	inParent        // those that a run has made
	inState         // those in a state
	inWorker        // those whose current or last attempt is a worker's
	inReady         // those of an app that are ready, of one queue and priority, by their turns
	inLeased        // those with an attempt under way, of all tenants
	inWarm          // those whose row may be packed when it has not been used for long; see rows.cool
	kinds
)

// ordered reports whether lists of a kind are in the order of creation. Runs stay in them as long as they live. All
// other lists are in the order of arrival.
func ordered(kind int) bool { return kind <= inParent }

// node is a live run with its places in the indexes.
type node struct {
	row     *kernel.Run       // nil = packed
	packed  *kernel.PackedRun // nil = the row has changed since
	space   *space
	job     *job
	id      jobs.ID
	created int64  // Unix nanoseconds
	turn    uint64 // of the row
	rank    uint32 // among the runs created at the same instant
	wakes   int32  // place among those that wake
	waits   int32  // place among those that wait at the gate, or that the same holds
	links   [kinds]link
}

// get returns the row. It does not change the node: readers share it.
func (n *node) get() *kernel.Run {
	if n.row != nil {
		return n.row
	}
	return n.packed.Unpack(n.id)
}

func (n *node) pack() {
	if n.packed == nil {
		n.packed = n.row.Pack()
	}
	n.row = nil
}

// link is a node's place in one list. A node that has left an ordered list keeps older, so that a reader that paused
// at it finds its way.
type link struct {
	list         *list
	older, newer *node
}

// list is a doubly linked list of nodes.
type list struct {
	first, last *node
	n           int
}

// add puts a node at the end or, in an ordered list, by its time of creation: nearly always the end. A ready run whose
// start was taken back has a turn before most others'. It returns how many nodes it passed.
func (l *list) add(n *node, kind int) (passed int) {
	after := l.last
	switch {
	case ordered(kind):
		for ; after != nil && n.created < after.created; passed++ {
			after = after.links[kind].older
		}
	case kind == inReady && after != nil && n.turn < after.turn:
		after = nil
		for next := l.first; next.turn < n.turn; passed++ {
			after, next = next, next.links[kind].newer
		}
	}
	l.insert(n, kind, after)
	return passed
}

// insert puts a node behind another one, or at the beginning.
func (l *list) insert(n *node, kind int, after *node) {
	at := &n.links[kind]
	at.list, at.older, at.newer = l, after, l.first
	if after != nil {
		at.newer = after.links[kind].newer
		after.links[kind].newer = n
	} else {
		l.first = n
	}
	if at.newer != nil {
		at.newer.links[kind].older = n
	} else {
		l.last = n
	}
	l.n++
}

func (l *list) remove(n *node, kind int) {
	at := &n.links[kind]
	if at.older != nil {
		at.older.links[kind].newer = at.newer
	} else {
		l.first = at.newer
	}
	if at.newer != nil {
		at.newer.links[kind].older = at.older
	} else {
		l.last = at.older
	}
	at.list, at.newer = nil, nil
	if !ordered(kind) {
		at.older = nil
	}
	l.n--
}

// sort sorts nodes that were inserted in any order, and keeps the order of equal ones. It returns how many it compared.
func (l *list) sort(kind int, compare func(a, b *node) int) (compared int) {
	sorted := true
	for n := l.first; sorted && n != l.last; n = n.links[kind].newer {
		compared++
		sorted = compare(n, n.links[kind].newer) <= 0
	}
	if sorted {
		return compared
	}
	type placed struct {
		*node
		place int
	}
	nodes := make([]placed, 0, l.n)
	for n := l.first; n != nil; n = n.links[kind].newer {
		nodes = append(nodes, placed{n, len(nodes)})
	}
	slices.SortFunc(nodes, func(a, b placed) int {
		compared++
		return cmp.Or(compare(a.node, b.node), cmp.Compare(a.place, b.place))
	})
	l.first, l.last, l.n = nil, nil, 0
	for _, n := range nodes {
		l.insert(n.node, kind, l.last)
	}
	return compared
}

func byCreation(a, b *node) int { return cmp.Compare(a.created, b.created) }

func byTurn(a, b *node) int { return cmp.Compare(a.turn, b.turn) }

// moment is a place in the order of creation.
type moment struct {
	created int64 // Unix nanoseconds
	rank    uint32
}

func (n *node) moment() moment { return moment{n.created, n.rank} }

func (m moment) before(o moment) bool {
	if m.created == o.created {
		return m.rank < o.rank
	}
	return m.created < o.created
}
