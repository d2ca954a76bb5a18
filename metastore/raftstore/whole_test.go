package raftstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/replica"
)

// announce has one node send another what a leader would: how far the log is committed, if it is more than a
// heartbeat.
func announce(t *testing.T, from, to *Store, a raft.AppendEntriesRequest) {
	t.Helper()
	id, at := raft.ServerID(from.ID()), raft.ServerAddress(from.Address())
	a.RPCHeader = raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: from.trans.EncodePeer(id, at)}
	var answer raft.AppendEntriesResponse
	if err := from.trans.AppendEntries(raft.ServerID(to.ID()), raft.ServerAddress(to.Address()), &a, &answer); err != nil || !answer.Success {
		t.Fatalf("it is answered %+v, %v", answer, err)
	}
}

// A node that has just begun has none of its rows until it learns how far its log is committed, which heartbeats do
// not carry. Until then it must not report missing rows as not existing, nor its copy as a moment old.
func TestNotWholeBeforeLogIsApplied(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	c := newCluster(t, 3, nil)
	do(t, c, register("k"))
	finish(t, c, 20)
	c.same()
	for i := range c.stores {
		c.configs[i].Heartbeat = time.Minute // no node leads meanwhile
		c.stop(i)
	}
	s, other := c.start(0), c.start(1)
	last, term := s.raft.LastIndex(), s.raft.CurrentTerm()
	var entry raft.Log
	if err := s.log.GetLog(last, &entry); err != nil {
		t.Fatal(err)
	}
	missing := func(what string) {
		t.Helper()
		if s.Whole() {
			_, err := s.Definition(ctx, jobs.DefaultTenant, "k")
			t.Fatalf("%s: it is whole (and job k is %v)", what, err)
		}
		if age, min := s.Age(), time.Since(s.began)/2; age < min {
			t.Errorf("%s: its rows are reported as %v old, and were never whole", what, age)
		}
	}
	missing("no contact yet")
	announce(t, other, s, raft.AppendEntriesRequest{Term: term + 1})
	if s.raft.LastContact().IsZero() || !s.HasLeader() {
		t.Fatal("no contact to a leader")
	}
	missing("a heartbeat")
	// A leader that has committed more than this node has: its entries are applied, and are not all.
	announce(t, other, s, raft.AppendEntriesRequest{Term: term + 1, PrevLogEntry: last, PrevLogTerm: entry.Term, LeaderCommitIndex: last + 5})
	eventually(t, "its entries are applied", func() bool { _, err := s.Definition(ctx, jobs.DefaultTenant, "k"); return err == nil })
	missing("a part of the log")

	for i := range c.stores {
		c.stop(i)
		c.configs[i].Heartbeat = 0
	}
	for i := range c.stores {
		c.start(i)
	}
	finish(t, c, 1)
	for i := range c.stores {
		eventually(t, "all are whole", func() bool { return c.stores[i].Whole() && c.stores[i].Age() < time.Second })
	}
}

// Finished runs are in the archive before the log is applied that defines how long their job keeps them.
func TestNothingIsForgottenBeforeLogIsApplied(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	c := newCluster(t, 2, nil)
	keeps := register("k")
	keeps.Job.Code.KeepFor = new(10 * 365 * 24 * time.Hour)
	do(t, c, keeps)
	finish(t, c, 20)
	c.same()
	c.stop(0)
	c.stop(1)
	s := c.start(0) // the other is down, so no node reports how far the log is committed
	retain := func() (metastore.Retained, error) {
		now := time.Now().Add(365 * 24 * time.Hour)
		return s.Retain(ctx, metastore.Retention{Now: now, Of: metastore.KeptBy(ctx, s, now)})
	}
	if done, err := retain(); !errors.Is(err, metastore.ErrNotWhole) || done.Dropped > 0 {
		t.Errorf("%d runs are forgotten, %v", done.Dropped, err)
	}
	c.start(1)
	c.leader()
	eventually(t, "old runs are purged when the rows are complete", func() bool {
		done, err := retain()
		if done.Dropped > 0 {
			t.Fatalf("%d runs are purged, which are kept for ten years", done.Dropped)
		}
		return err == nil
	})
}

// A copy that was whole once stays it while more is committed than applied, which is always so under load; Whole
// matters only when the leader is gone.
func TestWholeWhileMoreIsUnderWay(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	c := newCluster(t, 3, func(c *Config) { c.Heartbeat = calm })
	leader := c.leader()
	do(t, leader, register("k"))
	finish(t, leader, 20)
	c.same()
	at := slices.IndexFunc(c.stores, func(s *Store) bool { return s != leader })
	s := c.stores[at]
	eventually(t, "it knows that its last entry is committed", func() bool { return s.reported.index.Load() == s.raft.LastIndex() })
	for i, other := range c.stores {
		if other != s && other != leader {
			c.stop(i)
		}
	}
	last, term := s.raft.LastIndex(), s.raft.CurrentTerm()
	announce(t, leader, s, raft.AppendEntriesRequest{Term: term, PrevLogEntry: last, PrevLogTerm: term, LeaderCommitIndex: last + 5})
	if !s.Whole() {
		t.Error("it had all, and is not whole because five entries more are under way")
	}
}

// Confirmations of requests sent before the read do not count, though they arrived a moment ago.
func TestLeaderIsFollowedNow(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	c := newCluster(t, 3, func(c *Config) { c.Heartbeat = calm })
	leader := c.leader()
	do(t, leader, register("k"))
	term := leader.raft.CurrentTerm()
	if err := leader.followed(ctx, term, time.Now()); err != nil {
		t.Fatalf("with all three, it is followed: %v", err)
	}
	for i, s := range c.stores {
		if s != leader {
			c.stop(i)
		}
	}
	if at := leader.agreedAt(term); at.IsZero() || time.Since(at) > time.Minute {
		t.Errorf("the confirmation is forgotten: %v", at)
	}
	// It still leads for a heartbeat, without being sure.
	wait, cancel := context.WithTimeout(ctx, time.Second/2)
	defer cancel()
	if err := leader.followed(wait, term, time.Now()); !errors.Is(err, jobs.Unavailable) {
		t.Errorf("no node follows it: %v", err)
	}
}

// A new leader has not applied entries that it does not yet know as committed.
func TestNewLeaderIsNotWholeAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, nil)
	s := c.leader()
	if !s.Whole() || s.Age() != 0 {
		t.Error("a node that is alone and leads is not whole")
	}
	s.whole.Store(false)
	s.settled.Store(0) // as after an election, before the barrier
	if s.Whole() || s.Age() == 0 {
		t.Error("a leader that has not waited for its own first entry is whole")
	}
}

// Between the rows of a snapshot and the runs that have ended before it, a copy is not whole, and later commits are
// applied when the runs have arrived.
func TestNotWholeWhileBehind(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, func(c *Config) { c.Heartbeat = time.Second }) // a node asks for missing runs that often
	s := c.leader()
	do(t, s, register("k"))
	finish(t, s, 5)
	joins := c.join(nil)
	c.same()
	eventually(t, "it is whole", joins.Whole)
	taken := new(sink)
	index, _, _ := s.machine.Bounds.Now()
	// Of a leader where more has ended than anywhere.
	if _, err := replica.WriteSnapshot(taken, replica.Head{Rules: s.machine.InForce(), Index: index, Ended: s.archive.Last() + 1}, s.machine.Engine.Capture().Rows()); err != nil {
		t.Fatal(err)
	}
	if err := joins.machine.Restore(io.NopCloser(bytes.NewReader(taken.Bytes()))); err != nil {
		t.Fatal(err)
	}
	do(t, s, creates(5)...)
	if joins.Whole() {
		t.Error("it is whole without the runs that have ended")
	}
	if now, _, _ := joins.machine.Bounds.Now(); now != index {
		t.Errorf("it has applied entry %d behind a gap of the archive", now)
	}
	for _, err := range joins.Content().Ended(ctx) {
		if err == nil {
			continue
		}
		if !strings.Contains(err.Error(), "it ends at") {
			t.Error(err)
		}
		index = 0
	}
	if index != 0 {
		t.Error("content without all runs is copied to another store")
	}
	finish(t, s, 5) // now there are such runs
	eventually(t, "it is whole again", joins.Whole)
	c.same()
}

// What fails while a store stops is forgotten: an open episode would log its end after Close.
func TestClosedStoreLogsNothing(t *testing.T) {
	var log bytes.Buffer
	s, err := Open(Config{Dir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	s.duties.Go(func() {
		<-s.ctx.Done()
		s.episodes.Failed(slog.LevelWarn, "", "a duty was stopped")
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "a duty was stopped") {
		t.Fatalf("the failure is not logged: %s", log.String())
	}
	before := log.Len()
	s.episodes.End("", "a duty was stopped")
	if log.Len() > before {
		t.Errorf("after Close: %s", log.String()[before:])
	}
}
