package sqlstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Token is one token.
func (s *Store) Token(ctx context.Context, tenant jobs.Tenant, id string) (*jobs.Token, error) {
	t, ok, err := one[*jobs.Token](ctx, s, "read a token", jobs.TokenRef(tenant, id))
	if err == nil && !ok {
		err = jobs.Refuse(jobs.NotFound, "there is no token %.20q", id)
	}
	return t, err
}

// Tokens lists the tokens of a tenant, or of all, by name.
func (s *Store) Tokens(ctx context.Context, tenant jobs.Tenant) (found []*jobs.Token, err error) {
	query, args := "SELECT body FROM carillon_rows WHERE kind = ?", []any{int64(jobs.RowToken)}
	if tenant != "*" {
		query, args = query+" AND tenant = ?", append(args, string(tenant))
	}
	err = rowsOf(ctx, s, "list tokens", func(t *jobs.Token) bool { found = append(found, t); return true }, query, args...)
	slices.SortFunc(found, func(a, b *jobs.Token) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return found, err
}

// Session is one session.
func (s *Store) Session(ctx context.Context, tenant jobs.Tenant, id string) (*jobs.Session, error) {
	found, ok, err := one[*jobs.Session](ctx, s, "read a session", jobs.SessionRef(tenant, id))
	if err == nil && !ok {
		err = jobs.Refuse(jobs.NotFound, "there is no such session")
	}
	return found, err
}

// History is what was said about a job before.
func (s *Store) History(ctx context.Context, tenant jobs.Tenant, job jobs.ID) (*jobs.History, error) {
	h, ok, err := one[*jobs.History](ctx, s, "read the history of a job", jobs.HistoryRef(tenant, job))
	if err == nil && !ok {
		h = &jobs.History{Tenant: tenant, Job: job}
	}
	return h, err
}

// Calendars lists the calendars of a tenant by name.
func (s *Store) Calendars(ctx context.Context, tenant jobs.Tenant) (found []*jobs.Calendar, err error) {
	err = rowsOf(ctx, s, "list calendars", func(c *jobs.Calendar) bool { found = append(found, c); return true },
		"SELECT body FROM carillon_rows WHERE kind = ? AND tenant = ?", int64(jobs.RowCalendar), string(tenant))
	slices.SortFunc(found, func(a, b *jobs.Calendar) int { return cmp.Compare(a.Name, b.Name) })
	return found, err
}

// Audits lists who changed what, newest first. There are few enough to look through.
func (s *Store) Audits(ctx context.Context, q metastore.AuditQuery) (found []*jobs.Audit, err error) {
	query, args := "SELECT body FROM carillon_rows WHERE kind = ? AND tenant = ? AND name = '' AND id = ?", []any{int64(jobs.RowAudit), string(q.Tenant), make([]byte, 16)}
	if q.Before > 0 {
		query, args = query+" AND at < ?", append(args, int64(q.Before))
	}
	err = rowsOf(ctx, s, "list audits", func(a *jobs.Audit) bool {
		if q.Matches(a) {
			found = append(found, a)
		}
		return len(found) < q.Size()
	}, query+" ORDER BY at DESC", args...)
	return found, err
}

// Aged lists rows that became history before a time.
func (s *Store) Aged(ctx context.Context, before time.Time, limit int) (found []jobs.Ref, err error) {
	err = s.query(ctx, "read what is history", func(scan func(...any) error) error {
		var ref jobs.Ref
		var id []byte
		err := scan(&ref.Kind, &ref.Tenant, &ref.Name, &id, &ref.At)
		copy(ref.ID[:], id)
		found = append(found, ref)
		return err
	}, "SELECT kind, tenant, name, id, at FROM carillon_rows WHERE aged < ? ORDER BY aged LIMIT ?", before.UnixNano(), limit)
	if err != nil || len(found) == limit {
		return found, err
	}
	err = s.query(ctx, "read what is history", func(scan func(...any) error) error {
		t, err := scanTally(scan)
		found = append(found, t.Ref())
		return err
	}, "SELECT "+tallies.all()+" FROM carillon_tallies WHERE hour < ? AND job <> ? ORDER BY hour LIMIT ?",
		before.Add(-time.Hour).UnixNano(), make([]byte, 16), limit-len(found))
	return found, err
}
