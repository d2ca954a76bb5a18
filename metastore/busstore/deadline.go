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
// that it reads later. To one without a time on its clock, the first of a client or of a leader's term, it only answers
// with that clock, and the client sends it again at once.

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

// deadline is a moment on the clocks of some servers: beside the leader, one that is cut off from all but the bus gets its
// share of the requests.
type deadline [heardServers]moment

const (
	heardServers  = 2
	deadlineBytes = heardServers * momentBytes
)

func (d deadline) put(b []byte) {
	for i, m := range d {
		m.put(b[i*momentBytes:])
	}
}

func deadlineOf(b []byte) (d deadline) {
	for i := range d {
		d[i] = momentOf(b[i*momentBytes:])
	}
	return d
}

// on returns the moment on a clock; false if there is none.
func (d deadline) on(clock uint64) (moment, bool) {
	for _, m := range d {
		if m.clock == clock {
			return m, true
		}
	}
	return moment{}, false
}

// late returns how long ago a deadline passed, not above 0 if it has not; false if it is on no clock of this server.
func (c *clock) late(of deadline) (by time.Duration, known bool) {
	m, known := of.on(c.id)
	return c.now() - m.at, known
}

// unknownTo returns the time of a server that did nothing, because a deadline was not on its clock.
func (d deadline) unknownTo(answer []byte) (now moment, is bool) {
	if len(answer) != answersHead {
		return now, false
	}
	now = momentOf(answer[1:])
	_, known := d.on(now.clock)
	return now, !known
}

// peerClocks is what a client knows of the clocks of the servers that answered last, the newest first.
type peerClocks [heardServers]struct {
	moment
	asked time.Time // when its request was sent: the moment is not earlier
}

// after returns what a client knows after an answer.
func (h *peerClocks) after(now moment, asked time.Time) *peerClocks {
	next := new(peerClocks)
	next[0].moment, next[0].asked = now, asked
	switch {
	case h == nil:
	case h[0].clock == now.clock:
		next[1] = h[1]
	default:
		next[1] = h[0]
	}
	return next
}

// deadline converts a time of ours to the servers': not earlier, and later by at most the time the answer took.
func (h *peerClocks) deadline(ours time.Time) (d deadline) {
	for i := range d {
		if h != nil && h[i].clock != 0 {
			d[i] = moment{h[i].clock, h[i].at + ours.Sub(h[i].asked)}
		}
	}
	return d
}
