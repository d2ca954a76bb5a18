package raftstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/raftlog"
	"github.com/carillon-scheduler/carillon/metastore/replica"
)

// perDelete is how many entries bbolt deletes at once, so that commits continue in between.
const perDelete = 1024

// raftLog is the log on disk. After the first failed write it refuses all: the content of the disk is unknown then,
// and a retry would prove nothing.
type raftLog struct {
	raft.LogStore
	stable raft.StableStore
	io.Closer
	path   string
	knows  uint32 // the newest version of the rules that this program knows
	fail   func(error)
	failed atomic.Pointer[error]
}

var _ raft.MonotonicLogStore = (*raftLog)(nil)

// kinds are the logs that each program can open. The tests add those of package hashicorp.
var kinds = []raftlog.Kind{raftlog.Bolt}

func openLog(c *Config, fail func(error)) (*raftLog, error) {
	l := &raftLog{knows: c.knows, fail: fail}
	kind, err := logIn(c.Dir, c.Log, c.Logs)
	if err != nil {
		return nil, err
	}
	l.path = filepath.Join(c.Dir, kind.File)
	err = disk.Guard(l.path, func() error {
		// Segments are made at their full size and deleted whole.
		segment := int(min(16<<20, max(1<<20, c.SnapshotAfter/4)))
		store, err := kind.Open(l.path, raftlog.Options{Logger: logger{Logger: c.Logger}, Segment: segment})
		if err == nil {
			l.LogStore, l.stable, l.Closer = store, store, store
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", l.path, err)
	}
	if err := l.beginStable(); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("open log %s: %w", l.path, err)
	}
	return l, nil
}

// logFiles are the files of all kinds of log, also of those that this program cannot open.
var logFiles = []string{"raft.db", "wal"}

// logIn returns the kind of log to open in a directory: the one that is there, the wanted one, or the first. An
// existing log must not be ignored.
func logIn(dir, wanted string, kinds []raftlog.Kind) (kind raftlog.Kind, err error) {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.Name
	}
	i := max(0, slices.Index(names, wanted))
	if wanted != "" && names[i] != wanted {
		return kind, fmt.Errorf("invalid Raft log %q: want %s", wanted, strings.Join(names, " or "))
	}
	for _, file := range logFiles {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			continue
		}
		switch at := slices.IndexFunc(kinds, func(k raftlog.Kind) bool { return k.File == file }); {
		case at < 0:
			return kind, fmt.Errorf("directory %s has a Raft log in %s, which this program does not link: set embed.Config.RaftLogs to hashicorp.Kinds()", dir, filepath.Join(dir, file))
		case wanted != "" && wanted != names[at]:
			return kind, fmt.Errorf("directory %s has a Raft log of kind %q: it cannot be opened with raft.log %q", dir, names[at], wanted)
		default:
			return kinds[at], nil
		}
	}
	return kinds[i], nil
}

// follow discards the log if it does not lead to a snapshot: if it ends before the snapshot's last entry, or has
// another one in its place. A node has such a log if it stopped between a leader's snapshot and the deletion of the
// entries that the snapshot replaces. Discarded entries are in the snapshot, or were never committed.
func (l *raftLog) follow(snapshot *raft.SnapshotMeta) error {
	first, err := l.FirstIndex()
	if err != nil {
		return fmt.Errorf("read log %s: %w", l.path, err)
	}
	last, err := l.LastIndex()
	if err != nil {
		return fmt.Errorf("read log %s: %w", l.path, err)
	}
	if last == 0 || first > snapshot.Index {
		return nil
	}
	if last >= snapshot.Index {
		var entry raft.Log
		if err := l.LogStore.GetLog(snapshot.Index, &entry); err != nil || entry.Term == snapshot.Term {
			return nil // check reports what cannot be read
		}
	}
	return l.DeleteRange(first, last)
}

// check reads all entries after an index, which raft is going to apply, to find damage before raft does.
func (l *raftLog) check(after uint64) error {
	err := disk.Guard(l.path, func() error {
		first, err := l.FirstIndex()
		if err != nil {
			return err
		}
		last, err := l.LastIndex()
		if err != nil {
			return err
		}
		if last == 0 && after == 0 {
			return nil
		}
		if last > after && first > after+1 {
			return &disk.Damaged{Path: l.path, What: fmt.Sprintf("its first entry is %d, and there is no snapshot of those before it", first)}
		}
		var entry raft.Log
		if last > 0 {
			if err := l.LogStore.GetLog(last, &entry); err != nil {
				return &disk.Damaged{Path: l.path, What: fmt.Sprintf("entry %d cannot be read: %v", last, err)}
			}
			if term, err := l.GetUint64(keyTerm); err != nil {
				return err
			} else if term < entry.Term {
				return &disk.Damaged{Path: l.path, What: fmt.Sprintf("its term is %d, and entry %d is of term %d", term, last, entry.Term)}
			}
		}
		for i := max(first, after+1); i <= last; i++ {
			if err := l.LogStore.GetLog(i, &entry); err != nil {
				return &disk.Damaged{Path: l.path, What: fmt.Sprintf("entry %d cannot be read: %v", i, err)}
			}
			if entry.Index != i {
				return &disk.Damaged{Path: l.path, What: fmt.Sprintf("entry %d has the number %d", i, entry.Index)}
			}
			if entry.Type == raft.LogCommand {
				if err := replica.CheckEntry(entry.Data, l.knows); errors.Is(err, replica.ErrEntryVersion) || errors.Is(err, metastore.ErrTooOld) {
					return fmt.Errorf("entry %d: %w", i, err)
				} else if err != nil {
					return &disk.Damaged{Path: l.path, What: fmt.Sprintf("entry %d: %v", i, err)}
				}
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read log %s: %w", l.path, err)
	}
	return nil
}

// write makes a change, unless one has failed before.
func (l *raftLog) write(change func() error) error {
	if err := l.failed.Load(); err != nil {
		return *err
	}
	err := disk.Guard(l.path, change)
	if err != nil {
		err = fmt.Errorf("write log %s: %w", l.path, err)
		if l.failed.CompareAndSwap(nil, &err) {
			l.fail(err)
		}
	}
	return err
}

func (l *raftLog) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

func (l *raftLog) StoreLogs(entries []*raft.Log) error {
	return l.write(func() error { return l.LogStore.StoreLogs(entries) })
}

// DeleteRange deletes entries at the beginning or at the end of the log. raft-wal does so in one step, by its meta
// data, and refuses any other range. bbolt rewrites pages, so it gets a part at a time, from the open end: wherever
// that stops, the log has no gap.
func (l *raftLog) DeleteRange(first, last uint64) error {
	if l.IsMonotonic() {
		return l.write(func() error { return l.LogStore.DeleteRange(first, last) })
	}
	begins, err := l.FirstIndex()
	if err != nil {
		return fmt.Errorf("read log %s: %w", l.path, err)
	}
	for first <= last {
		n := min(perDelete, last-first+1)
		from, to := first, first+n-1
		if begins < first {
			from, to = last-n+1, last
		}
		if err := l.write(func() error { return l.LogStore.DeleteRange(from, to) }); err != nil {
			return err
		}
		if begins < first {
			last = from - 1
		} else {
			first = to + 1
		}
	}
	return nil
}

// IsMonotonic reports whether the log must have no gaps.
func (l *raftLog) IsMonotonic() bool {
	m, ok := l.LogStore.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

// Set stores a value under a key, with a checksum of both: neither kind of log has one for its term and its vote, and
// a node with a wrong one of these votes twice.
func (l *raftLog) Set(key, value []byte) error {
	summed := binary.LittleEndian.AppendUint32(slices.Clone(value), stableSum(key, value))
	return l.write(func() error { return l.stable.Set(key, summed) })
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func stableSum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
}

func (l *raftLog) SetUint64(key []byte, value uint64) error {
	return l.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// Get returns the value of a key, or nothing.
func (l *raftLog) Get(key []byte) (value []byte, err error) {
	err = disk.Guard(l.path, func() (err error) {
		value, err = l.stable.Get(key)
		return err
	})
	if err != nil || len(value) == 0 {
		return nil, err
	}
	n := len(value) - 4
	if n < 0 || binary.LittleEndian.Uint32(value[n:]) != stableSum(key, value[:n]) {
		return nil, &disk.Damaged{Path: l.path, What: fmt.Sprintf("the value of %s has a wrong checksum", key)}
	}
	return value[:n], nil
}

func (l *raftLog) GetUint64(key []byte) (uint64, error) {
	b, err := l.Get(key)
	if err != nil || b == nil {
		return 0, err
	}
	if len(b) != 8 {
		return 0, &disk.Damaged{Path: l.path, What: fmt.Sprintf("the value of %s has %d bytes", key, len(b))}
	}
	return binary.BigEndian.Uint64(b), nil
}

// Where raft stores its term, and its last vote.
var (
	keyTerm     = []byte("CurrentTerm")
	keyVoteTerm = []byte("LastVoteTerm")
	keyVote     = []byte("LastVoteCand")
)

// beginStable writes raft's values when a log is new, the term last: raft takes a missing value for none, and a node
// that forgets its vote votes twice. So a value that is missing later was damaged.
func (l *raftLog) beginStable() error {
	var there [3]bool
	for i, key := range [][]byte{keyTerm, keyVoteTerm, keyVote} {
		value, err := l.Get(key)
		if err != nil {
			return err
		}
		there[i] = value != nil
	}
	if there == [3]bool{true, true, true} {
		return nil
	}
	last, err := l.LastIndex()
	if err != nil {
		return err
	}
	voted := uint64(0)
	if there[1] {
		if voted, err = l.GetUint64(keyVoteTerm); err != nil {
			return err
		}
	}
	if there[0] || last > 0 || voted > 0 {
		return &disk.Damaged{Path: l.path, What: "it has lost its term or its vote"}
	}
	return errors.Join(l.SetUint64(keyVoteTerm, 0), l.Set(keyVote, nil), l.SetUint64(keyTerm, 0))
}

// GetLog reads an entry, mostly for a node that lags. Damaged entries are not passed on.
func (l *raftLog) GetLog(index uint64, entry *raft.Log) error {
	if err := l.LogStore.GetLog(index, entry); err != nil {
		return err
	}
	if entry.Type != raft.LogCommand {
		return nil
	}
	// The machine stops at an entry of newer rules: raft panics if it cannot read an entry.
	if err := replica.CheckEntry(entry.Data, l.knows); err != nil && !errors.Is(err, metastore.ErrTooOld) {
		err = fmt.Errorf("read log: %w", &disk.Damaged{Path: l.path, What: fmt.Sprintf("entry %d: %v", index, err)})
		l.fail(err)
		return err
	}
	return nil
}
