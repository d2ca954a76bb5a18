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

// leases is the leader's memory of the attempts that are under way. It is not stored: heartbeats keep it up, and a new
// leader gives every attempt a full term.
type leases struct {
	mu        sync.Mutex
	held      map[runRef]*lease
	term      time.Duration
	answering time.Time        // since when the bus has been answering without a break
	loads     map[string]*load // what each worker has under way; nil = not counted
}

// runRef names a run. Clients may choose a run's ID, so that those of two tenants may be the same.
type runRef struct {
	tenant jobs.Tenant
	id     jobs.ID
}

func runOf(run *kernel.Run) runRef { return runRef{run.Tenant, run.ID} }

// lease is one attempt.
type lease struct {
	app      string
	key      jobs.Key
	worker   string
	attempt  uint32
	since    time.Time // that this leader knows it
	until    time.Time
	deadline time.Time // of the attempt; zero = none
	over     *bus.Stop // sent to its worker: the attempt has ended, its handler has not returned
	stuck    bool
	progress *bus.Progress
}

func (l *leases) init(term time.Duration) {
	l.term, l.held = term, map[runRef]*lease{}
}

func (l *leases) load(ctx context.Context, st metastore.Agenda, now time.Time) error {
	rows, err := st.Leased(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held, l.answering, l.loads = make(map[runRef]*lease, len(rows)), now, nil
	for _, run := range rows {
		l.note(run, now)
	}
	return nil
}

// note follows a run as a commit left it. The lock is held.
func (l *leases) note(run *kernel.Run, now time.Time) {
	of := runOf(run)
	k := l.held[of]
	if k != nil && k.attempt > run.Attempt {
		return // an older effect that was overtaken
	}
	if run.State != jobs.Processing && !run.Lingering {
		if l.loads != nil && k != nil {
			l.count(k, -1)
		}
		delete(l.held, of)
		return
	}
	if k == nil || k.attempt != run.Attempt {
		if k != nil {
			l.count(k, -1)
		}
		k = &lease{app: run.App, key: run.Key, worker: run.Worker, attempt: run.Attempt, since: now, until: now.Add(l.term)}
		l.held[of] = k
		l.count(k, 1)
	}
	k.deadline = run.Deadline
	if run.Lingering {
		k.over, k.deadline = stopOf(run), time.Time{}
	}
}

// over reports whether an attempt had ended before, and only its handler ran on. The lock is held.
func (l *leases) over(run *kernel.Run) bool {
	k := l.held[runOf(run)]
	return k != nil && k.attempt == run.Attempt && k.over != nil
}

// stopOf is the request to stop for an attempt that has ended.
func stopOf(run *kernel.Run) *bus.Stop {
	s := &bus.Stop{ID: run.ID, Attempt: run.Attempt}
	switch run.State {
	case jobs.Cancelled:
		if n := len(run.Moves); n > 0 {
			s.By, s.Reason = run.Moves[n-1].By, run.Text(&run.Moves[n-1])
		}
	default:
		s.Timeout = run.Cause == kernel.ByTimeout
	}
	return s
}

// heartbeat renews the leases that a worker holds, of its app if it is limited to one. It returns what to stop, and
// attempts that this leader does not know.
func (l *leases) heartbeat(from bus.Principal, worker string, held []bus.Held, now time.Time) (stop []bus.Stop, unknown []bus.Held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range held {
		k := l.held[runRef{from.Tenant, h.ID}]
		if k == nil || k.attempt != h.Attempt || k.worker != worker || from.App != "" && k.app != from.App {
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

// lapsed lists the attempts whose lease has expired by now, in steady time, and those whose deadline, a time of the
// store's clock, has passed by overdue. While the bus has not been answering for a full term, no lease expires: the
// silence may be ours.
func (l *leases) lapsed(now, overdue time.Time) (out []expiry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sure := !l.answering.IsZero() && now.Sub(l.answering) >= l.term
	for of, k := range l.held {
		switch {
		case sure && now.After(k.until):
			out = append(out, expiry{of.tenant, kernel.Expire{ID: of.id, Attempt: k.attempt, Cause: kernel.ByLoss}})
		case !k.deadline.IsZero() && overdue.After(k.deadline):
			out = append(out, expiry{of.tenant, kernel.Expire{ID: of.id, Attempt: k.attempt, Cause: kernel.ByTimeout}})
		}
	}
	return out
}

type expiry struct {
	tenant jobs.Tenant
	expire kernel.Expire
}

// reach records whether the bus has just answered.
func (l *leases) reach(ok bool, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !ok:
		l.answering = time.Time{}
	case l.answering.IsZero():
		l.answering = now
	}
}

func (l *leases) empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held) == 0
}

// Attempt is what the leader knows of an attempt beyond the store.
type Attempt struct {
	Worker   string
	Progress *bus.Progress
	Stuck    bool // stopped, and still running
	Over     bool
}

// Attempts returns those of a tenant of which the leader knows more than the store: at most limit, any of them.
func (cp *ControlPlane) Attempts(tenant jobs.Tenant, limit int) map[jobs.ID]Attempt {
	l := &cp.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[jobs.ID]Attempt{}
	for of, k := range l.held {
		if of.tenant != tenant || k.progress == nil && !k.stuck {
			continue
		}
		if len(all) == limit {
			break
		}
		all[of.id] = Attempt{Worker: k.worker, Progress: k.progress, Stuck: k.stuck, Over: k.over != nil}
	}
	return all
}

// Attempt returns what is known of a run's current attempt; false if none is under way.
func (cp *ControlPlane) Attempt(tenant jobs.Tenant, id jobs.ID) (Attempt, bool) {
	l := &cp.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.held[runRef{tenant, id}]
	if k == nil {
		return Attempt{}, false
	}
	return Attempt{Worker: k.worker, Progress: k.progress, Stuck: k.stuck, Over: k.over != nil}, true
}
