package sqlstore

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// How values are carried to a database and back.

// column is a column of a table that is written many rows at a time.
type column struct {
	name string
	kind kind
}

// kind is how a column's values are carried. Null values of each are nil.
type kind byte

const (
	number kind = iota // int64
	word               // string
	raw                // []byte
	uuid               // []byte
	moment             // int64, Unix nanoseconds
)

// names lists the columns.
func names(columns []column) string {
	all := make([]string, len(columns))
	for i, c := range columns {
		all[i] = c.name
	}
	return strings.Join(all, ", ")
}

// marks is a list of n question marks.
func marks(n int) string { return "(" + listed("?", n) + ")" }

// listed is a list of n times the same.
func listed(one string, n int) string { return one + strings.Repeat(", "+one, n-1) }

// flat is all values in a row.
func flat(rows [][]any) []any {
	var all []any
	for _, r := range rows {
		all = append(all, r...)
	}
	return all
}

// nanos is a time as a number; 0 = none.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// instant is a time from its number; 0 = none.
func instant(nano int64) time.Time {
	if nano == 0 {
		return time.Time{}
	}
	return time.Unix(0, nano).UTC()
}

// when is a time that may be missing.
func when(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixNano()
}

func bytesOf(id jobs.ID) []byte { return id[:] }

// decodeRun reads a run from its wire form.
func decodeRun(body []byte) (*kernel.Run, error) {
	row, _, err := kernel.DecodeRow(body)
	if err != nil {
		return nil, err
	}
	run, ok := row.(*kernel.Run)
	if !ok {
		return nil, kernel.Invalid("unexpected row: it is one of the %s", row.Ref().Kind)
	}
	return run, nil
}

// querier is a transaction or a pool of connections.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// each calls fn for the rows of an answer.
func each(rows *sql.Rows, err error, fn func(scan func(...any) error) error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := fn(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
