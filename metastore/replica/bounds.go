package replica

import (
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// Bounds keeps the log short: in bytes, and in the time that a restart takes to apply it. A count of entries would
// not: one has a thousand commands, another has one.
type Bounds struct {
	after    int64         // a snapshot is due when the log since the last one is longer than this,
	replay   time.Duration // or takes longer to apply than this
	trailing int64         // and this much of the log is kept before it
	due      chan struct{} // signals that one is due

	mu    sync.Mutex
	since int64         // bytes of entries since the last snapshot was captured
	cost  time.Duration // of applying them
	last  int64         // bytes of the last snapshot
	index uint64        // of the last entry
	marks []mark        // of the entries that may still be in the log
	total int64
	taken time.Time // when the last snapshot was
}

// mark records how many bytes of entries precede an entry. There is one for every part of the trailing log.
type mark struct {
	index uint64
	total int64
}

// What a restart takes for an entry and for its commands, on a core of an AMD EPYC: an entry is read twice and checked, a
// change of a definition resolves and files its settings.
const (
	costEntry      = 15 * time.Microsecond
	costDefinition = 20 * time.Microsecond
	costCreate     = 6 * time.Microsecond
	costOther      = 3 * time.Microsecond
)

// What a snapshot takes to restore, and how many times that the log may take: to write one takes nearly as long, and is
// to stay a small part of the work.
const (
	costRestored = 20 * time.Nanosecond // a byte
	mostRestores = 3
)

// replayCost estimates how long a restart takes to apply an entry.
func replayCost(batch []kernel.Envelope) time.Duration {
	cost := costEntry
	for i := range batch {
		switch batch[i].Command.(type) {
		case kernel.Register, kernel.Edit, kernel.Refresh, kernel.Mark, kernel.Pause, kernel.Resume, kernel.Delete, kernel.Configure:
			cost += costDefinition
		case kernel.Create, kernel.Fire:
			cost += costCreate
		default:
			cost += costOther
		}
	}
	return cost
}

// applied counts an entry. batch is its commands.
func (b *Bounds) applied(index uint64, size int, batch []kernel.Envelope) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.marks); n == 0 || b.total-b.marks[n-1].total >= b.trailing/64 {
		b.marks = append(b.marks, mark{index, b.total})
	}
	b.index = index
	b.total += int64(size)
	b.since += int64(size)
	b.cost += replayCost(batch)
	if b.since > max(b.after, 2*b.last) || b.cost > max(b.replay, mostRestores*costRestored*time.Duration(b.last)) {
		b.Ask()
	}
}

// Due receives when a snapshot is due.
func (b *Bounds) Due() <-chan struct{} { return b.due }

// Ask requests a snapshot.
func (b *Bounds) Ask() {
	select {
	case b.due <- struct{}{}:
	default:
	}
}

// Restored notes that a snapshot restored the rows as of an entry.
func (b *Bounds) Restored(index uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.index = index
	b.marks, b.since, b.cost = nil, 0, 0
}

// Begin starts a new count, because the rows are being captured, and returns how many entries the log should keep before it.
func (b *Bounds) Begin() (trailing uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.since, b.cost = 0, 0
	for len(b.marks) > 1 && b.total-b.marks[1].total >= b.trailing {
		b.marks = b.marks[1:]
	}
	if len(b.marks) == 0 {
		return 0
	}
	return b.index - b.marks[0].index
}

// Snapshot stores the size of the last snapshot, and when it was taken.
func (b *Bounds) Snapshot(size int64, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last, b.taken = size, at
}

// Now returns the last entry that was applied, the bytes of log since the last snapshot, and when that was taken.
func (b *Bounds) Now() (index uint64, since int64, taken time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.index, b.since, b.taken
}
