package natsbus

import (
	"sync"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// How many bytes of requests a service has in its hands at the same time. What decoding makes of them is some times as
// much; whoever floods it with the largest messages there are must not cost the others their memory. Who is told to come
// again does so, as courteous programs have three requests under way.
const (
	loadOfOne = 32 << 20
	loadOfAll = 128 << 20
)

// load is what a service has in its hands, by caller. Nodes are not counted: they ask for others.
type load struct {
	mu  sync.Mutex
	all int
	of  map[bus.Principal]int
}

// take takes a request on, or says that it is too much now.
func (l *load) take(from bus.Principal, n int) error {
	if from.Role == bus.Node {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of[from]+n > loadOfOne || l.all+n > loadOfAll {
		return kernel.Refuse(jobs.Unavailable, "%d bytes of requests of %s are being answered, and %d of all: send less at once", l.of[from], from.Actor(), l.all)
	}
	if l.of == nil {
		l.of = map[bus.Principal]int{}
	}
	l.all += n
	l.of[from] += n
	return nil
}

// done says that a request was answered.
func (l *load) done(from bus.Principal, n int) {
	if from.Role == bus.Node {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all -= n
	if l.of[from] -= n; l.of[from] == 0 {
		delete(l.of, from)
	}
}
