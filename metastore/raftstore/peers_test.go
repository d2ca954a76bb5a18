package raftstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus/bustest/freeport"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/link"
)

const testSecret = "a secret of a test, long enough to be one"

// decided is a newcomer at n2 of three peers, for the rules.
func decided(t *testing.T, self string, answers ...answer) (step, error) {
	t.Helper()
	key, err := link.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	n := newcomer{cfg: &Config{Node: "self", Peers: []string{"n1:1", "n2:1", "n3:1"}, Identity: &Identity{key: key}}, address: self}
	for i := range answers {
		if answers[i].node == "self" {
			answers[i].node = key.Node()
		}
	}
	return n.decide(answers)
}

func TestRulesOfJoining(t *testing.T) {
	empty := func(n string) answer {
		return answer{peer: n + ":1", node: "id-" + n, name: n, met: met{First: "n1:1"}}
	}
	in := func(n, cluster string) answer { a := empty(n); a.met.Cluster = cluster; return a }
	off := func(n string) answer { return answer{peer: n + ":1", err: errors.New("off")} }
	differs := func(n string) answer {
		return answer{peer: n + ":1", err: &link.SecretError{Name: n, Address: n + ":1"}}
	}
	lists := func(n, first string) answer { a := empty(n); a.met.First = first; return a }
	same := func(a answer, id string) answer { a.node = id; return a }
	for _, test := range []struct {
		what    string
		self    string
		answers []answer
		want    string // found, join CLUSTER, wait ..., or an error
	}{
		{"the first, and all others are empty", "n1:1", []answer{empty("n2"), empty("n3")}, "found"},
		{"the first in capitals", "N1:1", []answer{empty("n2"), empty("n3")}, "found"},
		{"the only one", "n1:1", nil, "found"},
		{"the first, and one does not answer", "n1:1", []answer{empty("n2"), off("n3")}, "wait this node is the first peer and founds a cluster when no other peer has data; missing: n3:1 (does not answer)"},
		{"the first, and one has another secret", "n1:1", []answer{differs("n2"), empty("n3")}, "wait this node is the first peer and founds a cluster when no other peer has data; missing: n2:1 (its cluster secret differs)"},
		{"the first, and one has data", "n1:1", []answer{empty("n2"), in("n3", "c")}, "join c"},
		{"the first, one has data, one is off", "n1:1", []answer{off("n2"), in("n3", "c")}, "join c"},
		{"another, and all are empty", "n2:1", []answer{empty("n1"), empty("n3")}, "wait for n1:1, the first peer, to found a cluster"},
		{"another, and the first is off", "n2:1", []answer{off("n1"), empty("n3")}, "missing: n1:1 (does not answer)"},
		{"another, and one has data", "n2:1", []answer{off("n1"), in("n3", "c")}, "join c"},
		{"all others are off", "n2:1", []answer{off("n1"), off("n3")}, "wait for n1:1"},
		{"two clusters", "n2:1", []answer{in("n1", "c"), in("n3", "d")}, "node n1 at n1:1 belongs to cluster c, and node n3 at n3:1 to cluster d"},
		{"another first peer", "n2:1", []answer{empty("n1"), lists("n3", "n3:1")}, "node n3 at n3:1 has another first peer, n3:1, than this node, n1:1"},
		{"another first peer at a member", "n2:1", []answer{empty("n1"), func() answer { a := in("n3", "c"); a.met.First = ""; return a }()}, "another first peer, none,"},
		{"all have another secret", "n2:1", []answer{differs("n1"), differs("n3")}, "node n1 at n1:1: its cluster secret differs from this node's; node n3 at n3:1: its cluster secret differs from this node's; set the same secret on all nodes"},
		{"one has another secret, one is off", "n2:1", []answer{differs("n1"), off("n3")}, "wait for n1:1"},
		{"a peer is this node", "n1:1", []answer{same(empty("n2"), "self"), empty("n3")}, "peers n1:1 and n2:1 are the same node"},
		{"two peers are one node", "n1:1", []answer{empty("n2"), same(empty("n3"), "id-n2")}, "peers n2:1 and n3:1 are the same node, n3"},
	} {
		next, err := decided(t, test.self, test.answers...)
		got := "wait " + next.wait
		switch {
		case err != nil:
			got = err.Error()
		case next.found:
			got = "found"
		case next.cluster != "":
			got = "join " + next.cluster
		}
		if !strings.Contains(got, test.want) || (got == "found") != (test.want == "found") {
			t.Errorf("%s: %q, want %q", test.what, got, test.want)
		}
	}
}

func TestCheckPeers(t *testing.T) {
	good := []string{"carillon-0.nodes:7946", "10.0.0.2:7946", "[::1]:7946"}
	for _, self := range append(good, "CARILLON-0.nodes:7946") {
		if err := CheckPeers(good, self); err != nil {
			t.Errorf("%s: %v", self, err)
		}
	}
	for peers, words := range map[string]string{
		"a": `invalid peer "a": want host:port`, "a:": "want host:port", "a:0": "want host:port", "a:99999": "want host:port", ":7946": "want host:port", "0.0.0.0:7946": "want host:port",
		"": "want host:port", "http://a:1": "want host:port", "a:1,A:1": "peer A:1 is listed twice", "b:1,c:1": "(b:1, c:1) do not include this node's own address a:1",
	} {
		if err := CheckPeers(strings.Split(peers, ","), "a:1"); err == nil || !strings.Contains(err.Error(), words) || !errors.Is(err, jobs.BadInput) {
			t.Errorf("%q: %v, want %q", peers, err, words)
		}
	}
}

// pods are nodes with stable names, whose addresses and directories come and go.
type pods struct {
	*cluster
	mu   sync.Mutex
	at   map[string]string // addresses by name
	logs []*bytes.Buffer   // of each node, guarded by mu
	over context.Context
}

func newPods(t *testing.T, n int) *pods {
	t.Helper()
	p := &pods{cluster: &cluster{t: t}, at: map[string]string{}}
	t.TempDir()
	ctx, stop := context.WithCancel(ctx)
	p.over = ctx
	t.Cleanup(func() {
		stop()
		for i := range p.stores {
			p.stop(i)
		}
	})
	var peers []string
	for i := range n {
		peers = append(peers, fmt.Sprintf("pod-%d.pods:7946", i))
	}
	for i := range n {
		p.add(i, peers)
	}
	return p
}

// add configures a node.
func (p *pods) add(i int, peers []string) {
	p.t.Helper()
	p.logs = append(p.logs, &bytes.Buffer{})
	to := io.MultiWriter(writer(func(b []byte) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.logs[i].Write(b)
	}), p.t.Output())
	c := nodeConfig(p.t, i, func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(to, nil)).With("node", i)
	})
	c.Node, c.Advertise, c.Secret, c.Peers = fmt.Sprint("pod-", i), fmt.Sprintf("pod-%d.pods:7946", i), testSecret, peers
	c.dialer = p.dial
	p.configs, p.stores = append(p.configs, c), append(p.stores, nil)
	p.move(i)
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }

// move gives a node another address.
func (p *pods) move(i int) {
	p.configs[i].Listen = freeport.Address(p.t)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at[p.configs[i].Advertise] = p.configs[i].Listen
}

// dial resolves names.
func (p *pods) dial(ctx context.Context, address string) (net.Conn, error) {
	p.mu.Lock()
	at := p.at[address]
	p.mu.Unlock()
	if at == "" {
		return nil, &net.OpError{Op: "dial", Err: fmt.Errorf("no such host: %s", address)}
	}
	return new(net.Dialer).DialContext(ctx, "tcp", at)
}

// waitsFor returns what a node waited for when it last logged that.
func (p *pods) waitsFor(i int) string {
	log := p.log(i)
	line, _, _ := strings.Cut(log[max(strings.LastIndex(log, "waits for its cluster"), 0):], "\n")
	return line
}

func (p *pods) log(i int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.logs[i].String()
}

// opened is the outcome of OpenAmong.
type opened struct {
	store *Store
	err   error
}

// begin opens a node, which may take until others are there.
func (p *pods) begin(i int) <-chan opened {
	done := make(chan opened, 1)
	c := p.configs[i]
	go func() {
		s, err := OpenAmong(p.over, c)
		done <- opened{s, err}
	}()
	return done
}

// are waits until nodes are open.
func (p *pods) are(done map[int]<-chan opened) {
	p.t.Helper()
	for i, c := range done {
		select {
		case o := <-c:
			if o.err != nil {
				p.t.Fatalf("node %d: %v", i, o.err)
			}
			p.stores[i] = o.store
		case <-time.After(2 * patience):
			p.t.Fatalf("node %d is not open; it waits %s", i, p.waitsFor(i))
		}
	}
}

func (p *pods) startAll(order ...int) {
	p.t.Helper()
	done := map[int]<-chan opened{}
	for _, i := range order {
		done[i] = p.begin(i)
	}
	p.are(done)
}

// whole waits until a cluster has so many voters of distinct names, all of which answer.
func (p *pods) whole(voters int) {
	p.t.Helper()
	eventually(p.t, "the cluster is whole", func() bool {
		members, err := p.leader().Members(ctx)
		names := map[string]bool{}
		for _, m := range members {
			if m.Voter && m.Reached {
				names[m.Name] = true
			}
		}
		return err == nil && len(names) == voters && len(members) == voters
	})
}

// lose deletes the directory of a node that is stopped.
func (p *pods) lose(i int) {
	p.t.Helper()
	p.stop(i)
	if err := os.RemoveAll(p.configs[i].Dir); err != nil {
		p.t.Fatal(err)
	}
	p.configs[i].Identity = nil
}

// refused is a start that ends with an error.
func (p *pods) refused(i int, words ...string) {
	p.t.Helper()
	select {
	case o := <-p.begin(i):
		if o.err == nil {
			_ = o.store.Close()
			p.t.Fatalf("node %d joins", i)
		}
		for _, w := range words {
			if !strings.Contains(o.err.Error(), w) {
				p.t.Errorf("node %d is refused with %v, want %q", i, o.err, w)
			}
		}
	case <-time.After(patience):
		p.t.Fatalf("node %d is not refused; it waits %s", i, p.waitsFor(i))
	}
}

// Nodes with one secret form one cluster in any order, and only when all have shown that they have no data. All of
// them come back under other addresses. One that lost its data joins again under its name, as often as that happens.
func TestOpenAmong(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	p := newPods(t, 3)

	// Two of three found nothing, in whichever order they start.
	third, first := p.begin(2), p.begin(0)
	eventually(t, "the first waits for the second", func() bool {
		return strings.Contains(p.waitsFor(0), "missing: pod-1.pods:7946 (does not answer)") && !strings.Contains(p.waitsFor(0), "pod-2")
	})
	eventually(t, "the third waits for the first", func() bool { return strings.Contains(p.waitsFor(2), "for pod-0.pods:7946, the first peer") })
	for i := range 2 {
		if n, err := loadNode(p.configs[i*2].Dir); n != nil || err != nil {
			t.Errorf("node %d has founded a cluster: %+v (%v)", i*2, n, err)
		}
	}
	p.are(map[int]<-chan opened{0: first, 1: p.begin(1), 2: third})
	p.whole(3)
	id := p.stores[0].Cluster()
	do(t, p.leader(), register("k"))
	for i, s := range p.stores {
		if s.Cluster() != id {
			t.Errorf("node %d is in cluster %s, not %s", i, s.Cluster(), id)
		}
		if n := strings.Count(p.log(i), "waits no longer"); n != 1 {
			t.Errorf("node %d has logged the end of its waiting %d times", i, n)
		}
	}

	// All are gone at once, and come back at other addresses.
	for i := range p.stores {
		p.stop(i)
		p.move(i)
	}
	p.startAll(2, 1, 0)
	p.whole(3)
	if got := p.stores[1].Cluster(); got != id {
		t.Errorf("cluster %s has become %s", id, got)
	}
	p.same()

	// The first peer loses its data, and then a node that leads: each joins again.
	for range 2 {
		i := 0
		if p.index(p.leader()) != 0 {
			i = p.index(p.leader())
		}
		old := p.stores[i].ID()
		p.lose(i)
		p.move(i)
		p.startAll(i)
		p.whole(3)
		if s := p.stores[i]; s.ID() == old || s.Cluster() != id {
			t.Errorf("node %d is %s of cluster %s; it was %s of %s", i, s.ID(), s.Cluster(), old, id)
		}
		lines, err := p.leader().Audits(ctx, metastore.AuditQuery{Tenant: jobs.DefaultTenant, Limit: 5})
		var texts []string // more than one, if the leader was deposed in between
		for _, l := range lines {
			texts = append(texts, l.Actor+" "+l.Verb+" "+l.Target+" "+l.Reason)
		}
		if name := p.configs[i].Node; err != nil || !slices.Contains(texts, "node:"+name+" join node "+name+" proved the cluster secret, in place of "+old+" that lost its data") {
			t.Errorf("the audit is %q (%v)", texts, err)
		}
	}
	p.same()

	// A removed node may have kept the secret. It joins by another one only, which the others have from then on, and so
	// does any node that is new.
	i := (p.index(p.leader()) + 1) % 3
	p.remove(p.leader(), p.configs[i].Node)
	if !p.leader().SecretVoid() {
		t.Error("the secret is not void after a removal")
	}
	p.lose(i)
	p.refused(i, "the cluster secret is void since a node was removed")
	for other := range p.configs {
		if p.configs[other].Secret = "another secret, long enough as well, of the members"; other != i {
			p.stop(other)
		}
	}
	others := []int{(i + 1) % 3, (i + 2) % 3}
	p.startAll(others...)
	p.whole(2)
	p.startAll(i)
	p.whole(3)
	if p.leader().SecretVoid() {
		t.Error("another secret is void, too")
	}
	p.same()
}

// A node is refused by name where it has another secret, the name of a node that runs, or other peers.
func TestOpenAmongIsRefused(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	p := newPods(t, 2)
	p.startAll(1, 0)
	p.whole(2)
	members := func() (n int) { return len(p.leader().servers()) }

	p.add(2, append(slices.Clone(p.configs[0].Peers), "pod-2.pods:7946"))
	right := p.configs[2]
	p.configs[2].Secret = "another secret that is long enough as well"
	for range 2 {
		p.refused(2, "node pod-0 at pod-0.pods:7946: its cluster secret differs from this node's", "node pod-1 at pod-1.pods:7946: its cluster secret differs", "set the same secret on all nodes")
	}
	for i := range 2 {
		if n := strings.Count(p.log(i), "node pod-2 at pod-2.pods:7946: its cluster secret differs from this node's"); n != 1 {
			t.Errorf("node %d has logged the refusal %d times", i, n)
		}
	}

	p.configs[2] = right
	p.configs[2].Node = "pod-1"
	p.refused(2, "node pod-1 is running at pod-1.pods:7946")
	p.configs[2] = right
	p.configs[2].Peers = []string{"pod-2.pods:7946", "pod-1.pods:7946"}
	p.refused(2, "node pod-1 at pod-1.pods:7946 has another first peer, pod-0.pods:7946, than this node, pod-2.pods:7946")
	p.configs[2].Peers = p.configs[0].Peers
	p.refused(2, "do not include this node's own address pod-2.pods:7946")
	p.configs[2] = right
	p.configs[2].Secret = "short"
	p.refused(2, "has 5 characters: want at least 32")
	if n := members(); n != 2 {
		t.Errorf("after refusals there are %d members", n)
	}

	// With a second, accepted secret, the node joins.
	p.configs[2].Secret = testSecret + "\nanother secret that is long enough as well"
	p.startAll(2)
	p.whole(3)
	for i := range 2 {
		if n := strings.Count(p.log(i), "the node's cluster secret is accepted now"); n != 1 {
			t.Errorf("node %d has logged the end of the refusal %d times", i, n)
		}
	}

	// Another cluster among the peers.
	q := newPods(t, 1)
	q.startAll(0)
	p.add(3, append(slices.Clone(right.Peers), "stray.pods:7946", "pod-3.pods:7946"))
	p.mu.Lock()
	p.at["stray.pods:7946"] = q.configs[0].Listen
	p.mu.Unlock()
	p.refused(3, "belongs to cluster "+p.stores[0].Cluster(), "to cluster "+q.stores[0].Cluster(), "node pod-0 at stray.pods:7946")
}

// A node without data never founds a second cluster while the others have no leader: it waits for one.
func TestOpenAmongWaitsForLeader(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	p := newPods(t, 3)
	p.startAll(0, 1, 2)
	p.whole(3)
	id := p.stores[1].Cluster()
	p.lose(0)
	p.stop(2)
	waiting := p.begin(0)
	eventually(t, "it waits for a leader", func() bool {
		return strings.Contains(p.waitsFor(0), "for cluster "+id+" to have a leader") && strings.Contains(p.waitsFor(0), "carillon cluster recover")
	})
	select {
	case o := <-waiting:
		t.Fatalf("it is open without a leader: %v", o.err)
	default:
	}
	p.startAll(2)
	p.are(map[int]<-chan opened{0: waiting})
	p.whole(3)
	if got := p.stores[0].Cluster(); got != id {
		t.Errorf("it is in cluster %s, not %s", got, id)
	}
	p.same()
}
