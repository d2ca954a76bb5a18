package controlplane

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
)

// An app's lane in the shared queue. It is used when it has been made and all workers of the app know of the queue;
// until then, offers go to workers by name.

// laneTime is how long offers wait for lanes that are being made. On one server they are ready within milliseconds; a
// cluster whose servers have just found each other may take seconds, in which offers go to workers by name.
const laneTime = 50 * time.Millisecond

// makeLanes makes the lanes that are missing in the shared queue.
func (cp *ControlPlane) makeLanes(ctx context.Context) {
	queue, lanes := cp.router.unmade()
	if len(lanes) == 0 {
		return
	}
	made := make(chan struct{})
	go func() {
		defer close(made)
		for _, lane := range lanes {
			if err := cp.cfg.Bus.Offer(ctx, queue, lane); err != nil {
				cp.lost(queue, err)
				return
			}
			cp.router.laneMade(queue, lane, time.Now())
		}
	}()
	late := time.NewTimer(laneTime)
	defer late.Stop()
	select {
	case <-made:
	case <-late.C:
	case <-ctx.Done():
	}
}

// unmade lists the apps whose lane is missing in the queue of this term, and is not being made.
func (r *router) unmade() (queue string, lanes []bus.Lane) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for lane, a := range r.apps {
		if r.queue != "" && a.making != r.queue && len(a.workers) > 0 {
			a.making = r.queue
			lanes = append(lanes, lane)
		}
	}
	return r.queue, lanes
}

// laneMade records that an app's lane is ready.
func (r *router) laneMade(queue string, lane bus.Lane, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.apps[lane]; a != nil && r.queue == queue {
		a.made = queue
		r.opened(a, now)
	}
}

// answer returns what a heartbeat is answered with: the queue to take offers from, and the request that the worker has
// not done yet.
func (r *router) answer(tenant jobs.Tenant, worker string, now time.Time) (queue string, request bus.Rest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.apps {
		if m := a.workers[worker]; m != nil && a.lane.Tenant == tenant {
			if m.answered != r.queue {
				m.answered = r.queue
				a.learn()
				r.opened(a, now)
			}
			return r.queue, m.request
		}
	}
	return r.queue, ""
}

// learn finds out which queue all workers of an app were answered with: before that, no worker takes what is in it.
func (a *app) learn() {
	a.known = ""
	first := true
	for _, m := range a.workers {
		switch {
		case m.off():
		case first:
			a.known, first = m.answered, false
		case m.answered != a.known:
			a.known = ""
			return
		}
	}
}

// open reports whether an app's workers take offers from its lane in the shared queue.
func (r *router) open(a *app) bool { return r.queue != "" && a.made == r.queue && a.known == r.queue }

// opened moves offers that wait for a worker by name, for want of the lane, there, too.
func (r *router) opened(a *app, now time.Time) {
	if !r.open(a) {
		return
	}
	for c, waiting := range a.queues {
		if waiting[0].place != nil || !a.common(waiting[0]) {
			continue
		}
		for _, o := range waiting {
			if a.parked[o.offer.ID] == o {
				delete(a.parked, o.offer.ID)
				a.out[o.offer.ID] = o
				a.fresh = append(a.fresh, o)
				o.at = now
			}
		}
		delete(a.queues, c)
	}
	poke(r.changed)
}
