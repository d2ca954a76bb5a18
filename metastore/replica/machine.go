package replica

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

// MachineConfig configures a machine. History and Fail are required.
type MachineConfig struct {
	History History
	Knows   uint32      // the newest version of the rules that this program knows; default kernel.ApplyVersion
	Fail    func(error) // called with what stops this machine for good
	// Diverged is called if the rows are not the leader's; default Fail.
	Diverged func(error)
	// Changed, if not nil, is called with each run that a commit changes, within the commit.
	Changed func(*kernel.Run)
	// SnapshotAfter is how many bytes of log, at least, lie between two snapshots; twice the last snapshot's size if
	// that is more. Replay is how long a restart may take to apply the log, about. Trailing is how many bytes of log
	// are kept before a snapshot.
	SnapshotAfter int64
	Replay        time.Duration
	Trailing      int64
}

// History takes the runs that entries settle.
type History interface {
	metastore.Archive
	// Begin sets the entry that settles the runs appended from now on. Their names follow from its index, so that an
	// entry may be applied again.
	Begin(index uint64)
}

// Machine is the rows of a node. It applies the entries of a log to them, the same on every node. All methods but Apply
// and Restore may be called at any time.
type Machine struct {
	Engine *memstore.Engine
	Bounds Bounds

	cfg       MachineConfig
	committed atomic.Uint64 // the last entry that was a commit, 0 if none was since the start
	marks     marks
	own       own
	version   atomic.Uint32 // the version of the rules in force; see InForce
	broken    atomic.Bool   // an entry could not be applied: later ones must not be either
	moment    sync.Mutex    // held while rows and history change, for a consistent view of both
}

// NewMachine makes a machine without rows.
func NewMachine(c MachineConfig) *Machine {
	if c.Knows == 0 {
		c.Knows = kernel.ApplyVersion
	}
	if c.Diverged == nil {
		c.Diverged = c.Fail
	}
	return &Machine{Engine: memstore.New(memstore.Config{Archive: c.History}), cfg: c, marks: marks{diverged: c.Diverged},
		Bounds: Bounds{after: c.SnapshotAfter, replay: c.Replay, trailing: c.Trailing, due: make(chan struct{}, 1)}}
}

var errBroken = errors.New("an entry of the log before this one could not be applied")

// Apply applies an entry. The answer is what the node that appended it waits for: the results of a commit, an error
// after which nothing is applied any more, or that of another kind of entry.
func (m *Machine) Apply(index uint64, entry []byte) any {
	if m.broken.Load() {
		return errBroken
	}
	var answer any
	kind, body, err := openEntry(entry, m.cfg.Knows)
	var batch []kernel.Envelope
	switch {
	case err != nil:
	case kind == entryTerm:
	case kind == entryMark:
		answer = m.marks.take(index, m.Engine.Capture())
	case kind == entryVerdict:
		var v verdict
		if v, err = decodeVerdict(body); err == nil {
			m.marks.judge(v)
		}
	default:
		if batch = m.own.take(entry); batch == nil {
			batch, err = kernel.DecodeEnvelopes(body)
		}
	}
	if err != nil {
		m.broken.Store(true)
		err = fmt.Errorf("apply log entry %d: %w", index, err)
		m.cfg.Fail(err)
		return err
	}
	if kind != entryCommit {
		m.Bounds.applied(index, len(entry), batch)
		return answer
	}
	var results []metastore.Result
	m.moment.Lock()
	m.cfg.History.Begin(index)
	m.Engine.Update(func(tx metastore.Tx) {
		if m.cfg.Changed != nil {
			tx = observed{tx, m.cfg.Changed}
		}
		notBefore(tx, batch)
		results = metastore.ApplyBatch(tx, batch)
		m.follow(tx.Get(kernel.StoreRef()))
	})
	m.Bounds.applied(index, len(entry), batch)
	m.committed.Store(index)
	m.moment.Unlock()
	return results
}

// observed is rows of which changed runs are reported.
type observed struct {
	metastore.Tx
	changed func(*kernel.Run)
}

func (o observed) Put(row kernel.Row) {
	o.Tx.Put(row)
	if run, is := row.(*kernel.Run); is {
		o.changed(run)
	}
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

// InForce is the version of the rules in force, as far as this node has applied its log.
func (m *Machine) InForce() uint32 { return max(m.version.Load(), kernel.FirstApplyVersion) }

// follow notes the version of the rules in force, from a row.
func (m *Machine) follow(row kernel.Row) {
	if state, ok := row.(*kernel.StoreRow); ok {
		m.version.Store(state.InForce())
	}
}

// Committed is the index of the last entry that was a commit, 0 if none was since the start.
func (m *Machine) Committed() uint64 { return m.committed.Load() }

// Moment calls fn while rows and history do not change.
func (m *Machine) Moment(fn func()) {
	m.moment.Lock()
	defer m.moment.Unlock()
	fn()
}

// Capture is the rows after the last entry. Commits wait only while pointers are copied. The head's Ended is left to
// the caller.
func (m *Machine) Capture() (*memstore.Snapshot, Head, error) {
	if m.broken.Load() {
		return nil, Head{}, errBroken
	}
	index, _, _ := m.Bounds.Now()
	return m.Engine.Capture(), Head{Rules: m.InForce(), Index: index}, nil
}

// Restore replaces the rows by those of a snapshot. It changes nothing if that is damaged, or written under rules that
// this program does not know: metastore.ErrTooOld.
func (m *Machine) Restore(file io.Reader) (Head, error) {
	head, rows := ReadSnapshot(file, m.cfg.Knows)
	if err := m.Engine.Restore(rows); err != nil {
		return Head{}, err
	}
	m.version.Store(head.Rules)
	m.Bounds.Restored(head.Index)
	m.marks.forget()
	return *head, nil
}
