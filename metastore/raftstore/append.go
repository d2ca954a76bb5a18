package raftstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/replica"
)

// enqueueTimeout is how long an entry may wait for raft to take it.
const enqueueTimeout = 10 * time.Second

// Append gives an entry to raft.
func (s *Store) Append(entry []byte) replica.Pending {
	if err := s.leading.over(); err != nil {
		return refused{kernel.Refuse(jobs.Unavailable, "not done: %v", err)}
	}
	if s.machine.isBehind() {
		return refused{errBehind}
	}
	return pending{s.raft.Apply(entry, enqueueTimeout)}
}

// refused is an entry that raft was not given.
type refused struct{ error }

func (r refused) Wait() (any, error) { return nil, r.error }

// pending is an entry that raft has been given.
type pending struct{ raft.ApplyFuture }

func (p pending) Wait() (any, error) {
	if err := p.Error(); err != nil {
		return nil, outcome(err)
	}
	return p.Response(), nil
}

// outcome converts an error of raft. Only what certainly is not in the log is Unavailable.
func outcome(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return kernel.Refuse(jobs.Unavailable, "not done: %v", err)
	}
	return kernel.OutcomeUnknown("%v", fmt.Errorf("commit: %w", err))
}
