package link

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"
)

// Conn is a connection whose other end has introduced itself.
type Conn struct {
	net.Conn
	Peer Hello

	link  *Link
	raw   net.Conn
	once  sync.Once
	heard time.Time // of the reader
	taken bool      // by an accepted stream: the link does not end before it is closed
}

// Read reads, and notes that the peer is alive.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.link != nil && c.Peer.Node != "" {
		if now := time.Now(); now.Sub(c.heard) > 20*time.Millisecond {
			c.heard = now
			c.link.heard(&Hello{Node: c.Peer.Node})
		}
	}
	return n, err
}

// Close closes the connection.
func (c *Conn) Close() (err error) {
	c.once.Do(func() {
		if c.link != nil {
			c.link.gone(c.raw)
		}
		// No farewell: the other side may not listen, and closing must not wait for it.
		err = c.raw.Close()
		if c.taken {
			c.link.working.Done()
		}
	})
	return err
}

// Listener passes on the connections of one purpose.
type Listener struct {
	link   *Link
	ready  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Stream is the connections of a purpose that Open was given.
func (l *Link) Stream(p Purpose) *Listener { return l.streams[p] }

func (s *Listener) give(c *Conn) {
	c.taken = true
	s.link.working.Add(1)
	select {
	case s.ready <- c:
	case <-s.closed:
		_ = c.Close()
	}
}

// Accept waits for a connection.
func (s *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-s.ready:
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

// Close ends accepting.
func (s *Listener) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// Addr is where others reach the node.
func (s *Listener) Addr() net.Addr { return named(s.link.address) }

// named is an address by name.
type named string

func (named) Network() string  { return "tcp" }
func (n named) String() string { return string(n) }

// Dial connects to the node at an address; node is the expected one, "" for any member.
func (l *Link) Dial(ctx context.Context, address, node string, purpose Purpose) (*Conn, error) {
	hello := l.cfg.Self()
	hello.Purpose, hello.To, hello.Address = purpose, node, l.address
	c, err := dial(ctx, l.cfg.Dialer, address, l.cfg.Key.TLS(ProtocolLink, l.cfg.Member), hello)
	if err != nil {
		return nil, err
	}
	c.link = l
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		_ = c.Close()
		return nil, fmt.Errorf("connect to %s: %w", address, net.ErrClosed)
	}
	l.conns[c.raw] = held{node: c.Peer.Node}
	l.mu.Unlock()
	if err := l.cfg.Member(c.Peer.Node); err != nil { // see proven
		_ = c.Close()
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	l.heard(&c.Peer)
	return c, nil
}

// DialFirst connects to a cluster that this node is not in yet. member returns why a node is none of those that a
// token names.
func DialFirst(ctx context.Context, address string, key *Key, member func(node string) error, hello Hello) (*Conn, error) {
	return dial(ctx, nil, address, key.TLS(ProtocolLink, member), hello)
}

func dial(ctx context.Context, dialer func(context.Context, string) (net.Conn, error), address string, secure *tls.Config, hello Hello) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if dialer == nil {
		dialer = func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	raw, err := dialer(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	if at, ok := ctx.Deadline(); ok {
		_ = raw.SetDeadline(at)
	}
	c := &Conn{Conn: tls.Client(raw, secure), raw: raw}
	if err := introduce(c, hello); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	_ = raw.SetDeadline(time.Time{})
	return c, nil
}
