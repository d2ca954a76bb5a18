// Package replica makes a store of a log that nodes agree on: each applies the same entries to rows in memory.
//
// It is not promised to programs outside this module.
//
// A [Log] knows nothing of jobs, and a [Machine] nothing of nodes. A [Replica] is the [metastore.Store] of both: it
// encodes commands into entries, appends them while this node leads, and answers when they are applied.
//
// Where to start: commit.go for the way of a command, machine.go for what a node does with an entry, and logtest for
// what every log must do.
package replica

import (
	"context"
	"errors"
	"time"
)

// Log is a sequence of entries that nodes agree on, with one leader at a time. It drives the [Machine] that it was made
// with: it restores the newest snapshot, then applies all that was agreed since, in order, and goes on with what is
// agreed later, on every node. It takes a snapshot when the machine's Bounds say that one is due, and cuts itself
// behind it.
type Log interface {
	// Append gives an entry to the log and returns at once. Entries of one caller are agreed in its order, each or not.
	// The log keeps the slice, and gives the same one to the machine of this node.
	Append(entry []byte) Pending
	// Lead calls lead, with the number of its term, whenever this node has become the leader and has applied all that
	// was agreed under older ones; it ends lead's context when this node no longer leads. The next call comes after the
	// last has returned. A term has one
	// leader, and later terms have higher numbers; the node may lead a term again after lead has returned. Lead returns when ctx ends or the
	// log does, or with an error of lead's.
	Lead(ctx context.Context, lead func(ctx context.Context, term uint64) error) error
	// Confirmed returns a time since which no other node had led by then: the last at which this one was known to lead
	// a term. Zero: it was not.
	Confirmed(term uint64) time.Time
	// Linearizable returns when the machine has applied all that any node has acknowledged before the call. A log may
	// refuse that to nodes that do not lead: jobs.Unavailable.
	Linearizable(ctx context.Context) error
	// Close ends the log. What was acknowledged stays.
	Close() error
}

// ErrAgain is the error of duties that could not begin: the node gives up the term, and may lead again.
var ErrAgain = errors.New("the duties of a leader could not begin")

// Pending is an entry that was given to a log.
type Pending interface {
	// Wait returns the machine's answer to the entry once that is applied. An error is jobs.Unavailable if the entry
	// certainly is not, and never will be, part of the log, and jobs.Unknown otherwise.
	Wait() (answer any, err error)
}
