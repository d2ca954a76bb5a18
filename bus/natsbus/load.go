package natsbus

import (
	"sync"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// What one connection has under way is small beside what a server stores for the connection of the leader, where the
// requests of all arrive. A request of at most large bytes does not wait: heartbeats pass those that are larger.
const (
	large       = 64 << 10
	largeAtOnce = 4 // of at most bus.MaxRequest each
)

// Bounds for the bytes of requests that a service works on at the same time. Decoded they are some times as large; a
// caller that floods it with the largest messages must not cost the others their memory. It is asked to come again;
// well-behaved programs have three requests under way. The bound of all counts large requests only: callers that
// fill it keep no small one from being answered.
const (
	loadOfOne = 32 << 20
	loadOfAll = 128 << 20
)

// load is what a service is working on, by caller. Nodes are not counted: they ask for others.
type load struct {
	mu  sync.Mutex
	all int
	of  map[bus.Principal]int
}

// take accepts a request, or refuses it because there are too many now.
func (l *load) take(from bus.Principal, n int) error {
	if from.Role == bus.Node {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of[from]+n > loadOfOne || n > large && l.all+n > loadOfAll {
		return kernel.Refuse(jobs.Unavailable, "%d bytes of requests of %s are being answered, and %d of all: send less at once", l.of[from], from.Actor(), l.all)
	}
	if l.of == nil {
		l.of = map[bus.Principal]int{}
	}
	if n > large {
		l.all += n
	}
	l.of[from] += n
	return nil
}

// done records that a request was answered.
func (l *load) done(from bus.Principal, n int) {
	if from.Role == bus.Node {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n > large {
		l.all -= n
	}
	if l.of[from] -= n; l.of[from] == 0 {
		delete(l.of, from)
	}
}
