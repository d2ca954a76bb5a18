package raftstore

import (
	"io"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// pipes is a pipeline to a follower that refuses everything.
func pipes(t *testing.T) raft.AppendPipeline {
	t.Helper()
	open := func() *raft.NetworkTransport {
		n, err := raft.NewTCPTransport("127.0.0.1:0", nil, 1, time.Minute, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Close() })
		return n
	}
	leader, follower := open(), open()
	go func() {
		for {
			select {
			case rpc := <-follower.Consumer():
				rpc.Respond(&raft.AppendEntriesResponse{Term: 1, LastLog: rpc.Command.(*raft.AppendEntriesRequest).PrevLogEntry}, nil)
			case <-t.Context().Done():
				return
			}
		}
	}()
	p, err := listening{NetworkTransport: leader}.AppendEntriesPipeline("follower", follower.LocalAddr())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A leader can keep sending although its reader of answers has left after the first refusal, until it notices: then
// another reader finds all answers, in order.
func TestPipelineWithoutAReader(t *testing.T) {
	p := pipes(t)
	const n = 50
	sent := make(chan error, 1)
	go func() {
		for i := range n {
			if _, err := p.AppendEntries(&raft.AppendEntriesRequest{Term: 1, PrevLogEntry: uint64(i)}, new(raft.AppendEntriesResponse)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	select {
	case err := <-sent:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("a request waits for a reader of its answer")
	}
	for i := range n {
		a := <-p.Consumer()
		if err := a.Error(); err != nil || a.Response().LastLog != uint64(i) {
			t.Fatalf("answer %d is to %d: %v", i, a.Response().LastLog, err)
		}
	}
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}
