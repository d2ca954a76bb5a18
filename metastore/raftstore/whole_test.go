package raftstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// tell has one node say to another what a leader would: how far the log is committed, if it is more than a heartbeat.
func tell(t *testing.T, from, to *Store, a raft.AppendEntriesRequest) {
	t.Helper()
	id, at := raft.ServerID(from.ID()), raft.ServerAddress(from.Address())
	a.RPCHeader = raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: from.trans.EncodePeer(id, at)}
	var answer raft.AppendEntriesResponse
	if err := from.trans.AppendEntries(raft.ServerID(to.ID()), raft.ServerAddress(to.Address()), &a, &answer); err != nil || !answer.Success {
		t.Fatalf("it is answered %+v, %v", answer, err)
	}
}

// A node that has just begun has none of its rows until it has heard how far its log is committed, and heartbeats do not
// say it. What it lacks it must not say is not there, nor that its copy is a moment old.
func TestNotWholeBeforeLogIsApplied(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	c := newCluster(t, 3, nil)
	do(t, c, register("k"))
	finish(t, c, 20)
	c.same()
	for i := range c.stores {
		c.configs[i].Heartbeat = time.Minute // nobody leads meanwhile
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
			_, err := s.Definition(ctx, "t", "k")
			t.Fatalf("%s: it is whole (and job k is %v)", what, err)
		}
		if age, min := s.Age(), time.Since(s.began)/2; age < min {
			t.Errorf("%s: its rows are said to be %v old, and were never whole", what, age)
		}
	}
	missing("nobody was heard")
	tell(t, other, s, raft.AppendEntriesRequest{Term: term + 1})
	if s.raft.LastContact().IsZero() || !s.Heard() {
		t.Fatal("no leader is heard")
	}
	missing("a heartbeat")
	// A leader that has committed more than what this node has: what it has is applied, and is not all.
	tell(t, other, s, raft.AppendEntriesRequest{Term: term + 1, PrevLogEntry: last, PrevLogTerm: entry.Term, LeaderCommitIndex: last + 5})
	eventually(t, "what is there is applied", func() bool { _, err := s.Definition(ctx, "t", "k"); return err == nil })
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

// Runs that are over are in the archive before the log is applied that says for how long their job keeps them.
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
	s := c.start(0) // the other is down, so nobody says how far the log is committed
	retain := func() (metastore.Retained, error) {
		now := time.Now().Add(365 * 24 * time.Hour)
		return s.Retain(ctx, metastore.Retention{Now: now, Of: metastore.KeptBy(ctx, s, now)})
	}
	if done, err := retain(); !errors.Is(err, metastore.ErrNotWhole) || done.Dropped > 0 {
		t.Errorf("%d runs are forgotten, %v", done.Dropped, err)
	}
	c.start(1)
	c.leader()
	eventually(t, "what need not be kept is forgotten when the rows are complete", func() bool {
		done, err := retain()
		if done.Dropped > 0 {
			t.Fatalf("%d runs are forgotten, which are kept for ten years", done.Dropped)
		}
		return err == nil
	})
}

// A copy that was whole once stays it while more is told than is applied: under load that is always so, and only when the
// leader is gone does anybody ask.
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
	eventually(t, "it has heard that its last entry is committed", func() bool { return s.told.index.Load() == s.raft.LastIndex() })
	for i, other := range c.stores {
		if other != s && other != leader {
			c.stop(i)
		}
	}
	last, term := s.raft.LastIndex(), s.raft.CurrentTerm()
	tell(t, leader, s, raft.AppendEntriesRequest{Term: term, PrevLogEntry: last, PrevLogTerm: term, LeaderCommitIndex: last + 5})
	if !s.Whole() {
		t.Error("it had all, and is not whole because five entries more are under way")
	}
}

// What others agreed to before a leader was asked says nothing of what holds now, though they agreed a moment ago.
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
		t.Errorf("what was agreed to is forgotten: %v", at)
	}
	wait, cancel := context.WithTimeout(ctx, time.Second/2) // it leads on for a heartbeat, and would not be sure all that time
	defer cancel()
	if err := leader.followed(wait, term, time.Now()); !errors.Is(err, jobs.Unavailable) {
		t.Errorf("it is followed by nobody: %v", err)
	}
}

// A leader that is new has applied nothing that it has not been told is committed.
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

// Between the rows of a snapshot and the runs that have ended before it, a copy is not whole, and what is committed
// meanwhile is applied when they have come.
func TestNotWholeWhileBehind(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, func(c *Config) { c.Heartbeat = time.Second }) // so often a node asks for what it lacks
	s := c.leader()
	do(t, s, register("k"))
	finish(t, s, 5)
	joins := c.join(nil)
	c.same()
	eventually(t, "it is whole", joins.Whole)
	taken := new(sink)
	index, _, _ := s.machine.bounds.now()
	// Of a leader where more has ended than anywhere.
	if _, err := writeSnapshot(taken, snapshotHead{s.machine.inForce(), index, s.archive.Last() + 1}, s.machine.engine.Capture().Rows()); err != nil {
		t.Fatal(err)
	}
	if err := joins.machine.Restore(io.NopCloser(bytes.NewReader(taken.Bytes()))); err != nil {
		t.Fatal(err)
	}
	do(t, s, creates(5)...)
	if joins.Whole() {
		t.Error("it is whole without the runs that have ended")
	}
	if now, _, _ := joins.machine.bounds.now(); now != index {
		t.Errorf("it has applied entry %d behind a gap of the archive", now)
	}
	for _, err := range joins.Content().Ended(ctx) {
		if err == nil {
			continue
		}
		if !strings.Contains(err.Error(), "is asked for") {
			t.Error(err)
		}
		index = 0
	}
	if index != 0 {
		t.Error("what lacks runs is carried to another store")
	}
	finish(t, s, 5) // now there are such runs
	eventually(t, "it is whole again", joins.Whole)
	c.same()
}
