package raftstore

import (
	"sync"

	"github.com/hashicorp/raft"
)

// AppendEntriesPipeline returns the pipeline by which a leader sends new entries to a follower that keeps up.
func (l listening) AppendEntriesPipeline(id raft.ServerID, at raft.ServerAddress) (raft.AppendPipeline, error) {
	p, err := l.NetworkTransport.AppendEntriesPipeline(id, at)
	if err != nil {
		return nil, err
	}
	return drain(p), nil
}

// drained is a pipeline whose answers are read as they arrive, even without a reader.
//
// In raft's own, answers wait for their reader, and requests wait for answers. When a follower refuses a request the
// reader leaves; if the sender then sends one more, all three wait for each other: the follower gets nothing more
// from this leader, although heartbeats, which use another connection, continue, and neither raft nor the store ever
// ends (hashicorp/raft#612).
type drained struct {
	raft.AppendPipeline
	answers chan raft.AppendFuture
	ended   chan struct{}
	end     func()
}

func drain(p raft.AppendPipeline) raft.AppendPipeline {
	d := &drained{AppendPipeline: p, answers: make(chan raft.AppendFuture), ended: make(chan struct{})}
	d.end = sync.OnceFunc(func() { close(d.ended) })
	go d.pass()
	return d
}

// AppendEntries sends entries, as several requests if they are many bytes. Each has an answer.
func (d *drained) AppendEntries(say *raft.AppendEntriesRequest, answer *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	n := first(say.Entries)
	if n == len(say.Entries) {
		return d.AppendPipeline.AppendEntries(say, answer)
	}
	part, rest := *say, *say
	part.Entries, rest.Entries = say.Entries[:n], say.Entries[n:]
	rest.PrevLogEntry, rest.PrevLogTerm = say.Entries[n-1].Index, say.Entries[n-1].Term
	if future, err := d.AppendPipeline.AppendEntries(&part, new(raft.AppendEntriesResponse)); err != nil {
		return future, err
	}
	return d.AppendEntries(&rest, answer)
}

// pass passes answers on, in order, until the pipeline is closed. Few wait here: a sender whose reader has gone stops
// within a few messages.
func (d *drained) pass() {
	var waiting []raft.AppendFuture
	for {
		var first raft.AppendFuture
		var to chan<- raft.AppendFuture // nil, which blocks, while there is none
		if len(waiting) > 0 {
			first, to = waiting[0], d.answers
		}
		select {
		case answer := <-d.AppendPipeline.Consumer():
			waiting = append(waiting, answer)
		case to <- first:
			waiting = waiting[1:]
		case <-d.ended:
			return
		}
	}
}

// Consumer is where the answers are read.
func (d *drained) Consumer() <-chan raft.AppendFuture { return d.answers }

// Close closes the pipeline and cancels what is under way.
func (d *drained) Close() error {
	d.end()
	return d.AppendPipeline.Close()
}
