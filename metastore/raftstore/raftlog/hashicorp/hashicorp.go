// Package hashicorp has the Raft logs of HashiCorp's libraries: raft-wal, whose commits take half the time, and
// raft-boltdb.
//
// It is not promised to programs outside this module.
//
// Package embed does not import it: raft-wal links coreos/etcd, and raft-boltdb links boltdb/bolt, which
// are not maintained. A program that wants the faster log sets embed.Config.RaftLogs to [Kinds].
package hashicorp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/metadb"

	"github.com/carillon-scheduler/carillon/internal/stdlog"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/raftlog"
)

// capnslog, which raft-wal links by coreos/etcd, has taken over package log.
func init() { stdlog.Restore() }

// Kinds returns both logs. New directories get the first.
func Kinds() []raftlog.Kind {
	return []raftlog.Kind{
		{Name: "wal", File: "wal", Open: openWAL},
		{Name: raftlog.Bolt.Name, File: raftlog.Bolt.File, Open: openBolt},
	}
}

// bolt is a log of raft-boltdb.
type bolt struct{ *raftboltdb.BoltStore }

func openBolt(path string, _ raftlog.Options) (raftlog.Store, error) {
	if err := disk.CheckBolt(path, raftlog.LockTimeout); err != nil {
		return nil, err
	}
	db, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: raftlog.BoltOptions()})
	if err != nil {
		return nil, disk.Opened(path, err)
	}
	return bolt{db}, nil
}

func (b bolt) Get(key []byte) ([]byte, error) {
	value, err := b.BoltStore.Get(key)
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return nil, nil
	}
	return value, err
}

func (b bolt) GetUint64(key []byte) (uint64, error) {
	value, err := b.BoltStore.GetUint64(key)
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return 0, nil
	}
	return value, err
}

// segmented is a log of raft-wal, which leaves its meta data open, and locked, when it is closed.
type segmented struct {
	*wal.WAL
	meta *segments
}

func (s segmented) Close() error { return errors.Join(s.WAL.Close(), s.meta.Close()) }

func openWAL(path string, o raftlog.Options) (raftlog.Store, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("create directory: %w", err)
	}
	index := filepath.Join(path, metadb.FileName)
	// raft-wal renames it to this name when it is whole.
	if info, err := os.Stat(index); err == nil && info.Size() == 0 {
		return nil, &disk.Damaged{Path: index, What: "it is empty"}
	}
	if err := disk.CheckBolt(index, raftlog.LockTimeout); err != nil {
		return nil, err
	}
	meta := &segments{MetaStore: new(metadb.BoltMetaDB), path: path}
	w, err := wal.Open(path, wal.WithLogger(o.Logger), wal.WithMetaStore(meta), wal.WithSegmentSize(o.Segment))
	if err != nil {
		_ = meta.Close()
		return nil, disk.Opened(path, err)
	}
	return segmented{w, meta}, nil
}
