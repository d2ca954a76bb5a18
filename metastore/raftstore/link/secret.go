package link

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// Secrets are the bootstrap secrets of a cluster, by which nodes without an invitation know each other. A node proves
// itself with the first and accepts all, so that a secret can be replaced node by node.
type Secrets []string

// LeastSecret is the least number of characters of a secret: an impostor that a node has dialed can test guesses.
const LeastSecret = 32

// ParseSecrets reads secrets, one on each line.
func ParseSecrets(text string) (all Secrets, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if n := len([]rune(line)); n < LeastSecret {
			return nil, kernel.Invalid("a cluster secret has %d characters: want at least %d random ones, such as from openssl rand -base64 32", n, LeastSecret)
		}
		if slices.Contains(all, line) {
			return nil, kernel.Invalid("a cluster secret is given twice: want one on each line, the first to use, all to accept")
		}
		all = append(all, line)
	}
	if len(all) == 0 {
		return nil, kernel.Invalid("there is no cluster secret: want at least %d random characters, such as from openssl rand -base64 32", LeastSecret)
	}
	return all, nil
}

// String hides the secrets from logs.
func (s Secrets) String() string { return fmt.Sprintf("%d secrets", len(s)) }

// GoString is String.
func (s Secrets) GoString() string { return s.String() }

// SecretError means that a node has another secret than this one.
type SecretError struct{ Name, Address string }

func (e *SecretError) Error() string {
	return fmt.Sprintf("node %.80s at %.200s: its cluster secret differs from this node's", printable(e.Name), printable(e.Address))
}

// printable is a text of a node that has proved nothing.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, text)
}

// Roles of the ends of a connection: a proof of one is none of the other.
const (
	roleDials   = "dials"
	roleListens = "listens"
)

// ends are a connection's two nodes, and a value that both share with no one else, nor with another connection.
type ends struct {
	dials, listens string
	channel        []byte
}

// endsOf returns the ends of a connection, in one of which is this node.
func endsOf(c *Conn, self, role string) (e ends, err error) {
	state := c.Conn.(*tls.Conn).ConnectionState()
	peer, err := peerOf(state)
	if err != nil {
		return e, err
	}
	if e.dials, e.listens = self, peer; role == roleListens {
		e.dials, e.listens = peer, self
	}
	e.channel, err = state.ExportKeyingMaterial("EXPORTER-carillon-cluster-secret", nil, sha256.Size)
	return e, err
}

// proof shows knowledge of a secret in a role, on this connection only. The secret cannot be computed from it.
func (e ends) proof(secret, role string) []byte {
	m := hmac.New(sha256.New, []byte(secret))
	for _, part := range []string{"carillon cluster secret 1", role, e.dials, e.listens, string(e.channel)} {
		fmt.Fprintf(m, "%d:%s", len(part), part)
	}
	return m.Sum(nil)
}

// proved is the message with a proof, or with the reason why there is none.
type proved struct {
	Proof   []byte `json:"proof,omitempty"`
	Differs bool   `json:"differs,omitempty"` // the other's proof is of an unknown secret
	None    bool   `json:"none,omitempty"`    // the sender has no secret
}

const maxProof = 1 << 10

// Meet connects to a node by the secret alone. Both ends prove it before either sends anything but its name; the one
// that dials goes first. The error is a *SecretError if the node has another secret.
func Meet(ctx context.Context, dialer func(context.Context, string) (net.Conn, error), address string, key *Key, secrets Secrets, hello Hello) (*Conn, error) {
	hello.Purpose, hello.Cluster = ForMeet, ""
	c, err := dial(ctx, dialer, address, key.TLS(ProtocolLink, anyNode), hello)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if err := secrets.meet(c, key.Node(), address); err != nil {
		_ = c.Close()
		return nil, err
	}
	_ = c.SetDeadline(time.Time{})
	return c, nil
}

func (s Secrets) meet(c *Conn, self, address string) error {
	e, err := endsOf(c, self, roleDials)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", address, err)
	}
	if err := Write(c.Conn, proved{Proof: e.proof(s[0], roleDials)}); err != nil {
		return fmt.Errorf("connect to %s: %w", address, err)
	}
	var theirs proved
	if err := Read(c.Conn, &theirs, maxProof); err != nil {
		return fmt.Errorf("connect to %s: %w", address, err)
	}
	switch {
	case theirs.None:
		return fmt.Errorf("node %.80s at %s has no cluster secret: set cluster.secret-file and cluster.peers there", printable(c.Peer.Name), address)
	case theirs.Differs, s.of(e, roleListens, theirs.Proof) == "":
		return &SecretError{Name: c.Peer.Name, Address: address}
	}
	return nil
}

// ErrNoSecret means that a node asks by a secret, and this one has none.
var ErrNoSecret = errors.New("this node has no cluster secret")

// Answer checks the proof of a node that uses Meet, proves the same secret to it, and returns it. The error is a
// *SecretError if the node has another one.
func (s Secrets) Answer(c *Conn, self string) (secret string, err error) {
	e, err := endsOf(c, self, roleListens)
	if err != nil {
		return "", err
	}
	var theirs proved
	if err := Read(c.Conn, &theirs, maxProof); err != nil {
		return "", err
	}
	if len(s) == 0 {
		_ = Write(c.Conn, proved{None: true})
		return "", ErrNoSecret
	}
	secret = s.of(e, roleDials, theirs.Proof)
	if secret == "" {
		_ = Write(c.Conn, proved{Differs: true})
		return "", &SecretError{Name: c.Peer.Name, Address: c.Peer.Address}
	}
	return secret, Write(c.Conn, proved{Proof: e.proof(secret, roleListens)})
}

// of is the secret that a proof is made with, or "".
func (s Secrets) of(e ends, role string, proof []byte) (secret string) {
	for _, one := range s {
		if hmac.Equal(e.proof(one, role), proof) {
			secret = one
		}
	}
	return secret
}
