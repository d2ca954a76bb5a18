package sqlstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// dialect is what differs between databases: the form of statements, and the checks of the server at the start.
type dialect struct {
	name string
	// ask puts a query's arguments where it has question marks.
	ask func(query string) string

	// addLines inserts log lines, but those that are there already.
	addLines func(rows [][]any) (query string, args []any)
	// prune deletes rows that fit, at most so many.
	prune func(table, key, which string) string
	// clock is the database's time in Unix nanoseconds.
	clock string
	// holds takes the lock of a leader's session, and returns whether it is this session's; letGo releases it. server
	// identifies where such locks count.
	holds, letGo, server string

	unbox string // deletes requests from the outbox, whose IDs follow

	// storing inserts rows into a table with columns, and as stored at a time, which is an expression; "" = there is no such
	// column.
	storing func(table string, columns []column, rows [][]any, at string) (query string, args []any)
	// dropLive deletes unfinished runs, each a tenant and an ID.
	dropLive func(rows [][]any) (query string, args []any)
	ended    string // the end of a run, in it
	// unlessIdle ends an UPDATE. It has the database end the transaction if it is idle for too long.
	unlessIdle string
	// partition makes the partition of a day; nil = there are none.
	partition func(ctx context.Context, tx *sql.Tx, day time.Time) error
	// dropDays drops the finished runs of days that ended before a time, and returns how many; nil = they are dropped
	// one by one.
	dropDays func(ctx context.Context, db *sql.DB, before time.Time) (int, error)
	// instant is a time in Unix nanoseconds, in a question mark, as columns have it; now is the current one, and idBytes is
	// the bytes of the column id.
	instant, now, idBytes string
	// storedAt is when a run was stored, in Unix microseconds.
	storedAt string
	// everyJob queries the jobs of finished runs.
	everyJob string
	// size queries the bytes of finished runs on disk, including space that is free for reuse.
	size string
	// uuid is an ID as an argument.
	uuid func(id jobs.ID) any

	dump    string // the command that backs a database up
	analyze string // analyzes a table, for the plans of queries
	files   string // the folder of its migrations
	// fence makes other processes wait that would write to the log, until the transaction ends. It fails if one is writing.
	fence func(ctx context.Context, tx *sql.Tx) error
	// lock lets one process at a time change tables.
	lock func(ctx context.Context, db *sql.DB) (unlock func() error, err error)
	// packet returns how many bytes a statement, or a row of an answer, may have; nil = any. It refuses too few.
	packet func(ctx context.Context, db *sql.DB) (int, error)
	// examine returns what the database keeps of what it acknowledges.
	examine func(ctx context.Context, db *sql.DB) (durability string, err error)
}
