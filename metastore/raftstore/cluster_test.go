package raftstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/bus/bustest/freeport"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// cluster is some nodes of one cluster, in this process, over the loopback network.
type cluster struct {
	t       testing.TB
	configs []Config
	stores  []*Store // nil = it is down
}

func nodeConfig(t testing.TB, i int, adjust func(*Config)) Config {
	t.Helper()
	c := small(t.TempDir(), LogWAL)
	c.ArchiveFile = 0 // tests damage archive/open, which is to hold all of it
	c.Node, c.Listen = fmt.Sprint("node-", i+1), freeport.Address(t)
	if adjust != nil {
		adjust(&c)
	}
	if c.Logger == nil && testing.Verbose() {
		c.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})).With("node", c.Node)
	}
	return c
}

// newCluster makes a cluster of n voters.
func newCluster(t testing.TB, n int, adjust func(*Config)) *cluster {
	t.Helper()
	c := &cluster{t: t}
	t.TempDir() // so that the directories go after the nodes
	t.Cleanup(func() {
		for i := range c.stores {
			c.stop(i)
		}
	})
	c.configs = append(c.configs, nodeConfig(t, 0, adjust))
	c.stores = append(c.stores, nil)
	c.start(0)
	for range n - 1 {
		c.join(adjust)
	}
	return c
}

func (c *cluster) start(i int) *Store {
	c.t.Helper()
	s, err := Open(c.configs[i])
	if err != nil {
		c.t.Fatalf("open node %d: %v", i+1, err)
	}
	c.stores[i] = s
	return s
}

func (c *cluster) stop(i int) {
	c.t.Helper()
	if c.stores[i] == nil {
		return
	}
	if err := c.stores[i].Close(); err != nil {
		c.t.Errorf("close node %d: %v", i+1, err)
	}
	c.stores[i] = nil
}

// join adds a node.
func (c *cluster) join(adjust func(*Config)) *Store {
	c.t.Helper()
	var token string
	eventually(c.t, "a node is invited", func() bool {
		var err error
		if token, err = c.leader().Invite(ctx, by); err != nil && !hazy(err) {
			c.t.Fatal(err)
		}
		return err == nil
	})
	conf := nodeConfig(c.t, len(c.configs), adjust)
	wait, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	s, err := Join(wait, conf, token)
	if err != nil {
		c.t.Fatalf("join: %v", err)
	}
	c.configs, c.stores = append(c.configs, conf), append(c.stores, s)
	return s
}

// calm is a heartbeat that no load of this machine makes a leader miss: for tests that are not about elections. Where
// its leader is stopped all the same, elect has another one lead.
const calm = 10 * time.Second

// elect has one of the nodes stand for election until one leads, instead of waiting for a heartbeat to be missed. A
// node that lacks entries is not elected.
func (c *cluster) elect() {
	c.t.Helper()
	wait := time.Second / 5 // longer each time: on a slow machine candidates would depose each other for ever
	for i, end := 0, time.Now().Add(patience); ; i++ {
		for _, s := range c.stores {
			if s != nil && s.raft.State() == raft.Leader {
				return
			}
		}
		if time.Now().After(end) {
			c.t.Fatal("no node is elected")
		}
		s := c.stores[i%len(c.stores)]
		if s == nil {
			continue
		}
		s.standForElection()
		for began := time.Now(); s.raft.State() != raft.Leader && time.Since(began) < wait; {
			time.Sleep(time.Millisecond)
		}
		wait += time.Second / 5
	}
}

// adopt adds a node without an audit, for tests that compare every row.
func (c *cluster) adopt(adjust func(*Config)) {
	c.t.Helper()
	leader := c.leader()
	conf := nodeConfig(c.t, len(c.configs), adjust)
	identity, err := Identify(conf.Dir)
	if err != nil {
		c.t.Fatal(err)
	}
	n := node{Cluster: leader.node.Cluster, Epoch: leader.node.Epoch, ID: identity.Node()}
	for _, s := range c.stores { // all of them: one that it does not know gets no vote from it before it has a log
		n.Others = append(n.Others, other{ID: s.ID(), Name: s.cfg.Node, Address: s.Address()})
	}
	if err := n.save(conf.Dir); err != nil {
		c.t.Fatal(err)
	}
	eventually(c.t, "the node is a member", func() bool {
		return c.leader().raft.AddNonvoter(raft.ServerID(n.ID), raft.ServerAddress(conf.Listen), 0, patience).Error() == nil
	})
	c.configs, c.stores = append(c.configs, conf), append(c.stores, nil)
	c.start(len(c.configs) - 1)
	eventually(c.t, "the node is a voter", func() bool {
		return c.leader().raft.AddVoter(raft.ServerID(n.ID), raft.ServerAddress(conf.Listen), 0, patience).Error() == nil
	})
}

// patience is how long a test waits for an expected event.
const patience = 30 * time.Second

// eventually waits until a condition is true.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// leader waits until a node leads and can confirm it.
func (c *cluster) leader() *Store {
	c.t.Helper()
	var leader *Store
	eventually(c.t, "a node leads", func() bool {
		for _, s := range c.stores {
			if s != nil && s.Linearizable(ctx) == nil {
				leader = s
				return true
			}
		}
		return false
	})
	return leader
}

// hazy reports that the outcome is not final: the command was not done, or it is unknown whether it was.
func hazy(err error) bool { return errors.Is(err, jobs.Unavailable) || errors.Is(err, jobs.Unknown) }

// Apply has the leader apply a batch, and repeats it until it is answered, as programs do: a leader that stalls for a
// heartbeat no longer leads. It is for tests that do not care which node leads.
func (c *cluster) Apply(ctx context.Context, batch []kernel.Envelope) (results []metastore.Result) {
	c.t.Helper()
	for end := time.Now().Add(patience); ; {
		results = c.leader().Apply(ctx, batch)
		late := slices.ContainsFunc(results, func(r metastore.Result) bool { return hazy(r.Err) })
		if !late || time.Now().After(end) {
			return results
		}
	}
}

// lead has a node lead. The old leader gives up after a while if the other one is slow.
func (c *cluster) lead(to *Store) {
	c.t.Helper()
	eventually(c.t, "node "+to.cfg.Node+" leads", func() bool {
		leader := c.leader()
		if leader == to {
			return true
		}
		if err := leader.Transfer(ctx, by, to.cfg.Node); err != nil {
			c.t.Log(err)
		}
		return c.leader() == to
	})
}

// remove has a node remove another one. A node that is slow to answer counts as down, so the request is repeated.
func (c *cluster) remove(s *Store, idOrName string) {
	c.t.Helper()
	unknown := false
	eventually(c.t, "node "+idOrName+" is removed", func() bool {
		c.lead(s)
		err := s.Remove(ctx, by, idOrName)
		if err == nil || unknown && errors.Is(err, jobs.NotFound) {
			return true
		}
		if !hazy(err) && !errors.Is(err, jobs.Conflict) {
			c.t.Fatal(err)
		}
		unknown = unknown || errors.Is(err, jobs.Unknown)
		return false
	})
}

func (c *cluster) index(s *Store) int {
	for i := range c.stores {
		if c.stores[i] == s {
			return i
		}
	}
	return -1
}

// follower is a node that does not lead.
func (c *cluster) follower() *Store {
	leader := c.leader()
	for _, s := range c.stores {
		if s != nil && s != leader {
			return s
		}
	}
	c.t.Fatal("there is no follower")
	return nil
}

// same waits until all nodes have applied what the leader has, and compares their rows and their archives. It reads
// both sides each time: requests of clients that have gone may still be applied meanwhile.
func (c *cluster) same() {
	c.t.Helper()
	leader := c.leader()
	for i, s := range c.stores {
		if s == nil || s == leader {
			continue
		}
		for _, what := range []struct {
			name string
			of   func(*Store) any
		}{
			{"last entry", func(s *Store) any { index, _, _ := s.machine.Bounds.Now(); return index }},
			{"rows", func(s *Store) any { return s.machine.Engine.Hash() }},
			{"archive", func(s *Store) any { return archived(c.t, s) }},
		} {
			eventually(c.t, fmt.Sprintf("node %d has the leader's %s", i+1, what.name), func() bool { return what.of(s) == what.of(leader) })
		}
	}
}

// archived is all that is in a node's archive.
func archived(t testing.TB, s *Store) string {
	t.Helper()
	var b strings.Builder
	err := s.archive.Copy(ctx, 0, s.archive.Last(), copyTo(&b))
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// finish runs some jobs to their end, each step in one commit, which may be sent again.
func finish(t testing.TB, s metastore.Applier, n int) {
	t.Helper()
	begin := creates(n)
	start, finish := make([]kernel.Command, n), make([]kernel.Command, n)
	for i, k := range begin {
		id := k.(kernel.Create).ID
		start[i] = kernel.Start{ID: id, Worker: "w", Attempt: 1}
		finish[i] = kernel.Finish{ID: id, Worker: "w", Attempt: 1, Outcome: kernel.OutcomeSuccess}
	}
	do(t, s, begin...)
	do(t, s, start...)
	do(t, s, finish...)
}

func TestThreeNodes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, func(c *Config) { c.Heartbeat = calm })
	do(t, c.leader(), register("k"))
	finish(t, c.leader(), 50)
	c.same()
	var members []Member
	eventually(t, "all answer", func() bool { // each within a second, which one may be too slow for
		var err error
		if members, err = c.leader().Members(ctx); err != nil || len(members) != 3 {
			t.Fatalf("members are %v, %v", members, err)
		}
		return !slices.ContainsFunc(members, func(m Member) bool { return !m.Reached })
	})
	for i, m := range members {
		if m.Name != c.configs[i].Node || m.Address != c.configs[i].Listen || !m.Voter || !m.Reached || m.LastContact.IsZero() || m.ApplyVersion != kernel.ApplyVersion {
			t.Errorf("member %d is %+v", i, m)
		}
	}
	tolerate(t, c.leader(), 1, "one node may fail")
	// A follower refuses what it cannot do, and names the leader.
	f := c.follower()
	if err := f.Linearizable(ctx); !errors.Is(err, jobs.Unavailable) || !strings.Contains(err.Error(), c.leader().cfg.Node) {
		t.Errorf("a follower returns %v", err)
	}
	if _, err := f.Invite(ctx, by); !errors.Is(err, jobs.Unavailable) {
		t.Errorf("a follower invites: %v", err)
	}
	if r := f.Apply(ctx, []kernel.Envelope{envelope(register("x"))}); !errors.Is(r[0].Err, jobs.Unavailable) {
		t.Errorf("a follower applies: %v", r[0].Err)
	}
	eventually(t, "a follower is up to date", func() bool { return f.Age() < time.Second })
}
