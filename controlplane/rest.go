package controlplane

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Drained workers, and jobs that no worker has.

// rest has a worker take nothing new, or take runs again: here at once, and there by the signal that is returned. The
// next heartbeats repeat it until the worker does. The lock is held.
func (r *router) rest(tenant jobs.Tenant, k kernel.Drain) bus.Signal {
	request := bus.RestResume
	if k.On {
		request = bus.RestDrain
	}
	for _, a := range r.apps {
		if m := a.workers[k.Worker]; m != nil && a.lane.Tenant == tenant {
			m.resting, m.request = k.On, request
			if k.On {
				r.recall(a, k.Worker)
			}
			a.measure()
			a.backlog = true
			poke(r.changed)
		}
	}
	return bus.Signal{Topic: bus.TopicCancel, Tenant: tenant, To: k.Worker, Data: bus.Encode(bus.Stop{Rest: request, Stale: true})}
}

// recall takes back offers to one worker only.
func (r *router) recall(a *app, name string) {
	for id, o := range a.out {
		if o.to == name {
			a.gone(id)
			a.backlog = true
		}
	}
}

// rested follows what a worker reports. Until it has done what was requested, the request stays.
func (r *router) rested(a *app, m *member, resting bool) {
	switch {
	case m.request != "" && resting == (m.request == bus.RestDrain):
		m.request = ""
	case m.request == "" && resting != m.resting:
		m.resting = resting
		a.measure()
		a.backlog = true
	}
}

// stoppedAfter is how long workers of a job's app must have lived without the job before it is marked stopped: as long
// as the rollout of a new version may take. stoppedEvery is the interval of that check.
const (
	stoppedAfter = time.Minute
	stoppedEvery = 10 * time.Second
)

// missing is the leader's memory of jobs that no worker has.
type missing struct {
	since   map[kernel.Ref]time.Time
	looked  time.Time
	fleet   uint64 // of all apps, when it was looked
	changes uint64
}

// served are the jobs that the workers of an app have.
type served struct {
	workers int
	keys    map[jobs.Key]bool
	any     []bus.WorkerInfo // those that serve what none has by name
}

// has reports whether one of the workers has the handler of a job.
func (s *served) has(d *kernel.Definition) bool {
	return s.keys[d.HandlerKey()] || slices.ContainsFunc(s.any, func(i bus.WorkerInfo) bool { return i.Serves(d) })
}

// fleets returns the workers of each app, and a number that changes when they do.
func (r *router) fleets() (map[bus.Lane]served, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, fleet := map[bus.Lane]served{}, uint64(0)
	for lane, a := range r.apps {
		s := served{workers: len(a.workers), keys: map[jobs.Key]bool{}}
		for _, m := range a.workers {
			for key := range m.info.Keys {
				s.keys[key] = true
			}
			if m.info.Any {
				s.any = append(s.any, m.info)
			}
		}
		fleet += a.fleet
		all[lane] = s
	}
	return all, fleet
}

// markStopped marks jobs whose app has workers of which none has the job any more, and takes the mark from those that
// one has again.
func (cp *ControlPlane) markStopped(ctx context.Context, now time.Time) error {
	m := &cp.missing
	if now.Sub(cp.router.began()) < settling {
		return nil
	}
	if m.since == nil {
		m.since = map[kernel.Ref]time.Time{}
	}
	apps, fleet := cp.router.fleets()
	state, err := cp.cfg.Store.State(ctx)
	if err != nil {
		return err
	}
	changed := fleet != m.fleet || state.Changes != m.changes
	if !changed && (len(m.since) == 0 || now.Sub(m.looked) < stoppedEvery) {
		return nil
	}
	m.fleet, m.changes, m.looked = fleet, state.Changes, now
	defs, err := cp.cfg.Store.Definitions(ctx, metastore.DefinitionQuery{Tenant: "*"})
	if err != nil {
		return err
	}
	known := map[kernel.Ref]time.Time{}
	var batch []kernel.Envelope
	for _, d := range defs {
		if d.Gone() {
			continue
		}
		s := apps[bus.Lane{Tenant: d.Tenant, App: d.App}]
		switch {
		case s.has(d) && !d.Stopped.IsZero():
			batch = append(batch, cp.envelope(d.Tenant, kernel.Mark{Key: d.Key}))
		case s.has(d) || s.workers == 0 || !d.Stopped.IsZero():
		default:
			since, ok := m.since[d.Ref()]
			if !ok {
				since = now
			}
			if known[d.Ref()] = since; now.Sub(since) >= stoppedAfter {
				batch = append(batch, cp.envelope(d.Tenant, kernel.Mark{Key: d.Key, Stopped: true}))
			}
		}
	}
	m.since = known
	for len(batch) > 0 {
		n := min(len(batch), 1000)
		for i, r := range cp.store.Apply(ctx, batch[:n]) {
			k := batch[i].Command.(kernel.Mark)
			switch {
			case r.Err == nil && k.Stopped:
				cp.log.Warn("a job is stopped: no worker has it any more", "key", k.Key)
			case r.Err == nil:
				cp.log.Info("a job is not stopped any more: a worker has it", "key", k.Key)
			case !errors.Is(r.Err, jobs.NotFound):
				return r.Err
			}
		}
		batch = batch[n:]
	}
	return nil
}

// began returns when the term began.
func (r *router) began() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.since
}
