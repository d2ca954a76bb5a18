package raftstore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
)

// newestSnapshot is the newest snapshot in a directory, or nil. A damaged one is an error: raft would continue
// without it, and the log may no longer have what it contained.
func newestSnapshot(store raft.SnapshotStore, dir string) (*raft.SnapshotMeta, error) {
	folder := filepath.Join(dir, snapshotsFolder)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("read snapshots: %w", err)
	}
	list, err := store.List()
	if err != nil {
		return nil, fmt.Errorf("read snapshots: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if !slices.ContainsFunc(list, func(m *raft.SnapshotMeta) bool { return m.ID == e.Name() }) {
			return nil, &disk.Damaged{Path: filepath.Join(folder, e.Name()), What: "its meta.json cannot be read"}
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	return list[0], nil
}

// restoreNewest fills the machine from the newest snapshot, makes the log fit it, and returns it, or nil if there is
// none.
func (s *Store) restoreNewest() (*raft.SnapshotMeta, error) {
	meta, err := newestSnapshot(s.snapshots, s.cfg.Dir)
	if err != nil || meta == nil {
		return nil, err
	}
	if err := s.log.follow(meta); err != nil {
		return nil, err
	}
	path := filepath.Join(s.cfg.Dir, snapshotsFolder, meta.ID, "state.bin")
	_, file, err := s.snapshots.Open(meta.ID)
	if err != nil {
		return nil, &disk.Damaged{Path: path, What: err.Error()}
	}
	if err := s.machine.Restore(file); errors.Is(err, metastore.ErrTooOld) {
		return nil, fmt.Errorf("read snapshot %s: %w", path, err)
	} else if err != nil {
		return nil, &disk.Damaged{Path: path, What: err.Error()}
	}
	if until := s.machine.behind.until.Load(); until > 0 {
		if err := s.completable(until); err != nil {
			return nil, err
		}
	}
	taken := time.Time{}
	if written, err := os.Stat(path); err == nil {
		taken = written.ModTime()
	}
	s.machine.Bounds.Restored(meta.Index)
	s.machine.Bounds.Snapshot(meta.Size, taken)
	return meta, nil
}

// watchedSnapshots detects that a snapshot can no longer be read. Raft opens one when a node lags far behind, and
// would try the same one for ever; the rows in memory are intact, and make another.
type watchedSnapshots struct {
	raft.SnapshotStore
	dir string
	bad func(error)
}

func (w watchedSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, file, err := w.SnapshotStore.Open(id)
	if err != nil {
		w.bad(&disk.Damaged{Path: filepath.Join(w.dir, snapshotsFolder, id), What: err.Error()})
	}
	return meta, file, err
}

// again takes another snapshot in place of one that is damaged.
func (s *Store) again(err error) {
	s.cfg.Logger.Error("snapshot cannot be read, another one is taken", "err", err)
	s.machine.Bounds.Ask()
}
