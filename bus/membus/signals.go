package membus

import (
	"bytes"
	"context"
	"sync"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
)

// backlog is how many signals wait for a slow listener. Those beyond are lost to it: nothing depends on a signal but
// speed, and a listener that hangs must not fill the memory.
const backlog = 1 << 16

// listener listens to a topic.
type listener struct {
	end    *end
	ctx    context.Context
	tenant jobs.Tenant
	topic  bus.Topic
	to     string

	mu      sync.Mutex
	waiting []bus.Signal
	wake    chan struct{} // holds one token when waiting is not empty
}

func (e *end) Signal(ctx context.Context, s bus.Signal) error {
	if err := e.errOf(ctx); err != nil {
		return err
	}
	if s.Tenant == "" {
		s.Tenant = e.as.Tenant
	}
	if err := e.may(s.Tenant, "signal to"); err != nil {
		return err
	}
	most := limit
	if e.as.Role != bus.Node {
		most = bus.MaxRequest
	}
	if err := s.Check(e.as, most); err != nil {
		return err
	}
	s.From = e.as
	e.hub.mu.Lock()
	defer e.hub.mu.Unlock()
	for l := range e.hub.listeners {
		if l.wants(s) {
			l.put(s)
		}
	}
	return nil
}

func (e *end) Listen(ctx context.Context, tenant jobs.Tenant, topic bus.Topic, to string, fn func(bus.Signal)) error {
	if err := e.errOf(ctx); err != nil {
		return err
	}
	if tenant == "" {
		tenant = e.as.Tenant
	}
	if err := e.may(tenant, "listen to"); err != nil {
		return err
	}
	if err := topic.CheckListen(e.as); err != nil {
		return err
	}
	l := &listener{end: e, tenant: tenant, topic: topic, to: to, wake: make(chan struct{}, 1)}
	l.ctx = e.lasting(ctx, func() {
		e.hub.mu.Lock()
		defer e.hub.mu.Unlock()
		delete(e.hub.listeners, l)
	})
	e.hub.mu.Lock()
	e.hub.listeners[l] = struct{}{}
	e.hub.mu.Unlock()
	go l.listen(fn)
	return nil
}

func (l *listener) wants(s bus.Signal) bool {
	return l.topic == s.Topic && (l.tenant == "*" || l.tenant == s.Tenant) && (l.to == "" || s.To == "" || l.to == s.To)
}

// put passes a signal to the listener's own goroutine.
func (l *listener) put(s bus.Signal) {
	s.Data = bytes.Clone(s.Data)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) >= backlog {
		return
	}
	l.waiting = append(l.waiting, s)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *listener) listen(fn func(bus.Signal)) {
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-l.wake:
		}
		l.mu.Lock()
		batch := l.waiting
		l.waiting = nil
		l.mu.Unlock()
		for _, s := range batch {
			if !l.end.lasts(l.ctx) {
				return
			}
			fn(s)
		}
	}
}
