package memstore

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Waking lists runs whose wake time is at or before until, earliest first, and the next wake time after those.
func (e *Engine) Waking(_ context.Context, until time.Time, limit int) (due []metastore.Named, next time.Time, err error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	e.rows.wakes.inOrder(func(w waking) bool {
		if len(due) >= limit || w.at > until.UnixNano() {
			next = time.Unix(0, w.at).UTC()
			return false
		}
		due = append(due, metastore.Named{Tenant: w.space.tenant, ID: w.id})
		return true
	})
	return due, next, nil
}

// Ready lists the first ready runs of an app.
func (e *Engine) Ready(_ context.Context, tenant jobs.Tenant, app string, limit int) ([]*kernel.Run, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	s := e.rows.spaces[tenant]
	if s == nil || s.apps[app] == nil {
		return nil, nil
	}
	var found []*kernel.Run
	for _, r := range s.apps[app].ready {
		for n := r.first; n != nil && len(found) < limit; n = n.links[inReady].newer {
			found = append(found, n.get())
		}
	}
	return found, nil
}

// ReadyApps lists the apps that have ready runs.
func (e *Engine) ReadyApps(context.Context) ([]metastore.ReadyApp, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	var found []metastore.ReadyApp
	for _, s := range e.rows.spaces {
		for app, l := range s.apps {
			at := metastore.ReadyApp{Tenant: s.tenant, App: app}
			for _, r := range l.ready {
				at.Ready += r.n
			}
			found = append(found, at)
		}
	}
	return found, nil
}

// Backlog lists the apps that have ready runs, each with the age of the oldest.
func (e *Engine) Backlog(context.Context) ([]metastore.Backlog, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	var found []metastore.Backlog
	for _, s := range e.rows.spaces {
		for app, l := range s.apps {
			at := metastore.Backlog{ReadyApp: metastore.ReadyApp{Tenant: s.tenant, App: app}}
			var oldest *node
			for _, r := range l.ready { // the first of each priority is its oldest
				at.Ready += r.n
				if n := r.first; oldest == nil || n.turn < oldest.turn {
					oldest = n
				}
			}
			at.Since = oldest.get().Queued
			found = append(found, at)
		}
	}
	return found, nil
}

// Leased lists the attempts that are under way.
func (e *Engine) Leased(context.Context) ([]*kernel.Run, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	found := make([]*kernel.Run, 0, e.rows.leased.n)
	for n := e.rows.leased.first; n != nil; n = n.links[inLeased].newer {
		found = append(found, n.row)
	}
	return found, nil
}

// Unserved lists gates with both a free slot and a waiting run. A run at one that its rate keeps shut wakes when it
// opens.
func (e *Engine) Unserved(_ context.Context, limit int) ([]kernel.Ref, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	var found []kernel.Ref
	for g := range e.rows.unserved {
		if len(found) >= limit {
			break
		}
		if now := e.rows.spaces[g.ref.Tenant].now(g); now == nil || e.rows.store == nil || !now.Throttled(e.rows.store.At) {
			found = append(found, g.ref)
		}
	}
	return found, nil
}

// Expired lists unique keys that expired at or before until.
func (e *Engine) Expired(_ context.Context, until time.Time, limit int) ([]kernel.Ref, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	var found []kernel.Ref
	e.rows.expiries.inOrder(func(u *unique) bool {
		if len(found) >= limit || u.row.Until.After(until) {
			return false
		}
		found = append(found, u.row.Ref())
		return true
	})
	return found, nil
}

// State is the row the store keeps about itself.
func (e *Engine) State(context.Context) (kernel.StoreRow, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.rows.store == nil {
		return kernel.StoreRow{}, nil
	}
	return *e.rows.store, nil
}
