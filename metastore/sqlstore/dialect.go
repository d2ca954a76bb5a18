package sqlstore

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// dialect is what differs between databases: the form of statements, and the checks of the server at the start.
type dialect struct {
	name string
	// ask puts a query's arguments where it has question marks.
	ask func(query string) string

	getting  func(t *table, keys [][]any) (query string, args []any)
	putting  func(t *table, rows [][]any) (query string, args []any)
	adding   func(t *table, rows [][]any) (query string, args []any) // rows that are there stay as they are
	dropping func(t *table, keys [][]any) (query string, args []any)
	// firsts queries the first few runs that wait at each gate.
	firsts func(gates []waiting) (query string, args []any)
	// oldest is a subquery: the row of the ready run of an app l that has the lowest turn.
	oldest string
	// prune deletes rows that fit, at most so many.
	prune func(table, key, which string) string
	// tableSize queries the runs' bytes on disk, including space that is free for reuse.
	tableSize string
	// live is the condition that a run is not settled, as an index has it.
	live, liveSequence string
	// clock is the database's time in Unix nanoseconds.
	clock string
	// holds takes the lock of a leader's session, and returns whether it is this session's; letGo releases it. server
	// identifies where such locks count.
	holds, letGo, server string
	// bound is an expression that limits how long this transaction may be idle; a text.
	bound func(silence time.Duration) string

	// storing inserts finished runs, as stored now, or old ones as stored when they ended.
	storing func(rows [][]any, old bool) (query string, args []any)
	// partition makes the partition of a day; nil = there are none.
	partition func(ctx context.Context, tx *sql.Tx, day time.Time) error
	// dropDays drops the finished runs of days that ended before a time, and returns how many; nil = they are dropped
	// one by one.
	dropDays func(ctx context.Context, db *sql.DB, before time.Time) (int, error)
	// instant is a time in Unix nanoseconds, in a question mark, as columns have it; idBytes is the bytes of the column id.
	instant, idBytes string
	// historySize queries the bytes of finished runs on disk, including space that is free for reuse.
	historySize string
	// uuid is an ID as an argument.
	uuid func(id jobs.ID) any

	dump    string // the command that backs a database up
	analyze string // analyzes a table, for the plans of queries
	files   string // the folder of its migrations
	// lock lets one process at a time change tables.
	lock func(ctx context.Context, c *sql.Conn) (unlock func() error, err error)
	// examine returns what the database keeps of what it acknowledges.
	examine func(ctx context.Context, db *sql.DB) (durability string, err error)
}

// waiting is how many runs that wait at a gate are wanted.
type waiting struct {
	tenant, gate string
	n            int
}

// inTurn is the order in which runs wait at a gate.
const inTurn = "first DESC, priority DESC, due, id"

// tuples are n lists of question marks.
func tuples(n, width int) string {
	one := "(" + strings.TrimSuffix(strings.Repeat("?,", width), ",") + ")"
	return strings.TrimSuffix(strings.Repeat(one+",", n), ",")
}

// flat are all values in a row.
func flat(rows [][]any) []any {
	var all []any
	for _, r := range rows {
		all = append(all, r...)
	}
	return all
}
