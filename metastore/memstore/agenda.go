package memstore

import (
	container "container/heap"
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Waking lists runs whose wake time is at or before until, earliest first, and the next wake time after those. Then come
// held runs that nothing holds any more.
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
	for h := range e.rows.unheld {
		h.runs.inOrder(func(n *node) bool {
			if len(due) < limit && (n.wakes == 0 || e.rows.wakes.items[n.wakes-1].at > until.UnixNano()) { // not listed yet
				due = append(due, metastore.Named{Tenant: h.space.tenant, ID: n.id})
			}
			return len(due) < limit
		})
	}
	return due, next, nil
}

// Ready lists the first ready runs of an app.
func (e *Engine) Ready(_ context.Context, q metastore.ReadyQuery) ([]*kernel.Run, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	s := e.rows.spaces[q.Tenant]
	if s == nil || s.apps[q.App] == nil {
		return nil, nil
	}
	var next heads
	for name, of := range s.apps[q.App].queues {
		if q.Has != nil && !q.Has(name) {
			continue
		}
		for _, r := range of {
			next = append(next, head{r.priority, r.first})
		}
	}
	container.Init(&next)
	var found []*kernel.Run
	for len(next) > 0 && len(found) < q.Limit {
		found = append(found, next[0].get())
		if n := next[0].links[inReady].newer; n != nil {
			next[0].node = n
			container.Fix(&next, 0)
		} else {
			container.Pop(&next)
		}
	}
	return found, nil
}

// head is the first run that is left of a list of ready runs.
type head struct {
	priority int
	*node
}

// heads are in the order in which ready runs start.
type heads []head

func (h heads) Len() int { return len(h) }
func (h heads) Less(i, j int) bool {
	return h[i].priority > h[j].priority || h[i].priority == h[j].priority && h[i].turn < h[j].turn
}
func (h heads) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *heads) Push(x any)   { *h = append(*h, x.(head)) }
func (h *heads) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

// ReadyApps lists the apps that have ready runs.
func (e *Engine) ReadyApps(context.Context) ([]metastore.ReadyApp, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	var found []metastore.ReadyApp
	for _, s := range e.rows.spaces {
		for app, l := range s.apps {
			at := metastore.ReadyApp{Tenant: s.tenant, App: app}
			for r := range l.each {
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
			for r := range l.each { // the first of each is its oldest
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
