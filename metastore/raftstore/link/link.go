// Package link is the network between the nodes of a cluster: one port for each node, with connections that
// authenticate before any other code reads a byte of them.
//
// It is not promised to programs outside this module.
//
// A connection begins with TLS, in which each side proves that it holds the key of its node, and with a Hello that
// names its cluster, node and purpose. Membership is checked for each connection, and again for open ones when a node
// has been removed (Recheck). Invalid connections are closed, counted and logged, and the number of connections is
// limited.
//
// Where to start: Open and Dial; key.go has the keys of nodes.
package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/episode"
)

// Config is a node's address, key and peers.
type Config struct {
	Listen    string       // host:port; port 0 = any
	Listener  net.Listener // an open listener; nil: listen at Listen
	Advertise string       // the address for others; default: that of the listener
	Key       *Key
	// Member returns why a node is not a member of the cluster, as far as this node knows; nil means that it is.
	Member func(node string) error
	// Removed reports that a node is certainly not a member, which only a leader can. A node that gets this answer
	// gives up; others try elsewhere. Default: it is never certain.
	Removed func(node string) bool
	// Self returns this node's hello. Purpose, To and Now are filled in.
	Self func() Hello
	// Logger gets refusals. Required.
	Logger *slog.Logger
	// Serve takes connections of a purpose, each on a goroutine of its own, and closes them. A purpose without an
	// entry has a Listener, if any.
	Serve map[Purpose]func(*Conn)
	// Dialer makes connections; nil means the network.
	Dialer func(ctx context.Context, address string) (net.Conn, error)
}

// How many connections may be open, and how long one may take to introduce itself.
const (
	mostOpen     = 1024
	mostUnproven = 256
	mostFromOne  = 64 // unproven ones from one host
	patience     = 5 * time.Second
)

// Link is a node's end of the network. All methods may be called at the same time.
type Link struct {
	cfg      Config
	listener net.Listener
	address  string
	streams  map[Purpose]*Listener
	working  sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	conns    map[net.Conn]held
	unproven int
	hosts    map[string]int // unproven connections of each host
	refused  map[string]uint64
	episodes *episode.Log
	peers    map[string]Peer
}

// held is the other end of a connection: the host, until it has proved to be a node.
type held struct{ host, node string }

// Peer is what is known of another node.
type Peer struct {
	Name         string
	Address      string
	LastReceived time.Time // when the last byte came from it
}

// Open listens. Connections of the purposes that are named go to the callers of Stream.
func Open(c Config, streams ...Purpose) (*Link, error) {
	l := &Link{cfg: c, streams: make(map[Purpose]*Listener), conns: make(map[net.Conn]held),
		hosts: make(map[string]int), refused: make(map[string]uint64), peers: make(map[string]Peer), episodes: episode.New(c.Logger)}
	var err error
	if l.listener = c.Listener; l.listener == nil {
		if l.listener, err = net.Listen("tcp", c.Listen); err != nil {
			return nil, fmt.Errorf("listen for other nodes: %w", err)
		}
	}
	if l.address, err = Reachable(c.Advertise, l.listener.Addr()); err != nil {
		_ = l.listener.Close()
		return nil, err
	}
	for _, p := range streams {
		l.streams[p] = &Listener{link: l, ready: make(chan net.Conn), closed: make(chan struct{})}
	}
	l.working.Go(l.accept)
	return l, nil
}

// Reachable is the address that is sent to others.
func Reachable(advertise string, at net.Addr) (string, error) {
	if advertise == "" {
		if tcp, ok := at.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
			return "", fmt.Errorf("%s is no address that other nodes could use: set the one to advertise", at)
		}
		return at.String(), nil
	}
	host, port, err := net.SplitHostPort(advertise)
	if err != nil || host == "" {
		return "", fmt.Errorf("advertised address %q is not host:port", advertise)
	}
	if port == "0" || port == "" {
		_, port, _ = net.SplitHostPort(at.String())
	}
	return net.JoinHostPort(host, port), nil
}

// Address is where others reach this node.
func (l *Link) Address() string { return l.address }

// Close ends the link and all its connections, and returns when no goroutine works on them.
func (l *Link) Close() error {
	l.mu.Lock()
	var err error
	if !l.closed {
		l.closed = true
		err = l.listener.Close()
		for c := range l.conns {
			_ = c.Close()
		}
	}
	l.mu.Unlock()
	for _, s := range l.streams {
		_ = s.Close()
	}
	l.working.Wait()
	l.episodes.Reset() // after all that records failures: a timer would log later
	return err
}

// Refused counts the connections that were closed, by reason.
func (l *Link) Refused() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := make(map[string]uint64, len(l.refused))
	for reason, n := range l.refused {
		counts[reason] = n
	}
	return counts
}

// Peer returns what is known of a node, if anything is.
func (l *Link) Peer(node string) (Peer, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.peers[node]
	return p, ok
}

func (l *Link) accept() {
	for {
		conn, err := l.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // mostly no file descriptors are left: some will be closed
			l.refuse("accept", "", err)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
		if !l.admit(conn, host) {
			_ = conn.Close()
			l.refuse("too many connections", host, nil)
			continue
		}
		l.working.Go(func() { l.receive(conn, host) })
	}
}

// admit counts a connection that is not authenticated yet, if there is room for it.
func (l *Link) admit(conn net.Conn, host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.conns) >= mostOpen || l.unproven >= mostUnproven || l.hosts[host] >= mostFromOne {
		return false
	}
	l.conns[conn] = held{host: host}
	l.unproven++
	l.hosts[host]++
	return true
}

// proven notes which node a connection is from, unless it is to join. It returns false if the link was closed
// meanwhile, or the node removed.
func (l *Link) proven(c *Conn) bool {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return false
	}
	if c.Peer.Purpose.unproven() {
		l.mu.Unlock()
		return true
	}
	l.forgetHost(c.raw)
	l.conns[c.raw] = held{node: c.Peer.Node}
	l.mu.Unlock()
	return l.cfg.Member(c.Peer.Node) == nil // once more: Recheck may have come too early to see this connection
}

// Recheck closes the connections with nodes that are no longer members.
func (l *Link) Recheck() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c, is := range l.conns {
		if is.node == "" {
			continue
		}
		if err := l.cfg.Member(is.node); err != nil {
			l.cfg.Logger.Warn("connection closed: the node is no longer a member", "node", is.node)
			_ = c.Close()
		}
	}
}

func (l *Link) forgetHost(conn net.Conn) {
	if host := l.conns[conn].host; host != "" {
		l.unproven--
		if l.hosts[host]--; l.hosts[host] == 0 {
			delete(l.hosts, host)
		}
	}
}

func (l *Link) gone(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetHost(conn)
	delete(l.conns, conn)
}

// refuse counts and logs a connection that was closed.
func (l *Link) refuse(reason, from string, err error) {
	l.mu.Lock()
	l.refused[reason]++
	closed := l.closed
	l.mu.Unlock()
	if !closed {
		l.episodes.Failed(slog.LevelWarn, reason, "connection refused", "cause", reason, "address", from, "err", err)
	}
}

// anyNode lets each node finish the handshake.
func anyNode(string) error { return nil }

// receive reads who a connection is from, and passes it on.
func (l *Link) receive(raw net.Conn, host string) {
	_ = raw.SetDeadline(time.Now().Add(patience))
	secured := tls.Server(raw, l.cfg.Key.TLS(ProtocolLink, anyNode)) // answer checks which node it is
	c := &Conn{Conn: secured, link: l, raw: raw}
	if err := secured.Handshake(); err != nil {
		l.refuse("tls", host, err)
		_ = c.Close()
		return
	}
	reason, err := l.answer(c, host)
	if err != nil {
		l.refuse(reason, host, err)
		_ = c.Close()
		return
	}
	_ = raw.SetDeadline(time.Time{})
	if !l.proven(c) {
		_ = c.Close()
		return
	}
	if serve := l.cfg.Serve[c.Peer.Purpose]; serve != nil {
		serve(c)
		return
	}
	l.streams[c.Peer.Purpose].give(c)
}

// heard notes a hello of a node.
func (l *Link) heard(h *Hello) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.peers[h.Node]
	if h.Name != "" {
		p = Peer{Name: h.Name, Address: h.Address}
	}
	p.LastReceived = time.Now()
	l.peers[h.Node] = p
}
