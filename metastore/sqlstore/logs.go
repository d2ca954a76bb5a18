package sqlstore

import (
	"context"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Logs is the store of log lines: a table beside the runs.
func (s *Store) Logs() metastore.Logs { return (*lines)(s) }

type lines Store

// attempt is one attempt of one run.
type attempt struct {
	tenant jobs.Tenant
	run    jobs.ID
	number uint32
}

// Append stores lines.
func (l *lines) Append(ctx context.Context, all []metastore.LogLine) error {
	s := (*Store)(l)
	sizes := map[attempt]int{}
	full := map[attempt]bool{}
	var rows [][]any
	for _, line := range all {
		of := attempt{line.Tenant, line.Run, line.Attempt}
		size, known := sizes[of]
		if !known {
			var err error
			if size, err = s.logged(ctx, of); err != nil {
				return err
			}
			sizes[of] = size
		}
		if full[of] || size > metastore.MaxLog {
			continue
		}
		if size += line.Size(); size > metastore.MaxLog {
			line, full[of] = line.Cut(), true
			size = metastore.MaxLog + 1 // no more lines follow
		}
		rows = append(rows, logRow(line, size-sizes[of]))
		sizes[of] = size
	}
	for part := range slices.Chunk(rows, linesAtOnce) {
		query, args := s.dialect.addLines(part)
		if _, err := s.db.ExecContext(ctx, query, args...); err != nil {
			return s.failed("store log lines", err)
		}
	}
	return nil
}

// linesAtOnce is how many lines a statement writes.
const linesAtOnce = 1_000

var lineColumns = []column{
	{"tenant", word}, {"run", raw}, {"attempt", number}, {"sequence", number}, {"at", number}, {"level", word}, {"line", raw}, {"size", number},
}

// logRow are the values of a line. size is its size against its attempt's limit.
func logRow(l metastore.LogLine, size int) []any {
	return []any{string(l.Tenant), bytesOf(l.Run), int64(l.Attempt), int64(l.Sequence), nanos(l.At), l.Level, []byte(l.Text), int64(size)}
}

// logged is how many bytes an attempt has written.
func (s *Store) logged(ctx context.Context, of attempt) (size int, err error) {
	err = s.query(ctx, "measure a log", func(scan func(...any) error) error { return scan(&size) },
		"SELECT COALESCE(SUM(size), 0) FROM carillon_logs WHERE tenant = ? AND run = ? AND attempt = ?", string(of.tenant), bytesOf(of.run), int64(of.number))
	return size, err
}

// Read lists the lines of a run after a position, oldest first.
func (l *lines) Read(ctx context.Context, tenant jobs.Tenant, run jobs.ID, after metastore.LogPosition, limit int) (found []metastore.LogLine, err error) {
	query := "SELECT attempt, sequence, at, level, line FROM carillon_logs WHERE tenant = ? AND run = ? AND (attempt > ? OR attempt = ? AND sequence > ?) ORDER BY attempt, sequence"
	args := []any{string(tenant), bytesOf(run), int64(after.Attempt), int64(after.Attempt), int64(after.Sequence)}
	if limit > 0 {
		query, args = query+" LIMIT ?", append(args, limit)
	}
	err = (*Store)(l).query(ctx, "read a log", func(scan func(...any) error) error {
		line := metastore.LogLine{Tenant: tenant, Run: run}
		var at int64
		var text []byte
		err := scan(&line.Attempt, &line.Sequence, &at, &line.Level, &text)
		line.At, line.Text = instant(at), string(text)
		found = append(found, line)
		return err
	}, query, args...)
	return found, err
}

// dropLines deletes old log lines of all runs.
func (s *Store) dropLines(ctx context.Context, before time.Time) error {
	query := s.dialect.ask(s.dialect.prune("carillon_logs", "tenant, run, attempt, sequence", "at < ?"))
	for {
		done, err := s.db.ExecContext(ctx, query, before.UnixNano(), prunedAtOnce)
		if err != nil {
			return s.failed("delete old log lines", err)
		}
		if n, err := done.RowsAffected(); err != nil || n < prunedAtOnce {
			return nil
		}
	}
}
