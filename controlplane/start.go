package controlplane

import (
	"context"
	"log/slog"
	"time"

	"github.com/carillon-scheduler/carillon/controlplane/assign"
	"github.com/carillon-scheduler/carillon/internal/dispatch"
	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

const (
	// startMost is how many runs are chosen at once.
	startMost = 1000
	// refusedPause is how long a refused start is not tried again.
	refusedPause = time.Second / 4
)

// proposal is what one commit is to start, expand and take back. It is of one tenant, so that none waits for what others
// have in theirs.
type proposal struct {
	tenant   jobs.Tenant
	starts   []assign.Start
	expand   []assign.Expansion
	unstarts []dispatch.Attempt
}

func (p *proposal) size() int { return len(p.starts) + len(p.expand) + len(p.unstarts) }

// start starts ready runs on workers with free slots, whenever there may be some.
func (cp *ControlPlane) start(ctx context.Context, term uint64) error {
	opens := time.NewTimer(time.Hour)
	opens.Stop() // until runs wait for a rate, or for the workers to be known
	for {
		select {
		case <-cp.board.changed:
		case <-opens.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		for {
			cp.refill(ctx)
			list, pause := cp.board.propose()
			if len(list) == 0 {
				if opens.Stop(); pause > 0 {
					opens.Reset(pause)
				}
				break
			}
			cp.confirm(term)
			for _, p := range list {
				go cp.commit(ctx, term, p)
			}
		}
	}
}

// proposal returns an empty one, which is to be committed. The lock is held.
func (b *board) proposal(tenant jobs.Tenant) *proposal {
	b.Committing(tenant, 1)
	return &proposal{tenant: tenant}
}

// refill reads runs from the store for apps that can start more than is in memory.
func (cp *ControlPlane) refill(ctx context.Context) {
	b := &cp.board
	b.mu.Lock()
	short := b.Short(b.now())
	b.mu.Unlock()
	for _, s := range short {
		ready, err := cp.cfg.Store.Ready(ctx, metastore.ReadyQuery{Tenant: s.App.Tenant, App: s.App.Name, Limit: s.Want, Has: s.Has})
		if err != nil {
			cp.episodes.Failed(episode.Level(err), "", "waiting runs cannot be read", "app", s.App.Name, "err", err)
			continue
		}
		b.mu.Lock()
		b.Fill(s, ready)
		b.mu.Unlock()
	}
}

// propose takes what the next commits are to contain. Without anything, pause is how long until more may start; 0 = not
// known.
func (b *board) propose() (list []*proposal, pause time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.term == 0 {
		return nil, 0
	}
	now := b.now()
	known := map[jobs.Tenant]*proposal{}
	of := func(tenant jobs.Tenant) *proposal {
		p := known[tenant]
		if p == nil {
			p = b.proposal(tenant)
			known[tenant], list = p, append(list, p)
		}
		return p
	}
	for _, s := range b.Starts(startMost, now) {
		p := of(s.Tenant)
		p.starts = append(p.starts, s)
	}
	expand, wait := b.Expansions(now)
	for _, e := range expand {
		p := of(e.App.Tenant)
		p.expand = append(p.expand, e)
	}
	for _, a := range b.unstart {
		p := of(a.Tenant)
		p.unstarts = append(p.unstarts, a)
	}
	b.unstart = nil
	if pause = b.Opens(now); wait > 0 && (pause == 0 || wait < pause) {
		pause = wait
	}
	return list, pause
}

// commit commits a proposal. A command with an unknown outcome is sent again until there is one: it may have started a
// run that is to be pushed.
func (cp *ControlPlane) commit(ctx context.Context, term uint64, p *proposal) {
	batch := make([]kernel.Envelope, 0, p.size())
	for _, a := range p.unstarts {
		batch = append(batch, cp.envelope(p.tenant, kernel.Unstart{ID: a.ID, Attempt: a.N}))
	}
	for i := range p.starts {
		s := &p.starts[i]
		batch = append(batch, cp.envelope(p.tenant, kernel.Start{ID: s.ID, Worker: s.Worker, Attempt: s.N, Term: term}))
	}
	for i := range p.expand {
		batch = append(batch, cp.envelope(p.tenant, p.expand[i].Command))
	}
	all := cp.store.Apply(ctx, batch)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		var again []kernel.Envelope
		var open []int
		for i := range all {
			if all[i].Err != nil && jobs.CodeOf(all[i].Err) == jobs.Unknown {
				again, open = append(again, batch[i]), append(open, i)
			}
		}
		if len(open) == 0 || wait(ctx, pause) != nil {
			break
		}
		for n, r := range cp.store.Apply(ctx, again) {
			all[open[n]] = r
		}
	}
	if ctx.Err() == nil {
		cp.committed(p, all)
	}
}

// committed takes in the results of a proposal that their effects do not tell: what was refused, and what had been done
// before.
func (cp *ControlPlane) committed(p *proposal, all []metastore.Result) {
	b := &cp.board
	var acts dispatch.Acts
	var failed error
	refused := false
	b.mu.Lock()
	b.Committing(p.tenant, -1)
	now := b.now()
	at := func(i int) *metastore.Result {
		r := &all[i]
		if r.Err == nil && r.Existing {
			for _, run := range r.Runs {
				b.note(run, b.current(run), now, &acts)
			}
		}
		refused = refused || r.Err != nil
		if code := jobs.CodeOf(r.Err); r.Err != nil && (code == jobs.Unavailable || code == jobs.Exhausted || code == jobs.Unknown) {
			failed = r.Err
		}
		return r
	}
	n := 0
	for _, a := range p.unstarts {
		if r := at(n); r.Err != nil && (jobs.CodeOf(r.Err) == jobs.NotFound || jobs.CodeOf(r.Err) == jobs.Stale) {
			b.forget(a)
		}
		n++
	}
	for _, s := range p.starts {
		at(n)
		b.Withdraw(s) // unless it has begun
		n++
	}
	for _, e := range p.expand {
		if r := at(n); r.Err != nil {
			b.Retry(e)
		}
		n++
	}
	list := b.deliveries(acts.Push)
	b.lookAfter()
	b.mu.Unlock()
	cp.deliver(list)
	if failed != nil {
		cp.episodes.Failed(slog.LevelWarn, "", "runs could not be started yet", "err", failed)
	}
	if refused { // as to a leader that does not know yet that it is none
		time.AfterFunc(refusedPause, cp.reread)
	}
	poke(b.changed)
}

// reread has refused starts tried again.
func (cp *ControlPlane) reread() {
	b := &cp.board
	b.mu.Lock()
	b.Reread()
	b.mu.Unlock()
	poke(b.changed)
}
