package raftstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/replica"
)

// ended waits for the error that ends a store.
func ended(t *testing.T, s *Store, want error) {
	t.Helper()
	select {
	case err := <-s.Err():
		if !errors.Is(err, want) {
			t.Errorf("the store ends with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the store continues")
	}
}

// A node whose rows are not the leader's reports it, stops, and gets them again on request.
func TestDivergence(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	c := newCluster(t, 3, func(c *Config) { c.CheckEvery, c.Heartbeat = 50*time.Millisecond, calm })
	leader := c.leader()
	do(t, leader, register("k"))
	finish(t, leader, 20)
	c.same()
	for range 3 {
		if err := leader.Compare(ctx); err != nil {
			t.Fatal(err)
		}
	}
	wrong := c.follower()
	i := c.index(wrong)
	// Corrupted memory, a bug: one row more than the others have.
	wrong.machine.Engine.Update(func(tx metastore.Tx) {
		tx.Put(&kernel.Gate{Tenant: jobs.DefaultTenant, Name: kernel.LimitGate("nothing"), Limit: 3, Taken: 1})
	})
	do(t, leader, creates(3)...) // the next comparison comes by itself
	ended(t, wrong, ErrDiverged)
	if r := wrong.Apply(ctx, []kernel.Envelope{envelope(register("x"))}); r[0].Err == nil {
		t.Error("it continues")
	}
	_ = wrong.Close()
	c.stores[i] = nil
	do(t, c.leader(), creates(3)...) // the others continue
	c.configs[i].Repair = true
	repaired := c.start(i)
	if err := repaired.untilVoter(ctx); err != nil {
		t.Fatal(err)
	}
	c.same()
	if err := c.leader().Compare(ctx); err != nil {
		t.Fatal(err)
	}
	if aside, _ := filepath.Glob(filepath.Join(c.configs[i].Dir, damagedFolder+"*", "wal")); len(aside) != 1 {
		t.Errorf("the old data is in %v", aside)
	}
}

// Commits during a comparison are compared by the next one.
func TestCommitsDuringAComparison(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	do(t, s, register("k"))
	last := uint64(0)
	for round := range 30 {
		var commits sync.WaitGroup
		commits.Go(func() { do(t, s, creates(1)...) })
		for done := false; !done; {
			before := last
			var err error
			if last, err = s.CompareChanges(ctx, before); err != nil {
				t.Fatal(err)
			}
			// It has nothing to do: then nothing is committed behind its mark, unless there is more to come.
			if last == before {
				commits.Wait()
				done = s.machine.Committed() == last
			}
		}
		mark := must(s.log.LastIndex())
		for e := new(raft.Log); ; mark-- {
			if err := s.log.GetLog(mark, e); err != nil {
				t.Fatal(err)
			}
			if e.Type == raft.LogCommand && len(e.Data) == len(replica.Mark()) {
				break
			}
		}
		if commit := s.machine.Committed(); mark < commit {
			t.Fatalf("round %d: the commit at %d is behind the mark at %d and is never compared", round, commit, mark)
		}
	}
}

// Whatever is damaged on one node of three is named when the node opens, never served, and fetched again from the
// others; the node keeps its identity.
func TestDamageOnOneOfThree(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	// This tests no election, and a node that returns waits for a heartbeat.
	c := newCluster(t, 3, func(c *Config) { c.Heartbeat = 2 * time.Second })
	do(t, c, register("k"))
	for range 8 {
		finish(t, c, 60)
	}
	c.same()
	zeros := func(b []byte) []byte { // the file grows by large steps
		used := len(bytes.TrimRight(b, "\x00"))
		clear(b[3*4096 : used*9/10])
		return b
	}
	for _, damage := range []struct {
		what, file string
		how        func([]byte) []byte
	}{
		{"the log, a bit", "wal/*.wal", flip},
		{"the log, cut", "wal/*.wal", func(b []byte) []byte { return b[:len(bytes.TrimRight(b, "\x00"))/2] }},
		{"the log, its end zeros", "wal/*.wal", func(b []byte) []byte {
			clear(b[len(bytes.TrimRight(b, "\x00"))/2:])
			return b
		}},
		{"the log, all zeros", "wal/*.wal", func(b []byte) []byte {
			clear(b)
			return b
		}},
		{"the log, empty", "wal/*.wal", func(b []byte) []byte { return nil }},
		{"the log's index, all zeros", "wal/wal-meta.db", func(b []byte) []byte {
			clear(b)
			return b
		}},
		{"the log's index", "wal/wal-meta.db", func(b []byte) []byte { return b[:5000] }},
		{"a snapshot, a bit", "snapshots/*/state.bin", flip},
		{"a snapshot, cut", "snapshots/*/state.bin", func(b []byte) []byte { return b[:len(b)/2] }},
		{"the archive, a bit", "archive/open", flip},
		{"the archive, zeros", "archive/open", zeros},
		{"all of it", "", nil},
	} {
		t.Run(damage.what, func(t *testing.T) {
			finish(t, c, 20)
			hurt := c.follower()
			i, id := c.index(hurt), hurt.ID()
			if strings.HasPrefix(damage.file, "snap") {
				do(t, c, creates(2)...)
				c.same()
				if err := hurt.snapshot(); err != nil {
					t.Fatal(err)
				}
			}
			c.stop(i)
			conf := c.configs[i]
			files, _ := filepath.Glob(filepath.Join(conf.Dir, damage.file))
			if damage.file == "" {
				files, _ = filepath.Glob(filepath.Join(conf.Dir, "[aws]*"))
			}
			for _, f := range files {
				if damage.how == nil {
					if err := os.RemoveAll(f); err != nil {
						t.Fatal(err)
					}
				} else {
					change(t, f, damage.how)
				}
			}
			s, err := Open(conf)
			if err == nil { // an archive is read in the background
				select {
				case err = <-s.Err():
				case <-time.After(patience):
				}
				if _, read := s.Runs(ctx, metastore.RunQuery{Tenant: jobs.DefaultTenant, State: jobs.Succeeded}); read == nil {
					t.Error("it serves damaged data")
				}
				_ = s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), conf.Dir) {
				t.Fatalf("it opens with %v", err)
			}
			t.Log(err)
			conf.Repair = true
			if s, err = Open(conf); err != nil {
				t.Fatal(err)
			}
			c.stores[i] = s
			if err := s.untilVoter(ctx); err != nil {
				t.Fatal(err)
			}
			if s.ID() != id {
				t.Errorf("node %s has become %s", id, s.ID())
			}
			c.same()
		})
	}
}

// An interrupted repair continues when the node is opened, and when it is repaired again.
func TestRepairIsBrokenOff(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	c := newCluster(t, 3, func(c *Config) { c.Heartbeat = calm })
	do(t, c, register("k"))
	finish(t, c, 20)
	c.same()
	hurt := c.follower()
	if err := hurt.snapshot(); err != nil {
		t.Fatal(err)
	}
	i := c.index(hurt)
	c.stop(i)
	dir := c.configs[i].Dir
	breakOff := func(to string, undone ...string) { // with these not moved yet
		t.Helper()
		for _, name := range undone {
			if err := os.Rename(filepath.Join(to, name), filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		change(t, filepath.Join(dir, nodeFile), func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"rejoin": true`), fmt.Appendf(nil, `"rejoin": true, "moving": %q`, filepath.Base(to)), 1)
		})
	}
	to, err := Repair(dir)
	if err != nil {
		t.Fatal(err)
	}
	moved := func(what string) {
		t.Helper()
		for _, name := range []string{"wal", "snapshots", archiveFolder} {
			if _, err := os.Stat(filepath.Join(to, name)); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	log, err := filepath.Glob(filepath.Join(to, "wal", "*.wal"))
	if err != nil || len(log) == 0 {
		t.Fatal(log, err)
	}
	change(t, log[0], func(b []byte) []byte { clear(b); return b }) // the cause of the repair
	breakOff(to, "wal", "snapshots", archiveFolder)
	if again, err := Repair(dir); err != nil || again != to {
		t.Errorf("a repair that continues moves to %q, %v", again, err)
	}
	moved("repaired again")
	if again, err := Repair(dir); err != nil || again != "" {
		t.Errorf("a repair that was done moves to %q, %v", again, err)
	}
	breakOff(to, "wal")
	s := c.start(i)
	moved("opened")
	if err := s.untilVoter(ctx); err != nil {
		t.Fatal(err)
	}
	c.same()
	if aside, _ := filepath.Glob(filepath.Join(dir, damagedFolder+"*")); len(aside) != 1 {
		t.Errorf("the old data is in %v", aside)
	}
}

// A lost archive is fetched from the others, and reported as missing by a node without others.
func TestArchiveGone(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	conf := filled(t, LogWAL)
	s := open(t, conf)
	finish(t, s, 10)
	if err := s.snapshot(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(conf.Dir, archiveFolder)); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(conf); err == nil {
		_ = s.Close()
		t.Error("a node that is alone does not miss its archive")
	} else if !strings.Contains(err.Error(), filepath.Join(conf.Dir, archiveFolder)) {
		t.Errorf("it opens with %v", err)
	}

	c := newCluster(t, 3, func(c *Config) { c.Heartbeat = calm })
	do(t, c, register("k"))
	finish(t, c, 60)
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
	c.start(i)
	c.same()
}

// A node that has lost its data does not vote before it has it again.
func TestLostDataDoesNotVote(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	c := newCluster(t, 3, func(c *Config) { c.Heartbeat = time.Second }) // a node that returns waits for an election
	do(t, c, register("k"))
	c.same()
	leader := c.index(c.leader())
	lost := (leader + 1) % 3
	c.stop(lost)
	c.configs[lost].Repair = true
	c.stop(leader)
	wait, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if s, err := openContext(wait, c.configs[lost], nil); err == nil {
		_ = s.Close()
		t.Fatal("it opens while there is no leader that could take its vote")
	}
	third := c.stores[3-lost-leader]
	if err := third.Linearizable(ctx); err == nil {
		t.Error("one of three leads")
	}
	c.start(leader)
	c.start(lost)
	if err := c.stores[lost].untilVoter(ctx); err != nil {
		t.Fatal(err)
	}
	c.same()
}

// When a majority is lost for good, one node continues in a new epoch, and those that come back are refused until
// they are repaired.
func TestForce(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	c := newCluster(t, 3, nil)
	do(t, c, register("k"))
	finish(t, c, 30)
	c.same()
	left := c.index(c.follower())
	for i := range c.stores {
		c.stop(i)
	}
	want := func() string {
		s := c.start(left)
		defer c.stop(left)
		return archived(t, s)
	}()
	if err := Force(c.configs[left], by); err != nil {
		t.Fatal(err)
	}
	k, err := Look(c.configs[left])
	if err != nil || k.Epoch != 1 || k.Index == 0 || k.Term == 0 || len(k.Others) != 0 {
		t.Errorf("the directory knows %+v, %v", k, err)
	}
	s := c.start(left)
	lines, err := s.Audits(ctx, metastore.AuditQuery{Tenant: jobs.DefaultTenant, Limit: 1})
	if err != nil || len(lines) != 1 || lines[0].Verb != kernel.NodeRecovered || lines[0].Actor != by.Actor {
		t.Errorf("the audits are %v, %v", lines, err)
	}
	if r := do(t, s, creates(1)...); r[0].Err != nil {
		t.Error(r[0].Err)
	}
	if archived(t, s) != want {
		t.Error("the archive is another")
	}
	old := (left + 1) % 3
	conf := c.configs[old]
	back := c.start(old)
	eventually(t, "the node of an older epoch is refused", func() bool { return s.link.Refused()["epoch"] > 0 || back.link.Refused()["epoch"] > 0 })
	if _, ok := back.Leader(); ok {
		t.Error("it has contact to a leader")
	}
	c.stop(old)
	if err := os.RemoveAll(conf.Dir); err != nil {
		t.Fatal(err)
	}
	again, err := Join(ctx, conf, invite(t, s))
	if err != nil {
		t.Fatal(err)
	}
	c.stores[old] = again
	finish(t, c, 5)
	c.same()
}
