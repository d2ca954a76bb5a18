package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Reads of people and programs. Every query uses an index.

// errEnough ends a walk through an answer.
var errEnough = errors.New("enough")

// rowsOf reads rows of a kind, until take is false.
func rowsOf[R kernel.Row](ctx context.Context, s *Store, what string, take func(R) bool, query string, args ...any) error {
	return s.query(ctx, what, func(scan func(...any) error) error {
		var body []byte
		if err := scan(&body); err != nil {
			return err
		}
		row, err := decode[R](body)
		if err == nil && !take(row) {
			return errEnough
		}
		return err
	}, query, args...)
}

// one reads the row that a Ref points to; nil if there is none.
func one[R kernel.Row](ctx context.Context, s *Store, what string, ref kernel.Ref) (found R, ok bool, err error) {
	err = rowsOf(ctx, s, what, func(row R) bool { found, ok = row, true; return false },
		"SELECT body FROM carillon_rows WHERE kind = ? AND tenant = ? AND name = ? AND id = ? AND at = ?", key(ref)...)
	return found, ok, err
}

// Definition is one job.
func (s *Store) Definition(ctx context.Context, tenant jobs.Tenant, key jobs.Key) (*kernel.Definition, error) {
	d, ok, err := one[*kernel.Definition](ctx, s, "read a job", kernel.DefinitionRef(tenant, key))
	if err == nil && (!ok || d.Gone()) {
		err = kernel.Refuse(jobs.NotFound, "there is no job %q", key)
	}
	return d, err
}

// Definitions lists jobs: the named ones, those that changed, or all by key.
func (s *Store) Definitions(ctx context.Context, q metastore.DefinitionQuery) ([]*kernel.Definition, error) {
	var found []*kernel.Definition
	take := func(d *kernel.Definition) bool {
		if (q.Since > 0 || q.Changes || !d.Gone()) && (q.App == "" || d.App == q.App) && (len(q.Keys) == 0 || slices.Contains(q.Keys, d.Key)) && d.Key > q.After {
			found = append(found, d)
		}
		return q.Limit <= 0 || len(found) < q.Limit
	}
	query, args := "SELECT body FROM carillon_rows WHERE kind = ?", []any{int64(kernel.RowDefinition)}
	if q.Tenant != "*" {
		query, args = query+" AND tenant = ?", append(args, string(q.Tenant))
	}
	switch {
	case q.Since > 0 || q.Changes:
		query, args = query+" AND changed > ? ORDER BY changed", append(args, int64(q.Since))
		if q.Limit > 0 && q.App == "" && len(q.Keys) == 0 && q.After == "" {
			query += fmt.Sprintf(" LIMIT %d", q.Limit)
		}
	case len(q.Keys) > 0:
		query += " AND name IN (" + tuples(1, len(q.Keys))[1:] + " ORDER BY tenant, name"
		for _, k := range q.Keys {
			args = append(args, string(k))
		}
	default:
		query, args = query+" AND name > ? AND aged IS NULL ORDER BY tenant, name", append(args, string(q.After)) // not deleted
		if q.Limit > 0 && q.App == "" {
			query += fmt.Sprintf(" LIMIT %d", q.Limit)
		}
	}
	return found, rowsOf(ctx, s, "list jobs", take, query, args...)
}

// Run is one run, live or settled.
func (s *Store) Run(ctx context.Context, tenant jobs.Tenant, id jobs.ID) (found *kernel.Run, err error) {
	err = rowsOf(ctx, s, "read a run", func(run *kernel.Run) bool { found = run; return false },
		"SELECT body FROM carillon_runs WHERE tenant = ? AND id = ?", string(tenant), bytesOf(id))
	if err == nil && found == nil {
		err = kernel.NoRun(id)
	}
	return found, err
}

// Ledger lists the missed ranges of a job, newest first.
func (s *Store) Ledger(ctx context.Context, tenant jobs.Tenant, job jobs.ID, limit int) (found []*kernel.Missed, err error) {
	err = rowsOf(ctx, s, "read the ledger", func(m *kernel.Missed) bool {
		found = append(found, m)
		return limit <= 0 || len(found) < limit
	}, "SELECT body FROM carillon_rows WHERE kind = ? AND tenant = ? AND name = '' AND id = ? ORDER BY at DESC", int64(kernel.RowMissed), string(tenant), bytesOf(job))
	return found, err
}

// Counts returns how many runs are in each state now, and how many entered each state by hour and day.
func (s *Store) Counts(ctx context.Context, q metastore.CountQuery) (metastore.Counts, error) {
	c := metastore.Counts{Live: map[jobs.State]int{}}
	if q.Jobs {
		list, err := s.Definitions(ctx, metastore.DefinitionQuery{Tenant: q.Tenant, App: q.App})
		c.Jobs = len(list)
		return c, err
	}
	names, ids, err := s.selected(ctx, q)
	if err != nil {
		return c, err
	}
	err = inParts(names, func(names [][]any) error {
		return s.query(ctx, "count runs", func(scan func(...any) error) error {
			var state jobs.State
			var n int
			err := scan(&state, &n)
			c.Live[state] += n
			return err
		}, "SELECT state, n FROM carillon_counts WHERE tenant = ? AND what = ? AND n > 0 AND name IN "+tuples(1, len(names)),
			append([]any{string(q.Tenant), countState}, flat(names)...)...)
	})
	if err == nil && q.Payer != "" {
		err = s.query(ctx, "count runs", func(scan func(...any) error) error { return scan(&c.Waiting) },
			"SELECT n FROM carillon_counts WHERE tenant = ? AND what = ? AND name = ? AND state = 0", string(q.Tenant), countPayer, q.Payer)
	}
	if err != nil || q.From.IsZero() && q.To.IsZero() {
		return c, err
	}
	sum := metastore.Tallies{}
	err = inParts(ids, func(ids [][]any) error {
		query := "SELECT " + tallies.all() + " FROM carillon_tallies WHERE tenant = ? AND at > ? AND job IN " + tuples(1, len(ids))
		args := append([]any{string(q.Tenant), nanos(q.From) - int64(kernel.Day.Length())}, flat(ids)...)
		if !q.To.IsZero() {
			query, args = query+" AND at < ?", append(args, nanos(q.To))
		}
		return s.query(ctx, "read tallies", func(scan func(...any) error) error {
			t, err := scanTally(scan)
			if q.Job == "" {
				t.Job = jobs.ID{}
			}
			if err == nil && q.During(t) {
				sum.Add(*t)
			}
			return err
		}, query, args...)
	})
	c.Tallies = sum.List()
	return c, err
}

// selected returns the names and the jobs under which the runs that a query selects are counted.
func (s *Store) selected(ctx context.Context, q metastore.CountQuery) (names, ids [][]any, err error) {
	add := func(key jobs.Key, id jobs.ID) {
		names, ids = append(names, []any{string(key)}), append(ids, []any{bytesOf(id)})
	}
	switch {
	case q.Job != "":
		names = [][]any{{string(q.Job)}}
		d, err := s.Definition(ctx, q.Tenant, q.Job)
		switch {
		case err == nil:
			ids = [][]any{{bytesOf(d.UID)}}
		case jobs.CodeOf(err) != jobs.NotFound:
			return nil, nil, err
		}
	case q.App != "":
		err = rowsOf(ctx, s, "list the jobs of an app", func(d *kernel.Definition) bool {
			if d.App == q.App {
				add(d.Key, d.UID)
			}
			return true
		}, "SELECT body FROM carillon_rows WHERE kind = ? AND tenant = ?", int64(kernel.RowDefinition), string(q.Tenant))
	default:
		add("", jobs.ID{})
	}
	return names, ids, err
}

// Global is the tenant's settings and counters.
func (s *Store) Global(ctx context.Context, tenant jobs.Tenant) (*kernel.Global, error) {
	g, ok, err := one[*kernel.Global](ctx, s, "read the settings", kernel.GlobalRef(tenant))
	if err == nil && !ok {
		g = &kernel.Global{Tenant: tenant}
	}
	return g, err
}
