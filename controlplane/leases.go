package controlplane

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// leases is the leader's memory of the attempts that are under way. It is not stored: beats keep it up, and a new
// leader gives every attempt a full term.
type leases struct {
	mu    sync.Mutex
	held  map[jobs.ID]*lease
	term  time.Duration
	heard time.Time // since when the bus has been answering without a break
}

// lease is one attempt.
type lease struct {
	tenant   jobs.Tenant
	worker   string
	attempt  uint32
	until    time.Time
	deadline time.Time // of the attempt; zero = none
	over     *bus.Stop // what its worker is told: the attempt is over, its handler has not returned
	stuck    bool
	progress *bus.Progress
}

func (l *leases) init(term time.Duration) {
	l.term, l.held = term, map[jobs.ID]*lease{}
}

func (l *leases) load(ctx context.Context, st metastore.Agenda, now time.Time) error {
	rows, err := st.Leased(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held, l.heard = make(map[jobs.ID]*lease, len(rows)), now
	for _, in := range rows {
		l.note(in, now)
	}
	return nil
}

// note follows a run as a commit left it. The lock is held.
func (l *leases) note(in *jobs.Instance, now time.Time) {
	if in.State != jobs.Processing && !in.Lingering {
		delete(l.held, in.ID)
		return
	}
	k := l.held[in.ID]
	if k == nil || k.attempt != in.Attempt {
		if k != nil && k.attempt > in.Attempt {
			return // an older effect that was overtaken
		}
		k = &lease{tenant: in.Tenant, worker: in.Worker, attempt: in.Attempt, until: now.Add(l.term)}
		l.held[in.ID] = k
	}
	k.deadline = in.Deadline
	if in.Lingering {
		k.over, k.deadline = stopOf(in), time.Time{}
	}
}

// stopOf is what a worker is told about an attempt that is over.
func stopOf(in *jobs.Instance) *bus.Stop {
	s := &bus.Stop{ID: in.ID, Attempt: in.Attempt}
	switch in.State {
	case jobs.Cancelled:
		if n := len(in.Moves); n > 0 {
			s.By, s.Reason = in.Moves[n-1].By, in.Moves[n-1].Text
		}
	default:
		s.Timeout = in.Cause == jobs.ByTimeout
	}
	return s
}

// beat renews the leases that a worker holds. It answers with what to stop, and with attempts that this leader
// does not know.
func (l *leases) beat(worker string, held []bus.Held, now time.Time) (stop []bus.Stop, unknown []bus.Held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range held {
		k := l.held[h.ID]
		if k == nil || k.attempt != h.Attempt || k.worker != worker {
			unknown = append(unknown, h)
			continue
		}
		k.until, k.stuck = now.Add(l.term), h.Stuck
		if h.Progress != nil {
			k.progress = h.Progress
		}
		if k.over != nil {
			stop = append(stop, *k.over)
		}
	}
	return stop, unknown
}

// lapsed lists the attempts whose lease is over, and those that have outlived their deadline by grace. While the
// bus has not been answering for a full term, no lease is over: the silence may be ours.
func (l *leases) lapsed(now time.Time, grace time.Duration) (out []expiry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sure := !l.heard.IsZero() && now.Sub(l.heard) >= l.term
	for id, k := range l.held {
		switch {
		case sure && now.After(k.until):
			out = append(out, expiry{k.tenant, jobs.Expire{ID: id, Attempt: k.attempt, Cause: jobs.ByLoss}})
		case !k.deadline.IsZero() && now.After(k.deadline.Add(grace)):
			out = append(out, expiry{k.tenant, jobs.Expire{ID: id, Attempt: k.attempt, Cause: jobs.ByTimeout}})
		}
	}
	return out
}

type expiry struct {
	tenant jobs.Tenant
	expire jobs.Expire
}

// reach notes whether the bus has just answered.
func (l *leases) reach(ok bool, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !ok:
		l.heard = time.Time{}
	case l.heard.IsZero():
		l.heard = now
	}
}

func (l *leases) empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held) == 0
}

// Attempt is what the leader knows of an attempt beside what is stored.
type Attempt struct {
	Worker   string
	Progress *bus.Progress
	Stuck    bool // told to stop, and still running
	Over     bool
}

// Attempt is what is known of a run's current attempt; false if none is under way.
func (cp *ControlPlane) Attempt(id jobs.ID) (Attempt, bool) {
	l := &cp.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.held[id]
	if k == nil {
		return Attempt{}, false
	}
	return Attempt{Worker: k.worker, Progress: k.progress, Stuck: k.stuck, Over: k.over != nil}, true
}
