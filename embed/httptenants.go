package embed

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
	"github.com/carillon-scheduler/carillon/worker"
	"github.com/carillon-scheduler/carillon/worker/httpjob"
)

// httpTenants runs the HTTP jobs of other tenants: with a worker for each tenant that has any, and without the services,
// variables and secrets of the server's own.
type httpTenants struct {
	s       *Scheduler
	cfg     Config
	own     jobs.Tenant // of the server's worker
	workers map[jobs.Tenant]*httpTenant
	failed  map[jobs.Tenant]time.Time // when a worker ended by an error
	looked  map[jobs.Tenant]lookedAt
}

type httpTenant struct {
	stop  context.CancelFunc
	ended chan struct{}
}

type lookedAt struct {
	at     time.Time
	since  time.Time // that the tenant exists
	jobs   int       // that it had
	audits uint64    // and its number of changes
	any    bool
}

const (
	// lookForTenants is how often tenants are read; lookAtJobs how often the jobs of each, unless something changed.
	lookForTenants, lookAtJobs = 5 * time.Second, 5 * time.Minute
	// httpSlots is how many HTTP jobs run at once, in a process: they wait more than they compute.
	httpSlots = 256
	// httpTenantSlots is how many HTTP jobs of one tenant run at once, in a process.
	httpTenantSlots = 50
	// startAgain is how soon a worker is started again that ended by an error.
	startAgain = time.Minute
)

// Run starts and stops workers until ctx ends, and then waits for all of them.
func (h *httpTenants) Run(ctx context.Context) error {
	h.workers, h.looked, h.failed = map[jobs.Tenant]*httpTenant{}, map[jobs.Tenant]lookedAt{}, map[jobs.Tenant]time.Time{}
	var all sync.WaitGroup
	defer all.Wait()
	tick := time.NewTicker(lookForTenants)
	defer tick.Stop()
	for {
		if err := h.look(ctx, &all); err != nil && ctx.Err() == nil {
			h.s.log.Debug("the HTTP jobs of tenants could not be read", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (h *httpTenants) look(ctx context.Context, all *sync.WaitGroup) error {
	tenants, err := h.s.store.Tenants(ctx)
	if err != nil {
		return err
	}
	need := map[jobs.Tenant]bool{}
	for _, g := range tenants {
		if g.Tenant == h.own || g.Tenancy.Deleted.On {
			continue
		}
		if need[g.Tenant], err = h.has(ctx, g); err != nil {
			return err
		}
	}
	maps.DeleteFunc(h.looked, func(tenant jobs.Tenant, _ lookedAt) bool { _, is := need[tenant]; return !is })
	maps.DeleteFunc(h.failed, func(tenant jobs.Tenant, at time.Time) bool { return !need[tenant] || time.Since(at) > startAgain })
	for tenant, w := range h.workers {
		select {
		case <-w.ended:
			if delete(h.workers, tenant); need[tenant] {
				h.failed[tenant] = time.Now()
			}
		default:
			if !need[tenant] {
				w.stop()
			}
		}
	}
	for tenant, is := range need {
		if !is || h.workers[tenant] != nil || time.Since(h.failed[tenant]) < startAgain {
			continue
		}
		if err := h.start(ctx, tenant, all); err != nil {
			return err
		}
	}
	return nil
}

// has reports whether a tenant has HTTP jobs.
func (h *httpTenants) has(ctx context.Context, g *kernel.Global) (bool, error) {
	is, known := h.looked[g.Tenant]
	if known && is.since.Equal(g.Tenancy.Since) && is.jobs == g.Jobs && is.audits == g.Audits && time.Since(is.at) < lookAtJobs {
		return is.any, nil
	}
	list, err := h.s.store.Definitions(ctx, metastore.DefinitionQuery{Tenant: g.Tenant, App: cmp.Or(h.cfg.TenantHTTPJobs.App, httpjob.App), Limit: 2})
	if err != nil {
		return false, err
	}
	// The worker itself registers a job for notifications.
	any := slices.ContainsFunc(list, func(d *kernel.Definition) bool { return !kernel.SystemKey(d.Key) })
	h.looked[g.Tenant] = lookedAt{time.Now(), g.Tenancy.Since, g.Jobs, g.Audits, any}
	return any, nil
}

func (h *httpTenants) start(ctx context.Context, tenant jobs.Tenant, all *sync.WaitGroup) error {
	c := httpWorkerConfig(h.cfg, h.cfg.TenantHTTPJobs)
	c.Tenant, c.Slots = tenant, httpTenantSlots
	as, err := c.Principal()
	if err != nil {
		return err
	}
	runner, err := httpjob.New(h.s.store, *h.cfg.TenantHTTPJobs)
	if err != nil {
		return err
	}
	c.Others = runner.Run
	b, err := h.cfg.Bus(ctx, as)
	if err != nil {
		return err
	}
	w, err := worker.New(c, h.s.store, busstore.Heed(b, as), runner.Jobs()...)
	if err != nil {
		_ = b.Close()
		return err
	}
	working, stop := context.WithCancel(ctx)
	t := &httpTenant{stop, make(chan struct{})}
	h.workers[tenant] = t
	all.Go(func() {
		defer close(t.ended)
		defer stop()
		if err := w.Run(working); err != nil && ctx.Err() == nil {
			h.s.log.Warn("the worker for HTTP jobs of a tenant ended", "tenant", tenant, "err", err)
		}
		_ = b.Close()
	})
	return nil
}

// httpWorkerConfig is a worker for HTTP jobs.
func httpWorkerConfig(cfg Config, of *httpjob.Config) worker.Config {
	c := worker.Config{App: cmp.Or(of.App, httpjob.App), Slots: httpSlots, Grace: cfg.Worker.Grace, Logger: cfg.Worker.Logger, Only: kernel.WorkHTTP}
	if cfg.Worker.Name != "" {
		c.Name = cfg.Worker.Name + ".http"
	}
	return c
}
