package link

import (
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Purpose is what a connection is for.
type Purpose string

// The purposes. Connections to join and to meet need no membership: they bring a token, or prove a secret.
const (
	ForRaft    Purpose = "raft"
	ForArchive Purpose = "archive"
	ForCall    Purpose = "call"
	ForJoin    Purpose = "join"
	ForMeet    Purpose = "meet"
)

// unproven reports whether nodes that are no members may use the purpose.
func (p Purpose) unproven() bool { return p == ForJoin || p == ForMeet }

// version is that of the exchange of hellos.
const version = 1

// Hello is the first message of both sides of a connection.
type Hello struct {
	Version int       `json:"version"`
	Cluster string    `json:"cluster"` // its id
	Epoch   uint64    `json:"epoch"`   // one more for each recovery without a majority
	Node    string    `json:"node"`    // the sender's id
	Name    string    `json:"name"`
	Address string    `json:"address"` // where the node listens
	To      string    `json:"to,omitempty"`
	Purpose Purpose   `json:"purpose"`
	Now     time.Time `json:"now"`
	Refused string    `json:"refused,omitempty"` // in an answer: why
	Removed bool      `json:"removed,omitempty"` // in an answer: the node is certainly no member
	// ApplyVersion is the newest version of the rules that the node knows.
	ApplyVersion uint32 `json:"applyVersion"`
}

// ErrRefused is the error of a connection that the other side has refused.
var ErrRefused = errors.New("refused")

// introduce sends a hello and reads the answer.
func introduce(c *Conn, h Hello) error {
	h.Version, h.Now = version, time.Now()
	if err := Write(c.Conn, h); err != nil {
		return err
	}
	if err := Read(c.Conn, &c.Peer, maxHello); err != nil {
		return err
	}
	if c.Peer.Removed {
		return kernel.Refuse(jobs.NotFound, "%s", c.Peer.Refused)
	}
	if c.Peer.Refused != "" {
		return fmt.Errorf("%w: %s", ErrRefused, c.Peer.Refused)
	}
	shown, err := peerOf(c.Conn.(*tls.Conn).ConnectionState())
	if err != nil {
		return err
	}
	return misfit(&h, &c.Peer, shown)
}

// misfit returns why the node that answers is not the expected one.
func misfit(ours, theirs *Hello, shown string) error {
	switch {
	case theirs.Node != shown:
		return fmt.Errorf("it claims to be node %.60q, but has the key of node %s", theirs.Node, shown)
	case theirs.Cluster != ours.Cluster:
		return fmt.Errorf("it belongs to cluster %s, not to %s", theirs.Cluster, ours.Cluster)
	case ours.To != "" && theirs.Node != ours.To:
		return fmt.Errorf("node %s answers, where %s was expected", theirs.Node, ours.To)
	}
	return nil
}

const maxHello = 4 << 10

// answer reads the hello of a connection and answers it. The reason is for counting.
func (l *Link) answer(c *Conn, host string) (reason string, err error) {
	if err := Read(c.Conn, &c.Peer, maxHello); err != nil {
		return "no hello", err
	}
	ours := l.cfg.Self()
	ours.Version, ours.Purpose, ours.Now, ours.Address = version, c.Peer.Purpose, time.Now(), l.address
	reason, err = l.judge(c, &ours, c.Peer)
	switch reason {
	case "version", "cluster", "purpose", "key", "epoch": // a stranger gets nothing else
		ours = Hello{Version: version}
	case "member":
		ours = Hello{Version: version, Removed: l.cfg.Removed != nil && l.cfg.Removed(c.Peer.Node)}
	}
	if err != nil {
		ours.Refused = err.Error()
	} else if c.Peer.Purpose == ForMeet { // it has not proved the secret yet
		ours = Hello{Version: version, Node: ours.Node, Name: ours.Name}
	}
	if wrong := Write(c.Conn, ours); err == nil && wrong != nil {
		return "no answer", wrong
	}
	if err == nil && !c.Peer.Purpose.unproven() {
		l.heard(&c.Peer)
	}
	return reason, err
}

// judge returns why a connection is refused, or nil.
func (l *Link) judge(c *Conn, ours *Hello, h Hello) (reason string, err error) {
	if h.Version != version {
		return "version", fmt.Errorf("it uses version %d of the exchange between nodes, this node version %d", h.Version, version)
	}
	if h.Cluster != ours.Cluster && h.Purpose != ForMeet {
		return "cluster", fmt.Errorf("this node does not belong to cluster %.60q", h.Cluster)
	}
	if _, taken := l.streams[h.Purpose]; !taken && l.cfg.Serve[h.Purpose] == nil {
		return "purpose", fmt.Errorf("unknown purpose %.60q", h.Purpose)
	}
	shown, err := peerOf(c.Conn.(*tls.Conn).ConnectionState())
	if err == nil && shown != h.Node {
		err = fmt.Errorf("the key is of node %s, not of %.60q", shown, h.Node)
	}
	if err != nil {
		return "key", err
	}
	if h.Purpose.unproven() {
		return "", nil
	}
	if h.Epoch != ours.Epoch {
		return "epoch", fmt.Errorf("this node is in epoch %d of the cluster, that one in %d: the cluster was recovered without the node that is behind, which must be repaired", ours.Epoch, h.Epoch)
	}
	if err := l.cfg.Member(h.Node); err != nil {
		return "member", err
	}
	if h.To != "" && h.To != ours.Node {
		return "address", fmt.Errorf("this is node %s, not %.60q", ours.Node, h.To)
	}
	if h.Node == ours.Node && h.Address != l.address {
		return "twin", fmt.Errorf("node %s runs at %s already", h.Node, l.address)
	}
	return "", nil
}

// Write sends one message, as JSON after its length.
func Write(to io.Writer, message any) error {
	body, err := json.Marshal(message)
	if err != nil {
		return err
	}
	_, err = to.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}

// Read receives one message of at most some bytes.
func Read(from io.Reader, message any, most uint32) error {
	var head [4]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > most {
		return fmt.Errorf("a message of %d bytes is longer than %d", n, most)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(from, body); err != nil {
		return err
	}
	return json.Unmarshal(body, message)
}

var _ net.Listener = (*Listener)(nil)
