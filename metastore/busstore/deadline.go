package busstore

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"time"
)

// A server cannot see how old a request is: one that lay in the socket of a frozen process for a minute looks fresh,
// and the clocks of two machines differ. So each answer to commands carries the time of a clock of the server's own,
// and a client's next request carries the time, on that clock, at which it stops waiting. A server refuses a request
// that it reads later. First requests carry no such time and are always accepted.

// clock is the time of one server, from its beginning.
type clock struct {
	id    uint64
	began time.Time

	mu           sync.Mutex
	steady, wall time.Duration // of the last reading
	said         time.Duration
}

func newClock() *clock { return &clock{id: rand.Uint64() | 1, began: time.Now()} }

func (c *clock) now() time.Duration {
	now := time.Now()
	return c.advance(now.Sub(c.began), now.Round(0).Sub(c.began.Round(0)))
}

// advance follows the wall clock or the steady one, whichever has advanced further.
func (c *clock) advance(steady, wall time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said += max(steady-c.steady, wall-c.wall, 0)
	c.steady, c.wall = steady, wall
	return c.said
}

// moment is a time of a server's clock: 16 bytes on the wire. The zero value is none.
type moment struct {
	clock uint64
	at    time.Duration
}

const momentBytes = 16

func (m moment) put(b []byte) {
	binary.LittleEndian.PutUint64(b, m.clock)
	binary.LittleEndian.PutUint64(b[8:], uint64(m.at))
}

func momentOf(b []byte) moment {
	return moment{binary.LittleEndian.Uint64(b), time.Duration(binary.LittleEndian.Uint64(b[8:]))}
}

// late returns how long ago a deadline passed; not above 0 if it has not, or if the deadline is another server's.
func (c *clock) late(deadline moment) time.Duration {
	if deadline.clock != c.id {
		return 0
	}
	return c.now() - deadline.at
}

// peerClock is what a client knows of the clock of the server that answered last.
type peerClock struct {
	moment
	asked time.Time // when its request was sent: the moment is not earlier
}

// deadline converts a time of ours to the server's: not earlier, and later by at most the time the answer took.
func (h *peerClock) deadline(ours time.Time) moment {
	if h == nil {
		return moment{}
	}
	return moment{h.clock, h.at + ours.Sub(h.asked)}
}
