package controlplane

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/oklog/run"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Elector decides who leads. Lead calls lead while this process leads, with the number of its term, and ends lead's
// context the moment it does not; it returns when its own context ends, or with an error of lead's.
type Elector interface {
	Lead(ctx context.Context, lead func(ctx context.Context, term uint64) error) error
}

// Always is the elector of a process that is alone: it always leads, each start being a new term.
type Always struct{ Store metastore.Agenda }

// Lead leads.
func (a Always) Lead(ctx context.Context, lead func(context.Context, uint64) error) error {
	s, err := a.Store.State(ctx)
	if err != nil {
		return fmt.Errorf("read the last term: %w", err)
	}
	return lead(ctx, s.Epoch+1)
}

// lead does the leader's duties for one term. If one of them fails all of them end, leadership is given up, and the
// next leader starts clean: all state is the store's.
func (cp *ControlPlane) lead(ctx context.Context, term uint64) error {
	r := cp.store.Apply(ctx, []jobs.Envelope{cp.envelope(jobs.DefaultTenant, jobs.Lead{Epoch: term, Node: cp.cfg.Node})})
	if r[0].Err != nil {
		return fmt.Errorf("begin term %d: %w", term, r[0].Err)
	}
	if err := cp.catalog.load(ctx, cp.cfg.Store, time.Now()); err != nil {
		return fmt.Errorf("load the job definitions: %w", err)
	}
	if err := cp.leases.load(ctx, cp.cfg.Store, time.Now()); err != nil {
		return fmt.Errorf("load the running attempts: %w", err)
	}
	cp.router.lead(true)
	defer cp.router.lead(false)
	if err := cp.hear(ctx); err != nil {
		return err
	}
	if cp.cfg.Serve != nil {
		if err := cp.cfg.Serve(ctx, cp.store); err != nil {
			return fmt.Errorf("serve the store: %w", err)
		}
	}
	cp.log.Info("leading", "node", cp.cfg.Node, "term", term)
	cp.ready.set(term)
	defer cp.ready.set(0)
	defer cp.log.Info("no longer leading", "node", cp.cfg.Node, "term", term)

	var g run.Group
	add(&g, ctx, func(ctx context.Context) error { return cp.fire(ctx, term) })
	add(&g, ctx, func(ctx context.Context) error { return cp.open(ctx, term) })
	for _, duty := range []func(context.Context) error{cp.release, cp.sweep, cp.expire, cp.prune} {
		add(&g, ctx, duty)
	}
	return g.Run()
}

// readiness says whether this process leads.
type readiness struct {
	mu    sync.Mutex
	term  uint64
	since time.Time
}

func (r *readiness) set(term uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.term, r.since = term, time.Now()
}

// Leading is the term this process leads, and since when; 0 if it does not lead.
func (cp *ControlPlane) Leading() (term uint64, since time.Time) {
	cp.ready.mu.Lock()
	defer cp.ready.mu.Unlock()
	return cp.ready.term, cp.ready.since
}

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
