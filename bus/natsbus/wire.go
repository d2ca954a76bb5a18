package natsbus

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// A server that is frozen, and a machine that has vanished, hang up on nobody. The library notices after two pings
// without an answer, 10 to 15 s, and a worker's leases last 15 s. So whoever waits for an answer for a while has the
// server asked whether it is there, and leaves it for another one if it is not: a worker is heard again within 5 s of
// its last heartbeat that was, a third of its lease.

const (
	// unanswered is how long an answer may take before the server is doubted.
	unanswered = time.Second
	// unheard is how long a server that is doubted may say nothing.
	unheard = time.Second
	// slowest is how many bytes a second a connection carries at least: what was sent is given the time to get there.
	slowest = 128 << 10
)

// wires makes connections to servers, one at a time.
type wires struct {
	dialer net.Dialer

	mu   sync.Mutex
	last *wire // nil = none was made: the server is in this process
}

var _ nats.CustomDialer = (*wires)(nil)

// Dial connects.
func (w *wires) Dial(network, address string) (net.Conn, error) {
	c, err := w.dialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	made := &wire{Conn: c}
	w.mu.Lock()
	w.last = made
	w.mu.Unlock()
	return made, nil
}

func (w *wires) now() *wire {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// wire is a connection that knows when something came over it, and when what was written to it has got there.
type wire struct {
	net.Conn
	heard   atomic.Uint64 // how often something came
	carried atomic.Int64  // when the slowest connection has carried all that was written; nanoseconds
}

func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if n > 0 {
		w.heard.Add(1)
	}
	return n, err
}

func (w *wire) Write(b []byte) (int, error) { // the library writes one at a time
	begins := max(w.carried.Load(), time.Now().UnixNano())
	w.carried.Store(begins + int64(len(b))*int64(time.Second)/slowest)
	return w.Conn.Write(b)
}

// doubt asks the server whether it is there, in the background, and leaves it if nothing comes from it.
func (b *Bus) doubt() {
	w := b.wires.now()
	if w == nil || !b.link.connected() || !b.doubted.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer b.doubted.Store(false)
		_, holds := b.link.state()
		heard := w.heard.Load()
		// Asking may block as long as what is to be found out: a write to a server that does not read.
		ctx, done := context.WithTimeout(holds, time.Minute) // the library wants a deadline
		defer done()
		go func() { _ = b.nc.FlushWithContext(ctx) }()
		for wait := unheard; wait > 0; wait = time.Until(time.Unix(0, w.carried.Load()).Add(unheard)) {
			select {
			case <-holds.Done():
				return
			case <-time.After(wait):
			}
			if w.heard.Load() != heard {
				return
			}
		}
		b.log.Warn("the NATS server does not answer, another one is looked for", "server", w.RemoteAddr())
		_ = w.Close()
	}()
}
