package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/replica"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog"
)

// Copying all content of a database to another store, and back. Both ways one transaction locks what a leader needs, so
// that no other process can lead or commit meanwhile.

// Frozen is the content of a database without a leader and without writers.
type Frozen struct {
	metastore.Content
	tx    *sql.Tx
	store *Store
}

// Freeze opens a database for reading, and blocks leaders and writers until it is closed. It is refused while a node
// leads or commits, while the outbox has requests, and with tables of another version. Nothing is changed.
func Freeze(ctx context.Context, cfg Config) (_ *Frozen, err error) {
	cfg.silence, cfg.Copy = -1, true
	s, err := dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	f := &Frozen{store: s}
	defer func() {
		if err != nil {
			_ = f.Close()
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
	if f.tx, err = s.alone(ctx); err != nil {
		return nil, err
	}
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	if err := s.log.Close(); err != nil {
		return nil, err
	}
	mark, err := s.history.mark(ctx)
	if err != nil {
		return nil, err
	}
	rows, unwritten := s.machine.Engine.Capture(), s.history.unwritten(mark)
	f.Content = &content{
		rows: func(context.Context) iter.Seq2[kernel.Row, error] { return sound(rows.Rows()) },
		ended: func(ctx context.Context) iter.Seq2[*kernel.Run, error] {
			return joined(s.dialect.allRuns(ctx, f.tx), sound(slices.Values(unwritten)))
		},
		lines: func(ctx context.Context) iter.Seq2[metastore.LogLine, error] { return allLines(ctx, f.tx) },
	}
	return f, nil
}

// Close unblocks others.
func (f *Frozen) Close() error {
	var err error
	if f.tx != nil {
		err = f.tx.Rollback()
	}
	return errors.Join(err, f.store.Close())
}

// content is the parts of a database.
type content struct {
	rows  func(context.Context) iter.Seq2[kernel.Row, error]
	ended func(context.Context) iter.Seq2[*kernel.Run, error]
	lines func(context.Context) iter.Seq2[metastore.LogLine, error]
}

func (c *content) Rows(ctx context.Context) iter.Seq2[kernel.Row, error]         { return c.rows(ctx) }
func (c *content) Ended(ctx context.Context) iter.Seq2[*kernel.Run, error]       { return c.ended(ctx) }
func (c *content) Lines(ctx context.Context) iter.Seq2[metastore.LogLine, error] { return c.lines(ctx) }

// sound is a sequence without errors.
func sound[V any](all iter.Seq[V]) iter.Seq2[V, error] {
	return func(yield func(V, error) bool) {
		for v := range all {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// joined is a sequence, and then another one.
func joined[V any](first, second iter.Seq2[V, error]) iter.Seq2[V, error] {
	return func(yield func(V, error) bool) {
		for _, all := range []iter.Seq2[V, error]{first, second} {
			for v, err := range all {
				if !yield(v, err) {
					return
				}
			}
		}
	}
}

// alonePatience is how long a statement of a process that has just ended may run on in the database.
const alonePatience = 2 * time.Second

// busy is the error of another process that writes.
type busy struct{ error }

func (b busy) Unwrap() error { return b.error }

// alone begins a transaction that locks the rows that a leader writes, unless another process is at work.
func (s *Store) alone(ctx context.Context) (*sql.Tx, error) {
	for deadline := time.Now().Add(alonePatience); ; {
		tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		if err != nil {
			return nil, err
		}
		if err = s.lockAll(ctx, tx); err == nil {
			return tx, nil
		}
		_ = tx.Rollback() // a failed lock has ended it
		if _, is := errors.AsType[busy](err); !is || time.Now().After(deadline) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(alonePatience / 20):
		}
	}
}

// lockAll locks the rows that a leader writes.
func (s *Store) lockAll(ctx context.Context, tx *sql.Tx) error {
	var node string
	var until, now, upTo int64
	err := tx.QueryRowContext(ctx, "SELECT node, until, "+s.dialect.clock+" FROM carillon_leader WHERE one = 1 FOR UPDATE NOWAIT").Scan(&node, &until, &now)
	if err == nil {
		err = tx.QueryRowContext(ctx, "SELECT upto FROM carillon_mark WHERE one = 1 FOR UPDATE NOWAIT").Scan(&upTo)
	}
	if err == nil {
		err = s.dialect.fence(ctx, tx)
	}
	if err != nil {
		return busy{kernel.Refuse(jobs.Conflict, "another process writes to this %s: stop the servers and the programs that use it (%v)", s.dialect.name, err)}
	}
	if until > now {
		return kernel.Refuse(jobs.Conflict, "node %s leads, or did so until a moment ago: stop it, and try again in %v", node, dblog.DefaultLease)
	}
	var members, requests int
	if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM carillon_members WHERE until > "+s.dialect.clock).Scan(&members); err != nil {
		return err
	}
	if members > 0 {
		return kernel.Refuse(jobs.Conflict, "%d nodes fire here, or did so until a moment ago: stop them, and try again in %v", members, dblog.DefaultLease)
	}
	if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM carillon_outbox WHERE refused_at IS NULL").Scan(&requests); err != nil {
		return err
	}
	if requests > 0 {
		return kernel.Refuse(jobs.Conflict, "the outbox has %d requests for runs: start the server, which creates these runs at once, and stop it", requests)
	}
	return nil
}

// allLines is the log lines of handlers.
func allLines(ctx context.Context, in querier) iter.Seq2[metastore.LogLine, error] {
	return func(yield func(metastore.LogLine, error) bool) {
		rows, err := in.QueryContext(ctx, "SELECT tenant, run, attempt, sequence, at, level, line FROM carillon_logs ORDER BY tenant, run, attempt, sequence")
		err = each(rows, err, func(scan func(...any) error) error {
			var l metastore.LogLine
			var run, text []byte
			var at int64
			if err := scan(&l.Tenant, &run, &l.Attempt, &l.Sequence, &at, &l.Level, &text); err != nil {
				return err
			}
			copy(l.Run[:], run)
			l.At, l.Text = instant(at), string(text)
			if !yield(l, nil) {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			yield(metastore.LogLine{}, fmt.Errorf("read log lines: %w", err))
		}
	}
}

// Fill puts content into a database without a store, or with an empty one, in one transaction. See metastore.Fill.
func Fill(ctx context.Context, cfg Config, from metastore.Content, check func(metastore.Content) error) error {
	cfg.silence = -1
	s, err := dial(ctx, cfg)
	if err != nil {
		return err
	}
	if err = s.migrate(ctx); err == nil {
		err = s.fill(ctx, from, check)
	}
	return errors.Join(err, s.Close())
}

func (s *Store) fill(ctx context.Context, from metastore.Content, check func(metastore.Content) error) error {
	tx, err := s.alone(ctx)
	if err != nil {
		return err
	}
	f := &filling{s: s, tx: tx}
	if err = f.fill(ctx, from); err == nil {
		err = check(f.content())
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit the copy: %w", err)
	}
	// For good plans of the first queries.
	for _, t := range []string{"carillon_runs", "carillon_logs"} {
		if _, err := s.db.ExecContext(ctx, s.dialect.analyze+t); err != nil {
			s.logger.Warn("the database has not analyzed its new rows", "database", s.dialect.name, "err", err)
		}
	}
	return nil
}

// filling is a database that is being filled.
type filling struct {
	s     *Store
	tx    *sql.Tx
	at    dblog.Snapshot
	lines [][]any // that are written together
	last  struct {
		attempt
		size int
	}
}

// The log of a filled store begins after its snapshot, whose entry comes after those that number finished runs: as if
// each of 2^24 had been settled by one entry.
const firstNumber = 1 << positionBits

func (f *filling) fill(ctx context.Context, from metastore.Content) error {
	if err := f.empty(ctx); err != nil {
		return err
	}
	last, err := f.s.dialect.fillRuns(ctx, f.tx, from.Ended(ctx), firstNumber)
	if err != nil {
		return err
	}
	for line, err := range from.Lines(ctx) {
		if err == nil {
			err = f.line(ctx, line)
		}
		if err != nil {
			return err
		}
	}
	if err := f.flush(ctx); err != nil {
		return err
	}
	return f.snapshot(ctx, last, from)
}

// empty refuses a database with any rows.
func (f *filling) empty(ctx context.Context) error {
	for _, rows := range []string{"carillon_log WHERE seq > 0", "carillon_snapshots", "carillon_snapshot_parts", "carillon_runs", "carillon_logs", "carillon_outbox"} {
		var one int
		switch err := f.tx.QueryRowContext(ctx, "SELECT 1 FROM "+rows+" LIMIT 1").Scan(&one); {
		case err == nil:
			return kernel.Refuse(jobs.Conflict, "there is a store in this %s already: name a database of its own for the new one", f.s.dialect.name)
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
	}
	return nil
}

// line writes a log line. Its size against its attempt's limit depends on whether it is the last there can be.
func (f *filling) line(ctx context.Context, l metastore.LogLine) error {
	if of := (attempt{l.Tenant, l.Run, l.Attempt}); f.last.attempt != of {
		f.last.attempt, f.last.size = of, 0
	}
	size := l.Size()
	if l.IsCut() {
		size = max(size, metastore.MaxLog+1-f.last.size)
	}
	f.last.size += size
	if f.lines = append(f.lines, logRow(l, size)); len(f.lines) < linesAtOnce {
		return nil
	}
	return f.flush(ctx)
}

func (f *filling) flush(ctx context.Context) error {
	if len(f.lines) == 0 {
		return nil
	}
	query, args := f.s.dialect.addLines(f.lines)
	f.lines = nil
	_, err := f.tx.ExecContext(ctx, query, args...)
	return err
}

// snapshot writes all other rows as the snapshot that precedes the log. Its term is that of the copied rows: the first
// leader has a higher one.
func (f *filling) snapshot(ctx context.Context, last uint64, from metastore.Content) error {
	term, rules := uint64(1), kernel.FirstApplyVersion
	for row, err := range from.Rows(ctx) {
		if err != nil {
			return err
		}
		if state, ok := row.(*kernel.StoreRow); ok {
			term, rules = max(term, state.Term), state.InForce()
			break
		}
	}
	if err := metastore.Readable("the content", rules, f.s.cfg.knows); err != nil {
		return err
	}
	// No node that had the empty database open takes the row for the next of its own: the hash before it is of none.
	first := dblog.Row{Seq: last>>positionBits + 1, Term: term, Entry: replica.TermEntry()}
	_, _ = rand.Read(first.Prev[:])
	_, _ = rand.Read(first.Hash[:])
	f.at = dblog.Snapshot{Name: dblog.NewName(), Seq: first.Seq, Term: term, Hash: first.Hash}
	var broken error
	_, err := dblog.WriteParts(ctx, logTable{f.s, f.tx}, &f.at, replica.Head{Rules: rules, Index: first.Seq, Ended: last}, func(yield func(kernel.Row) bool) {
		for row, err := range from.Rows(ctx) {
			if broken = err; err != nil || !yield(row) {
				return
			}
		}
	})
	if err = errors.Join(err, broken); err != nil {
		return err
	}
	for _, q := range []struct {
		text string
		args []any
	}{
		{"DELETE FROM carillon_log", nil},
		{"INSERT INTO carillon_log (seq, term, prev, hash, entry) VALUES (?, ?, ?, ?, ?)", []any{int64(first.Seq), int64(term), first.Prev[:], first.Hash[:], first.Entry}},
		{"INSERT INTO carillon_snapshots (name, seq, term, hash, parts) VALUES (?, ?, ?, ?, ?)",
			[]any{f.at.Name, int64(first.Seq), int64(term), first.Hash[:], f.at.Parts}},
	} {
		if _, err := f.tx.ExecContext(ctx, f.s.dialect.ask(q.text), q.args...); err != nil {
			return err
		}
	}
	return nil
}

// content is what the transaction has written.
func (f *filling) content() metastore.Content {
	return &content{
		rows: func(ctx context.Context) iter.Seq2[kernel.Row, error] {
			return func(yield func(kernel.Row, error) bool) {
				_, rows := replica.ReadSnapshot(dblog.ReadParts(ctx, logTable{f.s, f.tx}, f.at), f.s.cfg.knows)
				rows(yield)
			}
		},
		ended: func(ctx context.Context) iter.Seq2[*kernel.Run, error] { return f.s.dialect.allRuns(ctx, f.tx) },
		lines: func(ctx context.Context) iter.Seq2[metastore.LogLine, error] { return allLines(ctx, f.tx) },
	}
}
