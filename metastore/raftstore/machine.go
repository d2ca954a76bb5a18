package raftstore

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/archive"
)

// machine applies the entries of the log to the rows, the same on every node.
type machine struct {
	engine  *memstore.Engine
	archive *archive.Archive
	bounds  *bounds
	fail    func(error)
	broken  atomic.Bool // an entry could not be applied: those after it must not be either
}

var _ raft.BatchingFSM = (*machine)(nil)

var errBroken = errors.New("an entry of the log before this one could not be applied")

// ApplyBatch applies entries. The answer to each is a []metastore.Result, or an error.
func (m *machine) ApplyBatch(entries []*raft.Log) []any {
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
	batch, err := decodeEntry(entry.Data)
	if err != nil {
		m.broken.Store(true)
		err = fmt.Errorf("apply log entry %d: %w", entry.Index, err)
		m.fail(err)
		return err
	}
	var results []metastore.Result
	m.archive.Begin(entry.Index)
	m.engine.Update(func(tx metastore.Tx) {
		notBefore(tx, batch)
		results = metastore.ApplyBatch(tx, batch)
	})
	m.bounds.applied(entry.Index, len(entry.Data))
	return results
}

// notBefore keeps a commit from being earlier than the last one, whose leader may have had another clock.
func notBefore(tx metastore.Tx, batch []jobs.Envelope) {
	s, ok := tx.Get(jobs.StoreRef()).(*jobs.StoreRow)
	if !ok {
		return
	}
	for i := range batch {
		if batch[i].At.Before(s.At) {
			batch[i].At = s.At
		}
	}
}

// Snapshot takes the rows as they are. They are written while entries go on being applied.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	if m.broken.Load() {
		return nil, errBroken
	}
	return &captured{machine: m, rows: m.engine.Capture()}, nil
}

// Restore replaces the rows by those of a snapshot.
func (m *machine) Restore(file io.ReadCloser) error {
	return errors.Join(m.engine.Restore(readSnapshot(file)), file.Close())
}

// captured is a snapshot that is being written.
type captured struct {
	machine *machine
	rows    *memstore.Snapshot
}

// Persist writes the snapshot. The log may be cut after it, so the runs that its entries have settled must be safe
// before.
func (c *captured) Persist(sink raft.SnapshotSink) error {
	if err := c.machine.archive.Sync(); err != nil {
		return err
	}
	size, err := writeSnapshot(sink, c.rows.Rows())
	if err != nil {
		return err
	}
	c.machine.bounds.snapshot(size)
	return nil
}

// Release lets go of the rows.
func (c *captured) Release() { c.rows = nil }
