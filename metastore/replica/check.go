package replica

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

// Nodes that have applied the same entries have the same rows, or one of them is damaged. Every few minutes the
// leader writes a mark into the log; every node takes a fingerprint of its rows there, in the background, and the
// leader writes its own as the verdict. A node that differs reports it: its answers would be wrong. Where nodes have the
// log itself, it stops, since no program can decide alone which node is right. Where they share one log, the node reads
// its rows from it again.

// checkEvery is how often nodes compare their rows by default.
var checkEvery = 5 * time.Minute

// ErrDiverged is the error of a node whose rows are not the leader's.
var ErrDiverged = errors.New("the rows of this node are not those of the leader")

// marks stores the fingerprints of the last marks.
type marks struct {
	diverged func(error)

	mu     sync.Mutex
	taken  []*fingerprint
	judged uint64 // the highest mark that was compared
}

// fingerprint is that of one mark; hash is set once done is closed.
type fingerprint struct {
	index uint64
	done  chan struct{}
	hash  [sha256.Size]byte
}

// take begins the fingerprint of the rows at a mark.
func (m *marks) take(index uint64, rows *memstore.Snapshot) *fingerprint {
	f := &fingerprint{index: index, done: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.taken = append(m.taken, f); len(m.taken) > 3 {
		m.taken = m.taken[1:]
	}
	go func() {
		f.hash = rows.Hash()
		close(f.done)
	}()
	return f
}

// unjudged is the fingerprint at a mark, or nil: a snapshot took this node past it, or it was compared already. A node
// that reads its rows again applies old verdicts again: if the leader was wrong, it would read for ever.
func (m *marks) unjudged(index uint64) *fingerprint {
	m.mu.Lock()
	defer m.mu.Unlock()
	if index <= m.judged {
		return nil
	}
	m.judged = index
	for _, f := range m.taken {
		if f.index == index {
			return f
		}
	}
	return nil
}

// forget drops all fingerprints: the rows have been replaced.
func (m *marks) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.taken = nil
}

// judge compares with the leader.
func (m *marks) judge(v verdict) {
	f := m.unjudged(v.index)
	if f == nil {
		return
	}
	go func() {
		if <-f.done; f.hash != v.hash {
			m.diverged(fmt.Errorf("%w: at log entry %d they have the fingerprint %x, the leader's have %x",
				ErrDiverged, v.index, f.hash[:8], v.hash[:8]))
		}
	}()
}

// KeepComparing compares every so often (0 = every 5 minutes) until ctx ends, if there were commits and this node leads
// others. It calls failed with errors.
func (r *Replica) KeepComparing(ctx context.Context, every time.Duration, leadsOthers func() bool, failed func(error)) {
	if every <= 0 {
		every = checkEvery
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	last := ^uint64(0) // none: rows that were restored from a snapshot have not been compared either
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if r.cfg.Machine.Committed() == last || !leadsOthers() {
			continue
		}
		var err error
		if last, err = r.CompareChanges(ctx, last); err != nil && ctx.Err() == nil {
			failed(err)
		}
	}
}

// CompareChanges compares unless the commit at index last was the last one. It returns which one was when it began:
// the mark may precede later commits.
func (r *Replica) CompareChanges(ctx context.Context, last uint64) (uint64, error) {
	now := r.cfg.Machine.Committed()
	if now == last {
		return last, nil
	}
	if err := r.Compare(ctx); err != nil {
		return last, err
	}
	return now, nil
}

// Compare has all nodes compare their rows with those of this one, which must lead. It returns when the verdict is
// committed; for a node that differs MachineConfig.Diverged is called.
func (r *Replica) Compare(ctx context.Context) error {
	answer, err := r.cfg.Log.Append(Mark()).Wait()
	if err != nil {
		return fmt.Errorf("compare rows: %w", err)
	}
	f, ok := answer.(*fingerprint)
	if !ok {
		return fmt.Errorf("compare rows: %v", answer)
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if _, err := r.cfg.Log.Append(verdict{f.index, f.hash}.encode()).Wait(); err != nil {
		return fmt.Errorf("compare rows: %w", err)
	}
	return nil
}
