package natsbus

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// A frozen server, or a machine that vanished, closes no connection. The library notices it after two unanswered pings,
// 10 to 15 s, and a worker's lease lasts 15 s. So a request that gets no response within a second pings the server, and
// the connection is closed if nothing arrives within another: the library then connects to the next server. A worker
// reaches the leader again about 5 s after its last heartbeat, a third of its lease.

const (
	// unanswered is how long a response may take before the server is pinged.
	unanswered = time.Second
	// unheard is how long a pinged server may send nothing.
	unheard = time.Second
	// slowest is the lowest bandwidth of a connection, in bytes per second: large requests get the time they need.
	slowest = 128 << 10
)

// wires connects to servers and keeps the current connection.
type wires struct {
	dialer net.Dialer
	inside Server // the one in this process, if there is one
	way    Way    // nil = the library knows the server

	mu    sync.Mutex
	last  *wire
	place Place // that the way has led to
}

var (
	_ nats.CustomDialer          = (*wires)(nil)
	_ nats.InProcessConnProvider = (*wires)(nil)
)

// Dial connects over the network, or where the way leads.
func (w *wires) Dial(network, address string) (net.Conn, error) {
	if w.way != nil {
		return w.keep(w.follow())
	}
	return w.keep(w.dialer.Dial(network, address))
}

// InProcessConn connects to the server in this process.
func (w *wires) InProcessConn() (net.Conn, error) { return w.keep(w.inside.InProcessConn()) }

func (w *wires) keep(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	made := &wire{Conn: c}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = made
	return made, nil
}

func (w *wires) now() *wire {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// wire is a connection that counts what arrives, knows when all that was written has arrived at the server, and
// announces each Write (see written.go).
type wire struct {
	net.Conn
	reads   atomic.Uint64 // number of reads
	carried atomic.Int64  // when all that was written has arrived, at the lowest bandwidth; Unix nanoseconds
	writes
}

func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if n > 0 {
		w.reads.Add(1)
	}
	return n, err
}

func (w *wire) Write(b []byte) (int, error) { // the library writes one at a time
	begins := max(w.carried.Load(), time.Now().UnixNano())
	w.carried.Store(begins + int64(len(b))*int64(time.Second)/slowest)
	defer w.announce(false)
	return w.Conn.Write(b)
}

func (w *wire) Close() error {
	defer w.announce(true)
	return w.Conn.Close()
}

// doubt pings the server in the background, and closes the connection if nothing arrives.
func (b *Bus) doubt() {
	w := b.wires.now()
	if b.wires.within() || !b.link.connected() || !b.doubted.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer b.doubted.Store(false)
		_, holds := b.link.state()
		reads := w.reads.Load()
		// The ping itself may block: a frozen server reads nothing.
		ctx, done := context.WithTimeout(holds, time.Minute) // the library requires a deadline
		defer done()
		go func() { _ = b.nc.FlushWithContext(ctx) }()
		for wait := unheard; wait > 0; wait = time.Until(time.Unix(0, w.carried.Load()).Add(unheard)) {
			select {
			case <-holds.Done():
				return
			case <-time.After(wait):
			}
			if w.reads.Load() != reads {
				return
			}
		}
		b.episodes.Failed(slog.LevelWarn, "", "server does not respond, connecting to another", "server", w.RemoteAddr())
		_ = w.Close()
	}()
}
