// Package raftstore is the durable store: a raft log under live rows in memory, with an archive of runs that are
// over beside it.
//
// A commit is one entry of the log. It is on disk before it is applied to the rows, which a memstore.Engine keeps,
// and its answers come back from there. Snapshots of the rows let the log be cut; runs that settle go to the
// archive at once and are never part of a snapshot. One node is a raft of one voter.
//
// Where to start: Open, then commit.go for the way of a command and machine.go for what a replica does. A
// directory holds raft.db (or wal), snapshots, archive.db and logs. docs/design-raftstore.md has the figures.
package raftstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/archive"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/daylogs"
)

// Config says where a store lies and how it behaves. Dir is required; other fields may be left out.
type Config struct {
	Dir    string
	Node   string       // this node's name, for people; default "node"
	Logger *slog.Logger // default: nowhere
	Log    Log          // what keeps the raft log; default: what is in Dir, LogWAL in a new one

	// Now is the clock that stamps commits. Default time.Now.
	Now func() time.Time
	// Transport reaches other nodes. Default: there are none.
	Transport raft.Transport
	// Heartbeat is how often a leader is heard, and how long its silence is borne, about. Default 250 ms.
	Heartbeat time.Duration

	// SnapshotAfter is how many bytes of log, at least, lie between two snapshots; twice the last snapshot's size
	// if that is more. Default 64 MiB.
	SnapshotAfter int64
	// Trailing is how many bytes of log are kept behind a snapshot, for nodes that lag. Default 64 MiB.
	Trailing int64
	// ArchiveBuffer is how many bytes of runs that are over may wait to be written. Default 64 MiB.
	ArchiveBuffer int64
}

func (c Config) withDefaults() Config {
	if c.Node == "" {
		c.Node = "node"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Heartbeat <= 0 {
		c.Heartbeat = 250 * time.Millisecond
	}
	if c.SnapshotAfter <= 0 {
		c.SnapshotAfter = 64 << 20
	}
	if c.Trailing <= 0 {
		c.Trailing = 64 << 20
	}
	return c
}

// reads is what is asked of the rows.
type reads interface {
	metastore.Reader
	metastore.Agenda
}

// Store is a durable store.
type Store struct {
	reads
	cfg     Config
	group   *metastore.Group
	machine *machine
	archive *archive.Archive
	logs    *daylogs.Logs
	log     *raftLog
	raft    *raft.Raft
	leading leadership

	standForElection func()

	order sync.Mutex // what is stamped first is logged first
	last  time.Time  // of the last commit

	stop     context.CancelFunc
	duties   sync.WaitGroup
	failures chan error
	failing  sync.Once
	failed   chan struct{}
	closing  sync.Once
	closed   error
}

var _ metastore.Full = (*Store)(nil)

// Open opens the store in a directory, or makes one. If this node is the only one, Open returns when it leads and
// all that was ever acknowledged is there.
func Open(c Config) (*Store, error) {
	if c.Dir == "" {
		return nil, errors.New("a store needs a directory")
	}
	c = c.withDefaults()
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s := &Store{cfg: c, failures: make(chan error, 1), failed: make(chan struct{}), stop: func() {}}
	if err := s.open(); err != nil {
		_ = s.Close()
		if errors.Is(err, berrors.ErrTimeout) {
			return nil, fmt.Errorf("open store: directory %s is in use by another process", c.Dir)
		}
		return nil, fmt.Errorf("open store: %w", err)
	}
	return s, nil
}

func (s *Store) open() (err error) {
	c := s.cfg
	// The archive's lock is the directory's.
	if s.archive, err = archive.Open(filepath.Join(c.Dir, "archive.db"), archive.Config{Buffer: c.ArchiveBuffer, Failed: s.fail}); err != nil {
		return err
	}
	if s.logs, err = daylogs.Open(filepath.Join(c.Dir, "logs")); err != nil {
		return err
	}
	if s.log, err = openLog(&c, s.fail); err != nil {
		return err
	}
	engine := memstore.New(memstore.Config{Archive: s.archive})
	s.reads = engine
	s.machine = &machine{engine: engine, archive: s.archive, fail: s.fail,
		bounds: &bounds{after: c.SnapshotAfter, trailing: c.Trailing, due: make(chan struct{}, 1)}}
	s.group = metastore.NewGroup(maxCommands, commitsInFlight, s.commit)

	to := logger{Logger: c.Logger}
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(c.Dir, keptSnapshots, to)
	if err != nil {
		return err
	}
	index, err := s.machine.restoreNewest(snapshots, c.Dir)
	if err != nil {
		return err
	}
	if err := s.log.check(index); err != nil {
		return err
	}
	alone, err := s.startRaft(snapshots, to)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.duties.Go(func() { s.leading.watch(ctx, s.raft) })
	s.duties.Go(func() { s.keepShort(ctx) })
	s.duties.Go(func() {
		select {
		case <-ctx.Done():
		case <-s.failed:
			s.raft.Shutdown()
		}
	})
	if alone {
		return s.standAlone(ctx)
	}
	return nil
}

// keptSnapshots is how many snapshots stay on disk: the newest, and the one before it for a person's repair.
const keptSnapshots = 2

// keepShort takes a snapshot whenever the log has become long.
func (s *Store) keepShort(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.machine.bounds.due:
		}
		if err := s.snapshot(); err != nil && ctx.Err() == nil {
			s.fail(fmt.Errorf("take a snapshot in %s: %w", s.cfg.Dir, err))
			return
		}
	}
}

// snapshot writes the rows to disk and cuts the log.
func (s *Store) snapshot() error {
	now := s.raft.ReloadableConfig()
	now.TrailingLogs = s.machine.bounds.begin()
	if err := s.raft.ReloadConfig(now); err != nil {
		return err
	}
	err := s.raft.Snapshot().Error()
	if errors.Is(err, raft.ErrNothingNewToSnapshot) || err != nil && strings.HasPrefix(err.Error(), "cannot take snapshot now") {
		return nil // a change of members is under way: the next time the log is long
	}
	return err
}

// fail stops the store for good: a disk that has refused a write once is not asked again.
func (s *Store) fail(err error) {
	s.failing.Do(func() {
		s.cfg.Logger.Error("store failed", "dir", s.cfg.Dir, "err", err)
		s.failures <- err
		close(s.failures)
		s.leading.end(err)
		close(s.failed)
	})
}

// Err delivers the one error after which the store does nothing more, a disk's mostly: the process should end.
func (s *Store) Err() <-chan error { return s.failures }

// Logs is where log lines of runs are kept beside the store.
func (s *Store) Logs() metastore.Logs { return s.logs }

// Prune drops archived runs and log lines from before a time, and the oldest archived runs beyond a number of
// bytes (0 = any number).
func (s *Store) Prune(ctx context.Context, before time.Time, maxBytes int64) error {
	if _, err := s.archive.Prune(ctx, before, maxBytes); err != nil {
		return err
	}
	return s.logs.Prune(before)
}

// Close ends the store. What was acknowledged is on disk already.
func (s *Store) Close() error {
	s.closing.Do(func() {
		var errs []error
		s.stop()
		s.leading.end(errClosed)
		if s.raft != nil {
			errs = append(errs, s.raft.Shutdown().Error())
		}
		s.duties.Wait()
		if s.log != nil {
			errs = append(errs, s.log.Close())
		}
		if s.logs != nil {
			errs = append(errs, s.logs.Close())
		}
		if s.archive != nil {
			errs = append(errs, s.archive.Close())
		}
		s.closed = errors.Join(errs...)
	})
	return s.closed
}

var errClosed = jobs.Refuse(jobs.Unavailable, "the store is closed")
