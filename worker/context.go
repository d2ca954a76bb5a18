package worker

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// handlerContext is the context of a handler: it ends when the attempt is to end, with the cause for it.
//
// A context that can end, with its timer, costs more than an empty run, and most short handlers use neither. So the
// real context is made on the first use, or when it is to end. (The real one answers for values, too: package context
// uses a value to find the parent whose end to follow.)
type handlerContext struct{ a *attempt }

// Deadline needs no real context.
func (c handlerContext) Deadline() (time.Time, bool) {
	due := c.a.deadline()
	return due, !due.IsZero()
}

func (c handlerContext) Done() <-chan struct{} { return c.a.context().Done() }
func (c handlerContext) Err() error            { return c.a.context().Err() }
func (c handlerContext) Value(key any) any     { return c.a.context().Value(key) }

// begin allows the attempt to have a context, and returns the cause if the attempt was stopped before. ended is called,
// on a goroutine of its own, when the context ends before the handler has returned.
func (a *attempt) begin(living context.Context, ended func()) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.living, a.onEnd = living, ended
	return a.endCause
}

// context returns the handler's real context.
func (a *attempt) context() context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.real()
}

// real makes the context unless there is one. The lock is held.
func (a *attempt) real() context.Context {
	if a.ctx != nil {
		return a.ctx
	}
	a.ctx, a.cancel = context.WithCancelCause(a.living)
	if due := a.deadline(); !due.IsZero() {
		a.ctx, a.release = context.WithDeadlineCause(a.ctx, due, jobs.ErrTimeout)
	}
	switch {
	case a.back: // the context outlives its handler
		a.free()
	case a.endCause != nil:
		a.cancel(a.endCause)
		fallthrough
	default:
		a.forgo = context.AfterFunc(a.ctx, a.onEnd)
	}
	return a.ctx
}

// free ends the context of a handler that has returned, and stops its timer. The lock is held.
func (a *attempt) free() {
	if a.forgo != nil {
		a.forgo()
	}
	a.cancel(nil)
	if a.release != nil {
		a.release()
	}
}

// end ends the handler's context.
func (a *attempt) end(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.endCause == nil {
		a.endCause = cause
	}
	if a.living != nil && !a.back {
		a.real()
		a.cancel(cause)
	}
}

// cause returns why the handler's context has ended, or nil.
func (a *attempt) cause() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx == nil {
		return nil
	}
	return context.Cause(a.ctx)
}
