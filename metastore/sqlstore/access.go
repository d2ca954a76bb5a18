package sqlstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Token is one token.
func (s *Store) Token(ctx context.Context, tenant jobs.Tenant, id string) (*kernel.Token, error) {
	t, ok, err := one[*kernel.Token](ctx, s, "read a token", kernel.TokenRef(tenant, id))
	if err == nil && !ok {
		err = kernel.Refuse(jobs.NotFound, "there is no token %.20q", id)
	}
	return t, err
}

// Tokens lists the tokens of a tenant, or of all, by name.
func (s *Store) Tokens(ctx context.Context, tenant jobs.Tenant) (found []*kernel.Token, err error) {
	query, args := "SELECT body FROM carillon_rows WHERE kind = ?", []any{int64(kernel.RowToken)}
	if tenant != "*" {
		query, args = query+" AND tenant = ?", append(args, string(tenant))
	}
	err = rowsOf(ctx, s, "list tokens", func(t *kernel.Token) bool { found = append(found, t); return true }, query, args...)
	slices.SortFunc(found, func(a, b *kernel.Token) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return found, err
}

// Session is one session.
func (s *Store) Session(ctx context.Context, tenant jobs.Tenant, id string) (*kernel.Session, error) {
	found, ok, err := one[*kernel.Session](ctx, s, "read a session", kernel.SessionRef(tenant, id))
	if err == nil && !ok {
		err = kernel.Refuse(jobs.NotFound, "there is no such session")
	}
	return found, err
}

// History is a job's former policies.
func (s *Store) History(ctx context.Context, tenant jobs.Tenant, job jobs.ID) (*kernel.History, error) {
	h, ok, err := one[*kernel.History](ctx, s, "read the history of a job", kernel.HistoryRef(tenant, job))
	if err == nil && !ok {
		h = &kernel.History{Tenant: tenant, Job: job}
	}
	return h, err
}

// Calendars lists the calendars of a tenant by name.
func (s *Store) Calendars(ctx context.Context, tenant jobs.Tenant) (found []*kernel.Calendar, err error) {
	err = rowsOf(ctx, s, "list calendars", func(c *kernel.Calendar) bool { found = append(found, c); return true },
		"SELECT body FROM carillon_rows WHERE kind = ? AND tenant = ?", int64(kernel.RowCalendar), string(tenant))
	slices.SortFunc(found, func(a, b *kernel.Calendar) int { return cmp.Compare(a.Name, b.Name) })
	return found, err
}

// Audits lists audits, newest first. There are few enough for a scan.
func (s *Store) Audits(ctx context.Context, q metastore.AuditQuery) (found []*kernel.Audit, err error) {
	query, args := "SELECT body FROM carillon_rows WHERE kind = ? AND tenant = ? AND name = '' AND id = ?", []any{int64(kernel.RowAudit), string(q.Tenant), make([]byte, 16)}
	if q.Before > 0 {
		query, args = query+" AND at < ?", append(args, int64(q.Before))
	}
	err = rowsOf(ctx, s, "list audits", func(a *kernel.Audit) bool {
		if q.Matches(a) {
			found = append(found, a)
		}
		return len(found) < q.Size()
	}, query+" ORDER BY at DESC", args...)
	return found, err
}

// Aged lists rows that became history before a time.
func (s *Store) Aged(ctx context.Context, before time.Time, limit int) (found []kernel.Ref, err error) {
	err = s.query(ctx, "read old rows", func(scan func(...any) error) error {
		var ref kernel.Ref
		var id []byte
		err := scan(&ref.Kind, &ref.Tenant, &ref.Name, &id, &ref.At)
		copy(ref.ID[:], id)
		found = append(found, ref)
		return err
	}, "SELECT kind, tenant, name, id, at FROM carillon_rows WHERE aged < ? ORDER BY aged LIMIT ?", before.UnixNano(), limit)
	if err != nil || len(found) == limit {
		return found, err
	}
	days, err := s.tallied(ctx, kernel.Day, before.Add(-time.Nanosecond), limit-len(found))
	return append(found, days...), err
}

// Hourly lists tallies of hours that ended at or before a time.
func (s *Store) Hourly(ctx context.Context, until time.Time, limit int) ([]kernel.Ref, error) {
	return s.tallied(ctx, kernel.Hour, until, limit)
}

// tallied lists tallies of jobs that ended at or before a time, the oldest first.
func (s *Store) tallied(ctx context.Context, span kernel.Span, until time.Time, limit int) (found []kernel.Ref, err error) {
	err = s.query(ctx, "read old tallies", func(scan func(...any) error) error {
		t, err := scanTally(scan)
		found = append(found, t.Ref())
		return err
	}, "SELECT "+tallies.all()+" FROM carillon_tallies WHERE span = ? AND at <= ? AND job <> ? ORDER BY at LIMIT ?",
		int64(span), until.Add(-span.Length()).UnixNano(), make([]byte, 16), limit)
	return found, err
}
