package raftlog

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
)

// Bolt stores a log in one bbolt file. raft-boltdb reads and writes the same format.
var Bolt = Kind{Name: "boltdb", File: "raft.db", Open: openBolt}

// BoltOptions are those of each program that opens such a file.
func BoltOptions() *bbolt.Options {
	return &bbolt.Options{Timeout: LockTimeout, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType, InitialMmapSize: 256 << 20}
}

type bolt struct{ db *bbolt.DB }

// The buckets of the file: entries by number, and raft's values by key.
var (
	bucketEntries = []byte("logs")
	bucketValues  = []byte("conf")
)

func openBolt(path string, _ Options) (Store, error) {
	if err := disk.CheckBolt(path, LockTimeout); err != nil {
		return nil, err
	}
	db, err := bbolt.Open(path, 0o600, BoltOptions())
	if err != nil {
		return nil, disk.Opened(path, err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range [][]byte{bucketEntries, bucketValues} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		_ = db.Close()
		return nil, disk.Opened(path, err)
	}
	return bolt{db}, nil
}

func (b bolt) Close() error { return b.db.Close() }

func entryKey(index uint64) []byte { return binary.BigEndian.AppendUint64(nil, index) }

// edge is the number of the entry at one end of the log, 0 if there is none.
func (b bolt) edge(end func(*bbolt.Cursor) (key, value []byte)) (index uint64, err error) {
	err = b.db.View(func(tx *bbolt.Tx) error {
		if key, _ := end(tx.Bucket(bucketEntries).Cursor()); key != nil {
			index = binary.BigEndian.Uint64(key)
		}
		return nil
	})
	return index, err
}

func (b bolt) FirstIndex() (uint64, error) { return b.edge((*bbolt.Cursor).First) }
func (b bolt) LastIndex() (uint64, error)  { return b.edge((*bbolt.Cursor).Last) }

func (b bolt) GetLog(index uint64, entry *raft.Log) error {
	return b.db.View(func(tx *bbolt.Tx) error {
		text := tx.Bucket(bucketEntries).Get(entryKey(index))
		if text == nil {
			return raft.ErrLogNotFound
		}
		if err := codec.NewDecoderBytes(bytes.Clone(text), new(codec.MsgpackHandle)).Decode(entry); err != nil {
			return fmt.Errorf("decode entry %d: %w", index, err)
		}
		return nil
	})
}

func (b bolt) StoreLog(entry *raft.Log) error { return b.StoreLogs([]*raft.Log{entry}) }

func (b bolt) StoreLogs(entries []*raft.Log) error {
	handle := new(codec.MsgpackHandle)
	handle.TimeNotBuiltin = true // as raft-boltdb writes a time
	return b.db.Update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(bucketEntries)
		for _, entry := range entries {
			var text []byte
			if err := codec.NewEncoderBytes(&text, handle).Encode(entry); err != nil {
				return fmt.Errorf("encode entry %d: %w", entry.Index, err)
			}
			if err := bucket.Put(entryKey(entry.Index), text); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b bolt) DeleteRange(first, last uint64) error {
	return b.db.Update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(bucketEntries)
		at, end := bucket.Cursor(), entryKey(last)
		for key, _ := at.Seek(entryKey(first)); key != nil && bytes.Compare(key, end) <= 0; key, _ = at.Next() {
			if err := at.Delete(); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b bolt) Set(key, value []byte) error {
	return b.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketValues).Put(key, value) })
}

func (b bolt) Get(key []byte) (value []byte, err error) {
	err = b.db.View(func(tx *bbolt.Tx) error {
		value = bytes.Clone(tx.Bucket(bucketValues).Get(key))
		return nil
	})
	return value, err
}

func (b bolt) SetUint64(key []byte, value uint64) error {
	return b.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

func (b bolt) GetUint64(key []byte) (uint64, error) {
	value, err := b.Get(key)
	if err != nil || len(value) != 8 {
		return 0, err
	}
	return binary.BigEndian.Uint64(value), nil
}
