package embed

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// live implements ops.Live. A node that does not lead asks the leader over the bus for what only the leader knows.
type live struct {
	plane *controlplane.ControlPlane
	calls bus.Calls
	road  *road // nil = the bus is not found through a database

	mu   sync.Mutex
	seen map[jobs.Tenant]*sight
}

var _ ops.Live = (*live)(nil)

// view is what the leader knows of a tenant: workers, the last minutes, refusals, and attempts with progress.
type view struct {
	Workers  []ops.Worker            `json:"workers,omitempty"`
	Pulse    []ops.Minute            `json:"pulse,omitempty"`
	Refusals []ops.Refusals          `json:"refusals,omitempty"`
	Attempts map[jobs.ID]ops.Attempt `json:"attempts,omitempty"`
}

// sight is a cached view.
type sight struct {
	asking sync.Mutex // one caller asks, the others wait for its result
	view   view
	asked  time.Time
	got    time.Time // zero = never
}

const (
	sightFresh    = time.Second            // minimum interval between two requests
	sightStale    = 10 * time.Second       // maximum age of a view while the leader does not answer
	sightPatience = 500 * time.Millisecond // timeout of a request
	mostSights    = 64                     // tenants of which views are kept
	mostAttempts  = 2_000                  // in a view
)

// view is what this node knows as the leader.
func (l *live) view(tenant jobs.Tenant) view {
	var v view
	for _, m := range l.plane.Workers(tenant) {
		v.Workers = append(v.Workers, ops.Worker{WorkerInfo: m.WorkerInfo, Running: m.Running, Seen: m.Seen, Leaving: m.Leaving, Drained: m.Drained})
	}
	for _, m := range l.plane.Pulse(tenant) {
		v.Pulse = append(v.Pulse, ops.Minute(m))
	}
	for _, r := range l.plane.Refusals(tenant) {
		v.Refusals = append(v.Refusals, ops.Refusals(r))
	}
	return v
}

// serve answers other nodes until ctx ends: while this one leads.
func (l *live) serve(ctx context.Context, calls bus.Calls) error {
	return calls.Serve(ctx, bus.ServiceLive, func(_ context.Context, from bus.Principal, request []byte) ([]byte, error) {
		if from.Role != bus.Node {
			return nil, kernel.Refuse(jobs.Forbidden, "%s is not a node", from.Actor())
		}
		v := l.view(jobs.Tenant(request))
		v.Attempts = map[jobs.ID]ops.Attempt{}
		for id, a := range l.plane.Attempts(jobs.Tenant(request), mostAttempts) {
			v.Attempts[id] = ops.Attempt{Progress: a.Progress, Stuck: a.Stuck, Unconfirmed: a.Unconfirmed}
		}
		b := bus.Encode(v)
		if len(b) > l.calls.Limit() {
			for i := range v.Workers {
				v.Workers[i].Keys = nil // by far the largest part
			}
			b = bus.Encode(v)
		}
		return b, nil
	})
}

// leaders returns the leader's view, at most sightStale old.
func (l *live) leaders(tenant jobs.Tenant) view {
	if term, _ := l.plane.Leading(); term > 0 {
		return l.view(tenant)
	}
	l.mu.Lock()
	s := l.seen[tenant]
	if s == nil {
		if l.seen == nil || len(l.seen) >= mostSights {
			l.seen = map[jobs.Tenant]*sight{}
		}
		s = &sight{}
		l.seen[tenant] = s
	}
	l.mu.Unlock()
	s.asking.Lock()
	defer s.asking.Unlock()
	if time.Since(s.asked) >= sightFresh {
		l.look(tenant, s)
	}
	if time.Since(s.got) >= sightStale {
		return view{}
	}
	return s.view
}

// look asks the leader for its view.
func (l *live) look(tenant jobs.Tenant, s *sight) {
	ctx, cancel := context.WithTimeout(context.Background(), sightPatience)
	defer cancel()
	raw, err := l.calls.Call(ctx, bus.ServiceLive, []byte(tenant))
	s.asked = time.Now()
	if err != nil {
		return
	}
	if v, err := bus.Decode[view](raw); err == nil {
		s.view, s.got = v, s.asked
	}
}

func (l *live) Workers(tenant jobs.Tenant) []ops.Worker { return l.leaders(tenant).Workers }

func (l *live) Pulse(tenant jobs.Tenant) []ops.Minute { return l.leaders(tenant).Pulse }

// Refusals are the leader's, and those of requests that this node refuses by itself.
func (l *live) Refusals(tenant jobs.Tenant) []ops.Refusals {
	list := l.leaders(tenant).Refusals
	if term, _ := l.plane.Leading(); term > 0 {
		return list
	}
	return append(list[:len(list):len(list)], l.view(tenant).Refusals...)
}

func (l *live) Attempt(tenant jobs.Tenant, run jobs.ID) (ops.Attempt, bool) {
	if term, _ := l.plane.Leading(); term > 0 {
		a, known := l.plane.Attempt(tenant, run)
		return ops.Attempt{Progress: a.Progress, Stuck: a.Stuck, Unconfirmed: a.Unconfirmed}, known
	}
	a, known := l.leaders(tenant).Attempts[run]
	return a, known
}

func (l *live) Leader() ops.Leader {
	n := l.plane.Leader()
	if n.Term == 0 {
		if l.road == nil {
			return ops.Leader{}
		}
		r := l.road.leader() // this process may not be connected
		if r.Term == 0 || r.Node == l.plane.Node() {
			return ops.Leader{}
		}
		return ops.Leader{Node: r.Node, Term: r.Term}
	}
	return ops.Leader{Node: n.Name, Term: n.Term, Here: n.Here, Since: n.Since, Step: n.Step, Off: l.plane.OffOf(n.Name)}
}

func (l *live) Shares() (list []ops.Share) {
	for _, f := range l.plane.Shares() {
		list = append(list, ops.Share(f))
	}
	return list
}

func (l *live) Nodes() []ops.Node {
	all := l.plane.Nodes()
	list := make([]ops.Node, len(all))
	for i, n := range all {
		list[i] = ops.Node(n)
	}
	return list
}

func (l *live) Watch(ctx context.Context, tenant jobs.Tenant, fn func(bus.Changes)) {
	l.plane.Watch(ctx, tenant, fn)
}
