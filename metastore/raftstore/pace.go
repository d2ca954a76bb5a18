package raftstore

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Raft sends up to 16 entries of up to 4 MiB in one request and gives each request the same time. Over a link that is
// slower than that, a node that lags would never catch up. So requests are divided, and each gets time by its size.

const (
	// perRequest is how many bytes of entries go in one request, if that is more than one entry: if the other node
	// vanishes, this much is waited for.
	perRequest = 1 << 20
	// slowest is how many bytes a second a link carries at least.
	slowest = 128 << 10
)

// first is how many of some entries go in one request.
func first(entries []*raft.Log) int {
	n, size := 0, 0
	for n < len(entries) && (n == 0 || size+len(entries[n].Data) <= perRequest) {
		size += len(entries[n].Data)
		n++
	}
	return n
}

// paced is a connection whose deadlines leave time for what was written to it.
type paced struct {
	net.Conn

	mu          sync.Mutex
	carried     time.Time // when the slowest link has carried all that was written
	read, write time.Time // the requested deadlines
}

// Write sends bytes, and extends both deadlines by the time that these take.
func (p *paced) Write(b []byte) (int, error) {
	p.mu.Lock()
	if now := time.Now(); p.carried.Before(now) {
		p.carried = now
	}
	p.carried = p.carried.Add(time.Duration(len(b)) * time.Second / slowest)
	err := errors.Join(p.Conn.SetReadDeadline(p.later(p.read)), p.Conn.SetWriteDeadline(p.later(p.write)))
	p.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return p.Conn.Write(b)
}

// later is a deadline that leaves time for what is under way. mu must be held.
func (p *paced) later(at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return at.Add(max(0, time.Until(p.carried)))
}

// SetDeadline sets both deadlines.
func (p *paced) SetDeadline(at time.Time) error {
	return errors.Join(p.SetReadDeadline(at), p.SetWriteDeadline(at))
}

// SetReadDeadline sets the deadline of Read.
func (p *paced) SetReadDeadline(at time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read = at
	return p.Conn.SetReadDeadline(p.later(at))
}

// SetWriteDeadline sets the deadline of Write.
func (p *paced) SetWriteDeadline(at time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write = at
	return p.Conn.SetWriteDeadline(p.later(at))
}
