package memstore

import (
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// A live run is a node in several lists at once. Each list is one of these kinds.
const (
	inAll    = iota // the tenant's runs
	inJob           // those of a job
	inParent        // those that a run has made
	inState         // those in a state
	inWorker        // those whose current or last attempt is a worker's
	inReady         // those that a worker of an app may claim, of one priority: their turns only grow
	inLeased        // those with an attempt under way, of all tenants
	kinds
)

// ordered reports whether lists of a kind are in the order of creation. Runs stay in them as long as they live. All
// other lists are in the order of arrival.
func ordered(kind int) bool { return kind <= inParent }

// node is a live run with its places in the indexes.
type node struct {
	row   *kernel.Run
	space *space
	job   *job
	rank  uint32 // among the runs created at the same instant
	wakes int32  // place among those that wake
	waits int32  // place among those that wait at the gate
	links [kinds]link
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

// add puts a node at the end or, in an ordered list, by its time of creation: nearly always the end.
func (l *list) add(n *node, kind int) {
	after := l.last
	if ordered(kind) {
		for after != nil && n.row.Created.Before(after.row.Created) {
			after = after.links[kind].older
		}
	}
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

// moment is a place in the order of creation.
type moment struct {
	created time.Time
	rank    uint32
}

func (n *node) moment() moment { return moment{n.row.Created, n.rank} }

func (m moment) before(o moment) bool {
	if m.created.Equal(o.created) {
		return m.rank < o.rank
	}
	return m.created.Before(o.created)
}
