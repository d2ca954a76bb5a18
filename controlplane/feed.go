package controlplane

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// feed notifies dashboards and waiting clients of changes. It holds names, never data: listeners read for themselves,
// with their own rights. A slow listener gets the union of what it missed. What this node commits goes to its own
// listeners and over the bus to those of all other nodes.
type feed struct {
	mu        sync.Mutex
	listeners map[*listener]bool
}

type listener struct {
	tenant jobs.Tenant // "*" = all
	own    bool        // only what this node committed
	news   map[jobs.Tenant]*news
	wake   chan struct{}
}

// news are the changes in a tenant.
type news struct {
	bus.Changes
	seen map[jobs.ID]bool
	keys map[jobs.Key]bool
}

// feedEvery is the minimum interval between two notifications over the bus.
const feedEvery = 20 * time.Millisecond

// feedMost is how many runs, and jobs, are named one by one; beyond that, "many" is sent.
const feedMost = 256

func (f *feed) init() { f.listeners = map[*listener]bool{} }

// note follows the effects of a commit.
func (f *feed) note(results []metastore.Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for l := range f.listeners {
		for i := range results {
			if results[i].Err == nil && !results[i].Existing {
				l.note(&results[i].Effect)
			}
		}
		if len(l.news) > 0 {
			poke(l.wake)
		}
	}
}

// merge takes in the changes of another node.
func (f *feed) merge(tenant jobs.Tenant, c bus.Changes) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for l := range f.listeners {
		if l.own || l.tenant != tenant && l.tenant != "*" {
			continue
		}
		n := l.of(tenant)
		for _, id := range c.Runs {
			n.run(id)
		}
		for _, key := range c.Keys {
			n.job(key)
		}
		n.Global, n.Many = n.Global || c.Global, n.Many || c.Many
		poke(l.wake)
	}
}

func (l *listener) of(tenant jobs.Tenant) *news {
	n := l.news[tenant]
	if n == nil {
		n = &news{seen: map[jobs.ID]bool{}, keys: map[jobs.Key]bool{}}
		l.news[tenant] = n
	}
	return n
}

func (l *listener) note(e *kernel.Effect) {
	wants := func(t jobs.Tenant) bool { return l.tenant == t || l.tenant == "*" }
	for _, run := range e.Runs {
		if wants(run.Tenant) {
			l.of(run.Tenant).run(run.ID)
		}
	}
	for _, d := range e.Definitions {
		if wants(d.Tenant) {
			l.of(d.Tenant).job(d.Key)
		}
	}
	if e.Global != nil && wants(e.Global.Tenant) {
		l.of(e.Global.Tenant).Global = true
	}
}

func (n *news) run(id jobs.ID) {
	switch {
	case n.seen[id]:
	case len(n.Runs) >= feedMost:
		n.Many = true
	default:
		n.seen[id] = true
		n.Runs = append(n.Runs, id)
	}
}

func (n *news) job(key jobs.Key) {
	switch {
	case n.keys[key]:
	case len(n.Keys) >= feedMost:
		n.Many = true
	default:
		n.keys[key] = true
		n.Keys = append(n.Keys, key)
	}
}

// Watch calls fn with what changed in a tenant ("*" = in all), here or at another node, until ctx ends; changes that
// come while fn works are merged into the next call.
func (cp *ControlPlane) Watch(ctx context.Context, tenant jobs.Tenant, fn func(bus.Changes)) {
	cp.watch(ctx, &listener{tenant: tenant}, func(all map[jobs.Tenant]*news) {
		for _, n := range all {
			fn(n.Changes)
		}
	})
}

func (cp *ControlPlane) watch(ctx context.Context, l *listener, fn func(map[jobs.Tenant]*news)) {
	l.wake, l.news = make(chan struct{}, 1), map[jobs.Tenant]*news{}
	f := &cp.feed
	f.mu.Lock()
	f.listeners[l] = true
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.listeners, l)
		f.mu.Unlock()
	}()
	for {
		select {
		case <-l.wake:
		case <-ctx.Done():
			return
		}
		f.mu.Lock()
		all := l.news
		l.news = map[jobs.Tenant]*news{}
		f.mu.Unlock()
		fn(all)
	}
}

// publishChanges sends what this node commits to the other nodes.
func (cp *ControlPlane) publishChanges(ctx context.Context) error {
	cp.watch(ctx, &listener{tenant: "*", own: true}, func(all map[jobs.Tenant]*news) {
		for t, n := range all {
			if err := cp.cfg.Bus.Signal(ctx, bus.Signal{Topic: bus.TopicLive, Tenant: t, Data: bus.Encode(n.Changes)}); err != nil {
				cp.log.Debug("changes were not published", "err", err)
			}
		}
		_ = wait(ctx, feedEvery)
	})
	return ctx.Err()
}
