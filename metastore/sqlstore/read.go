package sqlstore

import (
	"context"
	"errors"
	"slices"
	"time"

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
		if (q.Since > 0 || !d.Gone()) && (q.App == "" || d.App == q.App) && (len(q.Keys) == 0 || slices.Contains(q.Keys, d.Key)) && d.Key > q.After {
			found = append(found, d)
		}
		return q.Limit <= 0 || len(found) < q.Limit
	}
	query, args := "SELECT body FROM carillon_rows WHERE kind = ?", []any{int64(kernel.RowDefinition)}
	if q.Tenant != "*" {
		query, args = query+" AND tenant = ?", append(args, string(q.Tenant))
	}
	switch {
	case q.Since > 0:
		query, args = query+" AND changed > ? ORDER BY changed", append(args, int64(q.Since))
	case len(q.Keys) > 0:
		query += " AND name IN (" + tuples(1, len(q.Keys))[1:] + " ORDER BY tenant, name"
		for _, k := range q.Keys {
			args = append(args, string(k))
		}
	default:
		query, args = query+" AND name > ? ORDER BY tenant, name", append(args, string(q.After))
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

// Counts returns how many runs are in each state now, and how many entered each state per hour.
func (s *Store) Counts(ctx context.Context, q metastore.CountQuery) (metastore.Counts, error) {
	c := metastore.Counts{Live: map[jobs.State]int{}}
	err := s.query(ctx, "count runs", func(scan func(...any) error) error {
		var state jobs.State
		var n int
		err := scan(&state, &n)
		c.Live[state] = n
		return err
	}, "SELECT state, n FROM carillon_counts WHERE tenant = ? AND what = ? AND name = ? AND n > 0", string(q.Tenant), countState, string(q.Job))
	if err == nil && q.Payer != "" {
		err = s.query(ctx, "count runs", func(scan func(...any) error) error { return scan(&c.Waiting) },
			"SELECT n FROM carillon_counts WHERE tenant = ? AND what = ? AND name = ? AND state = 0", string(q.Tenant), countPayer, q.Payer)
	}
	if err != nil || q.From.IsZero() && q.To.IsZero() {
		return c, err
	}
	var job jobs.ID
	if q.Job != "" {
		d, err := s.Definition(ctx, q.Tenant, q.Job)
		if jobs.CodeOf(err) == jobs.NotFound {
			return c, nil
		}
		if err != nil {
			return c, err
		}
		job = d.UID
	}
	query, args := "SELECT tenant, job, hour, state, n FROM carillon_tallies WHERE tenant = ? AND job = ? AND hour > ?",
		[]any{string(q.Tenant), bytesOf(job), nanos(q.From) - int64(time.Hour)}
	if !q.To.IsZero() {
		query, args = query+" AND hour < ?", append(args, nanos(q.To))
	}
	return c, s.query(ctx, "read tallies", func(scan func(...any) error) error {
		t, err := scanTally(scan)
		c.Hours = append(c.Hours, *t)
		return err
	}, query+" ORDER BY hour, state", args...)
}

// Global is the tenant's settings and counters.
func (s *Store) Global(ctx context.Context, tenant jobs.Tenant) (*kernel.Global, error) {
	g, ok, err := one[*kernel.Global](ctx, s, "read the settings", kernel.GlobalRef(tenant))
	if err == nil && !ok {
		g = &kernel.Global{Tenant: tenant}
	}
	return g, err
}
