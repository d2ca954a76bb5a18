package raftstore

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
	"github.com/carillon-scheduler/carillon/metastore/replica"
)

// keptSnapshots is how many snapshots stay on disk: the newest, and the one before it for a manual repair.
const keptSnapshots = 2

const (
	snapshotsFolder  = "snapshots"  // raft's name
	unverifiedFolder = "unverified" // has a snapshotsFolder of its own
)

// verifiedSnapshots has snapshots that were read back. One is written into a folder of its own and moved when it was
// read: raft cuts the log as soon as the sink is closed, and a start takes no older snapshot for one that is damaged.
type verifiedSnapshots struct {
	*raft.FileSnapshotStore
	unverified raft.SnapshotStore
	dir        string
}

func openSnapshots(dir string, to logger) (*verifiedSnapshots, error) {
	v := &verifiedSnapshots{dir: dir}
	unverified := filepath.Join(dir, unverifiedFolder)
	if err := os.RemoveAll(unverified); err != nil { // a crash came between
		return nil, fmt.Errorf("remove unfinished snapshot: %w", err)
	}
	var err error
	if v.FileSnapshotStore, err = raft.NewFileSnapshotStoreWithLogger(dir, keptSnapshots, to); err != nil {
		return nil, err
	}
	v.unverified, err = raft.NewFileSnapshotStoreWithLogger(unverified, keptSnapshots, to)
	return v, err
}

// Create begins a snapshot.
func (v *verifiedSnapshots) Create(version raft.SnapshotVersion, index, term uint64, members raft.Configuration, membersIndex uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	sink, err := v.unverified.Create(version, index, term, members, membersIndex, trans)
	if err != nil {
		return nil, err
	}
	return &unverifiedSink{sink, v}, nil
}

type unverifiedSink struct {
	raft.SnapshotSink
	to *verifiedSnapshots
}

// Close ends the snapshot, reads it back, and moves it to the others.
func (u *unverifiedSink) Close() error {
	if err := u.SnapshotSink.Close(); err != nil {
		return err
	}
	from := filepath.Join(u.to.dir, unverifiedFolder, snapshotsFolder, u.ID())
	if err := u.to.readBack(u.ID()); err != nil {
		return errors.Join(err, os.RemoveAll(from))
	}
	folder := filepath.Join(u.to.dir, snapshotsFolder)
	if err := os.Rename(from, filepath.Join(folder, u.ID())); err != nil {
		return fmt.Errorf("move the snapshot: %w", err)
	}
	if err := disk.SyncFolder(folder); err != nil {
		return fmt.Errorf("move the snapshot: %w", err)
	}
	return u.to.ReapSnapshots()
}

// errReadBack is part of the text of raft's errors, which wrap none.
var errReadBack = errors.New("the new snapshot cannot be read back")

func (v *verifiedSnapshots) readBack(id string) error {
	_, file, err := v.unverified.Open(id)
	if err != nil {
		return fmt.Errorf("%w: %w", errReadBack, err)
	}
	if _, err = replica.VerifySnapshot(file, math.MaxUint32); err != nil { // its rules are checked when it is restored
		err = fmt.Errorf("%w: %w", errReadBack, err)
	}
	return errors.Join(err, file.Close())
}
