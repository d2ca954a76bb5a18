package link

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"
)

var ctx = context.Background()

// side is a node of a cluster of one's own authority.
type side struct {
	*Link
	authority *Authority
	raft      chan string // what came, by node
}

func authority(t *testing.T, cluster string) *Authority {
	t.Helper()
	a, err := NewAuthority(cluster)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func open(t *testing.T, a *Authority, is Hello) *side {
	t.Helper()
	keys, err := a.Keys(is.Cluster, is.Node)
	if err != nil {
		t.Fatal(err)
	}
	s := &side{authority: a, raft: make(chan string, 100)}
	s.Link, err = Open(Config{Listen: "127.0.0.1:0", Keys: keys, Logger: slog.New(slog.DiscardHandler), Self: func() Hello { return is },
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
	a := authority(t, "c1")
	one := open(t, a, Hello{Cluster: "c1", Node: "n1", Name: "one", ApplyVersion: 2})
	two := open(t, a, Hello{Cluster: "c1", Node: "n2", Name: "two", ApplyVersion: 1})
	c, err := one.Dial(ctx, two.Address(), "n2", ForCall)
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
	if p, ok := one.Peer("n2"); !ok || p.Name != "two" || p.Address != two.Address() || time.Since(p.Heard) > time.Minute {
		t.Errorf("one knows of two: %+v", p)
	}
	if p, ok := two.Peer("n1"); !ok || p.Name != "one" || p.Address != one.Address() {
		t.Errorf("two knows of one: %+v", p)
	}
	if d, err := one.Dial(ctx, two.Address(), "n2", ForRaft); err != nil {
		t.Error(err)
	} else if who := <-two.raft; who != "n1" {
		t.Errorf("raft hears %s", who)
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

// Whoever is not a node of this cluster is closed and counted, and raft never hears of him.
func TestStrangers(t *testing.T) {
	a := authority(t, "c1")
	us := Hello{Cluster: "c1", Node: "n1", Epoch: 2}
	dialAs := func(t *testing.T, s *side, keys *Keys, h Hello) error {
		t.Helper()
		h.Purpose = ForRaft
		c, err := DialFirst(ctx, s.Address(), keys, h)
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	keysOf := func(t *testing.T, a *Authority, cluster, node string) *Keys {
		t.Helper()
		k, err := a.Keys(cluster, node)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	for _, test := range []struct {
		what, reason, words string
		come                func(t *testing.T, s *side) error
	}{
		{"random bytes", "tls", "", func(t *testing.T, s *side) error {
			c, err := net.Dial("tcp", s.Address())
			if err != nil {
				return err
			}
			defer c.Close()
			_, _ = c.Write([]byte("GET / HTTP/1.1\r\n\r\n and more of it, whatever it may be"))
			_, err = io.ReadAll(c)
			return errors.Join(err, io.EOF)
		}},
		{"no hello", "no hello", "", func(t *testing.T, s *side) error {
			c, err := tls.Dial("tcp", s.Address(), &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				return err
			}
			defer c.Close()
			_, _ = c.Write([]byte{0xff, 0xff, 0xff, 0xff, 1, 2, 3})
			_, err = io.ReadAll(c)
			return errors.Join(err, io.EOF)
		}},
		{"no certificate", "certificate", "no certificate", func(t *testing.T, s *side) error {
			return dialAs(t, s, Pinned("c1", a.Pin()), Hello{Cluster: "c1", Node: "n2", Epoch: 2})
		}},
		{"another cluster", "cluster", "does not belong to cluster \"c2\"", func(t *testing.T, s *side) error {
			return dialAs(t, s, Pinned("c1", a.Pin()), Hello{Cluster: "c2", Node: "n2", Epoch: 2})
		}},
		{"a certificate of another cluster", "certificate", "not one of the cluster's", func(t *testing.T, s *side) error {
			k := keysOf(t, authority(t, "c1"), "c1", "n2")
			k.roots, k.pin = nil, a.Pin()
			return dialAs(t, s, k, Hello{Cluster: "c1", Node: "n2", Epoch: 2})
		}},
		{"a certificate for something else", "certificate", "not one of the cluster's", func(t *testing.T, s *side) error {
			k := keysOf(t, a, "workers", "n2")
			k.name = nameOf("c1")
			return dialAs(t, s, k, Hello{Cluster: "c1", Node: "n2", Epoch: 2})
		}},
		{"a certificate of another node", "certificate", "of node \"n2\", not of \"n3\"", func(t *testing.T, s *side) error {
			return dialAs(t, s, keysOf(t, a, "c1", "n2"), Hello{Cluster: "c1", Node: "n3", Epoch: 2})
		}},
		{"an older epoch", "epoch", "must be repaired", func(t *testing.T, s *side) error {
			return dialAs(t, s, keysOf(t, a, "c1", "n2"), Hello{Cluster: "c1", Node: "n2", Epoch: 1})
		}},
		{"another node is meant", "address", "this is node n1", func(t *testing.T, s *side) error {
			return dialAs(t, s, keysOf(t, a, "c1", "n2"), Hello{Cluster: "c1", Node: "n2", Epoch: 2, To: "n9"})
		}},
		{"a copy of this node", "twin", "runs at", func(t *testing.T, s *side) error {
			return dialAs(t, s, keysOf(t, a, "c1", "n1"), Hello{Cluster: "c1", Node: "n1", Epoch: 2, Address: "elsewhere:1"})
		}},
		{"an unknown purpose", "purpose", "not known", func(t *testing.T, s *side) error {
			c, err := DialFirst(ctx, s.Address(), keysOf(t, a, "c1", "n2"), Hello{Cluster: "c1", Node: "n2", Epoch: 2, Purpose: "gossip"})
			if err == nil {
				_ = c.Close()
			}
			return err
		}},
	} {
		t.Run(test.what, func(t *testing.T) {
			s := open(t, a, us)
			err := test.come(t, s)
			if err == nil || !strings.Contains(err.Error(), test.words) {
				t.Errorf("it ends with %v", err)
			}
			refusedFor(t, s, test.reason)
			select {
			case who := <-s.raft:
				t.Errorf("raft hears %s", who)
			default:
			}
		})
	}
}

// Who has proved nothing is told why he is refused, and nothing of the node or its cluster.
func TestStrangersAreToldNothing(t *testing.T) {
	s := open(t, authority(t, "c1"), Hello{Cluster: "c1", Node: "n1", Name: "one", Epoch: 2, ApplyVersion: 1})
	for reason, says := range map[string]Hello{
		"version":     {Version: version + 1, Cluster: "c1"},
		"cluster":     {Version: version, Cluster: "c2"},
		"purpose":     {Version: version, Cluster: "c1", Purpose: "gossip"},
		"certificate": {Version: version, Cluster: "c1", Purpose: ForRaft},
	} {
		c, err := tls.Dial("tcp", s.Address(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		var answer Hello
		if err := errors.Join(Write(c, says), Read(c, &answer, maxHello)); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		if answer.Refused == "" || strings.Contains(answer.Refused, "c1") || answer != (Hello{Version: version, Refused: answer.Refused}) {
			t.Errorf("%s: it is answered %+v", reason, answer)
		}
		refusedFor(t, s, reason)
	}
}

// Connections to join are of strangers until they are closed: they do not take the room of members.
func TestCrowdThatJoins(t *testing.T) {
	a := authority(t, "c1")
	keys, err := a.Keys("c1", "n1")
	if err != nil {
		t.Fatal(err)
	}
	l, err := Open(Config{Listen: "127.0.0.1:0", Keys: keys, Logger: slog.New(slog.DiscardHandler), Self: func() Hello { return Hello{Cluster: "c1", Node: "n1"} },
		Serve: map[Purpose]func(*Conn){ForCall: func(c *Conn) { _ = c.Close() }, ForJoin: func(c *Conn) {
			_, _ = io.Copy(io.Discard, c) // until he goes
			_ = c.Close()
		}}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var held []*Conn
	for range 2 * mostFromOne {
		if c, err := DialFirst(ctx, l.Address(), Pinned("c1", a.Pin()), Hello{Cluster: "c1", Node: "n2", Purpose: ForJoin}); err == nil {
			held = append(held, c)
		}
	}
	if len(held) == 0 || len(held) > mostFromOne || l.Refused()["too many connections"] == 0 {
		t.Errorf("%d strangers are let in at once", len(held))
	}
	for _, c := range held {
		_ = c.Close()
	}
	two := open(t, a, Hello{Cluster: "c1", Node: "n2"})
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := two.Dial(ctx, l.Address(), "n1", ForCall)
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

// A node that joins does not take another for its cluster.
func TestPin(t *testing.T) {
	a := authority(t, "c1")
	s := open(t, a, Hello{Cluster: "c1", Node: "n1"})
	h := Hello{Cluster: "c1", Node: "n2", Purpose: ForJoin}
	c, err := DialFirst(ctx, s.Address(), Pinned("c1", a.Pin()), h)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if c, err := DialFirst(ctx, s.Address(), Pinned("c1", authority(t, "c1").Pin()), h); err == nil {
		_ = c.Close()
		t.Error("an authority with another pin is believed")
	}
}

// Who dials looks at who answers, too, and does not rely on being refused.
func TestWhoAnswers(t *testing.T) {
	a := authority(t, "c1")
	keys, err := a.Keys("c1", "n1")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		says  Hello
		words string // "" = it is the one that was meant
	}{
		{Hello{Cluster: "c1", Node: "n1"}, ""},
		{Hello{Cluster: "c2", Node: "n1"}, "belongs to cluster c2, not to c1"},
		{Hello{Cluster: "c1", Node: "n9"}, "node n9 answers, where n1 was expected"},
	} {
		l, err := tls.Listen("tcp", "127.0.0.1:0", keys.server())
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
		dialer, err := a.Keys("c1", "n2")
		if err != nil {
			t.Fatal(err)
		}
		conn, err := DialFirst(ctx, l.Addr().String(), dialer, Hello{Cluster: "c1", Node: "n2", To: "n1", Purpose: ForRaft})
		if err == nil {
			_ = conn.Close()
		}
		if (err == nil) != (c.words == "") || err != nil && !strings.Contains(err.Error(), c.words) {
			t.Errorf("who answers says that it is %+v: %v", c.says, err)
		}
		_ = l.Close()
	}
}

// Ten thousand connections are refused beyond the limit, and a member still gets through when they are gone.
func TestCrowd(t *testing.T) {
	a := authority(t, "c1")
	s := open(t, a, Hello{Cluster: "c1", Node: "n1"})
	two := open(t, a, Hello{Cluster: "c1", Node: "n2"})
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
		if c, err = two.Dial(ctx, s.Address(), "n1", ForRaft); err == nil {
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
			t.Errorf("%q is told as %q, %v", advertise, got, err)
		}
	}
	if got, err := Reachable("", &net.TCPAddr{IP: net.IPv4zero, Port: 7000}); err == nil {
		t.Errorf("0.0.0.0 is told as %q", got)
	}
}
