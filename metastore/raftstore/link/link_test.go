package link

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	curve "crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

var ctx = context.Background()

// nodes are the keys of a cluster by the names that tests give its nodes; whichever node has one is a member.
type nodes struct {
	t    *testing.T
	mu   sync.Mutex
	keys map[string]*Key
	gone map[string]bool // by ID
}

func newNodes(t *testing.T) *nodes {
	return &nodes{t: t, keys: map[string]*Key{}, gone: map[string]bool{}}
}

func newKey(t *testing.T) *Key {
	t.Helper()
	k, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// key is that of a node.
func (n *nodes) key(name string) *Key {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.keys[name] == nil {
		n.keys[name] = newKey(n.t)
	}
	return n.keys[name]
}

// id is that of a node.
func (n *nodes) id(name string) string { return n.key(name).Node() }

func (n *nodes) remove(name string) {
	id := n.id(name)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone[id] = true
}

func (n *nodes) member(node string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, k := range n.keys {
		if k.Node() == node && !n.gone[node] {
			return nil
		}
	}
	return fmt.Errorf("node %s is not a member", node)
}

// side is a node's end of the network.
type side struct {
	*Link
	raft chan string // messages, by node
}

// open opens the end of the node that is called is.Node.
func (n *nodes) open(is Hello) *side {
	t := n.t
	t.Helper()
	key := n.key(is.Node)
	is.Node = key.Node()
	s := &side{raft: make(chan string, 100)}
	var err error
	s.Link, err = Open(Config{Listen: "127.0.0.1:0", Key: key, Member: n.member, Removed: func(node string) bool { return n.gone[node] },
		Logger: slog.New(slog.DiscardHandler), Self: func() Hello { return is },
		Serve: map[Purpose]func(*Conn){ForJoin: func(c *Conn) { _ = c.Close() }, ForCall: func(c *Conn) {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}}}, ForRaft)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Link.Close() })
	go func() {
		for {
			c, err := s.Stream(ForRaft).Accept()
			if err != nil {
				return
			}
			s.raft <- c.(*Conn).Peer.Node
			_ = c.Close()
		}
	}()
	return s
}

func TestPeers(t *testing.T) {
	n := newNodes(t)
	one := n.open(Hello{Cluster: "c1", Node: "n1", Name: "one", ApplyVersion: 2})
	two := n.open(Hello{Cluster: "c1", Node: "n2", Name: "two", ApplyVersion: 1})
	c, err := one.Dial(ctx, two.Address(), n.id("n2"), ForCall)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("echo")); err != nil {
		t.Fatal(err)
	}
	var b [4]byte
	if _, err := io.ReadFull(c, b[:]); err != nil || string(b[:]) != "echo" {
		t.Errorf("it answers %q, %v", b, err)
	}
	if p, ok := one.Peer(n.id("n2")); !ok || p.Name != "two" || p.Address != two.Address() || time.Since(p.LastReceived) > time.Minute {
		t.Errorf("one knows of two: %+v", p)
	}
	if p, ok := two.Peer(n.id("n1")); !ok || p.Name != "one" || p.Address != one.Address() {
		t.Errorf("two knows of one: %+v", p)
	}
	if d, err := one.Dial(ctx, two.Address(), n.id("n2"), ForRaft); err != nil {
		t.Error(err)
	} else if who := <-two.raft; who != n.id("n1") {
		t.Errorf("raft gets %s", who)
	} else {
		_ = d.Close()
	}
}

// refusedFor waits until a connection was counted as refused.
func refusedFor(t *testing.T, s *side, reason string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); s.Refused()[reason] == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("nothing was refused for %q: %v", reason, s.Refused())
		}
	}
}

// A connection that is not from a node of this cluster is closed and counted, and raft never gets it.
func TestStrangers(t *testing.T) {
	us := Hello{Cluster: "c1", Node: "n1", Epoch: 2}
	// come has the holder of a key connect. It claims to be its own node, unless h has another.
	come := func(s *side, key *Key, h Hello) error {
		h.Node, h.Purpose = cmp.Or(h.Node, key.Node()), cmp.Or(h.Purpose, ForRaft)
		c, err := DialFirst(ctx, s.Address(), key, anyNode, h)
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	for _, test := range []struct {
		what, reason, words string
		come                func(n *nodes, s *side) error
	}{
		{"random bytes", "tls", "", func(_ *nodes, s *side) error {
			c, err := net.Dial("tcp", s.Address())
			if err != nil {
				return err
			}
			defer c.Close()
			_, _ = c.Write([]byte("GET / HTTP/1.1\r\n\r\n and more of it, whatever it may be"))
			_, err = io.ReadAll(c)
			return errors.Join(err, io.EOF)
		}},
		{"no key", "tls", "", func(_ *nodes, s *side) error {
			c, err := tls.Dial("tcp", s.Address(), &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = io.ReadAll(c)
			return errors.Join(err, io.EOF)
		}},
		{"a key of another kind", "tls", "bad certificate", func(_ *nodes, s *side) error {
			return come(s, &Key{certificate: elliptic(t), node: "n2"}, Hello{Cluster: "c1", Epoch: 2})
		}},
		{"no hello", "no hello", "", func(n *nodes, s *side) error {
			c, err := tls.Dial("tcp", s.Address(), n.key("n2").TLS(ProtocolLink, anyNode))
			if err != nil {
				return err
			}
			defer c.Close()
			_, _ = c.Write([]byte{0xff, 0xff, 0xff, 0xff, 1, 2, 3})
			_, err = io.ReadAll(c)
			return errors.Join(err, io.EOF)
		}},
		{"a connection for NATS servers", "tls", "no application protocol", func(n *nodes, s *side) error {
			c, err := tls.Dial("tcp", s.Address(), n.key("n2").TLS(ProtocolRoute, anyNode))
			if err == nil {
				_ = c.Close()
			}
			return err
		}},
		{"another cluster", "cluster", "does not belong to cluster \"c2\"", func(n *nodes, s *side) error {
			return come(s, n.key("n2"), Hello{Cluster: "c2", Epoch: 2})
		}},
		{"a node that is no member", "member", "is not a member", func(_ *nodes, s *side) error {
			return come(s, newKey(t), Hello{Cluster: "c1", Epoch: 2})
		}},
		{"a node that was removed", "member", "is not a member", func(n *nodes, s *side) error {
			n.remove("n2")
			return come(s, n.key("n2"), Hello{Cluster: "c1", Epoch: 2})
		}},
		{"a removed node in the name of a member", "key", "the key is of node", func(n *nodes, s *side) error {
			n.remove("n2")
			return come(s, n.key("n2"), Hello{Cluster: "c1", Node: n.id("n3"), Epoch: 2})
		}},
		{"one that joins in the name of a member", "key", "the key is of node", func(n *nodes, s *side) error {
			return come(s, newKey(t), Hello{Cluster: "c1", Node: n.id("n3"), Epoch: 2, Purpose: ForJoin})
		}},
		{"an older epoch", "epoch", "must be repaired", func(n *nodes, s *side) error {
			return come(s, n.key("n2"), Hello{Cluster: "c1", Epoch: 1})
		}},
		{"another node is meant", "address", "this is node", func(n *nodes, s *side) error {
			return come(s, n.key("n2"), Hello{Cluster: "c1", Epoch: 2, To: "n9"})
		}},
		{"a copy of this node", "twin", "runs at", func(n *nodes, s *side) error {
			return come(s, n.key("n1"), Hello{Cluster: "c1", Epoch: 2, Address: "elsewhere:1"})
		}},
		{"an unknown purpose", "purpose", "unknown purpose", func(n *nodes, s *side) error {
			return come(s, n.key("n2"), Hello{Cluster: "c1", Epoch: 2, Purpose: "gossip"})
		}},
	} {
		t.Run(test.what, func(t *testing.T) {
			n := newNodes(t)
			s := n.open(us)
			_ = n.key("n3")
			err := test.come(n, s)
			if err == nil || !strings.Contains(err.Error(), test.words) {
				t.Errorf("it ends with %v", err)
			}
			refusedFor(t, s, test.reason)
			select {
			case who := <-s.raft:
				t.Errorf("raft gets %s", who)
			default:
			}
		})
	}
}

// elliptic is a certificate whose key is of another kind.
func elliptic(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	is := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, is, is, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// An unauthenticated end learns why it is refused, and nothing of the node or its cluster.
func TestStrangersLearnNothing(t *testing.T) {
	n := newNodes(t)
	s := n.open(Hello{Cluster: "ours", Node: "n1", Name: "one", Epoch: 2, ApplyVersion: 1})
	stranger := newKey(t)
	for reason, says := range map[string]Hello{
		"version": {Version: version + 1, Cluster: "ours"},
		"cluster": {Version: version, Cluster: "theirs"},
		"purpose": {Version: version, Cluster: "ours", Purpose: "gossip"},
		"key":     {Version: version, Cluster: "ours", Purpose: ForRaft},
		"epoch":   {Version: version, Cluster: "ours", Purpose: ForRaft, Node: stranger.Node()},
		"member":  {Version: version, Cluster: "ours", Purpose: ForRaft, Node: stranger.Node(), Epoch: 2},
	} {
		c, err := tls.Dial("tcp", s.Address(), stranger.TLS(ProtocolLink, anyNode))
		if err != nil {
			t.Fatal(err)
		}
		var answer Hello
		if err := errors.Join(Write(c, says), Read(c, &answer, maxHello)); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		if answer.Refused == "" || strings.Contains(answer.Refused, "ours") || answer != (Hello{Version: version, Refused: answer.Refused}) {
			t.Errorf("%s: it is answered %+v", reason, answer)
		}
		refusedFor(t, s, reason)
	}
}

// Connections to join count as strangers until they are closed: they do not use up the members' limit.
func TestCrowdThatJoins(t *testing.T) {
	n := newNodes(t)
	l, err := Open(Config{Listen: "127.0.0.1:0", Key: n.key("n1"), Member: n.member, Logger: slog.New(slog.DiscardHandler),
		Self: func() Hello { return Hello{Cluster: "c1", Node: n.id("n1")} },
		Serve: map[Purpose]func(*Conn){ForCall: func(c *Conn) { _ = c.Close() }, ForJoin: func(c *Conn) {
			_, _ = io.Copy(io.Discard, c) // until it goes
			_ = c.Close()
		}}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var held []*Conn
	stranger := newKey(t)
	for range 2 * mostFromOne {
		if c, err := DialFirst(ctx, l.Address(), stranger, n.member, Hello{Cluster: "c1", Node: stranger.Node(), Purpose: ForJoin}); err == nil {
			held = append(held, c)
		}
	}
	if len(held) == 0 || len(held) > mostFromOne || l.Refused()["too many connections"] == 0 {
		t.Errorf("%d strangers are connected at once", len(held))
	}
	for _, c := range held {
		_ = c.Close()
	}
	two := n.open(Hello{Cluster: "c1", Node: "n2"})
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := two.Dial(ctx, l.Address(), n.id("n1"), ForCall)
		if err == nil {
			_ = c.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatalf("a member does not get through when they are gone: %v", err)
		}
	}
	end := time.Now().Add(20 * time.Second)
	for left := -1; left != 0; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		left = l.unproven + len(l.hosts)
		l.mu.Unlock()
		if time.Now().After(end) {
			t.Fatalf("%d are still counted", left)
		}
	}
}

// A node that joins does not accept another cluster: it checks the IDs that its token names.
func TestJoinChecksTheToken(t *testing.T) {
	n := newNodes(t)
	s := n.open(Hello{Cluster: "c1", Node: "n1"})
	key := newKey(t)
	h := Hello{Cluster: "c1", Node: key.Node(), Purpose: ForJoin}
	c, err := DialFirst(ctx, s.Address(), key, n.member, h)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if c, err := DialFirst(ctx, s.Address(), key, newNodes(t).member, h); err == nil {
		_ = c.Close()
		t.Error("a node that the token does not name is believed")
	}
}

// A removed node learns of it from a node that is certain, and its connections are closed, from either side.
func TestRecheck(t *testing.T) {
	n := newNodes(t)
	one, two := n.open(Hello{Cluster: "c1", Node: "n1"}), n.open(Hello{Cluster: "c1", Node: "n2"})
	three := n.open(Hello{Cluster: "c1", Node: "n3"})
	dial := func(from, to *side, node string) *Conn {
		t.Helper()
		c, err := from.Dial(ctx, to.Address(), n.id(node), ForCall)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	echoes := func(c *Conn) error {
		var b [1]byte
		_, err := c.Write([]byte("x"))
		if err == nil {
			_, err = io.ReadFull(c, b[:])
		}
		return err
	}
	comes, goes, stays := dial(two, one, "n1"), dial(one, two, "n2"), dial(three, one, "n1")
	n.remove("n2")
	if err := errors.Join(echoes(comes), echoes(goes), echoes(stays)); err != nil {
		t.Fatal(err)
	}
	one.Recheck()
	if echoes(comes) == nil || echoes(goes) == nil {
		t.Error("a connection with a node that was removed is open")
	}
	if err := echoes(stays); err != nil {
		t.Errorf("a connection with a member is closed: %v", err)
	}
	if _, err := two.Dial(ctx, one.Address(), n.id("n1"), ForCall); !errors.Is(err, jobs.NotFound) {
		t.Errorf("a removed node gets %v", err)
	}
	if _, err := one.Dial(ctx, two.Address(), n.id("n2"), ForCall); err == nil || !strings.Contains(err.Error(), "is not a member") {
		t.Errorf("a node that was removed is dialled: %v", err)
	}
}

// The node that dials checks which node answers, too, and does not rely on being refused.
func TestAnsweringNodeIsChecked(t *testing.T) {
	n := newNodes(t)
	key := n.key("n1")
	for _, c := range []struct {
		says  Hello
		words string // "" = it is the one that was meant
	}{
		{Hello{Cluster: "c1", Node: key.Node()}, ""},
		{Hello{Cluster: "c2", Node: key.Node()}, "belongs to cluster c2, not to c1"},
		{Hello{Cluster: "c1", Node: n.id("n9")}, "has the key of node " + key.Node()},
		{Hello{Cluster: "c1", Node: key.Node(), To: "another"}, "where another was expected"},
	} {
		to := cmp.Or(c.says.To, key.Node())
		l, err := tls.Listen("tcp", "127.0.0.1:0", key.TLS(ProtocolLink, anyNode))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			answers, err := l.Accept()
			if err != nil {
				return
			}
			var asked Hello
			_ = Read(answers, &asked, maxHello)
			_ = Write(answers, c.says)
		}()
		conn, err := DialFirst(ctx, l.Addr().String(), n.key("n2"), n.member, Hello{Cluster: "c1", Node: n.id("n2"), To: to, Purpose: ForRaft})
		if err == nil {
			_ = conn.Close()
		}
		if (err == nil) != (c.words == "") || err != nil && !strings.Contains(err.Error(), c.words) {
			t.Errorf("the answering node is %+v: %v", c.says, err)
		}
		_ = l.Close()
	}
}

// Ten thousand connections are refused beyond the limit, and a member still gets through when they are gone.
func TestCrowd(t *testing.T) {
	n := newNodes(t)
	s := n.open(Hello{Cluster: "c1", Node: "n1"})
	two := n.open(Hello{Cluster: "c1", Node: "n2"})
	var held []net.Conn
	for range 10_000 {
		c, err := net.DialTimeout("tcp", s.Address(), 5*time.Second)
		if err != nil {
			continue
		}
		if held = append(held, c); len(held) > 500 {
			_ = held[0].Close()
			held = held[1:]
		}
	}
	s.mu.Lock()
	open, unproven := len(s.conns), s.unproven
	s.mu.Unlock()
	if open > mostOpen || unproven > mostFromOne {
		t.Errorf("%d are open, %d unproven", open, unproven)
	}
	refusedFor(t, s, "too many connections")
	for _, c := range held {
		_ = c.Close()
	}
	var err error
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var c *Conn
		if c, err = two.Dial(ctx, s.Address(), n.id("n1"), ForRaft); err == nil {
			_ = c.Close()
			return
		}
	}
	t.Errorf("a member does not get through: %v", err)
}

func TestReachable(t *testing.T) {
	at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7000}
	for advertise, want := range map[string]string{"": "127.0.0.1:7000", "db1:0": "db1:7000", "db1:9": "db1:9", "db1": "", ":9": ""} {
		got, err := Reachable(advertise, at)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q is advertised as %q, %v", advertise, got, err)
		}
	}
	if got, err := Reachable("", &net.TCPAddr{IP: net.IPv4zero, Port: 7000}); err == nil {
		t.Errorf("0.0.0.0 is advertised as %q", got)
	}
}
