package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/replica"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog"
)

// Finished runs go to a table, behind commits: every node keeps those that may not be there yet, and the leader writes
// them. Their numbers follow from the log's entries. A transaction that writes some first moves the mark, the number up
// to which the table has them, from where it must be, so that a former leader, and one that gets no answer, write
// nothing twice. It does so only while the log has the row of the last entry: a leader whose log was replaced beneath it,
// by a backup or a replica, would count runs of the new log as written.

const (
	historyBuffer = 64 << 20 // bytes of runs that may wait to be written; then commits wait
	historyRows   = 1_000    // that are written at once
	historyBytes  = 4 << 20
	lookAtMark    = 500 * time.Millisecond // how often a node asks what the leader has written
	historyAgain  = 200 * time.Millisecond // after an error
	trimTime      = time.Second            // how long a commit on a node that does not lead waits for the mark
	historyPause  = 100 * time.Millisecond // in which more runs come that are written with the first: each transaction costs as much as a commit
)

// history is the finished runs as a node has them. All methods may be called at the same time, Begin and Append by the
// log only.
type history struct {
	dialect  *dialect
	db       *sql.DB
	episodes *episode.Log
	limit    int64 // bytes that may wait
	byEnd    bool  // runs are stored as of their end: the database's clock is not the store's
	loose    bool  // their entries need not be in the log

	hash     dblog.Hash // of the row of the entry that is applied
	entry    uint64     // that settles the next runs
	position uint64     // of the next run in it

	mu      sync.Mutex
	waiting []finished // by number; they may be in the table already
	byName  map[[2]string]*kernel.Run
	size    int64
	moved   chan struct{} // closed when some leave
	more    chan struct{} // has one when some come
	hurried chan struct{} // has one when they are to be written now
	growth  growth        // of the table
	dropped int           // of waiting, before it; they stay in memory as long as its array

	writing sync.Mutex // held from reading the mark to noting what was written

	ctx    context.Context // ends with close
	stop   context.CancelFunc
	duties sync.WaitGroup
	leads  func() bool
	parted time.Time // up to here, days have partitions

	purging purging
}

// finished is a run that waits to be written.
type finished struct {
	number uint64
	hash   dblog.Hash // of the row of the entry that settled it
	size   int64
	run    *kernel.Run
}

var _ replica.History = (*history)(nil)

// positionBits of a number are the place among the runs that an entry settles.
const positionBits = 24

// historyConfig configures a history. limit and byEnd are optional, loose is for tests without a log.
type historyConfig struct {
	db       *sql.DB
	dialect  *dialect
	episodes *episode.Log
	limit    int64
	byEnd    bool
	loose    bool
	leads    func() bool // whether this node writes the table
}

// newHistory follows the table until close.
func newHistory(c historyConfig) *history {
	h := &history{dialect: c.dialect, db: c.db, episodes: c.episodes, limit: cmp.Or(c.limit, historyBuffer), byEnd: c.byEnd, loose: c.loose, byName: map[[2]string]*kernel.Run{},
		moved: make(chan struct{}), more: make(chan struct{}, 1), hurried: make(chan struct{}, 1), leads: c.leads, growth: growth{of: map[jobName]written{}}}
	h.ctx, h.stop = context.WithCancel(context.Background())
	h.duties.Go(h.write)
	return h
}

func (h *history) close() {
	h.stop()
	h.duties.Wait()
}

func nameOf(tenant jobs.Tenant, id jobs.ID) [2]string {
	return [2]string{string(tenant), string(id[:])}
}

// applying sets the row of the entry that is applied next.
func (h *history) applying(_ uint64, hash dblog.Hash) { h.hash = hash }

// Begin sets the entry that settles the runs appended from now on.
func (h *history) Begin(index uint64) { h.entry, h.position = index, 0 }

// Append adds runs. On the leader it waits while too many wait to be written. Other nodes do not wait: they could neither
// write them nor lead in the place of the one that can.
func (h *history) Append(runs []*kernel.Run) {
	h.mu.Lock()
	for h.size > h.limit {
		moved := h.moved
		h.mu.Unlock()
		if !h.leads() {
			h.trim()
			h.mu.Lock()
			break
		}
		h.hurry()
		select {
		case <-moved:
		case <-time.After(historyAgain): // it may lead no more
		case <-h.ctx.Done(): // a snapshot that lacks them is not written any more
			return
		}
		h.mu.Lock()
	}
	for _, run := range runs {
		f := finished{number: h.entry<<positionBits | h.position, hash: h.hash, run: run, size: int64(500 + len(run.Args) + len(run.Result) + len(run.Checkpoint) + len(run.Error))}
		h.position++
		h.waiting = append(h.waiting, f)
		h.byName[nameOf(run.Tenant, run.ID)] = run
		h.size += f.size
	}
	h.mu.Unlock()
	select {
	case h.more <- struct{}{}:
	default:
	}
}

// trim drops what is in the table, if the database answers soon: the caller holds up the log.
func (h *history) trim() {
	ctx, cancel := context.WithTimeout(h.ctx, trimTime)
	defer cancel()
	if mark, err := h.mark(ctx); err == nil {
		h.written(mark)
	}
}

// forget drops what waits: the entries that settled it are read again, or lost.
func (h *history) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting, h.size = nil, 0
	h.growth.whole = true
	clear(h.byName)
	close(h.moved)
	h.moved = make(chan struct{})
}

// written drops what is in the table.
func (h *history) written(upTo uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for n < len(h.waiting) && h.waiting[n].number <= upTo {
		f := &h.waiting[n]
		if name := nameOf(f.run.Tenant, f.run.ID); h.byName[name] == f.run {
			delete(h.byName, name)
		}
		h.size -= f.size
		n++
	}
	if n == 0 {
		return
	}
	// Lists may be reading what was dropped, so the array is not changed.
	h.waiting, h.dropped = h.waiting[n:], h.dropped+n
	if h.dropped >= len(h.waiting) {
		h.waiting, h.dropped = append([]finished(nil), h.waiting...), 0
	}
	close(h.moved)
	h.moved = make(chan struct{})
}

// settled waits until the table has all runs that wait now.
func (h *history) settled(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.waiting) == 0 {
		return nil
	}
	h.hurry()
	for last := h.waiting[len(h.waiting)-1].number; len(h.waiting) > 0 && h.waiting[0].number <= last; {
		moved := h.moved
		h.mu.Unlock()
		var err error
		select {
		case <-moved:
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-h.ctx.Done():
			err = errors.New("the store is closed")
		}
		if h.mu.Lock(); err != nil {
			return fmt.Errorf("wait for finished runs to be written: %w", err)
		}
	}
	return nil
}

// write writes what waits while this node leads, and asks what the leader has written while another one does.
func (h *history) write() {
	for h.ctx.Err() == nil {
		wait := lookAtMark
		if err := h.patiently(h.step); err == nil {
			h.episodes.End("", "finished runs were not written")
		} else if h.ctx.Err() == nil {
			h.episodes.Failed(slog.LevelWarn, "", "finished runs were not written", "err", err)
			wait = historyAgain
		}
		if h.leads() && wait == lookAtMark {
			switch n, size := h.backlog(); {
			case n >= historyRows || size >= historyBytes:
				continue
			case n > 0:
				wait = historyPause
			}
		}
		timer := time.NewTimer(wait)
		more := h.more
		if wait != lookAtMark || !h.leads() {
			more = nil
		}
		select {
		case <-h.ctx.Done():
		case <-h.hurried:
		case <-more:
			h.pause()
		case <-timer.C:
		}
		timer.Stop()
	}
}

// patiently gives up what a database does not answer that is gone without a word.
func (h *history) patiently(do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(h.ctx, patience)
	defer cancel()
	return do(ctx)
}

// pause waits for more runs, unless they are to be written now.
func (h *history) pause() {
	timer := time.NewTimer(historyPause)
	defer timer.Stop()
	select {
	case <-h.ctx.Done():
	case <-h.hurried:
	case <-timer.C:
	}
}

// hurry has what waits be written now.
func (h *history) hurry() {
	select {
	case h.hurried <- struct{}{}:
	default:
	}
}

// backlog is how many runs wait, and their bytes.
func (h *history) backlog() (n int, size int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.waiting), h.size
}

// step drops what is in the table, and writes some of the rest if this node leads.
func (h *history) step(ctx context.Context) error {
	h.mu.Lock()
	idle := len(h.waiting) == 0
	h.mu.Unlock()
	if idle {
		return nil
	}
	h.writing.Lock()
	defer h.writing.Unlock()
	mark, err := h.mark(ctx)
	if err != nil {
		return err
	}
	h.written(mark)
	if !h.leads() {
		return nil
	}
	part := h.part()
	if len(part) == 0 {
		return nil
	}
	last := part[len(part)-1].number
	if done, err := h.put(ctx, mark, part); err != nil || !done {
		if now, e := h.mark(ctx); err == nil && e == nil && now == mark {
			err = fmt.Errorf("the log no longer has entry %d: the database was restored, or lost its end", last>>positionBits)
		}
		return err // otherwise the mark tells what became of it
	}
	h.grew(mark, last, part)
	h.written(last)
	return nil
}

// part is what is written at once.
func (h *history) part() []finished {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, size := 0, int64(0)
	for n < len(h.waiting) && n < historyRows && (n == 0 || size+h.waiting[n].size <= historyBytes) {
		size += h.waiting[n].size
		n++
	}
	return slices.Clone(h.waiting[:n])
}

func (h *history) mark(ctx context.Context) (upTo uint64, err error) {
	err = h.db.QueryRowContext(ctx, "SELECT upto FROM carillon_mark WHERE one = 1").Scan(&upTo)
	return upTo, err
}

// put writes runs, if the mark is where it must be and the log has the entry of the last one, and moves the mark.
func (h *history) put(ctx context.Context, from uint64, part []finished) (done bool, err error) {
	if err := h.partitions(ctx); err != nil {
		return false, err
	}
	defer func() {
		if err != nil {
			h.parted = time.Time{} // a restored database may lack some
		}
	}()
	last := &part[len(part)-1]
	query, args := "UPDATE carillon_mark SET upto = ? WHERE one = 1 AND upto = ?", []any{int64(last.number), int64(from)}
	if !h.loose {
		query += " AND EXISTS (SELECT 1 FROM carillon_log l WHERE l.seq = ? AND l.hash = ?)"
		args = append(args, int64(last.number>>positionBits), last.hash[:])
	}
	err = h.within(ctx, func(tx *sql.Tx) error {
		moved, err := tx.ExecContext(ctx, h.dialect.ask(query+h.dialect.unlessIdle), args...)
		if err != nil {
			return err
		}
		if n, err := moved.RowsAffected(); err != nil || n == 0 {
			return err
		}
		rows := make([][]any, len(part))
		for i := range part {
			rows[i] = runRow(&part[i])
		}
		at := h.dialect.now
		if h.byEnd {
			at = h.dialect.ended
			days := h.dialect.days()
			for i := range part {
				if err := days(ctx, tx, part[i].run.Ended); err != nil {
					return err
				}
			}
		}
		query, args := h.dialect.storing("carillon_runs", runColumns, rows, at)
		_, err = tx.ExecContext(ctx, query, args...)
		done = err == nil
		return err
	})
	return done, err
}

// allRuns is the finished runs in the table, in the order in which they ended.
func (d *dialect) allRuns(ctx context.Context, in querier) iter.Seq2[*kernel.Run, error] {
	return func(yield func(*kernel.Run, error) bool) {
		rows, err := in.QueryContext(ctx, "SELECT body FROM carillon_runs ORDER BY number")
		err = each(rows, err, func(scan func(...any) error) error {
			var body []byte
			if err := scan(&body); err != nil {
				return err
			}
			run, err := decodeRun(body)
			if err == nil && !yield(run, nil) {
				return errEnough
			}
			return err
		})
		if err != nil && !errors.Is(err, errEnough) {
			yield(nil, fmt.Errorf("read finished runs: %w", err))
		}
	}
}

// unwritten is the finished runs after a number, which the table does not have.
func (h *history) unwritten(after uint64) (runs []*kernel.Run) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.waiting {
		if f.number > after {
			runs = append(runs, f.run)
		}
	}
	return runs
}

// fillRuns writes runs into an empty table, numbered from after first, and returns the last number.
func (d *dialect) fillRuns(ctx context.Context, tx *sql.Tx, runs iter.Seq2[*kernel.Run, error], first uint64) (last uint64, err error) {
	last = first
	days := d.days()
	var part [][]any
	size := 0
	flush := func() error {
		if len(part) == 0 {
			return nil
		}
		query, args := d.storing("carillon_runs", runColumns, part, d.ended)
		_, err := tx.ExecContext(ctx, query, args...)
		part, size = part[:0], 0
		return err
	}
	for run, err := range runs {
		if err != nil {
			return 0, err
		}
		if err := days(ctx, tx, run.Ended); err != nil {
			return 0, err
		}
		last++
		row := runRow(&finished{number: last, run: run})
		part = append(part, row)
		if size += len(row[len(row)-1].([]byte)); len(part) == historyRows || size > historyBytes {
			if err := flush(); err != nil {
				return 0, err
			}
		}
	}
	if err := flush(); err != nil {
		return 0, err
	}
	_, err = tx.ExecContext(ctx, d.ask("UPDATE carillon_mark SET upto = ? WHERE one = 1"), int64(last))
	return last, err
}

// days makes the partitions of the days of times, where the table has such.
func (d *dialect) days() func(ctx context.Context, tx *sql.Tx, at time.Time) error {
	made := map[time.Time]bool{}
	return func(ctx context.Context, tx *sql.Tx, at time.Time) error {
		day := at.UTC().Truncate(24 * time.Hour)
		if d.partition == nil || made[day] {
			return nil
		}
		made[day] = true
		return d.partition(ctx, tx, day)
	}
}

// daysAhead is how many days have partitions before they come: making one waits for long queries.
const daysAhead = 3

// partitions makes the partitions of the next days, where the table has such.
func (h *history) partitions(ctx context.Context) error {
	if h.dialect.partition == nil {
		return nil
	}
	var now int64
	if err := h.db.QueryRowContext(ctx, "SELECT "+h.dialect.clock).Scan(&now); err != nil {
		return err
	}
	today := instant(now).Truncate(24 * time.Hour)
	if !today.AddDate(0, 0, daysAhead).After(h.parted) {
		return nil
	}
	for day := range daysAhead + 1 {
		if err := h.within(ctx, func(tx *sql.Tx) error { return h.dialect.partition(ctx, tx, today.AddDate(0, 0, day)) }); err != nil {
			if day > 0 { // not needed yet
				h.episodes.Failed(slog.LevelWarn, "", "a partition for a later day could not be made", "err", err)
				return nil
			}
			return fmt.Errorf("make a partition for today's finished runs: %w", err)
		}
	}
	h.episodes.End("", "a partition for a later day could not be made")
	h.parted = today.AddDate(0, 0, daysAhead)
	return nil
}

// within calls fn in a transaction.
func (h *history) within(ctx context.Context, fn func(tx *sql.Tx) error) error {
	return transact(ctx, h.db, sql.LevelReadCommitted, fn)
}
