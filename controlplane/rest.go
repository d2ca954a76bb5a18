package controlplane

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/controlplane/assign"
	"github.com/carillon-scheduler/carillon/internal/dispatch"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Drained workers, and jobs that no worker has.

// rest has a worker take nothing new, or take runs again: here at once, but it gets runs again only when it reports so;
// and there by the signal that is returned. The answers to its heartbeats repeat it until the worker does. The lock is
// held.
func (b *board) rest(tenant jobs.Tenant, k kernel.Drain) bus.Signal {
	request := bus.RestResume
	if k.On {
		request = bus.RestDrain
	}
	w := dispatch.Worker{Tenant: tenant, Name: k.Worker}
	if m := b.members[w]; m != nil {
		m.resting, m.request = k.On, request
		if k.On {
			b.Rest(w)
		}
	}
	return bus.Signal{Topic: bus.TopicCancel, Tenant: tenant, To: k.Worker, Data: bus.Encode(bus.Stop{Rest: request, Stale: true})}
}

// stoppedAfter is how long workers of a job's app must have lived without the job before it is marked stopped: as long
// as the rollout of a new version may take. stoppedEvery is the interval of that check.
const (
	stoppedAfter = time.Minute
	stoppedEvery = 10 * time.Second
	lookedPart   = 20 // looking at all jobs takes at most this part of the time
)

// missing is the leader's memory of jobs that no worker has.
type missing struct {
	since   map[jobs.ID]time.Time
	looked  time.Time
	pause   time.Duration // until the next look, by what the last one took
	fleet   uint64        // of all apps, when it was looked
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

// fleets returns the workers of each app.
func (b *board) fleets() map[assign.App]*served {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[assign.App]*served{}
	for w, m := range b.members {
		app := assign.App{Tenant: w.Tenant, Name: m.info.App}
		s := all[app]
		if s == nil {
			s = &served{keys: map[jobs.Key]bool{}}
			all[app] = s
		}
		s.workers++
		for key := range m.info.Keys {
			s.keys[key] = true
		}
		if m.info.Any {
			s.any = append(s.any, m.info)
		}
	}
	return all
}

// markStopped marks jobs whose app has workers of which none has the job any more, and takes the mark from those that
// one has again.
func (cp *ControlPlane) markStopped(ctx context.Context, now time.Time) error {
	m := &cp.missing
	if !cp.board.allKnown() {
		return nil
	}
	if m.since == nil {
		m.since = map[jobs.ID]time.Time{}
	}
	apps, fleet := cp.board.fleets(), cp.board.fleet()
	state, err := cp.cfg.Store.State(ctx)
	if err != nil {
		return err
	}
	changed := fleet != m.fleet || state.Changes != m.changes
	if now.Sub(m.looked) < m.pause || !changed && (len(m.since) == 0 || now.Sub(m.looked) < stoppedEvery) {
		return nil
	}
	begun := time.Now()
	m.fleet, m.changes, m.looked = fleet, state.Changes, now
	known := map[jobs.ID]time.Time{}
	err = metastore.EachChange(ctx, cp.cfg.Store, 0, func(part []*kernel.Definition) error {
		return cp.mark(ctx, part, apps, known, now)
	})
	if err == nil {
		m.since = known
	}
	m.pause = min(lookedPart*time.Since(begun), stoppedAfter)
	return err
}

// mark marks those of some definitions that have to be. known receives since when no worker has the others.
func (cp *ControlPlane) mark(ctx context.Context, defs []*kernel.Definition, apps map[assign.App]*served, known map[jobs.ID]time.Time, now time.Time) error {
	var batch []kernel.Envelope
	for _, d := range defs {
		if d.Gone() {
			continue
		}
		s := apps[assign.App{Tenant: d.Tenant, Name: d.App}]
		if s == nil {
			s = new(served)
		}
		switch {
		case s.has(d) && !d.Stopped.IsZero():
			batch = append(batch, cp.envelope(d.Tenant, kernel.Mark{Key: d.Key}))
		case s.has(d) || s.workers == 0 || !d.Stopped.IsZero():
		default:
			since, ok := cp.missing.since[d.UID]
			if !ok {
				since = now
			}
			if now.Sub(since) >= stoppedAfter {
				batch = append(batch, cp.envelope(d.Tenant, kernel.Mark{Key: d.Key, Stopped: true}))
			} else {
				known[d.UID] = since
			}
		}
	}
	if len(batch) == 0 {
		return nil
	}
	for i, r := range cp.store.Apply(ctx, batch) {
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
	return nil
}
