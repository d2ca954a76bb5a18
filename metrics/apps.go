package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/controlplane"
)

// Series of apps: their workers, and the runs that wait for one. Only the leader has them.

const (
	// maxApps is how many apps have series of their own; all others are one.
	maxApps   = 50
	otherApps = "(other)"
	// appsFor is how long an app without workers and backlog keeps its series: a scaler reads 0, and no gap.
	appsFor = 15 * time.Minute
)

type app struct{ tenant, name string }

// appCache is the apps that have series of their own, and when each was last seen.
type appCache struct {
	mu   sync.Mutex
	seen map[app]time.Time
}

// appSums are the values of an app.
type appSums struct {
	workers, leaving, unlimited, slots, free, running, backlog int
	age                                                        time.Duration
}

// show shows the apps that have workers or a backlog, or had them lately.
func (a *appCache) show(ctx context.Context, s *sink, c *Config) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if term, _ := c.Plane.Leading(); term == 0 {
		a.seen = nil
		return
	}
	backlog, err := c.Plane.Backlog(ctx)
	if err != nil {
		c.Logger.Warn("cannot read the backlog for the metrics", "err", err)
	}
	now := time.Now()
	sums := a.sums(c.Plane.Workers("*"), backlog, now)
	for of, n := range sums {
		labels := []string{"tenant", of.tenant, "app", of.name}
		s.gauge("workers", "Workers with recent heartbeats, as the leader knows them.", float64(n.workers), labels...)
		s.gauge("workers_leaving", "Workers that take no new runs because they are stopping.", float64(n.leaving), labels...)
		s.gauge("workers_unlimited", "Workers without a limit of parallel runs.", float64(n.unlimited), labels...)
		s.gauge("worker_slots", "Max parallel runs of workers; a worker without a limit counts 0.", float64(n.slots), labels...)
		s.gauge("worker_slots_free", "Free slots of workers that take new runs; a worker without a limit counts 0.", float64(n.free), labels...)
		s.gauge("worker_runs", "Runs that workers have, from their heartbeats.", float64(n.running), labels...)
		if err == nil {
			s.gauge("backlog_runs", "Runs that wait for a worker's slot and for nothing else: no limit, delay or pause holds them.", float64(n.backlog), labels...)
			s.gauge("backlog_oldest_seconds", "How long the oldest of these has waited for a worker's slot; 0 if there is none.", n.age.Seconds(), labels...)
		}
	}
}

// sums adds up the values of each app, and those of all apps beyond the first ones.
func (a *appCache) sums(workers []controlplane.Member, backlog []controlplane.Backlog, now time.Time) map[app]*appSums {
	if a.seen == nil {
		a.seen = map[app]time.Time{}
	}
	for of, at := range a.seen {
		if now.Sub(at) > appsFor {
			delete(a.seen, of)
		}
	}
	all := make(map[app]*appSums, len(a.seen))
	for of := range a.seen {
		all[of] = new(appSums)
	}
	sum := func(of app) *appSums {
		if _, known := a.seen[of]; !known && len(a.seen) >= maxApps {
			of = app{string(controlplane.OtherTenants), otherApps}
		} else {
			a.seen[of] = now
		}
		if all[of] == nil {
			all[of] = new(appSums)
		}
		return all[of]
	}
	for _, w := range workers {
		n := sum(app{string(w.Tenant), w.App})
		n.workers++
		n.slots += w.Slots
		n.running += w.Running
		if w.Leaving {
			n.leaving++
		}
		switch {
		case w.Slots <= 0:
			n.unlimited++
		case !w.Leaving && !w.Drained:
			n.free += max(0, w.Slots-w.Running)
		}
	}
	for _, b := range backlog {
		n := sum(app{string(b.Tenant), b.App})
		n.backlog += b.Runs
		n.age = max(n.age, b.Age)
	}
	return all
}
