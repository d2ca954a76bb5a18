package memstore

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Token is one token.
func (e *Engine) Token(_ context.Context, tenant jobs.Tenant, id string) (*kernel.Token, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if s := e.rows.spaces[tenant]; s != nil {
		if t := s.tokens[id]; t != nil {
			return t.row, nil
		}
	}
	return nil, kernel.Refuse(jobs.NotFound, "there is no token %.20q", id)
}

// Tokens lists the tokens of a tenant, or of all, by name.
func (e *Engine) Tokens(_ context.Context, tenant jobs.Tenant) ([]*kernel.Token, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	var found []*kernel.Token
	for _, s := range e.rows.inOrder(tenant) {
		from := len(found)
		for _, t := range s.tokens {
			found = append(found, t.row)
		}
		slices.SortFunc(found[from:], func(a, b *kernel.Token) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	}
	return found, nil
}

// Session is one session.
func (e *Engine) Session(_ context.Context, tenant jobs.Tenant, id string) (*kernel.Session, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if s := e.rows.spaces[tenant]; s != nil {
		if found := s.sessions[id]; found != nil {
			return found.row, nil
		}
	}
	return nil, kernel.Refuse(jobs.NotFound, "there is no such session")
}

// Sessions lists the sessions that may act in a tenant, newest first. All are looked at: there are few, and few ask.
func (e *Engine) Sessions(_ context.Context, tenant jobs.Tenant) ([]*kernel.Session, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	var list []*kernel.Session
	for of, s := range e.rows.spaces {
		for _, found := range s.sessions {
			if of == tenant || found.row.In(tenant) != nil {
				list = append(list, found.row)
			}
		}
	}
	slices.SortFunc(list, func(a, b *kernel.Session) int { return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID)) })
	return list, nil
}

// History is a job's former policies.
func (e *Engine) History(_ context.Context, tenant jobs.Tenant, job jobs.ID) (*kernel.History, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if s := e.rows.spaces[tenant]; s != nil {
		if h, ok := s.plain[kernel.HistoryRef(tenant, job)].(*kernel.History); ok {
			return h, nil
		}
	}
	return &kernel.History{Tenant: tenant, Job: job}, nil
}

// Calendars lists the calendars of a tenant by name.
func (e *Engine) Calendars(_ context.Context, tenant jobs.Tenant) ([]*kernel.Calendar, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	s := e.rows.spaces[tenant]
	if s == nil {
		return nil, nil
	}
	return slices.SortedFunc(maps.Values(s.calendars), func(a, b *kernel.Calendar) int { return cmp.Compare(a.Name, b.Name) }), nil
}

type token struct {
	row   *kernel.Token
	elder elder
}

type session struct {
	row   *kernel.Session
	elder elder
}

func (r *rows) putToken(row *kernel.Token) {
	s := r.space(row.Tenant)
	t := s.tokens[row.ID]
	if t == nil {
		t = &token{elder: elder{row: row.Ref()}}
		s.tokens[row.ID] = t
	}
	t.row = row
	r.age(&t.elder, row)
}

func (r *rows) dropToken(s *space, id string) {
	if t := s.tokens[id]; t != nil {
		r.age(&t.elder, nil)
		delete(s.tokens, id)
	}
}

func (r *rows) putSession(row *kernel.Session) {
	s := r.space(row.Tenant)
	found := s.sessions[row.ID]
	if found == nil {
		found = &session{elder: elder{row: row.Ref()}}
		s.sessions[row.ID] = found
	}
	found.row = row
	r.age(&found.elder, row)
}

func (r *rows) dropSession(s *space, id string) {
	if found := s.sessions[id]; found != nil {
		r.age(&found.elder, nil)
		delete(s.sessions, id)
	}
}
