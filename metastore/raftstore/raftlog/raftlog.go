// Package raftlog has the kinds of file that store a Raft log.
//
// It is not promised to programs outside this module.
//
// [Bolt] is the only kind that a program links that imports embed. Package hashicorp beside it has a faster one, whose
// modules such a program would not want.
package raftlog

import (
	"io"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// Kind is a kind of log.
type Kind struct {
	Name string
	File string // its file, or directory, in a data directory
	// Open opens a log that is locked for other processes. Damage is a disk.Damaged.
	Open func(path string, o Options) (Store, error)
}

// Options are what a kind may need to know.
type Options struct {
	Logger  hclog.Logger
	Segment int // bytes of a file, if the log consists of several
}

// Store is an open log. Its Get returns nothing for a key that is not there.
type Store interface {
	raft.LogStore
	raft.StableStore
	io.Closer
}

// LockTimeout is how long Open waits for another process to release a file.
const LockTimeout = 500 * time.Millisecond
