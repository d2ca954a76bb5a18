package raftstore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/archive"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
)

// setAside moves the data of a node that is to be repaired to a folder.
func (s *Store) setAside() error {
	if s.cfg.Listen == "" {
		return errNoNetwork
	}
	to, err := s.node.setAside(s.cfg.Dir)
	if err == nil && to != "" {
		s.cfg.Logger.Warn("data moved aside: taking all from the other nodes", "dir", to)
	}
	return err
}

// setAside moves a node's data to a folder, or returns "" if that was done before.
func (n *node) setAside(dir string) (to string, err error) {
	switch {
	case n == nil:
		return "", kernel.Refuse(jobs.Conflict, "directory %s is not a member's, so other nodes have no data for it: join with a token", dir)
	case n.Rejoin && n.Moving == "":
		return "", nil // the present data comes from the others
	case len(n.Others) == 0 && n.Moving == "":
		return "", kernel.Refuse(jobs.Conflict, "this node knows no other node to fetch its data from: restore it from a backup")
	}
	// Another process may use the directory.
	a, err := archive.Open(filepath.Join(dir, archiveFolder), archive.Config{})
	if err == nil {
		_ = a.Close()
	} else if errors.Is(err, disk.ErrInUse) {
		return "", err
	}
	return n.moveAside(dir)
}

// Repair moves the data of a damaged node aside, so that when it is opened next it takes everything from the others,
// which take its vote until it has caught up. It is Config.Repair for one time, and returns the folder of the old
// data, "" if that was done before. No process may have the directory open.
func Repair(dir string) (to string, err error) {
	n, err := loadNode(dir)
	if err == nil {
		to, err = n.setAside(dir)
	}
	if errors.Is(err, disk.ErrInUse) {
		err = errInUse(dir)
	}
	if err != nil {
		return "", fmt.Errorf("repair a node: %w", err)
	}
	return to, nil
}

func errInUse(dir string) error {
	return kernel.Refuse(jobs.Conflict, "directory %s is in use by another process: stop it first", dir)
}

// Known is what a directory knows of its cluster, while no process has it open.
type Known struct {
	Cluster, Node string
	Epoch         uint64
	// Term and Index are of the last entry of its log: of two nodes, the one with the higher term, or in the same
	// term the higher index, has more.
	Term, Index uint64
	Others      []Member // ID, Name and Address of the last known members
}

// Look returns what a directory knows of its cluster. No process may have it open.
func Look(c Config) (k Known, err error) {
	c = c.withDefaults()
	s := &Store{cfg: c, failures: make(chan error, 1), failed: make(chan struct{})}
	s.ctx, s.stop = context.WithCancel(context.Background())
	err = s.look(&k)
	if err = errors.Join(err, s.Close()); errors.Is(err, disk.ErrInUse) {
		err = errInUse(c.Dir)
	}
	return k, err
}

func (s *Store) look(k *Known) (err error) {
	if s.node, err = loadNode(s.cfg.Dir); err != nil {
		return err
	}
	if s.node == nil {
		return kernel.Refuse(jobs.NotFound, "directory %s has no node", s.cfg.Dir)
	}
	k.Cluster, k.Node, k.Epoch = s.node.Cluster, s.node.ID, s.node.Epoch
	for _, o := range s.node.Others {
		k.Others = append(k.Others, Member{ID: o.ID, Name: o.Name, Address: o.Address})
	}
	if _, err = s.openFiles(logger{Logger: s.cfg.Logger}); err != nil {
		return err
	}
	newest, err := newestSnapshot(s.snapshots, s.cfg.Dir)
	if err != nil {
		return err
	}
	if newest != nil {
		k.Term, k.Index = newest.Term, newest.Index
	}
	last, err := s.log.LastIndex()
	if err != nil || last <= k.Index {
		return err
	}
	var entry raft.Log
	if err := s.log.GetLog(last, &entry); err != nil {
		return err
	}
	k.Term, k.Index = entry.Term, last
	return nil
}

// takeAll prepares a node without data to get it from the others: one that joins, or one that has lost it. The latter
// asks the leader to take its vote first, because it no longer knows its promises.
func (s *Store) takeAll(ctx context.Context, there bool) error {
	if s.node.Founder && !s.node.Rejoin || there && !s.node.Rejoin {
		return nil
	}
	if s.link == nil {
		return errNoNetwork
	}
	if s.node.Rejoin {
		if _, err := s.askLeader(ctx, call{Rejoin: true}); err != nil {
			return err
		}
	}
	if err := s.fetchArchive(ctx, 0); err != nil {
		return err
	}
	if s.node.Rejoin {
		s.node.Rejoin, s.node.Founder, s.node.Began = false, false, false
		return s.node.save(s.cfg.Dir)
	}
	return nil
}

// Force makes the node of a directory the only member of its cluster, with all that is in its log: for when a
// majority is lost for good. What only the lost nodes had is lost, and none of them may come back: the cluster begins
// a new epoch, and nodes of an older one are refused until they join again. The audits name who did it once the node
// is opened. No process may have the directory open.
func Force(c Config, by By) error {
	c = c.withDefaults()
	c.Repair = false
	s := &Store{cfg: c, failures: make(chan error, 1), failed: make(chan struct{})}
	s.ctx, s.stop = context.WithCancel(context.Background())
	err := s.force(by)
	if err = errors.Join(err, s.Close()); err != nil {
		if errors.Is(err, disk.ErrInUse) {
			err = errInUse(c.Dir)
		}
		return fmt.Errorf("force a single node: %w", err)
	}
	return nil
}

func (s *Store) force(by By) (err error) {
	if s.node, err = loadNode(s.cfg.Dir); err != nil {
		return err
	}
	if s.node == nil || s.node.Rejoin {
		return fmt.Errorf("directory %s has no data to continue with", s.cfg.Dir)
	}
	to := logger{Logger: s.cfg.Logger}
	there, err := s.openFiles(to)
	if err != nil {
		return err
	}
	if err := s.settle(there); err != nil {
		return err
	}
	index, term, err := s.replay()
	if err != nil {
		return err
	}
	if index == 0 {
		return fmt.Errorf("directory %s has no data to continue with", s.cfg.Dir)
	}
	// The epoch goes first: the others must not accept what follows.
	s.node.Epoch++
	s.node.Others, s.node.Forced, s.node.Reached = nil, &by, 0 // what this node lacks is given up, too
	if err := s.node.save(s.cfg.Dir); err != nil {
		return err
	}
	// A snapshot in which this node is the only member takes the log's place. A node that was receiving a snapshot
	// may have runs that ended by entries which only the others had: the next entries must not give theirs the same
	// numbers.
	index = max(index, s.archive.Last()>>24)
	captured, err := s.machine.Snapshot()
	if err != nil {
		return err
	}
	sink, err := alone(s.snapshots, raft.ServerID(s.node.ID), index, term)
	if err != nil {
		return err
	}
	if err := captured.Persist(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return err
	}
	first, err := s.log.FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.log.LastIndex()
	if err != nil || last == 0 {
		return err
	}
	return s.log.DeleteRange(first, last)
}

// alone begins a snapshot in which a node is the only member.
func alone(snapshots raft.SnapshotStore, id raft.ServerID, index, term uint64) (raft.SnapshotSink, error) {
	_, trans := raft.NewInmemTransport(raft.ServerAddress(id))
	only := raft.Configuration{Servers: []raft.Server{{ID: id, Address: trans.LocalAddr()}}}
	return snapshots.Create(raft.SnapshotVersionMax, index, term, only, 1, trans)
}

// recordForced writes an audit of who made this node the only one.
func (s *Store) recordForced(ctx context.Context) error {
	if s.node.Forced == nil {
		return nil
	}
	id := kernel.DerivedID("forced", s.node.Cluster, s.node.ID, fmt.Sprint(s.node.Epoch))
	if err := s.note(ctx, *s.node.Forced, kernel.Members{ID: id, Did: kernel.NodeRecovered, Node: s.cfg.Node}); err != nil {
		return err
	}
	s.nodeMu.Lock()
	defer s.nodeMu.Unlock()
	s.node.Forced = nil
	return s.node.save(s.cfg.Dir)
}
