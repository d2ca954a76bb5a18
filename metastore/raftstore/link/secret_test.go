package link

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

const (
	secretA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	secretB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// host is a node that listens with secrets. It answers those that have proved one with "welcome".
type host struct {
	*Link
	key     *Key
	answers chan error // of each connection
}

func newHost(t *testing.T, name string, secrets Secrets) *host {
	t.Helper()
	h := &host{key: newKey(t), answers: make(chan error, 10)}
	var err error
	h.Link, err = Open(Config{Listen: "127.0.0.1:0", Key: h.key, Member: func(string) error { return errors.New("not a member") }, Logger: slog.New(slog.DiscardHandler),
		Self: func() Hello { return Hello{Cluster: "the-cluster", Epoch: 7, Node: h.key.Node(), Name: name} },
		Serve: map[Purpose]func(*Conn){ForMeet: func(c *Conn) {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(patience))
			_, err := secrets.Answer(c, h.key.Node())
			if err == nil {
				err = Write(c, "welcome")
			}
			h.answers <- err
		}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// meet connects to an address, and returns what the node there answers.
func meet(t *testing.T, address string, secrets Secrets, dialer func(context.Context, string) (net.Conn, error)) (answer string, err error) {
	t.Helper()
	key := newKey(t)
	c, err := Meet(t.Context(), dialer, address, key, secrets, Hello{Node: key.Node(), Name: "caller", Address: "caller:7946"})
	if err != nil {
		return "", err
	}
	defer c.Close()
	return answer, Read(c, &answer, 100)
}

func TestMeet(t *testing.T) {
	for _, test := range []struct {
		what         string
		caller, host Secrets
		callersError string // "" = they meet
		hostsError   string
	}{
		{"one secret", Secrets{secretA}, Secrets{secretA}, "", ""},
		{"a new secret that the host accepts", Secrets{secretB, secretA}, Secrets{secretA, secretB}, "", ""},
		{"an old secret that the host accepts", Secrets{secretA}, Secrets{secretB, secretA}, "", ""},
		{"a secret that the host does not have yet", Secrets{secretB, secretA}, Secrets{secretA},
			"node host at ADDRESS: its cluster secret differs from this node's", "node caller at caller:7946: its cluster secret differs from this node's"},
		{"another secret", Secrets{secretA}, Secrets{secretB},
			"node host at ADDRESS: its cluster secret differs from this node's", "node caller at caller:7946: its cluster secret differs from this node's"},
		{"no secret", Secrets{secretA}, nil, "node host at ADDRESS has no cluster secret: set cluster.secret-file and cluster.peers there", ErrNoSecret.Error()},
	} {
		h := newHost(t, "host", test.host)
		answer, err := meet(t, h.Address(), test.caller, nil)
		if want := strings.ReplaceAll(test.callersError, "ADDRESS", h.Address()); fmt.Sprint(err) != want && (err != nil || want != "") || (err == nil) != (answer == "welcome") {
			t.Errorf("%s: %q, %v; want %q", test.what, answer, err, want)
		}
		if err := <-h.answers; fmt.Sprint(err) != test.hostsError && (err != nil || test.hostsError != "") {
			t.Errorf("%s: the host answers with %v, want %q", test.what, err, test.hostsError)
		}
	}
}

// A node without the secret learns a node's name and ID, and no cluster, epoch or address; its proof is refused.
func TestMeetTellsStrangersNothing(t *testing.T) {
	h := newHost(t, "host", Secrets{secretA})
	for what, proof := range map[string][]byte{"no proof": nil, "a guess": bytes.Repeat([]byte{1}, 32)} {
		key := newKey(t)
		c, err := dial(t.Context(), nil, h.Address(), key.TLS(ProtocolLink, anyNode), Hello{Node: key.Node(), Name: "stranger", Purpose: ForMeet})
		if err != nil {
			t.Fatal(err)
		}
		if seen := (Hello{Version: version, Node: h.key.Node(), Name: "host"}); c.Peer != seen {
			t.Errorf("%s: the hello is %+v, want %+v", what, c.Peer, seen)
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		if err := Write(c, proved{Proof: proof}); err != nil {
			t.Fatal(err)
		}
		var got proved
		if err := Read(c, &got, maxProof); err != nil || got.Proof != nil || !got.Differs {
			t.Errorf("%s: %+v (%v)", what, got, err)
		}
		if rest, err := io.ReadAll(c); len(rest) > 0 {
			t.Errorf("%s: it reads %q after the refusal (%v)", what, rest, err)
		}
		if _, is := errors.AsType[*SecretError](<-h.answers); !is {
			t.Errorf("%s is not refused as another secret", what)
		}
		_ = c.Close()
	}
}

// relay is a man in the middle, with a TLS connection to either side, which changes the hellos and copies the rest.
func relay(t *testing.T, to string) (address string, seen func() []byte) {
	t.Helper()
	key := newKey(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", key.TLS(ProtocolLink, anyNode))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	var mu sync.Mutex
	var copied bytes.Buffer
	go func() {
		for {
			caller, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer caller.Close()
				host, err := tls.Dial("tcp", to, key.TLS(ProtocolLink, anyNode))
				if err != nil {
					return
				}
				defer host.Close()
				// Each side is told that the relay's key is the other's.
				var h Hello
				if Read(caller, &h, maxHello) != nil {
					return
				}
				h.Node = key.Node()
				_ = Write(host, h)
				h = Hello{}
				if Read(host, &h, maxHello) != nil {
					return
				}
				h.Node = key.Node()
				_ = Write(caller, h)
				go func() { _, _ = io.Copy(caller, host); _ = caller.Close() }()
				b := make([]byte, 4096)
				for {
					n, err := caller.Read(b)
					mu.Lock()
					copied.Write(b[:n])
					mu.Unlock()
					if _, wrong := host.Write(b[:n]); err != nil || wrong != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String(), func() []byte {
		mu.Lock()
		defer mu.Unlock()
		return bytes.Clone(copied.Bytes())
	}
}

// A proof is of one connection: a man in the middle cannot relay it, nor use it again.
func TestProofIsOfOneConnection(t *testing.T) {
	secrets := Secrets{secretA}
	h := newHost(t, "host", secrets)
	between, seen := relay(t, h.Address())
	if answer, err := meet(t, between, secrets, nil); err == nil {
		t.Errorf("a relayed proof is accepted: %q", answer)
	} else if _, is := errors.AsType[*SecretError](err); !is {
		t.Errorf("a relayed proof is refused with %v", err)
	}
	if _, is := errors.AsType[*SecretError](<-h.answers); !is {
		t.Error("the host accepts a relayed proof")
	}
	if bytes.Contains(seen(), []byte(secretA)) {
		t.Error("the secret travels")
	}

	key := newKey(t)
	var first []byte
	for _, again := range []bool{false, true} {
		c, err := dial(t.Context(), nil, h.Address(), key.TLS(ProtocolLink, anyNode), Hello{Node: key.Node(), Name: "caller", Purpose: ForMeet})
		if err != nil {
			t.Fatal(err)
		}
		if !again {
			e, err := endsOf(c, key.Node(), roleDials)
			if err != nil {
				t.Fatal(err)
			}
			first = e.proof(secretA, roleDials)
		}
		if err := Write(c, proved{Proof: first}); err != nil {
			t.Fatal(err)
		}
		if err := <-h.answers; (err == nil) == again {
			t.Errorf("a proof (again: %v) is answered with %v", again, err)
		}
		_ = c.Close()
	}
}

// An impostor that sends a node's own proof back, or a guess, is refused.
func TestImpostorIsRefused(t *testing.T) {
	for _, back := range []bool{true, false} {
		key := newKey(t)
		l, err := tls.Listen("tcp", "127.0.0.1:0", key.TLS(ProtocolLink, anyNode))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			var hello Hello
			var got proved
			_ = Read(c, &hello, maxHello)
			_ = Write(c, Hello{Version: version, Node: key.Node(), Name: "impostor"})
			_ = Read(c, &got, maxProof)
			if !back {
				got.Proof = bytes.Repeat([]byte{7}, 32)
			}
			_ = Write(c, got)
			_ = Write(c, "welcome")
		}()
		answer, err := meet(t, l.Addr().String(), Secrets{secretA}, nil)
		if _, is := errors.AsType[*SecretError](err); !is {
			t.Errorf("an impostor (sends the proof back: %v) gets through: %q, %v", back, answer, err)
		}
	}
}

func TestParseSecrets(t *testing.T) {
	for text, want := range map[string]Secrets{secretA: {secretA}, " " + secretA + "\r\n\n" + secretB + "\n": {secretA, secretB}} {
		if got, err := ParseSecrets(text); err != nil || len(got) != len(want) || got[0] != want[0] || got[len(got)-1] != want[len(want)-1] {
			t.Errorf("%q: %d secrets (%v)", text, len(got), err)
		}
	}
	for text, words := range map[string]string{"": "no cluster secret", "\n \n": "no cluster secret", secretA[:31]: "has 31 characters: want at least 32",
		secretA + "\n" + secretA: "given twice", secretA + "\nshort": "has 5 characters"} {
		if _, err := ParseSecrets(text); err == nil || !strings.Contains(err.Error(), words) || !errors.Is(err, jobs.BadInput) || strings.Contains(err.Error(), secretA) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if text := fmt.Sprintf("%v %+v %#v %s", Secrets{secretA}, Secrets{secretA}, Secrets{secretA}, Secrets{secretA}); strings.Contains(text, secretA) {
		t.Errorf("secrets are printed: %s", text)
	}
}
