package raftstore

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/archive"
)

// machine applies the entries of the log to the rows, the same on every node.
type machine struct {
	engine    *memstore.Engine
	archive   *archive.Archive
	bounds    *bounds
	committed atomic.Uint64 // the last entry that was a commit, 0 if none was since the start
	marks     *marks
	own       own
	knows     uint32        // the newest version of the rules that this program knows
	version   atomic.Uint32 // the one in force; see inForce
	behind    behind
	fail      func(error)
	broken    atomic.Bool // an entry could not be applied: later ones must not be either
	moment    sync.Mutex  // held while rows and archive change, for a consistent view of both
}

var _ raft.BatchingFSM = (*machine)(nil)

var errBroken = errors.New("an entry of the log before this one could not be applied")

// ApplyBatch applies entries. The answer to each is a []metastore.Result, or an error.
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
func (m *machine) Apply(entry *raft.Log) any {
	if m.broken.Load() {
		return errBroken
	}
	kind, body, err := openEntry(entry.Data, m.knows)
	var batch []kernel.Envelope
	switch {
	case err != nil:
	case kind == entryMark:
		m.marks.take(entry.Index, m.engine.Capture())
	case kind == entryVerdict:
		var v verdict
		if v, err = decodeVerdict(body); err == nil {
			m.marks.judge(v)
		}
	default:
		if batch = m.own.take(entry.Data); batch == nil {
			batch, err = kernel.DecodeEnvelopes(body)
		}
	}
	if err != nil {
		m.broken.Store(true)
		err = fmt.Errorf("apply log entry %d: %w", entry.Index, err)
		m.fail(err)
		return err
	}
	if kind != entryCommit {
		m.bounds.applied(entry.Index, len(entry.Data), batch)
		return nil
	}
	var results []metastore.Result
	m.moment.Lock()
	m.archive.Begin(entry.Index)
	m.engine.Update(func(tx metastore.Tx) {
		notBefore(tx, batch)
		results = metastore.ApplyBatch(tx, batch)
		m.follow(tx.Get(kernel.StoreRef()))
	})
	m.bounds.applied(entry.Index, len(entry.Data), batch)
	m.committed.Store(entry.Index)
	m.moment.Unlock()
	return results
}

// notBefore makes a commit not earlier than the last one, whose leader may have had another clock.
func notBefore(tx metastore.Tx, batch []kernel.Envelope) {
	s, ok := tx.Get(kernel.StoreRef()).(*kernel.StoreRow)
	if !ok {
		return
	}
	for i := range batch {
		if batch[i].At.Before(s.At) {
			batch[i].At = s.At
		}
	}
}

// inForce is the version of the rules in force.
func (m *machine) inForce() uint32 { return max(m.version.Load(), kernel.FirstApplyVersion) }

// follow notes the version of the rules in force, from a row.
func (m *machine) follow(row kernel.Row) {
	if state, ok := row.(*kernel.StoreRow); ok {
		m.version.Store(state.InForce())
	}
}

// Snapshot captures the rows. They are written while entries are applied.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	if m.broken.Load() {
		return nil, errBroken
	}
	if m.isBehind() {
		return nil, raft.ErrNothingNewToSnapshot
	}
	index, _, _ := m.bounds.now()
	return &captured{machine: m, rows: m.engine.Capture(), head: snapshotHead{m.inForce(), index, m.ended()}}, nil
}

// ended is the number of the last run that has left the rows. The archive is ahead of them while the log is replayed,
// and ends before it while this node is behind.
func (m *machine) ended() uint64 {
	index, _, _ := m.bounds.now()
	return max(m.behind.until.Load(), min(m.archive.Last(), archive.LastOf(index)))
}

// Restore replaces the rows by those of a snapshot.
func (m *machine) Restore(file io.ReadCloser) error {
	m.behind.turn.Lock()
	defer m.behind.turn.Unlock()
	head, rows := readSnapshot(file, m.knows)
	if err := errors.Join(m.engine.Restore(rows), file.Close()); err != nil {
		if errors.Is(err, metastore.ErrTooOld) {
			m.fail(err) // the leader would send it for ever
		}
		return err
	}
	m.version.Store(head.rules)
	m.bounds.restored(head.index)
	m.marks.forget()
	if head.ended > m.archive.Last() || m.isBehind() {
		m.behind.lacks(head.ended)
	}
	return nil
}

// captured is a snapshot that is being written.
type captured struct {
	machine *machine
	rows    *memstore.Snapshot
	head    snapshotHead
}

// Persist writes the snapshot. The log may be cut after it, so the runs that its entries have settled must be on disk
// before.
func (c *captured) Persist(sink raft.SnapshotSink) error {
	if err := c.machine.archive.Sync(); err != nil {
		return err
	}
	size, err := writeSnapshot(sink, c.head, c.rows.Stored())
	if err != nil {
		return err
	}
	c.machine.bounds.snapshot(size, time.Now())
	return nil
}

// Release releases the rows.
func (c *captured) Release() { c.rows = nil }
