package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// A commit locks the store's own row first and keeps it locked to its end, so that there is one at a time, from any
// process: the time never goes back, sequences have no holes that fill later, and no two commits can wait for each
// other. Concurrent requests share a commit, so this costs little; see DESIGN.md.

// maxCommands is the most commands in a commit.
const maxCommands = 2_000

// commitTime is how long a commit may take before it is given up.
const commitTime = 30 * time.Second

// silence is how long a process that has locked the store's row may stay idle before the database unlocks it. A
// process that is frozen, or cut off, in the middle of a commit would block all others until the database noticed
// that it is gone, perhaps for hours. A healthy one is idle for milliseconds.
const silence = 4 * time.Second

// Apply applies a batch in one transaction.
func (s *Store) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	return metastore.Checked(batch, func(batch []kernel.Envelope) []metastore.Result { return s.group.Apply(ctx, batch) })
}

// commit applies a batch. After a COMMIT without an answer the outcome is unknown.
func (s *Store) commit(batch []kernel.Envelope) []metastore.Result {
	ctx, cancel := context.WithTimeout(s.ctx, commitTime)
	defer cancel()
	results, sent, err := s.transaction(ctx, batch)
	switch {
	case err == nil:
		s.episodes.End("", "a commit failed")
		return results
	case sent:
		s.episodes.Failed(slog.LevelWarn, "", "the outcome of a commit is unknown", "err", err)
		return metastore.Refused(batch, kernel.OutcomeUnknown("%s did not report whether it has committed", s.dialect.name))
	}
	s.episodes.Failed(slog.LevelWarn, "", "a commit failed", "err", err)
	if errors.Is(err, metastore.ErrTooOld) {
		s.outdated(err)
		return metastore.Refused(batch, kernel.Refuse(jobs.Unavailable, "not done: %v", err))
	}
	return metastore.Refused(batch, kernel.Refuse(jobs.Unavailable, "not done: %s failed", s.dialect.name))
}

// transaction returns results, and whether it has sent a COMMIT to the database.
func (s *Store) transaction(ctx context.Context, batch []kernel.Envelope) (results []metastore.Result, sent bool, err error) {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, false, err
	}
	defer func() {
		if err != nil {
			_ = tx.Rollback() // the first error counts
		}
	}()
	v, now, err := s.lock(ctx, tx)
	if err != nil {
		return nil, false, fmt.Errorf("lock the store's row: %w", err)
	}
	v.now = nanos(metastore.Stamp(batch, now, v.state.At))
	loading := loader{s, ctx, tx, v, nil}
	metastore.Gather(batch, loading.load)
	if loading.err != nil {
		return nil, false, loading.err
	}
	rules := metastore.Rules{Known: s.cfg.knows, InForce: func(uint32) (uint32, error) { return v.state.InForce(), nil }}
	results = metastore.Admitted(batch, v.finished, func(batch []kernel.Envelope) []metastore.Result {
		return rules.Allowed(batch, func(batch []kernel.Envelope) []metastore.Result { return metastore.ApplyBatch(v, batch) })
	})
	if err := s.write(ctx, tx, v); err != nil {
		return nil, false, err
	}
	// Or another node does, and this one does not know yet.
	if term := s.leads.Load(); term == 0 || term != v.state.Term {
		if err := s.notify(ctx, tx); err != nil {
			return nil, false, err
		}
	}
	// Some drivers ignore the context of a transaction in Commit.
	done := make(chan error, 1)
	go func() { done <- tx.Commit() }()
	select {
	case err = <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, !errors.Is(err, sql.ErrTxDone), err
	}
	return results, true, nil
}

// lock locks the store's own row.
func (s *Store) lock(ctx context.Context, tx *sql.Tx) (*view, time.Time, error) {
	var state kernel.StoreRow
	var at, changes, term, turns, sequence, now int64
	var bound string
	err := tx.QueryRowContext(ctx, "SELECT at, changes, term, leader, turns, named, named_before, apply_version, sequence, "+s.dialect.clock+", "+s.dialect.bound(s.cfg.silence)+" FROM carillon_store WHERE one = 1 FOR UPDATE").
		Scan(&at, &changes, &term, &state.Leader, &turns, &state.Named, &state.NamedBefore, &state.ApplyVersion, &sequence, &now, &bound)
	if err != nil {
		return nil, time.Time{}, err
	}
	if err := s.readable(state); err != nil {
		return nil, time.Time{}, err
	}
	state.At, state.Changes, state.Term, state.Turns = instant(at), uint64(changes), uint64(term), uint64(turns)
	if s.cfg.Now != nil {
		return newView(state, sequence), s.cfg.Now(), nil
	}
	return newView(state, sequence), time.Unix(0, now), nil
}

// readable returns why this program cannot read the store. Other processes may have raised the version.
func (s *Store) readable(state kernel.StoreRow) error {
	return metastore.Readable("the store in this "+s.dialect.name, state.InForce(), s.cfg.knows)
}

// instant is a time from its number; 0 = none.
func instant(nano int64) time.Time {
	if nano == 0 {
		return time.Time{}
	}
	return time.Unix(0, nano).UTC()
}

// loader reads what a batch may touch, round by round.
type loader struct {
	s   *Store
	ctx context.Context
	tx  *sql.Tx
	v   *view
	err error
}

func (l *loader) load(w metastore.Wants) []kernel.Row {
	var found []kernel.Row
	var ids, keys, sums [][]any
	for _, ref := range w.Refs {
		switch ref.Kind {
		case kernel.RowStore:
			found = append(found, &l.v.state)
		case kernel.RowRun:
			ids = append(ids, []any{string(ref.Tenant), bytesOf(ref.ID)})
		case kernel.RowTally:
			sums = append(sums, tallyKey(ref))
		default:
			keys = append(keys, key(ref))
		}
	}
	takeRun := func(scan func(...any) error) (run, error) {
		r, err := scanRun(scan)
		if err == nil {
			if row := l.v.loaded(r); row != nil {
				found = append(found, row)
			}
		}
		return r, err
	}
	l.do("read runs", func() error {
		return l.s.dialect.get(l.ctx, l.tx, &runs, ids, func(scan func(...any) error) error {
			_, err := takeRun(scan)
			return err
		})
	})
	l.do("read rows", func() error {
		return l.s.dialect.get(l.ctx, l.tx, &others, keys, func(scan func(...any) error) error {
			row, err := scanOther(scan)
			if err == nil {
				l.v.rows[row.Ref()] = row
				found = append(found, row)
			}
			return err
		})
	})
	l.do("read tallies", func() error {
		return l.s.dialect.get(l.ctx, l.tx, &tallies, sums, func(scan func(...any) error) error {
			t, err := scanTally(scan)
			if err == nil {
				l.v.rows[t.Ref()] = t
				found = append(found, t)
			}
			return err
		})
	})
	var gates []waiting
	for gate, n := range w.First {
		gates = append(gates, waiting{string(gate.Tenant), gate.Name, n})
	}
	for len(gates) > 0 && l.err == nil {
		some := gates[:min(len(gates), 100)]
		gates = gates[len(some):]
		l.do("read waiting runs", func() error {
			query, args := l.s.dialect.firsts(some)
			rows, err := l.tx.QueryContext(l.ctx, query, args...)
			n := map[kernel.Ref]int{}
			err = each(rows, err, func(scan func(...any) error) error {
				r, err := takeRun(scan)
				if err == nil {
					n[kernel.GateRef(r.Tenant, r.Waits)]++
				}
				return err
			})
			for _, g := range some {
				ref := kernel.GateRef(jobs.Tenant(g.tenant), g.gate)
				l.v.more[ref] = n[ref] == g.n
			}
			return err
		})
	}
	return found
}

// do reads, unless a read has failed before.
func (l *loader) do(what string, read func() error) {
	if l.err != nil {
		return
	}
	if err := read(); err != nil {
		l.err = fmt.Errorf("%s: %w", what, err)
	}
}

// write writes what a commit has changed.
func (s *Store) write(ctx context.Context, tx *sql.Tx, v *view) error {
	d, c := s.dialect, v.change()
	for _, w := range []struct {
		do   func(context.Context, querier, *table, [][]any) error
		t    *table
		rows [][]any
	}{
		{d.put, &runs, c.runs}, {d.drop, &runs, c.gone}, {d.put, &others, c.others}, {d.drop, &others, c.dropped},
		{d.drop, &tallies, c.untallied}, {d.put, &tallies, c.tallies}, {d.put, &counts, c.counts},
	} {
		if err := w.do(ctx, tx, w.t, w.rows); err != nil {
			return err
		}
	}
	if len(c.untallied) > 0 { // some totals may be zero now
		zero := strings.ReplaceAll(tallies.names("", tallies.columns[tallies.keys:]), ", ", " = 0 AND ")
		if _, err := tx.ExecContext(ctx, d.ask("DELETE FROM carillon_tallies WHERE "+zero+" = 0 AND job = ?"), make([]byte, 16)); err != nil {
			return err
		}
	}
	return d.note(ctx, tx, v.state, v.sequence)
}

// note writes the store's own row.
func (d *dialect) note(ctx context.Context, tx *sql.Tx, state kernel.StoreRow, sequence int64) error {
	_, err := tx.ExecContext(ctx, d.ask("UPDATE carillon_store SET at = ?, changes = ?, term = ?, leader = ?, turns = ?, named = ?, named_before = ?, apply_version = ?, sequence = ? WHERE one = 1"),
		nanos(state.At), int64(state.Changes), int64(state.Term), state.Leader, int64(state.Turns), state.Named, state.NamedBefore, int64(state.ApplyVersion), sequence)
	return err
}
