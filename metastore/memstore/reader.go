package memstore

import (
	"context"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Definition is one job.
func (e *Engine) Definition(_ context.Context, tenant jobs.Tenant, key jobs.Key) (*kernel.Definition, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if s := e.rows.spaces[tenant]; s != nil {
		if d := s.definitions[key]; d != nil && !d.gone {
			return d.get(), nil
		}
	}
	return nil, kernel.Refuse(jobs.NotFound, "there is no job %q", key)
}

// Definitions lists jobs: the named ones, those that changed, or all by key.
func (e *Engine) Definitions(_ context.Context, q metastore.DefinitionQuery) ([]*kernel.Definition, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	var found []*kernel.Definition
	// take reports whether there is room for more.
	take := func(d *definition) bool {
		if (q.App == "" || d.app == q.App) && d.change > q.Since && (len(q.Keys) == 0 || slices.Contains(q.Keys, d.key)) && d.key > q.After {
			found = append(found, d.get())
		}
		return q.Limit <= 0 || len(found) < q.Limit
	}
	if q.Since > 0 || q.Changes {
		for _, c := range e.rows.changes[e.rows.since(q.Since):] {
			if !c.void() && (q.Tenant == "*" || q.Tenant == c.of.space.tenant) && !take(c.of) {
				break
			}
		}
		return found, nil
	}
	for _, s := range e.rows.inOrder(q.Tenant) {
		if !s.eachDefinition(q, take) {
			break
		}
	}
	return found, nil
}

// eachDefinition visits those that a query can mean, by key, until take is false.
func (s *space) eachDefinition(q metastore.DefinitionQuery, take func(*definition) bool) bool {
	if len(q.Keys) > 0 {
		for _, key := range slices.Compact(slices.Sorted(slices.Values(q.Keys))) {
			if d := s.definitions[key]; d != nil && !d.gone && !take(d) {
				return false
			}
		}
		return true
	}
	return s.byKey.from(q.After, take)
}

// Run is one run, live or archived.
func (e *Engine) Run(ctx context.Context, tenant jobs.Tenant, id jobs.ID) (*kernel.Run, error) {
	if run := e.Live(tenant, id); run != nil {
		return run, nil
	}
	run, err := e.archive.Get(ctx, tenant, id)
	if err == nil && run == nil {
		err = kernel.NoRun(id)
	}
	return run, err
}

// Live is one run that is not settled, or nil.
func (e *Engine) Live(tenant jobs.Tenant, id jobs.ID) *kernel.Run {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if s := e.rows.spaces[tenant]; s != nil {
		if n := s.nodes[id]; n != nil {
			return n.get()
		}
	}
	return nil
}

// Ledger lists the missed ranges of a job, newest first.
func (e *Engine) Ledger(_ context.Context, tenant jobs.Tenant, job jobs.ID, limit int) ([]*kernel.Missed, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	s := e.rows.spaces[tenant]
	if s == nil {
		return nil, nil
	}
	of := s.missed[job]
	if of == nil {
		return nil, nil
	}
	list := of.list
	if limit > 0 && limit < len(list) {
		list = list[len(list)-limit:]
	}
	list = slices.Clone(list)
	slices.Reverse(list)
	return list, nil
}

// Counts returns how many runs are in each state now, and how many entered each state by hour and day.
func (e *Engine) Counts(_ context.Context, q metastore.CountQuery) (metastore.Counts, error) {
	c, list := e.counts(q)
	if len(list) > 0 { // what takes longest is done without the lock
		c.Tallies = sum(list, q)
	}
	return c, nil
}

// counts answers a query but for the tallies of some jobs, which it returns.
func (e *Engine) counts(q metastore.CountQuery) (c metastore.Counts, list []counted) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	c.Live = make(map[jobs.State]int)
	s := e.rows.spaces[q.Tenant]
	if s == nil {
		return c, nil
	}
	if q.Jobs {
		c.Jobs = s.jobsOf[q.App]
		return c, nil
	}
	c.Waiting, c.Bytes = s.waiting[q.Payer], s.bytes
	add := func(states [16]int) {
		for state, n := range states {
			if n > 0 {
				c.Live[jobs.State(state)] += n
			}
		}
	}
	switch {
	case q.Job != "":
		if j := s.jobs[q.Job]; j != nil {
			add(j.states)
		}
	case q.App != "":
		for key, d := range s.definitions {
			if j := s.jobs[key]; j != nil && d.app == q.App {
				add(j.states)
			}
		}
	default:
		for state := range s.states {
			if n := s.states[state].n; n > 0 {
				c.Live[jobs.State(state)] = n
			}
		}
	}
	switch {
	case q.From.IsZero() && q.To.IsZero():
	case q.Job != "" || q.App != "":
		list = s.counted(q)
	default:
		all := metastore.Tallies{}
		for slot, t := range s.total {
			if q.During(t) {
				all[slot] = t
			}
		}
		c.Tallies = all.List()
	}
	return c, list
}

// Global is the tenant's settings and counters.
func (e *Engine) Global(_ context.Context, tenant jobs.Tenant) (*kernel.Global, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if s := e.rows.spaces[tenant]; s != nil && s.global != nil {
		return s.global, nil
	}
	return &kernel.Global{Tenant: tenant}, nil
}
