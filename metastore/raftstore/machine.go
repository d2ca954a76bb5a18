package raftstore

import (
	"errors"
	"io"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/archive"
	"github.com/carillon-scheduler/carillon/metastore/replica"
)

// machine is the rows as raft sees them: it puts entries off while the archive lacks runs of the rows' past.
type machine struct {
	*replica.Machine
	archive *archive.Archive
	behind  behind
	fail    func(error)
}

var _ raft.BatchingFSM = (*machine)(nil)

// ApplyBatch applies entries.
func (m *machine) ApplyBatch(entries []*raft.Log) []any {
	m.behind.turn.Lock()
	defer m.behind.turn.Unlock()
	if m.isBehind() {
		return m.behind.putOff(entries)
	}
	answers := make([]any, len(entries))
	for i, e := range entries {
		if e.Type == raft.LogCommand {
			answers[i] = m.Apply(e)
		}
	}
	return answers
}

// Apply applies one entry.
func (m *machine) Apply(entry *raft.Log) any { return m.Machine.Apply(entry.Index, entry.Data) }

// Snapshot captures the rows. They are written while entries are applied.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	if m.isBehind() {
		return nil, raft.ErrNothingNewToSnapshot
	}
	rows, head, err := m.Capture()
	if err != nil {
		return nil, err
	}
	head.Ended = m.ended()
	return &captured{machine: m, rows: rows, head: head}, nil
}

// ended is the number of the last run that has left the rows. The archive is ahead of them while the log is replayed,
// and ends before it while this node is behind.
func (m *machine) ended() uint64 {
	index, _, _ := m.Bounds.Now()
	return max(m.behind.until.Load(), min(m.archive.Last(), archive.LastOf(index)))
}

// Restore replaces the rows by those of a snapshot.
func (m *machine) Restore(file io.ReadCloser) error {
	m.behind.turn.Lock()
	defer m.behind.turn.Unlock()
	head, err := m.Machine.Restore(file)
	if err = errors.Join(err, file.Close()); err != nil {
		if errors.Is(err, metastore.ErrTooOld) {
			m.fail(err) // the leader would send it for ever
		}
		return err
	}
	if head.Ended > m.archive.Last() || m.isBehind() {
		m.behind.lacks(head.Ended)
	}
	return nil
}

// captured is a snapshot that is being written.
type captured struct {
	machine *machine
	rows    *memstore.Snapshot
	head    replica.Head
}

// Persist writes the snapshot. The log may be cut after it, so the runs that its entries have settled must be on disk
// before.
func (c *captured) Persist(sink raft.SnapshotSink) error {
	if err := c.machine.archive.Sync(); err != nil {
		return err
	}
	size, err := replica.WriteSnapshot(sink, c.head, c.rows.Stored())
	if err != nil {
		return err
	}
	c.machine.Bounds.Snapshot(size, time.Now())
	return nil
}

// Release releases the rows.
func (c *captured) Release() { c.rows = nil }
