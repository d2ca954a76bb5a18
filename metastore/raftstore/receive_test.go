package raftstore

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
)

// onLog is a logger that calls a function with each message, synchronously.
type onLog func(message string)

func (onLog) Enabled(context.Context, slog.Level) bool        { return true }
func (f onLog) Handle(_ context.Context, r slog.Record) error { f(r.Message); return nil }
func (f onLog) WithAttrs([]slog.Attr) slog.Handler            { return f }
func (f onLog) WithGroup(string) slog.Handler                 { return f }

// signal is a logger that closes a channel at a message.
func signal(message string) (*slog.Logger, <-chan struct{}) {
	seen := make(chan struct{})
	once := sync.OnceFunc(func() { close(seen) })
	return slog.New(onLog(func(m string) {
		if m == message {
			once()
		}
	})), seen
}

// holding is connections from which nothing is read until they are released.
func holding() (dialer func(context.Context, string) (net.Conn, error), release func()) {
	released := make(chan struct{})
	return func(ctx context.Context, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return &held{Conn: c, released: released, closed: make(chan struct{})}, nil
	}, sync.OnceFunc(func() { close(released) })
}

type held struct {
	net.Conn
	released, closed chan struct{}
	once             sync.Once
}

func (h *held) Read(b []byte) (int, error) {
	select {
	case <-h.released:
		return h.Conn.Read(b)
	case <-h.closed:
		return 0, net.ErrClosed
	}
}

func (h *held) Close() error {
	h.once.Do(func() { close(h.closed) })
	return h.Conn.Close()
}

// lag stops a node and has the others continue until they no longer have the entries that it lacks. It returns the
// node's place.
func (c *cluster) lag() int {
	c.t.Helper()
	away := c.index(c.follower())
	last := c.stores[away].raft.LastIndex()
	c.stop(away)
	c.cut(last + 1)
	return away
}

// cut has the nodes continue until none of them has an entry in its log any more.
func (c *cluster) cut(entry uint64) {
	c.t.Helper()
	for cut := false; !cut; {
		finish(c.t, c, 100)
		cut = true
		for _, s := range c.stores {
			if s == nil {
				continue
			}
			if err := s.snapshot(); err != nil {
				c.t.Fatal(err)
			}
			cut = cut && s.log.GetLog(entry, new(raft.Log)) != nil
		}
	}
}

// A voter that has to fetch runs before it can install a snapshot votes meanwhile.
func TestVoteDuringFetch(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	// bbolt deletes entries at once.
	c := newCluster(t, 3, func(c *Config) { c.Log, c.Heartbeat = LogBolt, time.Second })
	do(t, c, register("k"))
	c.same()
	away := c.lag()
	dialer, release := holding()
	defer release()
	log, fetching := signal("fetching the archive")
	c.configs[away].dialer, c.configs[away].Logger = dialer, log
	c.start(away)
	select {
	case <-fetching:
	case <-time.After(2 * patience):
		t.Fatal("it fetches nothing")
	}
	leader := c.leader()
	c.stop(c.index(leader))
	c.leader()
	release()
	c.same()
}

// A node that is elected while it fetches runs has another one lead.
func TestBehindDoesNotLead(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	c := newCluster(t, 3, func(c *Config) { c.Heartbeat = time.Second })
	do(t, c, register("k"))
	c.same()
	behind := c.follower()
	behind.machine.behind.turn.Lock()
	behind.machine.behind.lacks(behind.archive.Last() + 1) // which no node has yet
	behind.machine.behind.turn.Unlock()
	stop, cancel := context.WithCancel(ctx)
	var leading sync.WaitGroup
	defer leading.Wait()
	defer cancel()
	began := make(chan *Store)
	for _, s := range c.stores {
		leading.Go(func() {
			_ = s.Lead(stop, func(ctx context.Context, _ uint64) error {
				select {
				case began <- s:
				case <-ctx.Done():
				}
				<-ctx.Done()
				return nil
			})
		})
	}
	<-began
	for elected := false; !elected; { // a candidate that lacks later commits is not elected
		behind.standForElection()
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end) && !elected; time.Sleep(time.Millisecond) {
			elected = behind.raft.State() == raft.Leader
		}
	}
	if r := behind.Apply(ctx, []kernel.Envelope{envelope(create("k"))}); !hazy(r[0].Err) {
		t.Errorf("a node that is behind applies commands: %v", r[0].Err)
	}
	if err := behind.Linearizable(ctx); err == nil {
		t.Error("a node that is behind is read as a leader")
	}
	select {
	case s := <-began:
		if s == behind {
			t.Error("a node that is behind takes up duties")
		}
	case <-time.After(4 * patience):
		t.Error("no other node takes up duties")
	}
	finish(t, c, 5) // now they have
	c.same()
}

// A node that stopped between a snapshot and the deletion of the entries that the snapshot replaces follows a leader
// that sends entries next.
func TestStoppedWhileInstalling(t *testing.T) {
	tests.Long(t)
	for _, kind := range bothLogs {
		t.Run(string(kind), func(t *testing.T) {
			c := newCluster(t, 3, func(c *Config) { c.Log, c.Heartbeat = kind, calm })
			do(t, c, register("k"))
			finish(t, c, 20)
			c.same()
			away := c.index(c.follower())
			c.stop(away)
			leader := c.leader()
			finish(t, leader, 20)
			if err := leader.snapshot(); err != nil {
				t.Fatal(err)
			}
			newest := must(newestSnapshot(must(raft.NewFileSnapshotStoreWithLogger(leader.cfg.Dir, 2, logger{Logger: leader.cfg.Logger})), leader.cfg.Dir))
			from, to := filepath.Join(leader.cfg.Dir, "snapshots", newest.ID), filepath.Join(c.configs[away].Dir, "snapshots", newest.ID)
			if err := os.CopyFS(to, os.DirFS(from)); err != nil {
				t.Fatal(err)
			}
			for _, s := range c.stores {
				if s != nil && s != leader {
					c.lead(s)
				}
			}
			s := c.start(away)
			finish(t, c, 20)
			c.same()
			select {
			case err := <-s.Err():
				t.Errorf("the node ends: %v", err)
			default:
			}
		})
	}
}

// A log that does not lead to a snapshot is discarded, and no other.
func TestLogFollowsSnapshot(t *testing.T) {
	for _, tt := range []struct {
		name        string
		first, last uint64 // of the log, in term 2
		index, term uint64 // of the snapshot
		kept        bool
	}{
		{"none", 0, 0, 10, 2, true},
		{"continues after it", 5, 20, 10, 2, true},
		{"ends with it", 5, 10, 10, 2, true},
		{"begins behind it", 11, 20, 10, 2, true},
		{"ends before it", 5, 9, 10, 2, false},
		{"has another entry in its place", 5, 20, 10, 3, false},
	} {
		for _, kind := range bothLogs {
			c := small(t.TempDir(), kind).withDefaults()
			l, err := openLog(&c, func(err error) { t.Error(err) })
			if err != nil {
				t.Fatal(err)
			}
			for i := max(tt.first, 1); i <= tt.last; i++ {
				if err := l.StoreLog(&raft.Log{Index: i, Term: 2, Type: raft.LogNoop}); err != nil {
					t.Fatal(err)
				}
			}
			want := uint64(0)
			if tt.kept {
				want = tt.last
			}
			if err := l.follow(&raft.SnapshotMeta{Index: tt.index, Term: tt.term}); err != nil {
				t.Error(err)
			}
			if last := must(l.LastIndex()); last != want {
				t.Errorf("%s, %s: it ends with %d, want %d", tt.name, kind, last, want)
			}
			// Entries behind the snapshot can be appended.
			next := max(want, tt.index) + 1
			if err := errors.Join(l.SetUint64(keyTerm, 4), l.StoreLog(&raft.Log{Index: next, Term: 4, Type: raft.LogNoop}), l.check(tt.index), l.Close()); err != nil {
				t.Errorf("%s, %s: %v", tt.name, kind, err)
			}
		}
	}
}

// Open waits for other nodes as long as they send something, and then reports that they do not, and no damage.
func TestOpenWaitsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, progress, stop := untilIdle(time.Minute)
		defer stop()
		for range 10 {
			time.Sleep(50 * time.Second)
			progress()
		}
		if ctx.Err() != nil {
			t.Errorf("after 500 s in which something came: %v", context.Cause(ctx))
		}
		<-ctx.Done()
		if err := context.Cause(ctx); !strings.Contains(err.Error(), "no data from other nodes for 1m0s") {
			t.Errorf("it ends with %v", err)
		}
	})
}

// A node whose archive is lost votes and stores entries while it fetches it, and is not whole.
func TestOpenWithoutArchive(t *testing.T) {
	tests.Long(t)
	c := newCluster(t, 2, func(c *Config) { c.Heartbeat = calm })
	do(t, c, register("k"))
	finish(t, c, 20)
	c.same()
	hurt := c.follower()
	if err := hurt.snapshot(); err != nil {
		t.Fatal(err)
	}
	i := c.index(hurt)
	c.stop(i)
	if err := os.RemoveAll(filepath.Join(c.configs[i].Dir, archiveFolder)); err != nil {
		t.Fatal(err)
	}
	dialer, release := holding()
	defer release()
	c.configs[i].dialer = dialer
	s := c.start(i)
	finish(t, c, 20) // which takes both nodes
	if s.Whole() || !s.machine.isBehind() {
		t.Error("it is whole without its archive")
	}
	release()
	c.same()
	eventually(t, "it is whole", s.Whole)
}

// Each part of the archive that arrives shows that others are there.
func TestFetchIsProgress(t *testing.T) {
	tests.Long(t)
	c := newCluster(t, 2, func(c *Config) { c.Heartbeat = calm })
	do(t, c, register("k"))
	finish(t, c, 20)
	c.same()
	i := c.index(c.follower())
	c.stop(i)
	again := c.configs[i]
	again.Repair = true
	parts := 0
	s, err := openContext(ctx, again, func() { parts++ })
	if err != nil {
		t.Fatal(err)
	}
	c.stores[i] = s
	if parts == 0 {
		t.Error("arrived data was no progress")
	}
	c.same()
}
