package controlplane

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/oklog/run"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/sabotage"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Elector decides which node leads. Lead calls lead while this process leads, with the number of its term, and ends
// lead's context the moment it does not; it returns when its own context ends, or with an error of lead's.
//
// Confirmed returns a moment at which this process certainly led a term, the last one that is known: no other had been
// elected by then. Zero: none is known.
type Elector interface {
	Lead(ctx context.Context, lead func(ctx context.Context, term uint64) error) error
	Confirmed(term uint64) time.Time
}

// Always is the elector of a process that is alone: it always leads, each start being a new term.
type Always struct{ Store metastore.Agenda }

// Lead calls lead in a new term.
func (a Always) Lead(ctx context.Context, lead func(context.Context, uint64) error) error {
	s, err := a.Store.State(ctx)
	if err != nil {
		return fmt.Errorf("read the last term: %w", err)
	}
	return lead(ctx, s.Term+1)
}

// Confirmed returns this moment.
func (a Always) Confirmed(uint64) time.Time { return time.Now() }

// lead does the leader's duties for one term. If one of them fails all of them end, leadership is given up, to another
// node if there is one, and the next leader starts clean: all state is in the store.
func (cp *ControlPlane) lead(ctx context.Context, term uint64) (err error) {
	unknown := cp.cfg.Lease // workers of the leader before may be on their way to another node that long
	before, err := cp.cfg.Store.State(ctx)
	if err == nil && before.Term == 0 {
		unknown = firstWorkers
	}
	if err == nil && before.Term < term {
		cp.terms.note(Term{Node: before.Leader, Term: before.Term})
		cp.newestRules(ctx, before)
	}
	cp.Because("")
	cp.terms.note(Term{Node: cp.cfg.Node, Term: term, Since: time.Now()})
	defer func() {
		cp.giveUp(ctx, err)
		cp.terms.ended(cp.cfg.Node, term, err)
	}()
	if !sabotage.Off(sabotage.Term) {
		r := cp.store.Apply(ctx, []kernel.Envelope{cp.envelope(jobs.DefaultTenant, kernel.Lead{Term: term, Node: cp.cfg.Node})})
		if r[0].Err != nil {
			return fmt.Errorf("begin term %d: %w", term, r[0].Err)
		}
	}
	load := cp.catalog.load
	if cp.cfg.Membership != nil {
		load = cp.catalog.look // it is filled, and its cursors are newer than what is read here
	}
	if err := load(ctx, cp.cfg.Store); err != nil {
		return fmt.Errorf("load the job definitions: %w", err)
	}
	// Defaults that were changed while no node led apply to all that is decided from now on, as edits do.
	if err := cp.refresh(ctx); err != nil { // the sweep tries again
		cp.episodes.Failed(episode.Level(err), "", "jobs do not follow the defaults yet", "err", err)
	}
	cp.pulse.begin(term, cp.cfg.Clock.Now())
	cp.missing = missing{}
	cp.board.lead(term, unknown)
	defer cp.board.lead(0, 0)
	if err := cp.board.load(ctx, cp.cfg.Store); err != nil {
		return fmt.Errorf("load the running attempts: %w", err)
	}
	if err := cp.serveHeartbeats(ctx, term); err != nil {
		return err
	}
	if cp.cfg.Serve != nil {
		if err := cp.cfg.Serve(ctx, term, cp.store); err != nil {
			return fmt.Errorf("serve the store: %w", err)
		}
	}
	cp.log.Info("leading", "node", cp.cfg.Node, "term", term)
	cp.ready.begin(ctx, term)
	poke(cp.nodes.send)
	defer func() { cp.ready.end(); poke(cp.nodes.send) }()
	defer cp.log.Info("no longer leading", "node", cp.cfg.Node, "term", term)

	cp.duties.mu.Lock()
	cp.duties.all = nil
	cp.duties.mu.Unlock()
	var g run.Group
	if cp.cfg.Membership == nil {
		add(&g, ctx, func(ctx context.Context) error { return cp.fire(ctx, term) })
	}
	add(&g, ctx, func(ctx context.Context) error { return cp.callWorkers(ctx, term) })
	add(&g, ctx, func(ctx context.Context) error { return cp.start(ctx, term) })
	add(&g, ctx, func(ctx context.Context) error { return cp.repeat(ctx, term) })
	for _, duty := range []func(context.Context) error{cp.release, cp.sweep, cp.prune, cp.dissolve, cp.alarms, cp.export, cp.watchClock, cp.watchDuties} {
		add(&g, ctx, duty)
	}
	add(&g, ctx, func(ctx context.Context) error { return cp.expire(ctx, term) })
	add(&g, ctx, func(ctx context.Context) error { return cp.requestHeartbeatURL(ctx, term) })
	add(&g, ctx, func(ctx context.Context) error { return cp.stepDown(ctx, term) })
	return g.Run()
}

// firstWorkers is how long workers may take to come that start together with the first leader of a store.
const firstWorkers = 2 * time.Second

// newestRules puts the newest version of the rules in force in a store that no node has led yet: there is no older
// program to go back to. A refusal means that there is one all the same, and an operator finalizes the upgrade.
func (cp *ControlPlane) newestRules(ctx context.Context, before kernel.StoreRow) {
	if before.Term > 0 || before.InForce() >= kernel.ApplyVersion {
		return
	}
	r := cp.store.Apply(ctx, []kernel.Envelope{cp.envelope(jobs.DefaultTenant, kernel.FinalizeUpgrade{To: kernel.ApplyVersion})})
	if err := r[0].Err; err != nil {
		cp.log.Info("a new store begins with older rules", "rules", before.InForce(), "err", err)
	}
}

// callWorkers announces a new term. Workers answer with a heartbeat: until then the leader pushes nothing to them, and by
// themselves they may take one heartbeat's interval. Clients that wait for an answer of the last leader ask this one
// instead, and from then on it alone (busstore.Heed). The call is repeated for those whose connection went with the
// last leader, and now and then for those who come later; a worker heeds it once.
func (cp *ControlPlane) callWorkers(ctx context.Context, term uint64) error {
	for calls := 0; ; calls++ {
		for _, tenant := range cp.catalog.tenants() {
			s := bus.Signal{Topic: bus.TopicCancel, Tenant: tenant, Data: bus.Encode(bus.Stop{Term: term, Stale: true})}
			if err := cp.cfg.Bus.Signal(ctx, s); err != nil {
				cp.log.Debug("the workers were not called", "tenant", tenant, "err", err)
			}
		}
		if err := wait(ctx, min(firstCall<<min(max(0, calls-quickCalls), 20), lastCalls*cp.cfg.Watch)); err != nil {
			return err
		}
	}
}

// The pauses between the calls: the first ones are short, because workers whose connection went with the last leader
// come within that time; then each is twice the one before, up to the last.
const (
	firstCall  = 50 * time.Millisecond
	quickCalls = 10
	lastCalls  = 5 // times Config.Watch
)

// readiness reports whether this process leads.
type readiness struct {
	mu    sync.Mutex
	ctx   context.Context // of the term; nil = it does not lead
	term  uint64
	since time.Time
}

func (r *readiness) begin(ctx context.Context, term uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ctx, r.term, r.since = ctx, term, time.Now()
}

func (r *readiness) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ctx, r.term, r.since = nil, 0, time.Now()
}

// now returns the term, and a context that ends with it; nil if this process does not lead.
func (r *readiness) now() (context.Context, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx != nil && r.ctx.Err() != nil {
		return nil, 0 // it ends, even if a duty does not
	}
	return r.ctx, r.term
}

// Leading returns the term that this process leads, and since when; 0 if it does not lead.
func (cp *ControlPlane) Leading() (term uint64, since time.Time) {
	_, term = cp.ready.now()
	cp.ready.mu.Lock()
	defer cp.ready.mu.Unlock()
	return term, cp.ready.since
}

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
