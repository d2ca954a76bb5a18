package raftstore

import (
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/hashicorp/raft"
)

// Raft keeps connections to a node for later questions, and learns only by asking over one that the node was started
// again since. A candidate asks each node once and then waits for its time to be over, so that a node would miss one
// election for each connection that others have kept to the process before it.

// keptConnections is how many connections to each node raft keeps.
const keptConnections = 4

// again asks over the next connection what was asked over one that the other end has closed.
func again(ask func() error) error {
	for range keptConnections {
		if err := ask(); !closed(err) {
			return err
		}
	}
	return ask()
}

func closed(err error) bool {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

// RequestVote asks a node for its vote. Asked twice for the same, it answers the same.
func (l listening) RequestVote(id raft.ServerID, at raft.ServerAddress, ask *raft.RequestVoteRequest, answer *raft.RequestVoteResponse) error {
	return again(func() error { return l.NetworkTransport.RequestVote(id, at, ask, answer) })
}

// RequestPreVote asks a node whether it would vote.
func (l listening) RequestPreVote(id raft.ServerID, at raft.ServerAddress, ask *raft.RequestPreVoteRequest, answer *raft.RequestPreVoteResponse) error {
	return again(func() error { return l.NetworkTransport.RequestPreVote(id, at, ask, answer) })
}

// TimeoutNow asks a node to stand for election.
func (l listening) TimeoutNow(id raft.ServerID, at raft.ServerAddress, ask *raft.TimeoutNowRequest, answer *raft.TimeoutNowResponse) error {
	return again(func() error { return l.NetworkTransport.TimeoutNow(id, at, ask, answer) })
}
