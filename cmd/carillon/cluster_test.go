package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/bus/bustest/freeport"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// Inconsistent settings about other nodes are refused.
func TestClusterIsChecked(t *testing.T) {
	secret, short := secretFile(t, "secret", "0123456789abcdef0123456789abcdef"), secretFile(t, "short", "brief")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--join-file", "x"}, "needs cluster.addr"},
		{[]string{"--cluster", "127.0.0.1"}, "want host:port"},
		{[]string{"--cluster", "127.0.0.1:7946", "--cluster-nats", "127.0.0.1"}, "want host:port"},
		{[]string{"--cluster", "127.0.0.1:7946", "--memory"}, "memory"},
		{[]string{"--cluster", "127.0.0.1:7946", "--store", "postgres://db/carillon"}, "store.url"},
		{[]string{"--cluster", "127.0.0.1:7946", "--cluster-nats", "127.0.0.1:7947", "--nats", "nats://127.0.0.1:4222"}, "nats.url names an external one"},
		{[]string{"--cluster", "0.0.0.0:7946"}, "cluster.advertise"},
		{[]string{"--cluster-peers", "127.0.0.1:7946", "--cluster-secret-file", secret}, "cluster.peers (from --cluster-peers) needs cluster.addr"},
		{[]string{"--cluster", "127.0.0.1:7946", "--cluster-peers", "127.0.0.1:7946"}, "needs cluster.secret-file"},
		{[]string{"--cluster", "127.0.0.1:7946", "--cluster-secret-file", secret}, "needs cluster.peers"},
		{[]string{"--cluster", "127.0.0.1:7946", "--cluster-peers", "127.0.0.1:7946", "--cluster-secret-file", secret, "--join-file", "x"}, "remove one"},
		{[]string{"--cluster", "127.0.0.1:7946", "--cluster-peers", "127.0.0.1:7948", "--cluster-secret-file", secret}, "do not include this node's own address 127.0.0.1:7946"},
		{[]string{"--cluster", "127.0.0.1:7946", "--cluster-peers", "127.0.0.1", "--cluster-secret-file", secret}, `invalid peer "127.0.0.1"`},
		{[]string{"--cluster", "127.0.0.1:7946", "--cluster-nats", "127.0.0.1:7947", "--cluster-peers", "127.0.0.1:7946,127.0.0.1:7950", "--cluster-secret-file", secret},
			"cluster.nats-addr (from --cluster-nats) sets one port for the NATS servers of all peers, but 127.0.0.1:7946 and 127.0.0.1:7950 are on the same machine"},
		{[]string{"--cluster", "127.0.0.1:7946", "--cluster-peers", "127.0.0.1:7946", "--cluster-secret-file", short, "--data", t.TempDir(), "--http", "127.0.0.1:0"}, "short: a cluster secret has 5 characters"},
	} {
		var out strings.Builder
		if code := execute(t.Context(), append([]string{"server", "--config", os.DevNull}, c.args...), io.Discard, &out); code != 2 || !strings.Contains(out.String(), c.want) {
			t.Errorf("%v: code %d, %s", c.args, code, out.String())
		}
	}
}

func secretFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Nodes with a secret in common become one cluster: whichever starts first waits for the others, lives, and is not
// ready. The admin's token is the given one.
func TestPeersFindEachOther(t *testing.T) {
	tests.Long(t)
	secret, admin := secretFile(t, "secret", "0123456789abcdef0123456789abcdef"), ops.TokenText(jobs.DefaultTenant)
	file := secretFile(t, "admin", admin)
	var addrs []string
	for len(addrs) < 2 {
		addr := freeport.Address(t)
		if l, err := net.Listen("tcp", after(addr, 1)); err == nil { // for the NATS server
			_ = l.Close()
			addrs = append(addrs, addr)
		}
	}
	node := func(i int) *program {
		t.Helper()
		return start(t, locked(t.TempDir(), "--node", fmt.Sprint("n", i), "--cluster", addrs[i], "--cluster-peers", strings.Join(addrs, ","), "--cluster-secret-file", secret, "--admin-token-file", file)...)
	}
	first := node(0)
	first.until(200, "/livez", "")
	if body := first.until(503, "/readyz", ""); !strings.Contains(string(body), "waits for other nodes") {
		t.Errorf("a node that waits: %s", body)
	}
	second := node(1)
	for _, p := range []*program{first, second} {
		p.until(200, "/readyz", "")
		// The first peer founds the cluster alone, and is ready before the other joined.
		p.until(200, "/api/v1/cluster", admin, `"n0"`, `"n1"`)
	}
	lead := 0
	for _, p := range []*program{first, second} {
		if status, _, _ := p.ask("GET", "/leaderz", "", ""); status == 200 {
			lead++
		}
	}
	if lead != 1 {
		t.Errorf("/leaderz responds 200 at %d of two nodes", lead)
	}
	if body := first.until(200, "/api/v1/tokens", admin); strings.Count(string(body), `"role"`) != 1 {
		t.Errorf("the first tokens are %s", body)
	}
	second.end()
	first.end()
}

// An invitation survives its way through a file, which only its owner may read; anything else is refused.
func TestInvitation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	sent := invitation{Store: "carillon-join-1.abc", NATSCluster: natsCluster{Routes: []string{"10.0.0.1:7947"}}}
	write(sent.String()+"\n", 0o600)
	got, err := readInvitation(path)
	if err != nil || got.Store != sent.Store || !slices.Equal(got.NATSCluster.Routes, sent.NATSCluster.Routes) {
		t.Errorf("%+v (%v)", got, err)
	}
	write(sent.String(), 0o644)
	if _, err := readInvitation(path); err == nil || !strings.Contains(err.Error(), "chmod") {
		t.Errorf("a file that all can read: %v", err)
	}
	for _, text := range []string{"", "carillon_default_abc", invitationTitle + "!", invitationTitle + "e30", sent.String()[:40]} {
		write(text, 0o600)
		if _, err := readInvitation(path); err == nil {
			t.Errorf("%q is taken for an invitation", text)
		}
	}
}

// Where the others are is remembered, in a file that only its owner may read, and does not change from one start to the
// next.
func TestBondIsKept(t *testing.T) {
	dir := t.TempDir()
	open := func() *process {
		t.Helper()
		p := &process{cfg: &config{Data: dir, Cluster: clusterConfig{Addr: "127.0.0.1:7946", Advertise: "n1.example.com"}}}
		if err := p.joins(); err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := open()
	if err := first.bind("10.0.0.2:7947", "10.0.0.2:7947", ""); err != nil {
		t.Fatal(err)
	}
	again := open()
	if again.identity.Node() != first.identity.Node() || !slices.Equal(again.natsCluster.Routes, []string{"n1.example.com:7947", "10.0.0.2:7947"}) {
		t.Errorf("%+v of node %s became %+v of node %s", first.natsCluster, first.identity.Node(), again.natsCluster, again.identity.Node())
	}
	if info, err := os.Stat(filepath.Join(dir, natsClusterFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v (%v)", info, err)
	}
}
