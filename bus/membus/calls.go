package membus

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/pool"
	"github.com/carillon-scheduler/carillon/jobs"
)

// server answers the calls of a service.
type server struct {
	end   *end
	ctx   context.Context
	calls *pool.Pool[call]
}

type call struct {
	from     bus.Principal
	request  []byte
	answered chan<- answer
}

type answer struct {
	data []byte
	err  error
}

func (e *end) Serve(ctx context.Context, service string, fn bus.Handler) error {
	if err := e.errOf(ctx); err != nil {
		return err
	}
	if err := e.leads("serve " + service); err != nil {
		return err
	}
	h := e.hub
	s := &server{end: e}
	s.calls = pool.New(func(c call) {
		data, err := fn(s.ctx, c.from, c.request)
		if err == nil && len(data) > limit {
			err = kernel.Invalid("the answer of %s has %d bytes: the limit is %d", service, len(data), limit)
		}
		if err != nil {
			data = nil
		}
		c.answered <- answer{bytes.Clone(data), carried(err)}
	})
	s.ctx = e.lasting(ctx, func() {
		s.calls.Dismiss()
		h.mu.Lock()
		defer h.mu.Unlock()
		h.servers[service] = slices.DeleteFunc(h.servers[service], func(other *server) bool { return other == s })
		if len(h.servers[service]) == 0 {
			delete(h.servers, service)
		}
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.servers[service] = append(h.servers[service], s)
	return nil
}

func (e *end) Call(ctx context.Context, service string, request []byte) ([]byte, error) {
	if err := e.errOf(ctx); err != nil {
		return nil, err
	}
	if len(request) > bus.MaxRequest {
		return nil, kernel.Invalid("call %s: request of %d bytes: the limit is %d", service, len(request), bus.MaxRequest)
	}
	s := e.hub.server(service)
	if s == nil {
		return nil, fmt.Errorf("call %s: %w", service, bus.ErrNoReceiver)
	}
	answered := make(chan answer, 1)
	s.calls.Call(call{e.as, bytes.Clone(request), answered})
	select {
	case a := <-answered:
		return a.data, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("call %s: no answer: %w", service, ctx.Err())
	case <-e.life.Done():
		return nil, bus.ErrClosed
	case <-s.end.life.Done():
		return nil, kernel.Refuse(jobs.Unknown, "call %s: the server left before it answered", service)
	}
}

// server returns the server whose turn it is to answer a call.
func (h *Hub) server(service string) *server {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, s := range h.servers[service] {
		if s.end.lasts(s.ctx) {
			turn := slices.Delete(h.servers[service], i, i+1)
			h.servers[service] = append(turn, s)
			return s
		}
	}
	return nil
}
