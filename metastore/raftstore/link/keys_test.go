package link

import (
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// files writes a certificate of an authority, as somebody who has his own would.
func files(t *testing.T, a *Authority, carries, name string) Files {
	t.Helper()
	keys, err := a.Keys(strings.TrimSuffix(carries, nameOf("")), "some-host")
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(keys.own.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	put := func(file, kind string, der []byte) string {
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return Files{Certificate: put("node.pem", "CERTIFICATE", keys.own.Certificate[0]), Key: put("node.key", "PRIVATE KEY", key),
		Authority: put("ca.pem", "CERTIFICATE", a.Certificate), Name: name}
}

// With certificates of one's own, only those that carry the name of the nodes count: not those of workers, which the same
// authority has made.
func TestOwnCertificates(t *testing.T) {
	a := authority(t, "house")
	ours := nameOf("nodes")
	serve := func(f Files) *Link {
		t.Helper()
		keys, err := f.Keys()
		if err != nil {
			t.Fatal(err)
		}
		l, err := Open(Config{Listen: "127.0.0.1:0", Keys: keys, Logger: slog.New(slog.DiscardHandler), Self: func() Hello { return Hello{Cluster: "c1", Node: "n1"} },
			Serve: map[Purpose]func(*Conn){ForCall: func(c *Conn) { _ = c.Close() }}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	node := serve(files(t, a, ours, ours))
	come := func(f Files) error {
		t.Helper()
		keys, err := f.Keys()
		if err != nil {
			t.Fatal(err)
		}
		c, err := DialFirst(ctx, node.Address(), keys, Hello{Cluster: "c1", Node: "n2", Purpose: ForCall})
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	if err := come(files(t, a, ours, ours)); err != nil {
		t.Errorf("a node: %v", err)
	}
	if err := come(files(t, a, nameOf("workers"), ours)); err == nil || !strings.Contains(err.Error(), "not one of the cluster's") {
		t.Errorf("a worker: %v", err)
	}
	if err := come(files(t, authority(t, "house"), ours, ours)); err == nil {
		t.Error("another authority's node is let in")
	}
	worker := serve(files(t, a, nameOf("workers"), ours))
	keys, err := files(t, a, ours, ours).Keys()
	if err != nil {
		t.Fatal(err)
	}
	if c, err := DialFirst(ctx, worker.Address(), keys, Hello{Cluster: "c1", Node: "n2", Purpose: ForCall}); err == nil {
		_ = c.Close()
		t.Error("a worker is taken for a node")
	}
	if _, err := (Files{}).Keys(); err == nil || !strings.Contains(err.Error(), "a name that all of them carry") {
		t.Errorf("no name: %v", err)
	}
}
