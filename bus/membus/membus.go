// Package membus is a bus inside one process: for tests, for `dev`, and for programs that embed everything.
//
// It is not promised to programs outside this module.
//
// A [Hub] is the bus, and [Hub.As] is one principal's end of it. It reads no clock and polls nothing, so all of it runs
// in a testing/synctest bubble. A hub's messages are forgotten with it.
//
// Where to start: [New]. Sharp edges: of several that accept pushes at one address, the newest gets them, while natsbus
// chooses one at random.
package membus

import (
	"context"
	"errors"
	"sync"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// limit is the most bytes of a push, or of the answer to a call: as many as natsbus carries on an embedded server.
const limit = 8 << 20

// Hub is a bus. All principals that communicate are ends of the same one.
type Hub struct {
	mu        sync.Mutex
	acceptors map[bus.Address][]*acceptor // by address, the newest last
	listeners map[*listener]struct{}
	servers   map[string][]*server // by service, the one whose turn it is first
}

// New makes a bus without ends.
func New() *Hub {
	return &Hub{
		acceptors: map[bus.Address][]*acceptor{},
		listeners: map[*listener]struct{}{},
		servers:   map[string][]*server{},
	}
}

// As returns p's end of the bus. Two ends may have the same principal, as two connections with one user have.
func (h *Hub) As(p bus.Principal) bus.Bus {
	e := &end{hub: h, as: p}
	e.life, e.close = context.WithCancel(context.Background())
	return e
}

// end is one principal's end of a hub.
type end struct {
	hub   *Hub
	as    bus.Principal
	life  context.Context // ends with Close
	close context.CancelFunc
}

// Limit returns the most bytes of a push, or of the answer to a call.
func (e *end) Limit() int { return limit }

// RequestLimit returns the most bytes of a request, or of the answer to a push.
func (e *end) RequestLimit() int { return bus.MaxRequest }

// Close ends what this end waits for and what it serves. Running handlers see their context end; Close does not wait
// for them, since one of them may be the caller.
func (e *end) Close() error {
	e.close()
	return nil
}

// errOf returns why nothing can be done now: this end was closed, or ctx has ended.
func (e *end) errOf(ctx context.Context) error {
	if e.life.Err() != nil {
		return bus.ErrClosed
	}
	return ctx.Err()
}

// may refuses what a server's permissions would refuse: each end acts for its own tenant, nodes for all.
func (e *end) may(t jobs.Tenant, what string) error {
	if e.as.Role == bus.Node || e.as.Tenant == t {
		return nil
	}
	return kernel.Refuse(jobs.Forbidden, "%s of tenant %q may not %s tenant %q", e.as.Actor(), e.as.Tenant, what, t)
}

// leads refuses all but nodes.
func (e *end) leads(what string) error {
	if e.as.Role == bus.Node {
		return nil
	}
	return kernel.Refuse(jobs.Forbidden, "%s may not %s: nodes may", e.as.Actor(), what)
}

// lasting returns a context for what continues until ctx ends or this end is closed; then forget is called. A search
// for something lasting must check [lasts] as well: the end comes at once, forget comes a little later.
func (e *end) lasting(ctx context.Context, forget func()) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.life, func() { cancel(bus.ErrClosed) })
	context.AfterFunc(ctx, func() {
		stop()
		forget()
	})
	return ctx
}

// lasts reports whether something lasting of this end still continues.
func (e *end) lasts(ctx context.Context) bool { return ctx.Err() == nil && e.life.Err() == nil }

// carried returns err as it arrives at the caller: a refusal stays one, of any other error only the text arrives. So no
// caller mistakes an error that the handler met (bus.ErrNoReceiver, a context's end) for its own.
func carried(err error) error {
	var refusal *kernel.Refusal
	var code jobs.Code
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refusal):
		return &kernel.Refusal{Code: refusal.Code, Text: err.Error()}
	case errors.As(err, &code):
		return &kernel.Refusal{Code: code, Text: err.Error()}
	}
	return errors.New(err.Error())
}
