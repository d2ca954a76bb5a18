package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore"
)

// The leader writes the jobs to a table as they are: for queries of users, and for requests in transactions, which
// must refuse an unknown job.

const (
	jobsPoll = 100 * time.Millisecond // how often the leader looks for changed jobs
	jobsPart = 500                    // that are written at once
)

// errLaterTerm: the leader of a later term writes the table.
var errLaterTerm = errors.New("a later term has begun")

// writeJobs keeps the table until ctx ends, while this node leads the term.
func (s *Store) writeJobs(ctx context.Context, term uint64) {
	tick := time.NewTicker(jobsPoll)
	defer tick.Stop()
	for since, whole := uint64(0), false; ; {
		upto, err := s.writeChanged(ctx, term, since, whole)
		switch {
		case errors.Is(err, errLaterTerm) || ctx.Err() != nil:
			return
		case err != nil:
			s.episodes.Failed(slog.LevelWarn, "", "the table of jobs was not written", "err", err)
		default:
			s.episodes.End("", "the table of jobs was not written")
			since, whole = upto, true
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// writeChanged writes the jobs that have changed since a change number, and all of them the first time in a term: the
// leader before may have had other ones.
func (s *Store) writeChanged(ctx context.Context, term, since uint64, whole bool) (upto uint64, err error) {
	state, err := s.State(ctx)
	if err != nil || whole && state.Changes == since {
		return since, err
	}
	changed, err := s.Definitions(ctx, metastore.DefinitionQuery{Tenant: "*", Since: since, Changes: true})
	if err != nil || whole && len(changed) == 0 {
		return max(since, state.Changes), err
	}
	err = s.history.within(ctx, func(tx *sql.Tx) error {
		if err := s.inTerm(ctx, tx, "carillon_mark", "jobs", term); err != nil {
			return err
		}
		if !whole {
			if _, err := tx.ExecContext(ctx, "DELETE FROM carillon_jobs"); err != nil {
				return err
			}
		}
		for part := range slices.Chunk(changed, jobsPart) {
			if err := s.putJobs(ctx, tx, part); err != nil {
				return err
			}
		}
		return nil
	})
	return max(since, state.Changes), err
}

// inTerm keeps leaders of other terms from writing what a column guards, until the transaction ends. It fails with
// errLaterTerm if a later one has written it, or leads. A term that the database has not given, because a backup
// replaced it, writes nothing: its number may be higher than those that the database gives from now on.
func (s *Store) inTerm(ctx context.Context, tx *sql.Tx, table, column string, term uint64) error {
	done, err := tx.ExecContext(ctx, s.dialect.ask("UPDATE "+table+" SET "+column+" = ? WHERE one = 1 AND "+column+" <= ?"+s.dialect.unlessIdle), int64(term), int64(term))
	if err != nil {
		return err
	}
	var last, leads int64 // MariaDB counts rows that have changed
	if err := tx.QueryRowContext(ctx, "SELECT "+column+", (SELECT term FROM carillon_leader WHERE one = 1) FROM "+table+
		" WHERE one = 1").Scan(&last, &leads); err != nil {
		return err
	}
	if n, err := done.RowsAffected(); err != nil || n == 0 && last != int64(term) || leads != int64(term) {
		return errors.Join(err, errLaterTerm)
	}
	return nil
}

// putJobs replaces the rows of jobs.
func (s *Store) putJobs(ctx context.Context, tx *sql.Tx, part []*kernel.Definition) error {
	var names, rows []any
	for _, d := range part {
		names = append(names, string(d.Tenant), string(d.Key))
		if d.Gone() {
			continue
		}
		rows = append(rows, string(d.Tenant), string(d.Key), d.App, d.Kind.String(), d.Policy.Schedule, d.Policy.Zone, d.Paused != nil, nanos(d.Created))
	}
	if _, err := tx.ExecContext(ctx, s.dialect.ask("DELETE FROM carillon_jobs WHERE (tenant, job) IN ("+listed(marks(2), len(part))+")"), names...); err != nil {
		return err
	}
	const columns = 8
	if len(rows) == 0 {
		return nil
	}
	one := "(?, ?, ?, ?, ?, ?, ?, " + s.dialect.instant + ")"
	_, err := tx.ExecContext(ctx, s.dialect.ask("INSERT INTO carillon_jobs (tenant, job, app, kind, schedule, zone, paused, created_at) VALUES "+listed(one, len(rows)/columns)), rows...)
	return err
}
