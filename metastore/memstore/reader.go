package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Definition is one job.
func (e *Engine) Definition(_ context.Context, tenant jobs.Tenant, key jobs.Key) (*kernel.Definition, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if s := e.rows.spaces[tenant]; s != nil {
		if d := s.definitions[key]; d != nil && !d.row.Gone() {
			return d.row, nil
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
	take := func(d *kernel.Definition) bool {
		if (q.App == "" || d.App == q.App) && d.Change > q.Since && (len(q.Keys) == 0 || slices.Contains(q.Keys, d.Key)) && d.Key > q.After {
			found = append(found, d)
		}
		return q.Limit <= 0 || len(found) < q.Limit
	}
	if q.Since > 0 {
		for _, c := range e.rows.changes[e.rows.since(q.Since):] {
			if !c.void() && (q.Tenant == "*" || q.Tenant == c.of.row.Tenant) && !take(c.of.row) {
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
func (s *space) eachDefinition(q metastore.DefinitionQuery, take func(*kernel.Definition) bool) bool {
	if len(q.Keys) > 0 {
		for _, key := range slices.Compact(slices.Sorted(slices.Values(q.Keys))) {
			if d := s.definitions[key]; d != nil && !d.row.Gone() && !take(d.row) {
				return false
			}
		}
		return true
	}
	from, _ := findDefinition(s.byKey, q.After)
	for _, d := range s.byKey[from:] {
		if !take(d.row) {
			return false
		}
	}
	return true
}

// Run is one run, live or archived.
func (e *Engine) Run(ctx context.Context, tenant jobs.Tenant, id jobs.ID) (*kernel.Run, error) {
	if run := e.live(tenant, id); run != nil {
		return run, nil
	}
	run, err := e.archive.Get(ctx, tenant, id)
	if err == nil && run == nil {
		err = kernel.NoRun(id)
	}
	return run, err
}

func (e *Engine) live(tenant jobs.Tenant, id jobs.ID) *kernel.Run {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if s := e.rows.spaces[tenant]; s != nil {
		if n := s.nodes[id]; n != nil {
			return n.row
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

// Counts returns how many runs are in each state now, and how many entered each state per hour.
func (e *Engine) Counts(_ context.Context, q metastore.CountQuery) (metastore.Counts, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	c := metastore.Counts{Live: make(map[jobs.State]int)}
	s := e.rows.spaces[q.Tenant]
	if s == nil {
		return c, nil
	}
	c.Waiting = s.waiting[q.Payer]
	hours, job := &s.total, jobs.ID{}
	if q.Job == "" {
		for state := range s.states {
			if n := s.states[state].n; n > 0 {
				c.Live[jobs.State(state)] = n
			}
		}
	} else {
		if j := s.jobs[q.Job]; j != nil {
			for state, n := range j.states {
				if n > 0 {
					c.Live[jobs.State(state)] = n
				}
			}
		}
		hours = nil
		if d := s.definitions[q.Job]; d != nil && !d.row.Gone() {
			hours, job = s.tallies[d.row.UID], d.row.UID
		}
	}
	if hours == nil || q.From.IsZero() && q.To.IsZero() {
		return c, nil
	}
	for _, n := range hours.counts {
		begins := time.Unix(0, n.hour)
		if begins.Add(time.Hour).After(q.From) && (q.To.IsZero() || begins.Before(q.To)) {
			c.Hours = append(c.Hours, kernel.Tally{Tenant: s.tenant, Job: job, State: n.state, Hour: n.hour, N: n.n})
		}
	}
	return c, nil
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
