package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// A table is the parts of its statements: one to read many rows by their keys, one to write many at once. PostgreSQL
// takes a list for each column (unnest), so that the statement is always the same text; MariaDB takes a list of
// values for each row.
type table struct {
	name    string
	columns []column
	keys    int             // how many of the columns, from the front, are the key
	adds    map[string]bool // columns whose values are added to the stored ones, and do not replace them
}

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
	flag               // bool
)

var runs = table{name: "carillon_runs", keys: 2, columns: []column{
	{"tenant", word}, {"id", raw}, {"sequence", number}, {"job", word}, {"app", word}, {"state", number}, {"worker", word},
	{"parent", raw}, {"origin", word}, {"cause", word}, {"created", number}, {"priority", number}, {"due", number}, {"wake", number},
	{"waits", word}, {"first", flag}, {"ready", number}, {"leased", flag}, {"settled", number}, {"settled_at", number}, {"body", raw},
}}

var others = table{name: "carillon_rows", keys: 5, columns: []column{
	{"kind", number}, {"tenant", word}, {"name", word}, {"id", raw}, {"at", number}, {"lapse", number}, {"changed", number}, {"aged", number}, {"body", raw},
}}

var tallies = table{name: "carillon_tallies", keys: 4, columns: []column{
	{"tenant", word}, {"job", raw}, {"span", number}, {"at", number}, {"n_enqueued", number}, {"n_processing", number}, {"n_succeeded", number},
	{"n_failed", number}, {"n_terminated", number}, {"n_cancelled", number}, {"n_skipped", number}, {"took", number},
}, adds: map[string]bool{
	"n_enqueued": true, "n_processing": true, "n_succeeded": true, "n_failed": true, "n_terminated": true, "n_cancelled": true, "n_skipped": true, "took": true,
}}

var counts = table{name: "carillon_counts", keys: 4, adds: map[string]bool{"n": true}, columns: []column{
	{"tenant", word}, {"what", word}, {"name", word}, {"state", number}, {"n", number},
}}

var logs = table{name: "carillon_logs", keys: 4, columns: []column{
	{"tenant", word}, {"run", raw}, {"attempt", number}, {"sequence", number}, {"at", number}, {"level", word}, {"line", raw}, {"size", number},
}}

// names lists the columns, each behind a prefix.
func (t *table) names(prefix string, columns []column) string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = prefix + c.name
	}
	return strings.Join(names, ", ")
}

// all lists all columns.
func (t *table) all() string { return t.names("", t.columns) }

// querier is a transaction, a connection or a pool of them.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// part is the most rows that one statement reads or writes.
const part = 1_000

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

// inParts calls fn with the rows, a part at a time.
func inParts(rows [][]any, fn func([][]any) error) error {
	for len(rows) > 0 {
		n := min(part, len(rows))
		if err := fn(rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// get reads the rows of some keys.
func (d *dialect) get(ctx context.Context, q querier, t *table, keys [][]any, fn func(scan func(...any) error) error) error {
	return inParts(keys, func(keys [][]any) error {
		query, args := d.getting(t, keys)
		rows, err := q.QueryContext(ctx, query, args...)
		return each(rows, err, fn)
	})
}

// put writes rows, over those that are there under the same key.
func (d *dialect) put(ctx context.Context, q querier, t *table, rows [][]any) error {
	return inParts(rows, func(rows [][]any) error {
		query, args := d.putting(t, rows)
		if _, err := q.ExecContext(ctx, query, args...); err != nil {
			return fmt.Errorf("write %s: %w", t.name, err)
		}
		return nil
	})
}

// drop deletes the rows of some keys.
func (d *dialect) drop(ctx context.Context, q querier, t *table, keys [][]any) error {
	return inParts(keys, func(keys [][]any) error {
		query, args := d.dropping(t, keys)
		if _, err := q.ExecContext(ctx, query, args...); err != nil {
			return fmt.Errorf("delete from %s: %w", t.name, err)
		}
		return nil
	})
}
