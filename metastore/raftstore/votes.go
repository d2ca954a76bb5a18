package raftstore

import (
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/hashicorp/raft"
)

// Raft pools connections to each node, and notices only on use that the process at the other end has ended. A candidate
// asks each node once per election. So after a restart of a node, each pooled connection would cost one election.

// keptConnections is how many idle connections to each node raft pools.
const keptConnections = 4

// again repeats a request over the next connection if the other end had closed the one it used.
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

// RequestVote asks a node for its vote. It is idempotent.
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
