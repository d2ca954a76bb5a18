package raftstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/archive"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/loglines"
	"github.com/carillon-scheduler/carillon/metastore/replica"
)

// Copying all content of a store to another: a backup, or a move to a database and back. Cluster, members and votes
// are no part of it: a filled store is a new cluster of one node.

// content is the content of a node at one moment.
type content struct {
	rows    *memstore.Snapshot
	archive *archive.Archive
	ended   uint64 // number of the last finished run
	logs    *loglines.Logs
}

// Content is this node's content now: commits continue while it is read. A follower may lack acknowledged commands;
// see Linearizable and Age.
func (s *Store) Content() metastore.Content { return s.content() }

func (s *Store) content() *content {
	c := &content{archive: s.archive, logs: s.logs}
	s.machine.Moment(func() { c.rows, c.ended = s.machine.Engine.Capture(), s.machine.ended() })
	return c
}

func (c *content) Rows(ctx context.Context) iter.Seq2[kernel.Row, error] {
	return func(yield func(kernel.Row, error) bool) {
		for row := range c.rows.Rows() {
			if err := ctx.Err(); !yield(row, err) || err != nil {
				return
			}
		}
	}
}

func (c *content) Ended(ctx context.Context) iter.Seq2[*kernel.Run, error] {
	return c.archive.Ended(ctx, c.ended)
}

func (c *content) Lines(ctx context.Context) iter.Seq2[metastore.LogLine, error] {
	return c.logs.All(ctx)
}

// Frozen is the content of a directory whose node does not run.
type Frozen struct {
	metastore.Content
	store *Store
}

// Close releases the directory.
func (f *Frozen) Close() error { return f.store.Close() }

// Freeze opens a directory for reading, with all that is in its log. No other process may have it open until Close.
// It changes no more than a start does.
func Freeze(c Config) (_ *Frozen, err error) {
	c = c.withDefaults()
	s := &Store{cfg: c, failures: make(chan error, 1), failed: make(chan struct{})}
	s.ctx, s.stop = context.WithCancel(context.Background())
	if err := s.freeze(); err != nil {
		_ = s.Close()
		if errors.Is(err, disk.ErrInUse) {
			return nil, kernel.Refuse(jobs.Conflict, "directory %s is in use by another process: stop the server first", c.Dir)
		}
		return nil, fmt.Errorf("read store: %w", err)
	}
	return &Frozen{s.content(), s}, nil
}

func (s *Store) freeze() (err error) {
	if s.node, err = loadNode(s.cfg.Dir); err != nil {
		return err
	}
	if s.node == nil || s.node.Rejoin {
		return kernel.Refuse(jobs.NotFound, "directory %s has no store", s.cfg.Dir)
	}
	if _, err = s.openFiles(logger{Logger: s.cfg.Logger}); err != nil {
		return err
	}
	index, _, err := s.replay()
	if err != nil {
		return err
	}
	return s.reaches(index)
}

// replay applies all that is in a directory whose node does not run, and returns the last entry and its term.
func (s *Store) replay() (index, term uint64, err error) {
	s.replaying = true
	newest, err := s.restoreNewest()
	if err != nil {
		return 0, 0, err
	}
	if newest != nil {
		index, term = newest.Index, newest.Term
	}
	if err := s.log.check(index); err != nil {
		return 0, 0, err
	}
	last, err := s.log.LastIndex()
	if err != nil {
		return 0, 0, err
	}
	for index < last {
		var entry raft.Log
		if err := s.log.GetLog(index+1, &entry); err != nil {
			return 0, 0, err
		}
		if entry.Type == raft.LogCommand {
			if err, failed := s.machine.Apply(&entry).(error); failed {
				return 0, 0, err
			}
		}
		index, term = entry.Index, entry.Term
	}
	return index, term, nil
}

// unfinished is the end of the name of a directory that is being filled.
const unfinished = ".unfinished"

// Fill makes a store of content, in a directory that is empty or missing: a single node, the first of a new cluster,
// which nodes of another cannot join. The directory appears when it is complete and on disk. See metastore.Fill.
func Fill(ctx context.Context, c Config, from metastore.Content, check func(metastore.Content) error) (err error) {
	dir := c.Dir
	if files, err := os.ReadDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	} else if len(files) > 0 {
		return kernel.Refuse(jobs.Conflict, "directory %s is not empty: name an empty or a new one", dir)
	}
	c.Dir = filepath.Clean(dir) + unfinished
	if err := clearUnfinished(c.Dir); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(c.Dir) // a second attempt does it, if this fails
		}
	}()
	if err := fill(ctx, c, from); err != nil {
		return fmt.Errorf("fill %s: %w", dir, err)
	}
	made, err := Freeze(c)
	if err != nil {
		return err
	}
	if err := errors.Join(check(made), made.Close()); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(os.Rename(c.Dir, dir), disk.SyncFolder(filepath.Dir(filepath.Clean(dir))))
}

// clearUnfinished removes the rest of an earlier attempt, unless its process still runs.
func clearUnfinished(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	a, err := archive.Open(filepath.Join(dir, archiveFolder), archive.Config{})
	if errors.Is(err, disk.ErrInUse) {
		return kernel.Refuse(jobs.Conflict, "another process is filling %s", dir)
	}
	if err == nil {
		_ = a.Close()
	}
	return os.RemoveAll(dir)
}

func fill(ctx context.Context, c Config, from metastore.Content) (err error) {
	c = c.withDefaults()
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	s := &Store{cfg: c, failures: make(chan error, 1), failed: make(chan struct{})}
	s.ctx, s.stop = context.WithCancel(context.Background())
	defer func() { err = errors.Join(err, s.Close(), disk.SyncFolder(c.Dir)) }()
	if _, err = s.openFiles(logger{Logger: c.Logger}); err != nil {
		return err
	}
	if err := s.settle(false); err != nil {
		return err
	}
	last, err := s.fillArchive(ctx, from.Ended(ctx))
	if err != nil {
		return err
	}
	if err := s.logs.Fill(from.Lines(ctx)); err != nil {
		return err
	}
	if err := s.fillSnapshot(ctx, last, from); err != nil {
		return err
	}
	s.node.Began = true
	return s.node.save(c.Dir)
}

// The log of a filled store begins after its snapshot, whose entry comes after those that number finished runs: as if
// each of 2^24 had been settled by one entry.
const firstNumber = 1 << 24

const (
	fillRuns  = 4096
	fillBytes = 4 << 20
)

// fillArchive writes finished runs, and returns the number of the last.
func (s *Store) fillArchive(ctx context.Context, ended iter.Seq2[*kernel.Run, error]) (last uint64, err error) {
	last = firstNumber
	var part []archive.Record
	size := 0
	flush := func() error {
		err := s.archive.Fill(ctx, part, last)
		part, size = part[:0], 0
		return err
	}
	for run, err := range ended {
		if err != nil {
			return 0, err
		}
		last++
		r := archive.NewRecord(last, run)
		part = append(part, r)
		if size += len(r.Body); len(part) == fillRuns || size > fillBytes {
			if err := errors.Join(flush(), ctx.Err()); err != nil {
				return 0, err
			}
		}
	}
	return last, flush()
}

// fillSnapshot writes all other rows as the snapshot that precedes the log. Its term is that of the copied rows: the
// first leader has a higher one.
func (s *Store) fillSnapshot(ctx context.Context, last uint64, from metastore.Content) error {
	term, rules := uint64(1), kernel.FirstApplyVersion
	for row, err := range from.Rows(ctx) {
		if err != nil {
			return err
		}
		if state, ok := row.(*kernel.StoreRow); ok {
			term, rules = max(term, state.Term), state.InForce()
			break
		}
	}
	if err := metastore.Readable("the content", rules, s.cfg.knows); err != nil {
		return err
	}
	if err := s.log.SetUint64(keyTerm, term); err != nil { // the key that raft reads
		return err
	}
	head := replica.Head{Rules: rules, Index: last>>24 + 1, Ended: last}
	sink, err := alone(s.snapshots, raft.ServerID(s.node.ID), head.Index, term)
	if err != nil {
		return err
	}
	var broken error
	_, err = replica.WriteSnapshot(sink, head, func(yield func(kernel.Row) bool) {
		for row, err := range from.Rows(ctx) {
			if broken = err; err != nil || !yield(row) {
				return
			}
		}
	})
	if err = errors.Join(err, broken); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}
