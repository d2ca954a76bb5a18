package raftstore

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/link"
)

// thief has a copy of a node's directory, and its own rules.
type thief struct {
	t   *testing.T
	n   *node
	key *link.Key
}

// steal copies the directory of a node.
func steal(t *testing.T, dir string) *thief {
	t.Helper()
	copied := t.TempDir()
	for _, name := range []string{nodeFile, keyFile} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(copied, name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	n, err := loadNode(copied)
	if err != nil {
		t.Fatal(err)
	}
	i, err := Identify(copied)
	if err != nil {
		t.Fatal(err)
	}
	return &thief{t, n, i.key}
}

// dial connects for a purpose, in the name of some node, and accepts any node.
func (f *thief) dial(to *Store, as string, p link.Purpose) (*link.Conn, error) {
	f.t.Helper()
	h := link.Hello{Cluster: f.n.Cluster, Epoch: f.n.Epoch, Node: as, Name: "thief", Address: "127.0.0.1:1", Purpose: p, ApplyVersion: kernel.ApplyVersion}
	c, err := link.DialFirst(ctx, to.Address(), f.key, func(string) error { return nil }, h)
	if err == nil {
		f.t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

// over waits until the other end has closed a connection.
func over(t *testing.T, what string, c *link.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(2 * time.Minute))
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s is not closed", what)
	}
}

// All members refuse a process with the directory of a removed node, for whatever purpose and in any name, and close
// its connections. The others continue meanwhile; a node that was down catches up, a new one joins, and all of them
// start again.
func TestRemovedNodeIsRefused(t *testing.T) {
	tests.Long(t)
	c := newCluster(t, 4, nil)
	do(t, c, register("k"))
	finish(t, c, 30)
	c.same()
	leader := c.leader()
	var rest []*Store
	for _, s := range c.stores {
		if s != leader {
			rest = append(rest, s)
		}
	}
	gone, down, stays := rest[0], rest[1], rest[2]
	away := c.index(down)
	c.stop(away)
	token, err := readToken(invite(t, leader))
	if err != nil {
		t.Fatal(err)
	}
	f := steal(t, gone.cfg.Dir)

	purposes := []link.Purpose{link.ForRaft, link.ForArchive, link.ForCall}
	open := map[string]*link.Conn{}
	for _, to := range []*Store{leader, stays} { // raft waits for ever on a silent connection
		conn, err := f.dial(to, f.n.ID, link.ForRaft)
		if err != nil {
			t.Fatalf("while it is a member: %v", err)
		}
		open[to.cfg.Node] = conn
	}
	c.remove(leader, gone.ID())
	ended(t, gone, ErrRemoved)
	c.stop(c.index(gone))
	eventually(t, "the other member knows of it", func() bool { return stays.identity.Member(f.n.ID) != nil })
	for node, conn := range open {
		over(t, "a connection with "+node, conn)
	}
	for _, to := range []*Store{leader, stays} {
		for _, as := range []string{f.n.ID, leader.ID(), stays.ID(), down.ID()} {
			for _, p := range purposes {
				if _, err := f.dial(to, as, p); err == nil {
					t.Errorf("%s lets it in for %s as %s", to.cfg.Node, p, as)
				}
			}
		}
	}
	if _, err := f.dial(leader, f.n.ID, link.ForCall); !errors.Is(err, jobs.NotFound) {
		t.Errorf("the leader returns %v", err)
	}
	// A token that it may have kept is void.
	text, err := token.token()
	if err != nil {
		t.Fatal(err)
	}
	wait, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	refused := func(what, text, words string) {
		t.Helper()
		if s, err := Join(wait, nodeConfig(t, 8, nil), text); !errors.Is(err, jobs.Forbidden) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: a node joins: %v", what, err)
			if err == nil {
				_ = s.Close()
			}
		}
	}
	refused("a token from before", text, "before node "+f.n.ID+" was removed")
	token.Members = slices.DeleteFunc(token.Members, func(m contact) bool { return m.ID == f.n.ID })
	if text, err = token.token(); err != nil {
		t.Fatal(err)
	}
	refused("a token from before that names it no more", text, "unknown join token")

	finish(t, c, 10)
	c.start(away)
	finish(t, c, 10)
	c.same()
	if _, err := f.dial(c.stores[away], f.n.ID, link.ForArchive); err == nil {
		t.Error("a node that was down lets it in when it has caught up")
	}
	c.join(nil)
	for i := range c.stores {
		c.stop(i)
	}
	for i, conf := range c.configs {
		if conf.Dir != gone.cfg.Dir {
			c.start(i)
		}
	}
	finish(t, c, 10)
	c.same()
	for _, s := range c.stores {
		if s == nil {
			continue
		}
		for _, p := range purposes {
			if _, err := f.dial(s, f.n.ID, p); err == nil {
				t.Errorf("%s lets it in for %s after a restart", s.cfg.Node, p)
			}
		}
	}
}

// The program of a removed node ends when it is started again with its directory, whichever node it asks first.
func TestRemovedNodeEnds(t *testing.T) {
	c := newCluster(t, 3, nil)
	do(t, c, register("k"))
	gone := c.follower()
	i := c.index(gone)
	c.stop(i)
	c.remove(c.leader(), gone.ID())
	s, err := Open(c.configs[i])
	if err == nil {
		ended(t, s, ErrRemoved)
		_ = s.Close()
	} else if !errors.Is(err, ErrRemoved) {
		t.Errorf("it ends with %v", err)
	}
	if err := os.RemoveAll(c.configs[i].Dir); err != nil {
		t.Fatal(err)
	}
	c.join(nil)
	c.same()
}

// A node that was down while another one joined does not know it; a member that it knows introduces it, also when the
// new one leads by now.
func TestIntroduction(t *testing.T) {
	c := newCluster(t, 3, nil)
	do(t, c, register("k"))
	c.same()
	down := c.follower()
	i := c.index(down)
	c.stop(i)
	fourth := c.join(nil)
	c.lead(fourth)
	finish(t, c, 10)
	if s := steal(t, c.configs[i].Dir); slices.ContainsFunc(s.n.Others, func(o other) bool { return o.ID == fourth.ID() }) {
		t.Fatal("the node that was down knows the new one")
	}
	c.start(i)
	c.same()
}

// An introduction holds until this node's own list is a newer one, and for a minute at most.
func TestIntroductionLapses(t *testing.T) {
	i, err := Identify(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	is := func(want bool, what string) {
		t.Helper()
		if err := i.Member("n9"); (err == nil) != want {
			t.Errorf("%s: %v", what, err)
		}
	}
	i.list([]other{{ID: "n1"}, {ID: "n2"}})
	is(false, "a stranger")
	i.introduce("n9")
	is(true, "introduced")
	i.list([]other{{ID: "n1"}})
	is(false, "after the list has changed")
	i.introduce("n9")
	i.introduced["n9"] = time.Now().Add(-introduction)
	is(false, "after a minute")
	i.list([]other{{ID: "n9"}})
	is(true, "a member")
	i.introduce("n9")
	i.list(nil)
	is(false, "a member that was removed")
	if err := i.Member(i.Node()); err != nil {
		t.Errorf("a node is none of its own: %v", err)
	}
}

// A key that is missing, damaged or another node's is refused, with the file's name, and never made again beside the
// data.
func TestKeyOfNode(t *testing.T) {
	conf := small(t.TempDir(), LogWAL)
	if err := open(t, conf).Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(conf.Dir, keyFile)
	right, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key is in %v, %v", info, err)
	}
	if b, err := os.ReadFile(filepath.Join(conf.Dir, nodeFile)); err != nil || strings.Contains(strings.ToLower(string(b)), "key") {
		t.Errorf("%s has %s, %v", nodeFile, b, err)
	}
	other, err := link.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := other.PEM()
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string][]byte{"gone": nil, "empty": {}, "half": right[:len(right)/2], "another node's": wrong} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if text != nil {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if s, err := Open(conf); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: it opens with %v", what, err)
			if err == nil {
				_ = s.Close()
			}
		}
		if _, err := os.Stat(path); (err == nil) != (text != nil) {
			t.Errorf("%s: %v", what, err)
		}
		if err := os.WriteFile(path, right, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := open(t, conf).Close(); err != nil {
		t.Error(err)
	}
}
