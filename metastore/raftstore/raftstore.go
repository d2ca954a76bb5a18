// Package raftstore is the durable store: a raft log under live rows in memory, and an archive of finished runs.
//
// It is not promised to programs outside this module.
//
// A commit is one entry of the log. It is on disk before it is applied to the rows, which a memstore.Engine stores
// and which give its answers. Snapshots of the rows let the log be cut; runs that settle go to the archive at once
// and are never part of a snapshot. One node is a raft of one voter; others join it with a token, or by a secret.
//
// Where to start: Open and Join, then append.go and machine.go for how raft carries the entries of a replica;
// member.go is the cluster. A directory holds node.json, node.key, raft.db (or wal), snapshots, archive
// and logs. DESIGN.md has the figures.
package raftstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/archive"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/link"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/loglines"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/raftlog"
	"github.com/carillon-scheduler/carillon/metastore/replica"
)

// Config configures a store. Dir is required; other fields are optional.
type Config struct {
	Dir    string
	Node   string       // this node's name, for people; default "node"
	Logger *slog.Logger // default: none

	// Logs are the kinds of Raft log that can be opened. Default: raftlog.Bolt.
	Logs []raftlog.Kind
	// Log names the one of a new Dir. Default: the first of Logs.
	Log string

	// Now is the clock that stamps commits. Default time.Now.
	Now func() time.Time
	// Listen is the address, host:port, at which other nodes reach this one. Default: this node is alone, and none
	// can join. Connections between nodes are encrypted and authenticated.
	Listen string
	// Advertise is the address that this node sends to others, if they reach it by another than Listen.
	Advertise string
	// Secret and Peers are for OpenAmong: one or several secrets, each on a line, and the addresses of all nodes, which
	// begin with that of the node that may found a cluster.
	Secret string
	Peers  []string
	// Identity is that of the node in Dir, for a program that uses it elsewhere, too. Default: Identify(Dir).
	Identity *Identity
	// Repair moves this node's data aside and takes everything from the others, who take its vote until it has caught
	// up. It is for damage, and not for a single node.
	Repair bool
	// CheckEvery is how often nodes compare their rows. Default 5 minutes.
	CheckEvery time.Duration
	// Heartbeat is about how often a leader contacts its followers, and how long they wait for it. Default 250 ms.
	Heartbeat time.Duration

	// SnapshotAfter is how many bytes of log, at least, lie between two snapshots; twice the last snapshot's size
	// if that is more. Default 64 MiB. A log that a restart takes long to apply ends in a snapshot before that.
	SnapshotAfter int64
	// Trailing is how many bytes of log are kept before a snapshot, for nodes that lag. Default 64 MiB.
	Trailing int64
	// ArchiveBuffer is how many bytes of finished runs may wait to be written. Default 64 MiB.
	ArchiveBuffer int64
	// ArchiveFile is how many bytes of them, or of log lines, a file takes before the next is begun. Default 64 MiB.
	ArchiveFile int64

	replay        time.Duration // how long a restart may take to apply the log, about; default 1 s
	knows         uint32        // the newest version of the rules that this node knows
	finalizeAfter time.Duration // when all members have known a newer version for so long, the leader puts it in force

	listener net.Listener
	dialer   func(ctx context.Context, address string) (net.Conn, error)
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
	if c.Logs == nil {
		c.Logs = kinds
	}
	if c.Heartbeat <= 0 {
		c.Heartbeat = 250 * time.Millisecond
	}
	if c.SnapshotAfter <= 0 {
		c.SnapshotAfter = 64 << 20
	}
	if c.replay <= 0 {
		c.replay = time.Second
	}
	if c.Trailing <= 0 {
		c.Trailing = 64 << 20
	}
	if c.knows == 0 {
		c.knows = kernel.ApplyVersion
	}
	if c.finalizeAfter <= 0 {
		c.finalizeAfter = finalizeAfter
	}
	return c
}

// Store is a durable store.
type Store struct {
	*replica.Replica
	cfg       Config
	episodes  *episode.Log
	identity  *Identity
	machine   *machine
	archive   *archive.Archive
	logs      *loglines.Logs
	log       *raftLog
	snapshots *verifiedSnapshots
	raft      *raft.Raft
	live      atomic.Pointer[raft.Raft] // the same, nil until raft has started
	trans     raft.Transport
	leading   leadership
	link      *link.Link // nil = this node is alone

	secrets     link.Secrets
	differences differences

	nodeMu sync.Mutex // guards node.Others
	node   *node

	nudged  chan struct{} // wakes attend
	changes sync.Mutex    // one change of members at a time

	began    time.Time
	ageMu    sync.Mutex
	fresh    time.Time     // when this node last had all that it knew to be committed
	settled  atomic.Uint64 // the term in which this node has applied what older leaders have acknowledged
	reported reported
	agreed   agreements
	whole    atomic.Bool // the rows were complete since this node began

	standForElection func()
	progress         func() // called when a part of the archive arrived; nil = no waiter

	replaying bool // the directory is only read, without a node that could compare it

	ctx      context.Context // ends with the store
	stop     context.CancelFunc
	duties   sync.WaitGroup
	failures chan error
	failing  sync.Once
	failed   chan struct{}
	closing  sync.Once
	closed   error
	shutting sync.Once
	shut     raft.Future
}

var (
	_ metastore.Full     = (*Store)(nil)
	_ replica.Log        = (*Store)(nil)
	_ metastore.Measured = (*Store)(nil)
	_ metastore.Retainer = (*Store)(nil)
)

// openPatience is how long Open waits for other nodes, where it cannot begin without them, and none sends anything.
const openPatience = time.Minute

// Open opens the store in a directory, or makes one. If this node is the only one, Open returns when it leads and has
// all that was ever acknowledged. One of several may have had no contact to the others yet: Age is how old its
// answers may be, and Await waits for a leader.
func Open(c Config) (*Store, error) {
	ctx, progress, stop := untilIdle(openPatience)
	defer stop()
	return openContext(ctx, c, progress)
}

// untilIdle is a context that ends when progress was not called for so long.
func untilIdle(patience time.Duration) (ctx context.Context, progress, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	idle := time.AfterFunc(patience, func() { cancel(fmt.Errorf("no data from other nodes for %v", patience)) })
	return ctx, func() { idle.Reset(patience) }, func() {
		idle.Stop()
		cancel(nil)
	}
}

// openContext opens a store. While ctx lasts it waits for other nodes, where it cannot begin without them, and calls
// progress whenever it has got something from one.
func openContext(ctx context.Context, c Config, progress func()) (*Store, error) {
	if c.Dir == "" {
		return nil, errors.New("a store needs a directory")
	}
	c = c.withDefaults()
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s := &Store{cfg: c, episodes: episode.New(c.Logger), failures: make(chan error, 1), failed: make(chan struct{}), nudged: make(chan struct{}, 1), began: time.Now(), progress: progress}
	s.differences.log = c.Logger
	s.ctx, s.stop = context.WithCancel(context.Background())
	if c.Secret != "" {
		var err error
		if s.secrets, err = link.ParseSecrets(c.Secret); err != nil {
			return nil, err
		}
	}
	if err := s.open(ctx); err != nil {
		_ = s.Close()
		if errors.Is(err, disk.ErrInUse) {
			return nil, fmt.Errorf("open store: directory %s is in use by another process", c.Dir)
		}
		return nil, fmt.Errorf("open store: %w", err)
	}
	return s, nil
}

func (s *Store) open(ctx context.Context) (err error) {
	c := s.cfg
	if s.identity = c.Identity; s.identity == nil {
		if s.identity, err = Identify(c.Dir); err != nil {
			return err
		}
	}
	if s.node, err = loadNode(c.Dir); err != nil {
		return err
	}
	if c.Repair || s.node != nil && s.node.Moving != "" { // or an interrupted one
		if err := s.setAside(); err != nil {
			return err
		}
	}
	to := logger{Logger: c.Logger, episodes: s.episodes}
	there, err := s.openFiles(to)
	if err != nil {
		return err
	}
	if err := clearIncoming(c.Dir); err != nil {
		return err
	}
	if there, err = s.unbegun(there); err != nil {
		return err
	}
	if err := s.settle(there); err != nil {
		return err
	}
	if err := s.openLink(); err != nil {
		return err
	}
	if err := s.takeAll(ctx, there); err != nil {
		return err
	}
	newest, err := s.restoreNewest()
	if err != nil {
		return err
	}
	index := uint64(0)
	if newest != nil {
		index = newest.Index
	}
	if err := errors.Join(s.log.check(index), s.reaches(index)); err != nil {
		return err
	}
	alone, err := s.startRaft(there, to)
	if err != nil {
		return err
	}
	s.duties.Go(func() { s.leading.watch(s.ctx, s.raft) })
	s.duties.Go(func() { s.keepShort(s.ctx) })
	s.duties.Go(func() { s.noteReach(s.ctx) })
	s.duties.Go(func() { s.finalize(s.ctx) })
	s.duties.Go(func() {
		select {
		case <-s.ctx.Done():
		case <-s.failed:
			s.shutRaft()
			if s.link != nil { // raft gets heartbeats even then
				_ = s.link.Close()
			}
		}
	})
	if alone {
		if err := errors.Join(s.standAlone(ctx), s.recordForced(ctx)); err != nil {
			return err
		}
	}
	if s.link != nil {
		s.duties.Go(func() { s.completes(s.ctx) })
		s.duties.Go(func() { s.attend(s.ctx) })
		s.duties.Go(func() { s.recheck(s.ctx) })
		s.duties.Go(func() { s.compare(s.ctx) })
		s.duties.Go(func() { s.reportLeaderless(s.ctx) })
	}
	return nil
}

// openFiles opens the files in the directory, and reports whether the log has begun.
func (s *Store) openFiles(to logger) (there bool, err error) {
	c := s.cfg
	// The archive's lock is the directory's.
	if s.archive, err = archive.Open(filepath.Join(c.Dir, archiveFolder), archive.Config{Buffer: c.ArchiveBuffer, SealAt: c.ArchiveFile, Failed: s.fail}); err != nil {
		return false, err
	}
	damaged := func(err error) { c.Logger.Error("log lines are missing", "err", err) }
	if s.logs, err = loglines.Open(filepath.Join(c.Dir, "logs"), loglines.Config{SealAt: c.ArchiveFile, Now: c.Now, Damaged: damaged}); err != nil {
		return false, err
	}
	if s.log, err = openLog(&c, s.fail); err != nil {
		return false, err
	}
	rows := replica.NewMachine(replica.MachineConfig{History: s.archive, Knows: c.knows, Fail: s.fail, Diverged: s.diverged, SnapshotAfter: c.SnapshotAfter, Replay: c.replay, Trailing: c.Trailing})
	s.machine = &machine{Machine: rows, archive: s.archive, fail: s.fail, behind: behind{wake: make(chan struct{}, 1)}}
	s.Replica = replica.New(replica.Config{Machine: rows, Log: s, Now: c.Now, MayRaise: s.mayRaise, Raising: &s.changes})
	if s.snapshots, err = openSnapshots(c.Dir, to); err != nil {
		return false, err
	}
	if there, err = raft.HasExistingState(s.log, s.log, s.snapshots); err != nil {
		return false, fmt.Errorf("read log: %w", err)
	}
	return there, nil
}

// snapshotAgain is how long after a snapshot that cannot be read back another one is written, which costs as much.
const snapshotAgain = 10 * time.Second

// keepShort takes a snapshot whenever the log has become long. One that cannot be read back does not stop the store: the
// log has all that it had.
func (s *Store) keepShort(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.machine.Bounds.Due():
		}
		err := s.snapshot()
		switch {
		case err == nil:
			s.episodes.End("", "a snapshot cannot be read back, so the log is kept and another one is taken")
		case ctx.Err() != nil:
		case strings.Contains(err.Error(), errReadBack.Error()):
			s.episodes.Failed(slog.LevelError, "", "a snapshot cannot be read back, so the log is kept and another one is taken", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(snapshotAgain):
				s.machine.Bounds.Ask()
			}
		default:
			s.fail(fmt.Errorf("take a snapshot in %s: %w", s.cfg.Dir, err))
			return
		}
	}
}

// snapshot writes the rows to disk and cuts the log.
func (s *Store) snapshot() error {
	now := s.raft.ReloadableConfig()
	now.TrailingLogs = s.machine.Bounds.Begin()
	if err := s.raft.ReloadConfig(now); err != nil {
		return err
	}
	err := s.raft.Snapshot().Error()
	if errors.Is(err, raft.ErrNothingNewToSnapshot) || err != nil && strings.HasPrefix(err.Error(), "cannot take snapshot now") {
		return nil // a change of members is under way: retried when the log is long again
	}
	return err
}

// fail stops the store for good: a disk that has refused a write once is not tried again.
func (s *Store) fail(err error) {
	s.failing.Do(func() {
		s.cfg.Logger.Error("store failed", "dir", s.cfg.Dir, "err", err)
		s.failures <- err
		close(s.failures)
		s.leading.end(err)
		close(s.failed)
	})
}

// diverged stops the store because its rows are not the leader's.
func (s *Store) diverged(err error) {
	if !s.replaying {
		s.fail(fmt.Errorf("%w; open this node with repair to take everything from the others", err))
	}
}

// Err delivers the one error after which the store does nothing more, mostly a disk's: the process should end.
func (s *Store) Err() <-chan error { return s.failures }

// Logs is the store of log lines beside the rows.
func (s *Store) Logs() metastore.Logs { return s.logs }

// Stats returns measurements of commits, the log and the archive.
func (s *Store) Stats() metastore.Stats {
	stats := s.Replica.Stats()
	index, since, taken := s.machine.Bounds.Now()
	stats.Log = &metastore.LogStats{Term: s.raft.CurrentTerm(), Applied: index, Age: s.Age(), Bytes: since, Snapshot: taken}
	files, bytes := s.archive.Size()
	stats.Archive = &metastore.ArchiveStats{Files: files, Bytes: bytes}
	return stats
}

// logSlack is how much longer log lines are kept than runs: a run may have written for as long before it ended.
const logSlack = 2 * 24 * time.Hour

// Retain purges finished runs, and log lines, of this node: each node does so by itself. A file of lines is purged when
// all of them are older than what any job keeps, or when lines take more than half of the bytes that they and runs may
// take: runs get the rest. A node whose log is not applied yet does not know what jobs keep.
func (s *Store) Retain(ctx context.Context, r metastore.Retention) (metastore.Retained, error) {
	if !s.Whole() {
		return metastore.Retained{}, metastore.ErrNotWhole
	}
	of, before := r.Of, r.Now
	r.Of = func(t jobs.Tenant, key jobs.Key) (kernel.Kept, error) {
		kept, err := of(t, key)
		if kept.Since.Before(before) {
			before = kept.Since
		}
		return kept, err
	}
	if err := s.logs.Bound(r.Bytes / 2); err != nil {
		return metastore.Retained{}, err
	}
	if r.Bytes > 0 {
		r.Bytes = max(1, r.Bytes-s.logs.Size())
	}
	done, err := s.archive.Retain(ctx, r)
	if err == nil && r.Logs > 0 {
		// No job, or one that keeps for longer.
		if last := r.Now.Add(-r.Logs); before == r.Now || before.Add(-logSlack).Before(last) {
			before = last
		} else {
			before = before.Add(-logSlack)
		}
		err = s.logs.Prune(before)
	}
	done.Bytes += s.logs.Size()
	return done, err
}

// Close ends the store. What was acknowledged is on disk already.
func (s *Store) Close() error {
	s.closing.Do(func() {
		var errs []error
		s.stop()
		s.leading.end(errClosed)
		if s.raft != nil {
			errs = append(errs, s.shutRaft().Error())
		}
		if s.link != nil {
			errs = append(errs, s.link.Close())
		}
		s.duties.Wait()
		if s.raft != nil && errors.Is(s.leading.over(), errClosed) {
			errs = append(errs, s.reach())
		}
		if s.log != nil {
			errs = append(errs, s.log.Close())
		}
		if s.logs != nil {
			errs = append(errs, s.logs.Close())
		}
		if s.archive != nil {
			errs = append(errs, s.archive.Close())
		}
		s.episodes.Reset() // after all that records failures: a timer would log later
		s.closed = errors.Join(errs...)
	})
	return s.closed
}

// shutRaft stops raft. Of raft's own futures only the first one waits until it has stopped, so it is kept: raft would
// write after Close to a directory that another process may use by then.
func (s *Store) shutRaft() raft.Future {
	s.shutting.Do(func() { s.shut = s.raft.Shutdown() })
	return s.shut
}

var errClosed = kernel.Refuse(jobs.Unavailable, "the store is closed")
