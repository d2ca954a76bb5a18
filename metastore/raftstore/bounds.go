package raftstore

import (
	"sync"
	"time"
)

// bounds keeps the log short, in bytes: raft itself counts entries, and one of ours has a thousand commands or one.
type bounds struct {
	after    int64         // a snapshot is due when the log since the last one is longer than this,
	trailing int64         // and this much of the log is kept before it
	due      chan struct{} // signals that one is due

	mu    sync.Mutex
	since int64  // bytes of entries since the last snapshot was captured
	last  int64  // bytes of the last snapshot
	index uint64 // of the last entry
	marks []mark // of the entries that may still be in the log
	total int64
	taken time.Time // when the last snapshot was
}

// mark records how many bytes of entries precede an entry. There is one for every part of the trailing log.
type mark struct {
	index uint64
	total int64
}

// applied counts an entry.
func (b *bounds) applied(index uint64, size int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.marks); n == 0 || b.total-b.marks[n-1].total >= b.trailing/64 {
		b.marks = append(b.marks, mark{index, b.total})
	}
	b.index = index
	b.total += int64(size)
	b.since += int64(size)
	if b.since > max(b.after, 2*b.last) {
		b.ask()
	}
}

// ask requests a snapshot.
func (b *bounds) ask() {
	select {
	case b.due <- struct{}{}:
	default:
	}
}

// restored notes that a snapshot restored the rows as of an entry.
func (b *bounds) restored(index uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.index = index
	b.marks, b.since = nil, 0
}

// begin starts a new count, because the rows are being captured, and returns how many entries raft should keep.
func (b *bounds) begin() (trailing uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.since = 0
	for len(b.marks) > 1 && b.total-b.marks[1].total >= b.trailing {
		b.marks = b.marks[1:]
	}
	if len(b.marks) == 0 {
		return 0
	}
	return b.index - b.marks[0].index
}

// snapshot stores the size of the last snapshot, and when it was taken.
func (b *bounds) snapshot(size int64, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last, b.taken = size, at
}

// now returns the last entry that was applied, the bytes of log since the last snapshot, and when that was taken.
func (b *bounds) now() (index uint64, since int64, taken time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.index, b.since, b.taken
}
