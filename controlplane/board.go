package controlplane

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/controlplane/assign"
	"github.com/carillon-scheduler/carillon/internal/dispatch"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// board is the leader's memory of ready runs, attempts and workers. What to start where is decided by package assign,
// in the embedded Board; the rest is what pages show, and what is sent. It is not stored: heartbeats keep it up, and a
// new leader begins with the attempts in the store.
type board struct {
	mu   sync.Mutex
	term uint64 // that this process leads; 0 = it does not lead
	*assign.Board
	ahead   lookahead
	needed  map[kernel.Ref]bool // jobs for whose ends something waits: other runs, other jobs
	base    time.Time           // of all stamps
	lease   time.Duration
	members map[dispatch.Worker]*member
	tenants map[jobs.Tenant]*kernel.Global // those that were created
	unstart []dispatch.Attempt             // to be committed
	thawed  dispatch.Stamp                 // when this process last stood still
	// answering is since when the bus has been answering without a break; 0 = it does not.
	answering dispatch.Stamp
	changed   chan struct{} // there may be something to start, or to take back
	repeating bool          // pushes are looked after that are not answered
	asked     chan struct{} // begin to
	cancels   chan struct{} // closed when a worker has answered; nil = no cancel waits for that

	pushed, refused, repeated uint64 // attempts: sent for the first time, refused, sent again
	mended                    uint64 // ready runs that it lost, and the sweep found
}

// attempt is one attempt under way: what is known of it beside the Board, which keeps it.
type attempt struct {
	*dispatch.Sent
	app      string
	key      jobs.Key
	limited  bool        // its run has slots at limits
	run      *kernel.Run // to push, until the worker has answered; then nil
	ours     bool        // this leader has started it
	since    dispatch.Stamp
	waited   time.Duration // until the worker answered: its time runs from then
	deadline time.Time     // of the row; zero = none
	over     *bus.Stop     // for its worker: the attempt has ended, its handler has not returned
	stuck    bool
	progress *bus.Progress
}

func (b *board) init(lease time.Duration) {
	b.base, b.lease, b.changed, b.asked = time.Now(), lease, make(chan struct{}, 1), make(chan struct{}, 1)
	b.Board = assign.New(lease, 0, 0)
}

// now is the stamp of this moment. It is never 0.
func (b *board) now() dispatch.Stamp { return b.stamp(time.Now()) }

func (b *board) stamp(t time.Time) dispatch.Stamp { return t.Sub(b.base) + 1 }

// lead begins a term, or ends it with 0: what was known in another is forgotten. All workers are known after unknown.
func (b *board) lead(term uint64, unknown time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	b.term, b.Board, b.ahead, b.unstart, b.answering = term, assign.New(b.lease, now, now+unknown), lookahead{}, nil, now
	b.needed = map[kernel.Ref]bool{}
	b.wakeCancels()
	b.members, b.tenants = map[dispatch.Worker]*member{}, map[jobs.Tenant]*kernel.Global{}
}

// load takes up the tenants and the attempts that the store has as a term begins.
func (b *board) load(ctx context.Context, st metastore.Full) error {
	tenants, err := st.Tenants(ctx)
	if err != nil {
		return err
	}
	rows, err := st.Leased(ctx)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range tenants {
		b.tenancy(g)
	}
	now := b.now()
	for _, run := range rows {
		b.follow(run, b.Load(run, now), now)
	}
	return nil
}

// tenancy follows what the server's administrators decide about a tenant. The lock is held.
func (b *board) tenancy(g *kernel.Global) {
	if old := b.tenants[g.Tenant]; old != nil && old.Revision > g.Revision {
		return
	}
	b.Rule(g.Tenant, &g.Tenancy)
	b.tenants[g.Tenant] = g
}

// admit refuses a worker of a tenant that does not exist, or that has as many as it may. The lock is held.
func (b *board) admit(tenant jobs.Tenant) error {
	g := b.tenants[tenant]
	switch {
	case tenant == jobs.DefaultTenant:
		return nil
	case g == nil || !g.Exists(tenant):
		return kernel.Refuse(jobs.NotFound, "there is no tenant %q: an administrator of the server creates it, with: carillon tenants create %s", tenant, tenant)
	case g.Tenancy.Limits.Workers == 0:
		return nil
	}
	n := 0
	for w := range b.members {
		if w.Tenant == tenant {
			n++
		}
	}
	if most := g.Tenancy.Limits.Workers; n >= most {
		return kernel.Exhausted(kernel.BoundTenantWorkers, "tenant %s has %d workers, and its limit is %d: stop one, or have an administrator of the server raise the limit", tenant, n, most)
	}
	return nil
}

func attemptOf(run *kernel.Run) dispatch.Attempt {
	return dispatch.Attempt{Run: runOf(run), N: run.Attempt}
}

func runOf(run *kernel.Run) dispatch.Run { return dispatch.Run{Tenant: run.Tenant, ID: run.ID} }

// note follows a run as a commit left it; sent was its current attempt before. It returns the attempt that the commit
// left; nil = none is under way, or a later one is. The lock is held.
func (b *board) note(run *kernel.Run, sent *dispatch.Sent, now dispatch.Stamp, acts *dispatch.Acts) *attempt {
	return b.follow(run, b.Note(run, sent, now, acts), now)
}

// follow keeps what is known of a run's current attempt beside the Board.
func (b *board) follow(run *kernel.Run, sent *dispatch.Sent, now dispatch.Stamp) *attempt {
	if sent == nil || sent.N != run.Attempt || sent.Worker().Name != run.Worker {
		return nil
	}
	k := kept(sent)
	if k == nil {
		k = &attempt{Sent: sent, app: run.App, key: run.Key, limited: len(run.Gates) > 0, run: run, since: now}
		sent.Kept = k
	}
	if k.deadline = run.Deadline; run.Lingering {
		k.over, k.deadline, k.run = stopOf(run), time.Time{}, nil
	}
	return k
}

// current returns the attempt of a run that is a worker's, or whose start is proposed; nil = none.
func (b *board) current(run *kernel.Run) *dispatch.Sent { return b.Sender().Current(runOf(run)) }

// kept returns what is known of an attempt beside the Board; nil = it is not under way.
func kept(sent *dispatch.Sent) *attempt {
	if sent == nil {
		return nil
	}
	k, _ := sent.Kept.(*attempt)
	return k
}

// find returns an attempt that is under way, or nil. The lock is held.
func (b *board) find(a dispatch.Attempt) *attempt { return kept(b.Sender().Find(a)) }

// attempts yields those under way. The lock is held.
func (b *board) attempts(yield func(*attempt) bool) {
	for sent := range b.Sender().All {
		if k := kept(sent); k != nil && !yield(k) {
			return
		}
	}
}

// fleet returns a number that changes when the workers do.
func (b *board) fleet() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Fleet()
}

// forget drops an attempt that the store does not have. The lock is held.
func (b *board) forget(a dispatch.Attempt) {
	if k := b.find(a); k != nil {
		b.Forget(k.Sent, k.key, assign.App{Tenant: a.Tenant, Name: k.app})
	}
}

// confirm records that the worker of an attempt has said that it began. It returns the run if that is news about an
// attempt that this leader has started. The lock is held.
func (k *attempt) confirm(now dispatch.Stamp) *kernel.Run {
	run := k.run
	if run == nil {
		return nil
	}
	k.run, k.waited = nil, now-k.since
	if k.ours {
		return run
	}
	return nil
}

// stopOf is the request to stop for an attempt that has ended.
func stopOf(run *kernel.Run) *bus.Stop {
	s := &bus.Stop{ID: run.ID, Attempt: run.Attempt, Started: run.Started.UnixNano()}
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

// Attempt is what the leader knows of an attempt beyond the store.
type Attempt struct {
	Worker      string
	Progress    *bus.Progress
	Unconfirmed bool // it was sent to the worker, which has not said yet that it began
	Stuck       bool // stopped, and still running
	Over        bool
}

func (k *attempt) shown() Attempt {
	return Attempt{Worker: k.Worker().Name, Progress: k.progress, Unconfirmed: k.run != nil, Stuck: k.stuck, Over: k.over != nil}
}

// Attempts returns those of a tenant of which the leader knows more than the store: at most limit, any of them.
func (cp *ControlPlane) Attempts(tenant jobs.Tenant, limit int) map[jobs.ID]Attempt {
	b := &cp.board
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[jobs.ID]Attempt{}
	for k := range b.attempts {
		if k.Tenant != tenant || k.progress == nil && k.run == nil && !k.stuck {
			continue
		}
		if len(all) == limit {
			break
		}
		all[k.ID] = k.shown()
	}
	return all
}

// Attempt returns what is known of a run's current attempt; false if none is under way.
func (cp *ControlPlane) Attempt(tenant jobs.Tenant, id jobs.ID) (Attempt, bool) {
	b := &cp.board
	b.mu.Lock()
	defer b.mu.Unlock()
	k := kept(b.Sender().Current(dispatch.Run{Tenant: tenant, ID: id}))
	if k == nil {
		return Attempt{}, false
	}
	return k.shown(), true
}
