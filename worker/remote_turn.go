package worker

import (
	"context"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// handle is the handler of all jobs: it waits for the HTTP worker.
func (r *Remote) handle(ctx context.Context, _ []byte) error {
	at := jobs.Attempt(ctx)
	a := r.worker.held.find(token{at.Run, at.Number})
	t := &turn{attempt: a, ctx: ctx, result: make(chan error, 1)}
	if !r.take(t) {
		a.end(jobs.ErrShutdown)
		return jobs.ErrShutdown
	}
	defer r.forget(t)
	patience := time.NewTimer(unasked)
	defer patience.Stop()
	over := ctx.Done()
	for {
		select {
		case err := <-t.result:
			return err
		case <-r.gone:
			return jobs.ErrShutdown
		case <-patience.C:
			if r.withdraw(t) {
				r.worker.heartbeatNow() // the leader must not send it here again
				a.end(jobs.ErrShutdown)
				return jobs.ErrShutdown
			}
		case <-over:
			over = nil
			if r.withdraw(t) {
				return context.Cause(ctx)
			}
			r.halt(t, context.Cause(ctx))
		}
	}
}

// take puts a turn where polls find it. One that the HTTP worker already has goes to the request that waits for it.
func (r *Remote) take(t *turn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left {
		return false
	}
	r.turns[t.attempt.token] = t
	if waits := r.awaited[t.attempt.token]; waits != nil {
		t.given = true
		waits <- t
		return true
	}
	r.queue = append(r.queue, t)
	r.ring()
	return true
}

// withdraw forgets a turn that the HTTP worker does not have, and reports whether it did.
func (r *Remote) withdraw(t *turn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.given {
		return false
	}
	delete(r.turns, t.attempt.token)
	r.unqueue(t)
	return true
}

// halt has the next poll stop a turn.
func (r *Remote) halt(t *turn, cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.stop = cause
	r.ring()
}

// forget forgets a turn that has ended.
func (r *Remote) forget(t *turn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.given {
		r.active = time.Now()
	}
	delete(r.turns, t.attempt.token)
	r.unqueue(t)
}

// unqueue keeps a turn from the polls. The lock is held.
func (r *Remote) unqueue(t *turn) {
	is := func(other *turn) bool { return other == t }
	r.queue, r.batch = slices.DeleteFunc(r.queue, is), slices.DeleteFunc(r.batch, is)
}

// renewed has the open poll look again: leases are renewed, or lost.
func (r *Remote) renewed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ring()
}

// ring wakes the open poll. The lock is held.
func (r *Remote) ring() {
	close(r.rang)
	r.rang = make(chan struct{})
}

// end ends a turn's wait. The first call counts.
func (t *turn) end(err error) {
	select {
	case t.result <- err:
	default:
	}
}

// Has takes over an attempt that the HTTP worker lists, unless this Remote has it. The error is jobs.Stale if the
// worker has lost the attempt.
func (r *Remote) Has(ctx context.Context, run jobs.ID, attempt uint32) error {
	_, err := r.turn(ctx, token{run, attempt})
	return err
}

// turn finds a turn that the HTTP worker has, and takes it over if need be.
func (r *Remote) turn(ctx context.Context, k token) (*turn, error) {
	r.Touch()
	r.mu.Lock()
	t, left := r.turns[k], r.left
	if t != nil { // the HTTP worker has it, from this node or another: no poll is answered with it
		t.given = true
		r.unqueue(t)
	}
	r.mu.Unlock()
	switch {
	case left:
		return nil, errGone
	case t != nil:
		return t, nil
	}
	run, err := r.own(ctx, k)
	if err != nil {
		return nil, err
	}
	if run.State != jobs.Processing && !run.Lingering {
		return nil, staleOf(k)
	}
	if r.worker.jobs[run.HandlerKey()] == nil {
		return nil, kernel.Invalid("run %s is of handler %s, which this worker has not registered", k.ID, run.HandlerKey())
	}
	now := time.Now()
	a := &attempt{token: k, key: run.Key, handler: run.HandlerKey(), in: run, accepted: now, renewed: now, spent: max(now.Sub(run.Started), time.Nanosecond)}
	waits := make(chan *turn, 1)
	r.mu.Lock()
	if t := r.turns[k]; t != nil { // by another request
		r.mu.Unlock()
		return t, nil
	}
	if !r.worker.held.adopt(a) {
		r.mu.Unlock()
		return nil, kernel.Refuse(jobs.Unavailable, "run %s: attempt %d is being checked: try again", k.ID, k.Attempt)
	}
	r.awaited[k] = waits
	r.mu.Unlock()
	forget := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.awaited, k)
	}
	r.worker.log.Info("attempt is taken over", "key", a.key, "run", a.ID, "attempt", a.Attempt)
	r.worker.pool.Call(a)
	r.worker.heartbeatNow()
	over := r.worker.held.watch(a)
	select {
	case t := <-waits:
		forget()
		return t, nil
	case <-over:
		forget()
		return nil, staleOf(k)
	case <-ctx.Done():
		go func() { // the HTTP worker has the turn all the same: it is not for the next poll
			select {
			case <-waits:
			case <-over:
			}
			forget()
		}()
		return nil, ctx.Err()
	}
}

// own reads a run of which the attempt is, or was, this worker's last one.
func (r *Remote) own(ctx context.Context, k token) (*kernel.Run, error) {
	run, err := r.store.Run(ctx, r.worker.config.Tenant, k.ID)
	switch {
	case err != nil && jobs.CodeOf(err) == jobs.NotFound:
		return nil, staleOf(k)
	case err != nil:
		return nil, err
	case run.Worker != r.worker.name || run.Attempt != k.Attempt:
		return nil, staleOf(k)
	}
	return run, nil
}

func staleOf(k token) error {
	return kernel.Refuse(jobs.Stale, "attempt %d of run %s is not this worker's any more: its reports are ignored", k.Attempt, k.ID)
}
