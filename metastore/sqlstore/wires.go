package sqlstore

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

// A database that is frozen, or cut off, answers nothing, and drivers have calls without a deadline: a commit, a
// rollback, the end of a connection. So the store knows the network connections of its drivers: it ends what has waited
// for too long, and all that is left when it closes.

const (
	// answerTime is how long an open store waits for the next bytes of an answer, whatever the driver's call.
	answerTime = time.Minute
	// closeTime is how long the end of a store waits for the database.
	closeTime = time.Second
)

// wires are the network connections of a store.
type wires struct {
	mu      sync.Mutex
	open    map[*wire]struct{}
	patient time.Duration // how long a wire waits for the next bytes; 0 = for ever
	cut     bool
}

// dialing is how a driver makes a network connection.
type dialing func(ctx context.Context, network, address string) (net.Conn, error)

// dial makes connections that are wires. A store without wires has connections as they are.
func (l *wires) dial(next dialing) dialing {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := next(ctx, network, address)
		if err != nil || l == nil {
			return c, err
		}
		n := &wire{Conn: c, of: l}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.cut {
			return nil, errors.Join(net.ErrClosed, c.Close())
		}
		if l.open == nil {
			l.open = map[*wire]struct{}{}
		}
		l.open[n] = struct{}{}
		return n, nil
	}
}

// wait sets how long wires wait for the next bytes of an answer.
func (l *wires) wait(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.patient = d
}

// end ends all wires, and those that are made later.
func (l *wires) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	for n := range l.open {
		_ = n.Conn.Close() // a driver that waits for an answer learns of it
	}
}

// ended reports whether all wires were ended.
func (l *wires) ended() bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut
}

// wire is a network connection of a driver.
type wire struct {
	net.Conn
	of *wires

	mu    sync.Mutex
	timed bool // the driver has set a deadline for reads
}

// Read waits for as long as wires do, unless the driver has set a deadline.
func (n *wire) Read(b []byte) (int, error) {
	n.of.mu.Lock()
	patient := n.of.patient
	n.of.mu.Unlock()
	if patient > 0 {
		n.limit(time.Now().Add(patient))
		defer n.limit(time.Time{}) // a driver looks at idle connections, too
	}
	return n.Conn.Read(b)
}

func (n *wire) limit(until time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.timed {
		_ = n.Conn.SetReadDeadline(until) // a connection that is closed has none
	}
}

// SetDeadline sets the driver's own deadline.
func (n *wire) SetDeadline(until time.Time) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.timed = !until.IsZero()
	return n.Conn.SetDeadline(until)
}

// SetReadDeadline sets the driver's own deadline.
func (n *wire) SetReadDeadline(until time.Time) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.timed = !until.IsZero()
	return n.Conn.SetReadDeadline(until)
}

// SyscallConn lets a driver look whether an idle connection is still there.
func (n *wire) SyscallConn() (syscall.RawConn, error) {
	if c, is := n.Conn.(syscall.Conn); is {
		return c.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// Close ends the wire.
func (n *wire) Close() error {
	n.of.mu.Lock()
	delete(n.of.open, n)
	n.of.mu.Unlock()
	return n.Conn.Close()
}
