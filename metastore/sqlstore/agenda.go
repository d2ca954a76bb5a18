package sqlstore

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// The reads of the leader's duties.

// Waking lists runs whose wake time is at or before until, earliest first, and the next wake time after those.
func (s *Store) Waking(ctx context.Context, until time.Time, limit int) (due []metastore.Named, next time.Time, err error) {
	err = s.query(ctx, "read waking runs", func(scan func(...any) error) error {
		var tenant jobs.Tenant
		var id []byte
		var wake int64
		if err := scan(&tenant, &id, &wake); err != nil {
			return err
		}
		if len(due) == limit || wake > until.UnixNano() {
			next = time.Unix(0, wake).UTC()
			return errEnough
		}
		due = append(due, metastore.Named{Tenant: tenant, ID: jobs.ID(id)})
		return nil
	}, "SELECT tenant, id, wake FROM carillon_runs WHERE wake IS NOT NULL ORDER BY wake, sequence LIMIT ?", limit+1)
	return due, next, err
}

// Ready lists the first ready runs of an app.
func (s *Store) Ready(ctx context.Context, tenant jobs.Tenant, app string, limit int) (found []*kernel.Run, err error) {
	err = rowsOf(ctx, s, "read ready runs", func(run *kernel.Run) bool { found = append(found, run); return true },
		"SELECT body FROM carillon_runs WHERE tenant = ? AND app = ? AND ready IS NOT NULL ORDER BY priority DESC, ready LIMIT ?", string(tenant), app, limit)
	return found, err
}

// ReadyApps lists the apps that have ready runs.
func (s *Store) ReadyApps(ctx context.Context) (found []metastore.ReadyApp, err error) {
	err = s.query(ctx, "read the apps with ready runs", func(scan func(...any) error) error {
		var l metastore.ReadyApp
		err := scan(&l.Tenant, &l.App, &l.Ready)
		found = append(found, l)
		return err
	}, "SELECT tenant, name, n FROM carillon_counts WHERE what = ? AND n > 0", countReady)
	return found, err
}

// Backlog lists the apps that have ready runs, each with the age of the oldest.
func (s *Store) Backlog(ctx context.Context) (found []metastore.Backlog, err error) {
	err = s.query(ctx, "read the backlog", func(scan func(...any) error) error {
		var b metastore.Backlog
		var body []byte
		if err := scan(&b.Tenant, &b.App, &b.Ready, &body); err != nil {
			return err
		}
		run, err := decode[*kernel.Run](body)
		if err != nil {
			return err
		}
		b.Since = run.Queued
		found = append(found, b)
		return nil
	}, "SELECT l.tenant, l.name, l.n, ("+s.dialect.oldest+") FROM carillon_counts l WHERE l.what = ? AND l.n > 0", countReady)
	return found, err
}

// Leased lists the attempts that are under way.
func (s *Store) Leased(ctx context.Context) (found []*kernel.Run, err error) {
	found = []*kernel.Run{}
	err = rowsOf(ctx, s, "read attempts under way", func(run *kernel.Run) bool { found = append(found, run); return true },
		"SELECT body FROM carillon_runs WHERE leased ORDER BY sequence")
	return found, err
}

// Unserved lists gates with both a free slot and a waiting run.
func (s *Store) Unserved(ctx context.Context, limit int) (found []kernel.Ref, err error) {
	var waiting []kernel.Ref
	err = s.query(ctx, "read waiting runs", func(scan func(...any) error) error {
		ref := kernel.Ref{Kind: kernel.RowGate}
		err := scan(&ref.Tenant, &ref.Name)
		waiting = append(waiting, ref)
		return err
	}, "SELECT tenant, name FROM carillon_counts WHERE what = ? AND n > 0", countWaits)
	if err != nil {
		return nil, err
	}
	state, err := s.State(ctx)
	if err != nil {
		return nil, err
	}
	gates := map[kernel.Ref]*kernel.Gate{}
	var keys [][]any
	bounds := map[kernel.Ref]kernel.Ref{} // of gates of arguments: the rows of their limits
	asked := map[kernel.Ref]bool{}
	for _, ref := range waiting {
		keys = append(keys, key(ref))
		if limit, _, keyed := kernel.KeyOf(ref.Name); keyed {
			bound := kernel.GateRef(ref.Tenant, kernel.BoundGate(limit))
			bounds[ref] = bound
			if !asked[bound] {
				asked[bound] = true
				keys = append(keys, key(bound))
			}
		}
	}
	err = s.dialect.get(ctx, s.db, &others, keys, func(scan func(...any) error) error {
		row, err := scanOther(scan)
		if g, ok := row.(*kernel.Gate); ok {
			gates[g.Ref()] = g
		}
		return err
	})
	for _, ref := range waiting {
		g := gates[ref]
		if b := gates[bounds[ref]]; g != nil && b != nil {
			g = g.Under(b.Bound())
		}
		if len(found) < limit && (g == nil || g.Free(state.At)) {
			found = append(found, ref)
		}
	}
	return found, s.failed("read gates", err)
}

// Expired lists unique keys that expired at or before until.
func (s *Store) Expired(ctx context.Context, until time.Time, limit int) (found []kernel.Ref, err error) {
	err = s.query(ctx, "read expired keys", func(scan func(...any) error) error {
		ref := kernel.Ref{Kind: kernel.RowUnique}
		err := scan(&ref.Tenant, &ref.Name)
		found = append(found, ref)
		return err
	}, "SELECT tenant, name FROM carillon_rows WHERE kind = ? AND lapse <= ? ORDER BY lapse LIMIT ?", int64(kernel.RowUnique), nanos(until), limit)
	return found, err
}

// State is the row the store keeps about itself.
func (s *Store) State(ctx context.Context) (state kernel.StoreRow, err error) {
	err = s.query(ctx, "read the store's row", func(scan func(...any) error) error {
		var at int64
		err := scan(&at, &state.Changes, &state.Term, &state.Leader, &state.Turns, &state.Named, &state.NamedBefore, &state.ApplyVersion)
		state.At = instant(at)
		return err
	}, "SELECT at, changes, term, leader, turns, named, named_before, apply_version FROM carillon_store WHERE one = 1")
	return state, err
}
