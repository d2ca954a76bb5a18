package raftstore

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus/bustest/freeport"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/link"
)

var by = By{Actor: "person:ann", Reason: "a test"}

func invite(t *testing.T, s *Store) string {
	t.Helper()
	token, err := s.Invite(ctx, by)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestJoinIsRefused(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	steady := func(c *Config) { c.Heartbeat = calm }
	c := newCluster(t, 2, steady)
	leader := c.leader()
	do(t, leader, register("k"))
	term := leader.raft.CurrentTerm()
	refused := func(what string, conf Config, token, words string, code jobs.Code) {
		t.Helper()
		wait, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		s, err := Join(wait, conf, token)
		if err == nil {
			_ = s.Close()
			t.Errorf("%s joins", what)
			return
		}
		if !strings.Contains(err.Error(), words) || !errors.Is(err, code) {
			t.Errorf("%s is refused with %v", what, err)
		}
		if _, err := os.Stat(filepath.Join(conf.Dir, "wal")); conf.Dir != c.configs[0].Dir && err == nil && what != "data" && what != "another cluster's data" {
			t.Errorf("%s leaves data behind", what)
		}
	}
	refused("no token", nodeConfig(t, 8, nil), "hello", "invalid join token", jobs.BadInput)

	used := nodeConfig(t, 2, steady)
	token := invite(t, leader)
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	third, err := Join(wait, used, token)
	if err != nil {
		t.Fatal(err)
	}
	c.configs, c.stores = append(c.configs, used), append(c.stores, third)
	refused("a token that was used", nodeConfig(t, 8, nil), token, "it was used", jobs.Forbidden)

	i, err := readToken(invite(t, leader))
	if err != nil {
		t.Fatal(err)
	}
	i.Name = "LAPSES22"
	if err := leader.note(ctx, by, kernel.Invite{Name: i.Name, Secret: seal(i.Secret, i.ids()), Until: time.Now().Add(2 * time.Second)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an invitation expires", func() bool { return !leader.invites(kernel.Join{Name: i.Name, Secret: seal(i.Secret, i.ids())}) })
	refusedToken := func(i invitation) string {
		t.Helper()
		token, err := i.token()
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	refused("a token that is too old", nodeConfig(t, 8, nil), refusedToken(i), "older than 15m", jobs.Forbidden)
	i, _ = readToken(invite(t, leader))
	i.Secret = "guessed"
	refused("a guess", nodeConfig(t, 8, nil), refusedToken(i), "unknown join token", jobs.Forbidden)

	conf := nodeConfig(t, 1, nil)
	refused("a name that is used", conf, invite(t, leader), "is called \"node-2\" already", jobs.Conflict)
	conf = nodeConfig(t, 8, func(conf *Config) { conf.Advertise = c.configs[1].Listen })
	refused("an address that is used", conf, invite(t, leader), "is in use, by node node-2", jobs.Conflict)
	conf = nodeConfig(t, 8, nil)
	if err := open(t, conf).Close(); err != nil {
		t.Fatal(err)
	}
	refused("another cluster's data", conf, invite(t, leader), "data of another cluster", jobs.Conflict)
	if err := os.Remove(filepath.Join(conf.Dir, nodeFile)); err != nil {
		t.Fatal(err)
	}
	refused("data", conf, invite(t, leader), "is not empty", jobs.Conflict)

	// A copy of a member's directory, and a clock that is wrong, come straight to the leader.
	for what, test := range map[string]struct {
		hello link.Hello
		words string
	}{
		"a copy":       {link.Hello{Node: third.ID(), Name: "x", Address: "127.0.0.1:1", ApplyVersion: 99, Now: time.Now()}, "do not copy a directory"},
		"a slow clock": {link.Hello{Node: "n", Name: "x", Address: "127.0.0.1:1", ApplyVersion: 99, Now: time.Now().Add(-time.Hour)}, "off by -1h"},
		"a fast clock": {link.Hello{Node: "n", Name: "x", Address: "127.0.0.1:1", ApplyVersion: 99, Now: time.Now().Add(time.Hour + 30*time.Second)}, "off by 1h"},
		"no id":        {link.Hello{Now: time.Now()}, "must send its id"},
	} {
		if err := leader.acceptable(&test.hello, ""); err == nil || !strings.Contains(err.Error(), test.words) {
			t.Errorf("%s is refused with %v", what, err)
		}
	}
	// The same arguments again need no token: the node has joined already.
	c.stop(2)
	again, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if c.stores[2], err = Join(again, used, token); err != nil {
		t.Errorf("a member that starts again: %v", err)
	}
	if now := c.leader().raft.CurrentTerm(); now != term {
		t.Errorf("all that changed the term from %d to %d", term, now)
	}
	c.same()
}

// forgetful is a proxy to a node that loses the first answer to a node that joins; cut is called then.
func forgetful(t *testing.T, to *Store, cut func()) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	members, lost := len(to.servers()), false
	carry := func(client, server net.Conn) {
		go func() {
			_, _ = io.Copy(server, client)
			_ = server.Close()
		}()
		defer client.Close()
		defer server.Close()
		for b := make([]byte, 64<<10); ; {
			n, err := server.Read(b)
			if !lost && len(to.servers()) > members { // it is added before it is answered
				lost = true
				cut()
				return
			}
			if _, wrong := client.Write(b[:n]); err != nil || wrong != nil {
				return
			}
		}
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to.Address())
			if err != nil {
				_ = client.Close()
				continue
			}
			carry(client, server)
		}
	}()
	return l.Addr().String()
}

// A node that was added and did not get the answer asks again, at once or after a restart, and is the same node.
func TestJoinIsAskedForAgain(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	steady := func(c *Config) { c.Heartbeat = calm }
	c := newCluster(t, 1, steady)
	leader := c.leader()
	do(t, leader, register("k"))
	for what, again := range map[string]bool{"at once": false, "when it is started again": true} {
		i, err := readToken(invite(t, leader))
		if err != nil {
			t.Fatal(err)
		}
		wait, cancel := context.WithTimeout(ctx, 2*patience)
		defer cancel()
		first, stop := context.WithCancel(wait)
		defer stop()
		var lost atomic.Bool
		for j := range i.Members {
			i.Members[j].Address = "127.0.0.1:1"
		}
		i.Members[0].Address = forgetful(t, leader, func() {
			lost.Store(true)
			if again {
				stop()
			}
		})
		token, err := i.token()
		if err != nil {
			t.Fatal(err)
		}
		members := len(leader.servers())
		conf := nodeConfig(t, len(c.configs), steady)
		s, err := Join(first, conf, token)
		if again {
			if err == nil {
				t.Fatal("it joins without an answer")
			}
			s, err = Join(wait, conf, token)
		}
		if err != nil || !lost.Load() {
			t.Fatalf("%s: %v (and the answer was lost: %v)", what, err, lost.Load())
		}
		c.configs, c.stores = append(c.configs, conf), append(c.stores, s)
		if n := len(leader.servers()); n != members+1 {
			t.Errorf("%s: of %d members there are %d", what, members, n)
		}
	}
	c.same()
}

// An invitation is the cluster's: it adds a node after the leader that made it has died, once, and changes of nodes
// are audited.
func TestInvitationOutlivesLeader(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	c := newCluster(t, 3, func(c *Config) { c.Heartbeat = calm })
	old := c.leader()
	token := invite(t, old)
	gone := c.index(old)
	c.stop(gone)
	c.elect()
	wait, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	conf := nodeConfig(t, 3, func(c *Config) { c.Heartbeat = calm })
	fourth, err := Join(wait, conf, token)
	if err != nil {
		t.Fatalf("join with a token of a leader that is gone: %v", err)
	}
	c.configs, c.stores = append(c.configs, conf), append(c.stores, fourth)
	if s, err := Join(wait, nodeConfig(t, 4, nil), token); err == nil || !errors.Is(err, jobs.Forbidden) {
		if err == nil {
			_ = s.Close()
		}
		t.Errorf("a token is good twice: %v", err)
	}
	c.start(gone)
	next := c.leader()
	c.remove(next, fourth.cfg.Node)
	eventually(t, "another node leads", func() bool { // it gives up after a while, and each try is recorded
		if err := next.Transfer(ctx, by, ""); err != nil {
			t.Log(err)
		}
		return c.leader() != next
	})
	lines, err := c.leader().Audits(ctx, metastore.AuditQuery{Tenant: jobs.DefaultTenant, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var record []string // the newest first
	for _, l := range lines {
		if line := l.Actor + " " + l.Verb + " " + l.Target; len(record) == 0 || line != record[len(record)-1] {
			record = append(record, line)
		}
	}
	if want := []string{"person:ann transfer any node", "person:ann remove node node node-4", "node:node-4 join node node-4"}; len(record) < 3 || !slices.Equal(record[:3], want) {
		t.Errorf("the audits are %q, want %q", record, want)
	}
}

// Connections from elsewhere do not disturb the cluster.
func TestStrangersChangeNoTerm(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	c := newCluster(t, 3, func(c *Config) { c.Heartbeat = calm }) // a heartbeat that is missed is a new term, too
	other := newCluster(t, 1, nil)
	leader := c.leader()
	term := leader.raft.CurrentTerm()
	for _, s := range c.stores {
		for range 100 {
			conn, err := net.Dial("tcp", s.Address())
			if err != nil {
				t.Fatal(err)
			}
			_, _ = conn.Write([]byte(strings.Repeat("\x01\x81vote", 20)))
			_ = conn.Close()
		}
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		if conn, err := other.stores[0].link.Dial(ctx, s.Address(), "", link.ForRaft); err == nil {
			_ = conn.Close()
			t.Error("a node of another cluster gets through")
		}
		cancel()
	}
	finishOn := c.leader()
	do(t, finishOn, register("k"))
	if now := finishOn.raft.CurrentTerm(); now != term {
		t.Errorf("the term went from %d to %d", term, now)
	}
}

// A directory never begins a second cluster, and a mix of two is refused.
func TestBootstrapOnce(t *testing.T) {
	conf := nodeConfig(t, 0, nil)
	s := open(t, conf)
	id, cluster := s.ID(), s.Cluster()
	do(t, s, register("k"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, conf)
	if s.ID() != id || s.Cluster() != cluster || id == "" || cluster == "" {
		t.Errorf("node %s of cluster %s was %s of %s", s.ID(), s.Cluster(), id, cluster)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	other := nodeConfig(t, 0, nil)
	if err := open(t, other).Close(); err != nil {
		t.Fatal(err)
	}
	fails := func(what, words string) {
		t.Helper()
		s, err := Open(conf)
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), words) || !strings.Contains(err.Error(), conf.Dir) {
			t.Errorf("%s: it opens with %v", what, err)
		}
	}
	mine, err := os.ReadFile(filepath.Join(conf.Dir, nodeFile))
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := os.ReadFile(filepath.Join(other.Dir, nodeFile))
	if err != nil {
		t.Fatal(err)
	}
	put := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(conf.Dir, nodeFile), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(theirs)
	fails("another node's file", "is the key of node "+id)
	put(mine[:len(mine)/2])
	fails("half a file", "is damaged")
	if err := os.Remove(filepath.Join(conf.Dir, nodeFile)); err != nil {
		t.Fatal(err)
	}
	fails("no file", "it is missing")
	put(mine)
	if err := os.RemoveAll(filepath.Join(conf.Dir, "wal")); err != nil {
		t.Fatal(err)
	}
	fails("no log", "missing or empty")
}

// A founder that is killed before its log records it as a member begins again.
func TestBootstrapIsBrokenOff(t *testing.T) {
	for _, kind := range []string{LogBolt, LogWAL} {
		conf := small(t.TempDir(), kind)
		s := &Store{cfg: conf.withDefaults(), failures: make(chan error, 1), failed: make(chan struct{})}
		s.ctx, s.stop = context.WithCancel(context.Background())
		if _, err := s.openFiles(logger{Logger: s.cfg.Logger}); err != nil {
			t.Fatal(err)
		}
		// The first writes of raft.BootstrapCluster.
		if err := errors.Join(s.settle(false), s.log.SetUint64([]byte("CurrentTerm"), 1), s.Close()); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			s := open(t, conf)
			do(t, s, register("k"))
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A single node becomes one of several when it is configured to listen, and may move to another address.
func TestGrowAndMove(t *testing.T) {
	conf := nodeConfig(t, 0, nil)
	alone := conf
	alone.Listen = ""
	s := open(t, alone)
	do(t, s, register("k"))
	if _, err := s.Invite(ctx, by); !errors.Is(err, jobs.Unavailable) {
		t.Errorf("a node that does not listen invites: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, configs: []Config{conf}, stores: []*Store{nil}}
	t.Cleanup(func() {
		for i := range c.stores {
			c.stop(i)
		}
	})
	c.start(0)
	c.join(nil)
	c.join(nil)
	finish(t, c, 10)
	c.same()
	moved := c.index(c.follower())
	c.stop(moved)
	c.configs[moved].Listen = freeport.Address(t)
	c.start(moved)
	eventually(t, "the new address is known", func() bool {
		for _, is := range c.leader().servers() {
			if string(is.Address) == c.configs[moved].Listen {
				return true
			}
		}
		return false
	})
	finish(t, c, 10)
	c.same()
}

// A live node is not removed while another is down, if the rest would be no majority.
func TestRemoveLeavesMajority(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	c := newCluster(t, 3, func(c *Config) { c.Heartbeat = calm })
	leader := c.leader()
	var lives, down *Store
	for _, s := range c.stores {
		if s != leader {
			lives, down = s, lives
		}
	}
	c.stop(c.index(down))
	err := leader.Remove(ctx, by, lives.cfg.Node)
	if !errors.Is(err, jobs.Conflict) || !strings.Contains(err.Error(), "of the 2 remaining nodes only 1 answer") || !strings.Contains(err.Error(), "("+down.cfg.Node+")") {
		t.Errorf("it is removed: %v", err)
	}
	if n := len(leader.servers()); n != 3 {
		t.Fatalf("%d nodes are left", n)
	}
	for _, s := range []*Store{down, lives} { // in this order
		c.remove(leader, s.ID())
	}
	do(t, leader, register("k"))
}

// Only a confirmed leader reports that a node was removed: another may lead by then, and have added it.
func TestRemovedIsReportedByLeader(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	c := newCluster(t, 3, func(c *Config) { c.Heartbeat = calm })
	leader := c.leader()
	announced := func() reply {
		return leader.reply(&call{Announce: true}, &link.Hello{Node: "n4", Name: "new", Address: "127.0.0.1:1"})
	}
	eventually(t, "a removed node gets the refusal", func() bool {
		r := announced()
		if r.Code != jobs.NotFound && r.Code != jobs.Unavailable { // followers may be slow to report it
			t.Fatalf("a removed node gets %+v", r)
		}
		return r.Code == jobs.NotFound
	})
	for i, s := range c.stores {
		if s != leader {
			c.stop(i)
		}
	}
	if r := announced(); r.Code != jobs.Unavailable {
		t.Errorf("an unconfirmed leader returns %+v", r)
	}
}

func TestRemoveAndTransfer(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	// No other node is elected meanwhile, and a node without contact asks soon.
	c := newCluster(t, 3, func(c *Config) { c.Heartbeat = 2 * time.Second })
	old := c.leader()
	next := c.follower()
	c.lead(next)
	if err := next.Transfer(ctx, by, "nonode"); !errors.Is(err, jobs.NotFound) {
		t.Errorf("an unknown node leads: %v", err)
	}
	if err := next.Remove(ctx, by, next.ID()); !errors.Is(err, jobs.Conflict) {
		t.Errorf("the leader removes itself: %v", err)
	}
	if err := old.Remove(ctx, by, next.ID()); !errors.Is(err, jobs.Unavailable) {
		t.Errorf("a follower removes a node: %v", err)
	}
	c.remove(next, old.cfg.Node)
	select {
	case err := <-old.Err():
		if !errors.Is(err, ErrRemoved) {
			t.Errorf("a node that was removed ends with %v", err)
		}
	case <-time.After(patience):
		t.Error("a node that was removed continues")
	}
	i := c.index(old)
	_ = old.Close()
	c.stores[i] = nil
	do(t, c, register("k"))
	c.same()
}
