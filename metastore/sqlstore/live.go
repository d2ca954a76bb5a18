package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
)

// The leader keeps a row for each unfinished run that is older than some seconds, for queries of users. Commits only note
// which runs they change. Once a second a part of these is looked up in memory and written: the work follows from
// changes, and runs that wait cost nothing.

const (
	liveAge   = 5 * time.Second // most runs end sooner, and are never written
	liveRows  = 5_000           // that are written at once
	liveEvery = time.Second     // some are written
	liveNotes = 500_000         // changes that may wait to be looked at
)

// liveColumns are the columns of unfinished runs.
var liveColumns = func() (some []column) {
	for _, c := range runColumns {
		if !slices.Contains([]string{"number", "ended_at", "result", "body"}, c.name) {
			some = append(some, c)
		}
	}
	return some
}()

// runKey are the columns that name a run.
var runKey = []column{{"tenant", word}, {"id", uuid}}

// liveRow is the values of a run, in the order of the columns.
func liveRow(run *kernel.Run) (values []any) {
	all := runRow(&finished{run: run})
	for i, c := range runColumns {
		if slices.Contains(liveColumns, c) {
			values = append(values, all[i])
		}
	}
	return values
}

// runName names a run.
type runName struct {
	tenant jobs.Tenant
	id     jobs.ID
}

// live is the changes of runs in a term, as commits note them.
type live struct {
	mu    sync.Mutex
	on    bool
	notes []liveNote
}

type liveNote struct {
	runName
	created time.Time
	ended   bool
}

// note notes that a run has changed. If too many notes wait, it gives up: the table is filled again later.
func (l *live) note(run *kernel.Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.on {
		return
	}
	if l.on = len(l.notes) < liveNotes; !l.on {
		l.notes = nil
		return
	}
	l.notes = append(l.notes, liveNote{runName{run.Tenant, run.ID}, run.Created, run.Settled()})
}

// turn begins or ends the notes.
func (l *live) turn(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on, l.notes = on, nil
}

// take takes the notes. They are not all if !on.
func (l *live) take() (notes []liveNote, on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	notes, l.notes = l.notes, nil
	return notes, l.on
}

// stale is runs whose rows in the table may be old ones, and how the table is filled.
type stale struct {
	open map[runName]since
	fill func() (*kernel.Run, bool) // the next run that there was when the term began
	stop func()
	now  time.Time // never goes back: what is not open and older than liveAge may be in the table
}

// since is when a run was created. absent: the table certainly has no row of it.
type since struct {
	created time.Time
	absent  bool
}

func (o *stale) young(created time.Time) bool { return o.now.Sub(created) < liveAge }

// look adds what has changed.
func (o *stale) look(notes []liveNote) {
	for _, n := range notes {
		was, known := o.open[n.runName]
		absent := known && was.absent || !known && o.young(n.created)
		if n.ended && absent {
			delete(o.open, n.runName)
		} else {
			o.open[n.runName] = since{n.created, absent}
		}
	}
}

// next calls take with runs that are to be written, until it returns false.
func (o *stale) next(take func(runName, since) bool) {
	for name, is := range o.open {
		if !(is.absent && o.young(is.created)) && !take(name, is) {
			return
		}
	}
	for o.fill != nil {
		run, more := o.fill()
		if !more {
			o.stop()
			o.fill, o.stop = nil, func() {} // frees the snapshot
			return
		}
		name := runName{run.Tenant, run.ID}
		if _, known := o.open[name]; known {
			continue
		}
		is := since{run.Created, o.young(run.Created)}
		if o.open[name] = is; !is.absent && !take(name, is) {
			return
		}
	}
}

// writeLive keeps the table until ctx ends, while this node leads the term. Without the setting it empties it.
func (s *Store) writeLive(ctx context.Context, term uint64) {
	tick := time.NewTicker(cmp.Or(s.cfg.liveEvery, liveEvery))
	defer tick.Stop()
	for {
		err := s.emptyLive(ctx, term)
		if err == nil && !s.cfg.Live {
			return
		}
		if err == nil {
			err = s.followLive(ctx, term, tick.C)
		}
		if errors.Is(err, errLaterTerm) || ctx.Err() != nil {
			return
		}
		if err != nil {
			s.episodes.Failed(slog.LevelWarn, "", "the table of unfinished runs was not written", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// emptyLive deletes all rows, which another leader wrote.
func (s *Store) emptyLive(ctx context.Context, term uint64) error {
	for n := int64(prunedAtOnce); n == prunedAtOnce; {
		err := s.inLive(ctx, term, func(ctx context.Context, tx *sql.Tx) error {
			done, err := tx.ExecContext(ctx, s.dialect.ask(s.dialect.prune("carillon_live", "tenant, id", "tenant IS NOT NULL")), prunedAtOnce)
			if err == nil {
				n, err = done.RowsAffected()
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// inLive calls fn in a transaction that writes the table.
func (s *Store) inLive(ctx context.Context, term uint64, fn func(context.Context, *sql.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.patience)
	defer cancel()
	return s.history.within(ctx, func(tx *sql.Tx) error {
		if err := s.inTerm(ctx, tx, "carillon_live_term", "term", term); err != nil {
			return err
		}
		return fn(ctx, tx)
	})
}

// followLive fills the empty table and writes what changes. It returns nil if the table is to be filled again.
func (s *Store) followLive(ctx context.Context, term uint64, tick <-chan time.Time) error {
	s.live.turn(true)
	defer s.live.turn(false)
	o := &stale{open: map[runName]since{}}
	o.fill, o.stop = iter.Pull(s.machine.Engine.Capture().Runs())
	defer func() { o.stop() }()
	for {
		notes, on := s.live.take()
		if !on {
			return nil
		}
		if now := s.now(); now.After(o.now) {
			o.now = now
		}
		o.look(notes)
		if err := s.writeStale(ctx, term, o); errors.Is(err, errLaterTerm) {
			return err
		} else if err != nil && ctx.Err() == nil {
			s.episodes.Failed(slog.LevelWarn, "", "the table of unfinished runs was not written", "err", err)
		} else {
			s.episodes.End("", "the table of unfinished runs was not written")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick:
		}
	}
}

// writeStale writes some of the runs.
func (s *Store) writeStale(ctx context.Context, term uint64, o *stale) error {
	var names []runName
	var old, rows [][]any
	size := 0
	o.next(func(name runName, is since) bool {
		names = append(names, name)
		if !is.absent {
			old = append(old, []any{plain.Readable(string(name.tenant)), bytesOf(name.id)})
		}
		if run := s.machine.Engine.Live(name.tenant, name.id); run != nil {
			rows, size = append(rows, liveRow(run)), size+len(run.Args)+len(run.Error)
		}
		return len(names) < liveRows && size < historyBytes
	})
	if len(names) == 0 {
		return nil
	}
	err := s.inLive(ctx, term, func(ctx context.Context, tx *sql.Tx) error {
		for part := range slices.Chunk(old, prunedAtOnce) {
			query, args := s.dialect.dropLive(part)
			if _, err := tx.ExecContext(ctx, query, args...); err != nil {
				return err
			}
		}
		for part := range slices.Chunk(rows, historyRows) { // a statement that is prepared has at most 65,535 arguments
			query, args := s.dialect.storing("carillon_live", liveColumns, part, "")
			if _, err := tx.ExecContext(ctx, query, args...); err != nil {
				return err
			}
		}
		return nil
	})
	for _, name := range names {
		if err == nil {
			delete(o.open, name)
		} else {
			o.open[name] = since{o.open[name].created, false} // it may have been written
		}
	}
	return err
}
