package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Inconsistent settings about other nodes are refused.
func TestClusterIsChecked(t *testing.T) {
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
	} {
		var out strings.Builder
		if code := execute(t.Context(), append([]string{"server", "--config", os.DevNull}, c.args...), io.Discard, &out); code != 2 || !strings.Contains(out.String(), c.want) {
			t.Errorf("%v: code %d, %s", c.args, code, out.String())
		}
	}
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
