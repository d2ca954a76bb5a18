package raftstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// enqueueTimeout is how long a commit may wait for raft to take it.
const enqueueTimeout = 10 * time.Second

// Apply applies a batch of commands. Concurrent callers share entries of the log.
func (s *Store) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	return metastore.Admitted(batch, metastore.Archived(ctx, s, s.cfg.Now()), func(batch []kernel.Envelope) []metastore.Result {
		return s.allowed(ctx, batch, func(batch []kernel.Envelope) []metastore.Result { return s.group.Apply(ctx, batch) })
	})
}

// proposed is a part of a batch that raft has been given.
type proposed struct {
	batch  []kernel.Envelope
	entry  []byte
	future raft.ApplyFuture
}

// commit stamps a batch, logs it and answers when it is applied. Of two at once, the one that is stamped first is
// logged first.
func (s *Store) commit(batch []kernel.Envelope) []metastore.Result {
	if err := s.leading.over(); err != nil {
		return metastore.Refused(batch, kernel.Refuse(jobs.Unavailable, "not done: %v", err))
	}
	if s.machine.isBehind() {
		return metastore.Refused(batch, errBehind)
	}
	s.order.Lock()
	s.last = metastore.Stamp(batch, s.cfg.Now(), s.last)
	parts := s.propose(nil, batch)
	s.order.Unlock()
	if len(parts) == 1 {
		return s.answer(parts[0])
	}
	results := make([]metastore.Result, 0, len(batch))
	for _, p := range parts {
		results = append(results, s.answer(p)...)
	}
	return results
}

// propose gives a batch to raft, in as few entries as their limit allows.
func (s *Store) propose(parts []proposed, batch []kernel.Envelope) []proposed {
	if len(batch) <= maxCommands {
		s.room = appendEntry(s.room[:0], s.machine.inForce(), batch)
		if len(s.room) <= maxEntry || len(batch) == 1 {
			entry := bytes.Clone(s.room)
			s.machine.own.note(entry, batch)
			return append(parts, proposed{batch, entry, s.raft.Apply(entry, enqueueTimeout)})
		}
	}
	half := len(batch) / 2
	return s.propose(s.propose(parts, batch[:half]), batch[half:])
}

// answer waits for the outcome of a part.
func (s *Store) answer(p proposed) []metastore.Result {
	if err := p.future.Error(); err != nil {
		s.machine.own.take(p.entry) // a later apply decodes the entry
		return metastore.Refused(p.batch, outcome(err))
	}
	switch r := p.future.Response().(type) {
	case []metastore.Result:
		return r
	case error:
		return metastore.Refused(p.batch, kernel.OutcomeUnknown("%v", r))
	}
	return metastore.Refused(p.batch, kernel.OutcomeUnknown("no answer to the log entry"))
}

// outcome converts an error of raft for a command. Only what certainly is not in the log is Unavailable.
func outcome(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return kernel.Refuse(jobs.Unavailable, "not done: %v", err)
	}
	return kernel.OutcomeUnknown("%v", fmt.Errorf("commit: %w", err))
}
