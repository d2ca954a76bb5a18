package membus

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// acceptor accepts the pushes to one address.
type acceptor struct {
	end    *end
	ctx    context.Context
	pushes chan push
}

// push is a push on its way to an acceptor.
type push struct {
	data   []byte
	answer chan answer   // not buffered: the caller has it before the acceptor continues
	left   chan struct{} // closed when the caller does not wait any more
}

func (e *end) Accept(ctx context.Context, at bus.Address, fn func(push []byte) (answer []byte, then func())) error {
	if err := e.errOf(ctx); err != nil {
		return err
	}
	if err := e.may(at.Tenant, "accept pushes of"); err != nil {
		return err
	}
	if at.Worker == "" {
		return kernel.Invalid("accept pushes: the address names no worker")
	}
	h := e.hub
	a := &acceptor{end: e, pushes: make(chan push)}
	a.ctx = e.lasting(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.acceptors[at] = slices.DeleteFunc(h.acceptors[at], func(other *acceptor) bool { return other == a })
		if len(h.acceptors[at]) == 0 {
			delete(h.acceptors, at)
		}
	})
	h.mu.Lock()
	h.acceptors[at] = append(h.acceptors[at], a)
	h.mu.Unlock()
	go a.accept(fn)
	return nil
}

func (a *acceptor) accept(fn func([]byte) ([]byte, func())) {
	for {
		select {
		case <-a.ctx.Done():
			return
		case p := <-a.pushes:
			data, then := fn(p.data)
			select {
			case p.answer <- answerOf(data):
			case <-p.left:
			}
			if then != nil {
				then()
			}
		}
	}
}

func answerOf(data []byte) answer {
	if len(data) > bus.MaxRequest {
		return answer{err: kernel.Invalid("the answer has %d bytes: the limit is %d", len(data), bus.MaxRequest)}
	}
	return answer{data: bytes.Clone(data)}
}

func (e *end) Push(ctx context.Context, to bus.Address, data []byte) ([]byte, error) {
	if err := e.errOf(ctx); err != nil {
		return nil, err
	}
	if err := e.leads("push"); err != nil {
		return nil, err
	}
	if len(data) > limit {
		return nil, kernel.Invalid("push to worker %q: %d bytes: the limit is %d", to.Worker, len(data), limit)
	}
	answer, err := e.push(ctx, e.hub.acceptor(to), data)
	if err != nil {
		return nil, fmt.Errorf("push to worker %q: %w", to.Worker, err)
	}
	return answer, nil
}

func (e *end) push(ctx context.Context, to *acceptor, data []byte) ([]byte, error) {
	if to == nil {
		return nil, bus.ErrNoReceiver
	}
	p := push{data: bytes.Clone(data), answer: make(chan answer), left: make(chan struct{})}
	defer close(p.left)
	select {
	case to.pushes <- p:
	case <-to.ctx.Done():
		return nil, bus.ErrNoReceiver
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer: %w", ctx.Err())
	case <-e.life.Done():
		return nil, bus.ErrClosed
	}
	select {
	case a := <-p.answer:
		return a.data, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer: %w", ctx.Err())
	case <-e.life.Done():
		return nil, bus.ErrClosed
	case <-to.end.life.Done():
		return nil, kernel.Refuse(jobs.Unknown, "the worker left before it answered")
	}
}

// acceptor returns the newest of those at an address, or nil.
func (h *Hub) acceptor(at bus.Address) *acceptor {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range slices.Backward(h.acceptors[at]) {
		if a.end.lasts(a.ctx) {
			return a
		}
	}
	return nil
}
