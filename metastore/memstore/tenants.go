package memstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Tenants lists the settings of the tenants that were created, by name.
func (e *Engine) Tenants(context.Context) (found []*kernel.Global, _ error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for _, s := range e.rows.spaces {
		if s.global != nil && !s.global.Tenancy.Since.IsZero() {
			found = append(found, s.global)
		}
	}
	slices.SortFunc(found, func(a, b *kernel.Global) int { return cmp.Compare(a.Tenant, b.Tenant) })
	return found, nil
}

// TenantRows lists rows of a tenant.
func (e *Engine) TenantRows(_ context.Context, tenant jobs.Tenant, limit int) (found []kernel.Ref, _ error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if s := e.rows.spaces[tenant]; s != nil {
		for ref := range s.refs {
			if len(found) >= limit {
				break
			}
			found = append(found, ref)
		}
	}
	return found, nil
}

// refs yields the rows of a tenant but for its Global. Runs come first: other rows belong to them.
func (s *space) refs(yield func(kernel.Ref) bool) {
	for id := range s.nodes {
		if !yield(kernel.RunRef(s.tenant, id)) {
			return
		}
	}
	for name, g := range s.gates {
		if g.row != nil && !yield(kernel.GateRef(s.tenant, name)) {
			return
		}
	}
	for name := range s.uniques {
		if !yield(kernel.UniqueRef(s.tenant, name)) {
			return
		}
	}
	for job, of := range s.missed {
		for _, m := range of.list {
			if !yield(kernel.MissedRef(s.tenant, job, m.From)) {
				return
			}
		}
	}
	for job, of := range s.tallies {
		for t := range of.all() {
			if !yield(kernel.Ref{Kind: kernel.RowTally, Span: t.span, Tenant: s.tenant, ID: job, At: t.at()}) {
				return
			}
		}
	}
	for id := range s.sessions {
		if !yield(kernel.SessionRef(s.tenant, id)) {
			return
		}
	}
	for id := range s.tokens {
		if !yield(kernel.TokenRef(s.tenant, id)) {
			return
		}
	}
	for name := range s.calendars {
		if !yield(kernel.Ref{Kind: kernel.RowCalendar, Tenant: s.tenant, Name: name}) {
			return
		}
	}
	for ref := range s.alarms.all {
		if !yield(ref) {
			return
		}
	}
	for key := range s.followers {
		if !yield(kernel.FollowersRef(s.tenant, key)) {
			return
		}
	}
	for job, list := range s.occasions {
		for slot := range list {
			if !yield(kernel.OccasionRef(s.tenant, job, slot)) {
				return
			}
		}
	}
	for id := range s.batches {
		if !yield(kernel.BatchRef(s.tenant, id)) {
			return
		}
	}
	for ref := range s.plain {
		if !yield(ref) {
			return
		}
	}
	for key := range s.definitions {
		if !yield(kernel.DefinitionRef(s.tenant, key)) {
			return
		}
	}
	for _, a := range s.audits {
		if !yield(a.Ref()) {
			return
		}
	}
}
