package raftstore

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
)

// A snapshot holds no runs that have ended. A node that restores one whose runs its archive lacks fetches them from
// another, which may take long, and applies no entry before it has them: the archive has no gaps. Raft continues
// meanwhile: the node votes and stores entries. Committed ones are read from the log again and applied when the
// archive is complete. Until then the node is behind: it is not whole, it leads only until another node can, and it
// takes no snapshot.

// behind is the work that a machine postpones.
type behind struct {
	wake  chan struct{} // the archive lacks something
	until atomic.Uint64 // the archive must go up to this number before an entry is applied; 0 = it does

	turn        sync.Mutex // held while entries are applied or postponed
	first, last uint64     // of the postponed entries; 0 = none
}

var errBehind = kernel.Refuse(jobs.Unavailable, "not done: this node is fetching the archive from another one")

// isBehind reports whether entries that raft has committed are not applied yet.
func (m *machine) isBehind() bool { return m.behind.until.Load() > 0 }

// lacks notes that a snapshot was restored which needs the archive up to a number. turn must be held.
func (b *behind) lacks(until uint64) {
	b.first, b.last = 0, 0
	b.until.Store(until)
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// putOff notes entries to be applied later. turn must be held.
func (b *behind) putOff(entries []*raft.Log) []any {
	if b.first == 0 {
		b.first = entries[0].Index
	}
	b.last = entries[len(entries)-1].Index
	answers := make([]any, len(entries))
	for i := range answers {
		answers[i] = errBehind
	}
	return answers
}

// catchUp applies one of the postponed entries. It reports whether none is left, or that the archive does not go far
// enough.
func (m *machine) catchUp(log raft.LogStore) (done, lacks bool, err error) {
	b := &m.behind
	b.turn.Lock()
	defer b.turn.Unlock()
	if b.until.Load() > m.archive.Last() {
		return false, true, nil
	}
	if b.first == 0 || b.first > b.last {
		b.until.Store(0)
		return true, false, nil
	}
	var entry raft.Log
	if err := log.GetLog(b.first, &entry); err != nil {
		return false, false, fmt.Errorf("read log entry %d: %w", b.first, err)
	}
	b.first++
	if entry.Type == raft.LogCommand {
		if err, failed := m.Apply(&entry).(error); failed {
			return false, false, err
		}
	}
	return false, false, nil
}

// completes keeps the archive complete until ctx ends.
func (s *Store) completes(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.failed:
			return
		case <-s.machine.behind.wake:
		}
		if err := s.complete(ctx); err != nil && ctx.Err() == nil {
			s.fail(err)
			return
		}
	}
}

// complete fetches the missing part of the archive and applies postponed entries.
func (s *Store) complete(ctx context.Context) error {
	for {
		done, lacks, err := s.machine.catchUp(s.log)
		if err != nil || done {
			return err
		}
		if lacks {
			if err := s.fetchArchive(ctx, s.machine.behind.until.Load()); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// completable refuses an archive that lacks runs which no other node could send.
func (s *Store) completable(upTo uint64) error {
	if last := s.archive.Last(); (upTo == 0 || last < upTo) && (s.link == nil || len(s.known()) == 0) {
		return &disk.Damaged{Path: filepath.Join(s.cfg.Dir, archiveFolder), What: fmt.Sprintf("runs from %d to %d are missing", last+1, upTo)}
	}
	return nil
}
