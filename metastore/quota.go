package metastore

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Quotas bounds what one tenant, and one of its tokens, may have in a store, so that one client cannot use up the
// store. They are not exact: concurrent requests may exceed them together. A Quota also refuses runs and jobs when the
// memory of the process is nearly used up.
type Quotas struct {
	Waiting         int // runs of a tenant that have not started
	WaitingPerPayer int // of these, runs that count for one payer (see kernel.Payer)
	JobsPerApp      int // jobs of an app that workers may register
}

// Quota applies Quotas to a store. Several stores of the same rows may share one.
type Quota struct {
	limits  Quotas
	memory  liveHeap
	refused func(jobs.Tenant, error)

	mu      sync.Mutex
	tallies map[purse]tally
}

// NewQuota makes one. It reports each command that it refuses to refused, if that is not nil.
func NewQuota(limits Quotas, refused func(jobs.Tenant, error)) *Quota {
	if refused == nil {
		refused = func(jobs.Tenant, error) {}
	}
	return &Quota{limits: limits, memory: liveHeap{read: readHeap}, refused: refused, tallies: map[purse]tally{}}
}

// Bound is a store whose Apply refuses, as jobs.Exhausted, runs and jobs beyond the quotas. Runs that the system
// makes by itself are not bounded, and jobs that people make only by memory and the quota of their tenant
// (kernel.Global).
func (q *Quota) Bound(s Store) Store { return &bounded{s, q} }

type bounded struct {
	Store
	quota *Quota
}

// Apply refuses commands beyond a quota and passes on the rest.
func (b *bounded) Apply(ctx context.Context, batch []kernel.Envelope) []Result {
	var refused map[jobs.ID]error
	for i := range batch {
		if err := b.quota.judge(ctx, b.Store, &batch[i]); err != nil {
			if refused == nil {
				refused = map[jobs.ID]error{}
			}
			refused[batch[i].ID] = err
			b.quota.refused(batch[i].Tenant, err)
		}
	}
	if refused == nil {
		return b.Store.Apply(ctx, batch)
	}
	return sieve(batch, func(e *kernel.Envelope) (Result, bool) {
		err := refused[e.ID]
		return Result{Err: err}, err != nil
	}, func(rest []kernel.Envelope) []Result { return b.Store.Apply(ctx, rest) })
}

// purse is what is counted together.
type purse struct {
	tenant jobs.Tenant
	what   byte
	name   string
}

// What is counted.
const (
	waitingOfTenant = iota
	waitingOfPayer
	jobsOfApp
	waitingByLimit // of a tenant with a limit of its own
)

// tally is a count, plus what was admitted since: mostly it is more than there is.
type tally struct {
	n    int
	at   time.Time
	cost time.Duration // of counting
}

const (
	countEvery = time.Second            // an older count is counted again
	recount    = 50                     // a full purse is counted again after so many times the cost of counting,
	leastPause = 100 * time.Millisecond // and at least this: what was admitted has to be in the store by then
	manyPurses = 10_000                 // names that are remembered
)

// judge returns why a command is beyond a quota, or nil. If the rows cannot be read it passes the command on: the
// store itself may refuse it.
func (q *Quota) judge(ctx context.Context, s Store, e *kernel.Envelope) error {
	switch k := e.Command.(type) {
	case kernel.Create:
		why := q.create(ctx, s, e, &k)
		if why != nil {
			if run, err := s.Run(ctx, e.Tenant, k.ID); err == nil && run.Key == k.Key {
				return nil // it exists already, and the answer shows it
			}
		}
		return why
	case kernel.Register:
		return q.register(ctx, s, e, &k)
	case kernel.OpenBatch:
		return q.create(ctx, s, e, &kernel.Create{Key: k.Then, Args: k.Args})
	case kernel.CheckIn:
		return q.memory.admit(len(k.Result))
	case kernel.Backfill:
		if err := q.memory.admit(0); err != nil {
			return err
		}
		return q.tenant(ctx, s, e.Tenant)
	}
	return nil
}

func (q *Quota) create(ctx context.Context, s Store, e *kernel.Envelope, k *kernel.Create) error {
	if err := q.memory.admit(len(k.Args)); err != nil {
		return err
	}
	if err := q.payer(ctx, s, e, k); err != nil { // before the tenant's: what is refused here must not count there
		return err
	}
	return q.tenant(ctx, s, e.Tenant)
}

// payer applies the server's limits of a payer's and a tenant's waiting runs.
func (q *Quota) payer(ctx context.Context, s Store, e *kernel.Envelope, k *kernel.Create) error {
	app := ""
	if strings.HasPrefix(e.Actor, "worker:") {
		d, err := s.Definition(ctx, e.Tenant, k.Key)
		if err != nil {
			return nil
		}
		app = d.App
	}
	payer := kernel.Payer(e.Actor, app)
	if payer == "" {
		return nil
	}
	if n, full := q.one(purse{e.Tenant, waitingOfPayer, payer}, q.limits.WaitingPerPayer, func() (int, error) {
		c, err := s.Counts(ctx, CountQuery{Tenant: e.Tenant, Payer: payer})
		return c.Waiting, err
	}); full {
		return kernel.Exhausted(kernel.BoundWaitingOfToken, "too many waiting runs: %s has %d, and limits.waiting-runs-per-token is %d: try again when some have started, cancel some, or raise the limit", payer, n, q.limits.WaitingPerPayer)
	}
	if n, full := q.one(purse{e.Tenant, waitingOfTenant, ""}, q.limits.Waiting, func() (int, error) {
		c, err := s.Counts(ctx, CountQuery{Tenant: e.Tenant})
		return c.Live[jobs.Scheduled] + c.Live[jobs.Enqueued], err
	}); full {
		return kernel.Exhausted(kernel.BoundWaitingRuns, "too many waiting runs: tenant %s has %d, and limits.waiting-runs is %d: try again when some have started, cancel some, or raise the limit", e.Tenant, n, q.limits.Waiting)
	}
	return nil
}

// tenant applies the limits of a tenant's runs.
func (q *Quota) tenant(ctx context.Context, s Store, tenant jobs.Tenant) error {
	if tenant == jobs.DefaultTenant {
		return nil
	}
	g, err := s.Global(ctx, tenant)
	if err != nil {
		return nil
	}
	limits := &g.Tenancy.Limits
	if limits.Waiting > 0 {
		if n, full := q.one(purse{tenant, waitingByLimit, ""}, limits.Waiting, func() (int, error) {
			c, err := s.Counts(ctx, CountQuery{Tenant: tenant})
			return c.Live[jobs.Scheduled] + c.Live[jobs.Enqueued], err
		}); full {
			return kernel.Exhausted(kernel.BoundTenantWaiting, "too many waiting runs: tenant %s has %d, and its limit is %d: try again when some have started, cancel some, or have an administrator of the server raise the limit", tenant, n, limits.Waiting)
		}
	}
	if limits.Bytes > 0 {
		c, err := s.Counts(ctx, CountQuery{Tenant: tenant})
		if err == nil && c.Bytes >= limits.Bytes {
			return kernel.Exhausted(kernel.BoundTenantBytes, "too many bytes in unfinished runs: tenant %s has %d, and its limit is %d: try again when some have ended, cancel some, or have an administrator of the server raise the limit", tenant, c.Bytes, limits.Bytes)
		}
	}
	return nil
}

func (q *Quota) register(ctx context.Context, s Store, e *kernel.Envelope, k *kernel.Register) error {
	if _, err := s.Definition(ctx, e.Tenant, k.Job.Key); jobs.CodeOf(err) != jobs.NotFound {
		return nil
	}
	if err := q.memory.admit(0); err != nil || k.Worker == kernel.NoWorker {
		return err
	}
	if n, full := q.one(purse{e.Tenant, jobsOfApp, k.App}, q.limits.JobsPerApp, func() (int, error) {
		c, err := s.Counts(ctx, CountQuery{Tenant: e.Tenant, App: k.App, Jobs: true})
		return c.Jobs, err
	}); full {
		return kernel.Exhausted(kernel.BoundJobsOfApp, "too many jobs: app %s has %d, and limits.jobs-per-app is %d: delete some, or raise the limit", k.App, n, q.limits.JobsPerApp)
	}
	return nil
}

// one counts one more in a purse, or reports that it is full and how many there are.
func (q *Quota) one(p purse, most int, look func() (int, error)) (n int, full bool) {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	t, known := q.tallies[p]
	if age := now.Sub(t.at); !known || age >= countEvery || t.n >= most && age >= max(recount*t.cost, leastPause) {
		q.mu.Unlock() // a store that does not answer must not block other callers
		found, err := look()
		q.mu.Lock()
		if err != nil {
			return 0, false
		}
		t = tally{n: found, at: now, cost: time.Since(now)}
	}
	if full = t.n >= most; !full {
		t.n++
	}
	if len(q.tallies) >= manyPurses {
		clear(q.tallies)
	}
	q.tallies[p] = t
	return t.n, full
}
