package raftstore

import (
	"testing"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

// A restarted node is asked for its vote although connections to the process before it are still kept.
func TestVoteAfterRestart(t *testing.T) {
	tests.Long(t)
	c := newCluster(t, 3, func(c *Config) { c.Heartbeat = calm })
	do(t, c.leader(), register("k"))
	c.same()
	first := c.leader()
	other := c.follower()
	var third int
	for i, s := range c.stores {
		if s != first && s != other {
			third = i
		}
	}
	// Concurrent requests leave that many connections.
	asked := make(chan error)
	at, id := raft.ServerAddress(c.configs[third].Listen), raft.ServerID(c.stores[third].ID())
	for range keptConnections {
		go func() {
			asked <- first.trans.RequestVote(id, at, &raft.RequestVoteRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}, &raft.RequestVoteResponse{})
		}()
	}
	for range keptConnections {
		if err := <-asked; err != nil {
			t.Fatal(err)
		}
	}
	c.lead(other)
	c.same()
	c.stop(third)
	c.start(third)
	c.same()
	c.stop(c.index(other))
	first.standForElection()
	eventually(t, "the node that stands once is elected", func() bool { return first.raft.State() == raft.Leader })
}
