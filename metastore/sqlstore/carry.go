package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Copying all content of a database to another store, and back. Both ways there is one transaction, which locks the
// store's own row, so that no other process can commit.

// Frozen is the content of a database without a leader and without writers.
type Frozen struct {
	*content
	store *Store
}

// content is what a transaction sees.
type content struct {
	d     *dialect
	tx    *sql.Tx
	state kernel.StoreRow
}

// Freeze opens a database for reading, and blocks writers until it is closed. It is refused while a node leads or
// commits, while the outbox has requests, and with tables of another version. Nothing is changed.
func Freeze(ctx context.Context, cfg Config) (_ *Frozen, err error) {
	s, err := dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = s.db.Close()
		}
	}()
	known, err := steps(s.dialect)
	if err != nil {
		return nil, err
	}
	var version int
	if err := s.db.QueryRowContext(ctx, "SELECT COALESCE(MAX(version), 0) FROM carillon_versions").Scan(&version); err != nil {
		return nil, kernel.Refuse(jobs.NotFound, "there is no store in this %s: %s", s.dialect.name, quiet(err, cfg.URL))
	}
	if version != len(known) {
		return nil, kernel.Refuse(jobs.Conflict, "the tables have version %d, and this program's have %d: start its server with them once, and stop it", version, len(known))
	}
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return nil, err
	}
	c := &content{s.dialect, tx, kernel.StoreRow{}}
	if err := c.alone(ctx); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	if err := s.readable(c.state); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return &Frozen{c, s}, nil
}

// Close unblocks writers.
func (f *Frozen) Close() error { return errors.Join(f.tx.Rollback(), f.store.db.Close()) }

// dial connects, and changes nothing.
func dial(ctx context.Context, cfg Config) (*Store, error) {
	s, err := prepared(cfg)
	if err != nil {
		return nil, err
	}
	if err := s.db.PingContext(ctx); err != nil {
		_ = s.db.Close()
		return nil, kernel.Refuse(jobs.Unavailable, "%s cannot be reached: %s", s.dialect.name, quiet(err, cfg.URL))
	}
	return s, nil
}

// alone locks the store's own row, unless another process is at work.
func (c *content) alone(ctx context.Context) error {
	var at, changes, term, turns, until, now int64
	err := c.tx.QueryRowContext(ctx, "SELECT at, changes, term, leader, turns, named, named_before, apply_version FROM carillon_store WHERE one = 1 FOR UPDATE NOWAIT").Scan(&at, &changes, &term, &c.state.Leader, &turns, &c.state.Named, &c.state.NamedBefore, &c.state.ApplyVersion)
	if err != nil {
		return kernel.Refuse(jobs.Conflict, "another process writes to this %s: stop the servers and the programs that use it (%v)", c.d.name, err)
	}
	c.state.At, c.state.Changes, c.state.Term, c.state.Turns = instant(at), uint64(changes), uint64(term), uint64(turns)
	var node string
	if err := c.tx.QueryRowContext(ctx, "SELECT node, until, "+c.d.clock+" FROM carillon_leader WHERE one = 1").Scan(&node, &until, &now); err != nil {
		return err
	}
	if until > now {
		return kernel.Refuse(jobs.Conflict, "node %s leads, or did so until a moment ago: stop it, and try again in %v", node, leaseTime)
	}
	var members int
	if err := c.tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM carillon_members WHERE until > "+c.d.clock).Scan(&members); err != nil {
		return err
	}
	if members > 0 {
		return kernel.Refuse(jobs.Conflict, "%d nodes fire here, or did so until a moment ago: stop them, and try again in %v", members, leaseTime)
	}
	var requests int
	if err := c.tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM carillon_outbox WHERE refused IS NULL").Scan(&requests); err != nil {
		return err
	}
	if requests > 0 {
		return kernel.Refuse(jobs.Conflict, "the outbox has %d requests for runs: start the server, which creates these runs at once, and stop it", requests)
	}
	return nil
}

// stream passes on the rows of a query.
func stream[R any](ctx context.Context, c *content, yield func(R, error) bool, query string, args []any, read func(scan func(...any) error) (R, error)) (goOn bool) {
	rows, err := c.tx.QueryContext(ctx, c.d.ask(query), args...)
	err = each(rows, err, func(scan func(...any) error) error {
		row, err := read(scan)
		if err == nil && !yield(row, nil) {
			return errEnough
		}
		return err
	})
	if err != nil && !errors.Is(err, errEnough) {
		var none R
		yield(none, err)
	}
	return err == nil
}

// Rows are all rows but finished runs, and the names of those.
func (c *content) Rows(ctx context.Context) iter.Seq2[kernel.Row, error] {
	return func(yield func(kernel.Row, error) bool) {
		if c.state != (kernel.StoreRow{}) && !yield(&c.state, nil) {
			return
		}
		row := func(scan func(...any) error) (kernel.Row, error) { return scanOther(scan) }
		if !stream(ctx, c, yield, "SELECT "+others.all()+" FROM carillon_rows", nil, row) {
			return
		}
		row = func(scan func(...any) error) (kernel.Row, error) { return scanTally(scan) }
		if !stream(ctx, c, yield, "SELECT "+tallies.all()+" FROM carillon_tallies WHERE job <> ?", []any{make([]byte, 16)}, row) {
			return
		}
		row = func(scan func(...any) error) (kernel.Row, error) {
			r, err := scanRun(scan)
			return r.Run, err
		}
		if !stream(ctx, c, yield, "SELECT "+runs.all()+" FROM carillon_runs WHERE "+c.d.live+" ORDER BY tenant, "+c.d.liveSequence, nil, row) {
			return
		}
		row = func(scan func(...any) error) (kernel.Row, error) {
			r, err := scanRun(scan)
			if err != nil {
				return nil, err
			}
			run := stub(r.Run)
			run.Ended = time.Unix(0, periodOf(*r.settledAt)*int64(period)).UTC()
			return run, nil
		}
		since := (periodOf(nanos(c.state.At)) - kept) * int64(period)
		stream(ctx, c, yield, "SELECT "+runs.all()+" FROM carillon_runs WHERE settled IS NOT NULL AND settled_at >= ?", []any{since}, row)
	}
}

// Ended are the finished runs.
func (c *content) Ended(ctx context.Context) iter.Seq2[*kernel.Run, error] {
	return func(yield func(*kernel.Run, error) bool) {
		stream(ctx, c, yield, "SELECT "+runs.all()+" FROM carillon_runs WHERE settled IS NOT NULL ORDER BY settled_at, settled", nil,
			func(scan func(...any) error) (*kernel.Run, error) {
				r, err := scanRun(scan)
				return r.Run, err
			})
	}
}

// Lines are the log lines of handlers.
func (c *content) Lines(ctx context.Context) iter.Seq2[metastore.LogLine, error] {
	return func(yield func(metastore.LogLine, error) bool) {
		stream(ctx, c, yield, "SELECT tenant, run, attempt, sequence, at, level, line FROM carillon_logs ORDER BY tenant, run, attempt, sequence", nil,
			func(scan func(...any) error) (metastore.LogLine, error) {
				var l metastore.LogLine
				var run, text []byte
				var at int64
				err := scan(&l.Tenant, &run, &l.Attempt, &l.Sequence, &at, &l.Level, &text)
				copy(l.Run[:], run)
				l.At, l.Text = instant(at), string(text)
				return l, err
			})
	}
}

// Fill puts content into a database without a store, or with an empty one, in one transaction. See metastore.Fill.
func Fill(ctx context.Context, cfg Config, from metastore.Content, check func(metastore.Content) error) error {
	s, err := dial(ctx, cfg)
	if err != nil {
		return err
	}
	err = s.migrate(ctx)
	if err == nil {
		err = s.fill(ctx, from, check)
	}
	return errors.Join(err, s.db.Close())
}

func (s *Store) fill(ctx context.Context, from metastore.Content, check func(metastore.Content) error) error {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	f := &filling{content: &content{s.dialect, tx, kernel.StoreRow{}}, counts: map[counted]int64{}, tallies: totals{}}
	if err = f.fill(ctx, from); err == nil {
		err = errors.Join(s.readable(f.state), check(f.content))
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit the copy: %w", err)
	}
	// For good plans of the first queries.
	for _, t := range []string{"carillon_runs", "carillon_rows", "carillon_tallies", "carillon_logs"} {
		if _, err := s.db.ExecContext(ctx, s.dialect.analyze+t); err != nil {
			s.log.Warn("the database has not analyzed its new rows", "database", s.dialect.name, "err", err)
		}
	}
	return nil
}

// filling is a database that is being filled.
type filling struct {
	*content
	sequence int64
	at       int64 // when the last finished run was settled
	counts   map[counted]int64
	tallies  totals
	ended    map[kernel.Ref]int64 // when runs ended that are known by name as well
	waiting  map[*table][][]any   // rows that are written together
	logged   struct {
		attempt
		size int
	}
}

func (f *filling) fill(ctx context.Context, from metastore.Content) error {
	if err := f.empty(ctx); err != nil {
		return err
	}
	f.waiting = map[*table][][]any{}
	if err := f.look(ctx, from); err != nil {
		return err
	}
	for run, err := range from.Ended(ctx) {
		if err == nil {
			err = f.over(ctx, run)
		}
		if err != nil {
			return err
		}
	}
	for row, err := range from.Rows(ctx) {
		if err == nil {
			err = f.row(ctx, row)
		}
		if err != nil {
			return err
		}
	}
	for line, err := range from.Lines(ctx) {
		if err == nil {
			err = f.line(ctx, line)
		}
		if err != nil {
			return err
		}
	}
	return f.finish(ctx)
}

// empty locks the store's own row, and refuses a database with any rows.
func (f *filling) empty(ctx context.Context) error {
	if err := f.alone(ctx); err != nil {
		return err
	}
	full := f.state != (kernel.StoreRow{})
	for _, t := range []string{"carillon_runs", "carillon_rows", "carillon_tallies", "carillon_counts", "carillon_logs", "carillon_outbox"} {
		var one int
		err := f.tx.QueryRowContext(ctx, "SELECT 1 FROM "+t+" LIMIT 1").Scan(&one)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		full = full || err == nil
	}
	if full {
		return kernel.Refuse(jobs.Conflict, "there is a store in this %s already: name a database of its own for the new one", f.d.name)
	}
	return nil
}

// look reads the rows for what has to be known before any is written.
func (f *filling) look(ctx context.Context, from metastore.Content) error {
	f.ended = map[kernel.Ref]int64{}
	for row, err := range from.Rows(ctx) {
		if err != nil {
			return err
		}
		if run, ok := row.(*kernel.Run); ok && run.Settled() {
			f.ended[run.Ref()] = nanos(run.Ended)
		}
	}
	return nil
}

// put writes rows, many at a time.
func (f *filling) put(ctx context.Context, t *table, row []any) error {
	f.waiting[t] = append(f.waiting[t], row)
	if len(f.waiting[t]) < part {
		return nil
	}
	return f.flush(ctx, t)
}

func (f *filling) flush(ctx context.Context, t *table) error {
	rows := f.waiting[t]
	f.waiting[t] = nil
	return f.d.put(ctx, f.tx, t, rows)
}

// over writes a finished run. Its settle time follows from its end, from the period for which its name is still
// known, and from the runs settled before it.
func (f *filling) over(ctx context.Context, in *kernel.Run) error {
	f.sequence++
	f.at = max(f.at, nanos(in.Ended), f.ended[in.Ref()])
	r := run{Run: in, sequence: f.sequence, settled: new(f.sequence), settledAt: new(f.at)}
	return f.put(ctx, &runs, r.values())
}

// row writes any other row.
func (f *filling) row(ctx context.Context, row kernel.Row) error {
	switch row := row.(type) {
	case *kernel.StoreRow:
		f.state = *row
		return nil
	case *kernel.Tally:
		f.tallies.add(row.Ref(), row.Sums)
		return f.put(ctx, &tallies, tally(row.Ref(), row.Sums))
	case *kernel.Run:
		if row.Settled() {
			return nil // it is among the finished ones
		}
		f.sequence++
		r := run{Run: row, sequence: f.sequence}
		count(f.counts, row, 1)
		return f.put(ctx, &runs, r.values())
	}
	return f.put(ctx, &others, other(row))
}

// line writes a log line. Its size against its attempt's limit depends on whether it is the last there can be.
func (f *filling) line(ctx context.Context, l metastore.LogLine) error {
	if of := (attempt{l.Tenant, l.Run, l.Attempt}); f.logged.attempt != of {
		f.logged.attempt, f.logged.size = of, 0
	}
	size := l.Size()
	if l.IsCut() {
		size = max(size, metastore.MaxLog+1-f.logged.size)
	}
	f.logged.size += size
	return f.put(ctx, &logs, logRow(l, size))
}

// finish writes what follows from all rows.
func (f *filling) finish(ctx context.Context) error {
	for total, sums := range f.tallies {
		if err := f.put(ctx, &tallies, tally(total, *sums)); err != nil {
			return err
		}
	}
	for of, n := range f.counts {
		if err := f.put(ctx, &counts, of.values(n)); err != nil {
			return err
		}
	}
	for t := range f.waiting {
		if err := f.flush(ctx, t); err != nil {
			return err
		}
	}
	return f.d.note(ctx, f.tx, f.state, f.sequence)
}
