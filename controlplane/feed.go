package controlplane

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// feed tells dashboards and waiting clients what changed. It holds names, never data: who is told reads for itself,
// with its own rights. A listener that is slow gets the union of what it missed.
type feed struct {
	mu        sync.Mutex
	listeners map[*listener]bool
}

type listener struct {
	tenant jobs.Tenant
	news   bus.Changes
	seen   map[jobs.ID]bool
	wake   chan struct{}
}

// feedEvery is how often at most what changed is told over the bus.
const feedEvery = 20 * time.Millisecond

// feedMost is how many runs are named one by one; beyond that, "many" is told.
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
		if n := &l.news; len(n.Instances) > 0 || len(n.Keys) > 0 || n.Global || n.Many {
			poke(l.wake)
		}
	}
}

func (l *listener) note(e *jobs.Effect) {
	for _, in := range e.Instances {
		switch {
		case in.Tenant != l.tenant && l.tenant != "*":
		case len(l.news.Instances) >= feedMost:
			l.news.Many = true
		case !l.seen[in.ID]:
			l.seen[in.ID] = true
			l.news.Instances = append(l.news.Instances, in.ID)
		}
	}
	for _, d := range e.Definitions {
		if (d.Tenant == l.tenant || l.tenant == "*") && len(l.news.Keys) < feedMost {
			l.news.Keys = append(l.news.Keys, d.Key)
		}
	}
	l.news.Global = l.news.Global || e.Global != nil
}

// Watch calls fn with what changed in a tenant ("*" = in all), until ctx ends; changes that come while fn works are
// told together afterwards.
func (cp *ControlPlane) Watch(ctx context.Context, tenant jobs.Tenant, fn func(bus.Changes)) {
	l := &listener{tenant: tenant, wake: make(chan struct{}, 1), seen: map[jobs.ID]bool{}}
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
		news := l.news
		l.news, l.seen = bus.Changes{}, map[jobs.ID]bool{}
		f.mu.Unlock()
		fn(news)
	}
}

// tell passes what changes on to those who listen on the bus.
func (cp *ControlPlane) tell(ctx context.Context) error {
	cp.Watch(ctx, "*", func(news bus.Changes) {
		if err := cp.cfg.Bus.Signal(ctx, bus.Signal{Topic: bus.TopicLive, Data: bus.Encode(news)}); err != nil {
			cp.log.Debug("changes were not told", "err", err)
		}
		_ = wait(ctx, feedEvery)
	})
	return ctx.Err()
}
