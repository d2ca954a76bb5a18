package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-scheduler/carillon/jobs"
)

// PostgreSQL, 14 or later.

// postgresPooled is what a session sets also through a pooler, which keeps that for each of its clients. What a session is
// like must not depend on the server, the database or the user.
var postgresPooled = map[string]string{"client_encoding": "UTF8", "standard_conforming_strings": "on", "TimeZone": "UTC", "DateStyle": "ISO, MDY"}

// postgresSession is what a session sets beside that.
var postgresSession = map[string]string{
	"default_transaction_isolation": "read committed", "default_transaction_deferrable": "off",
	"statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0", "idle_session_timeout": "0",
	"bytea_output": "hex", "array_nulls": "on", "IntervalStyle": "postgres",
	"plan_cache_mode": "force_generic_plan", // a commit takes a tenth less, a list of runs in many days' partitions a tenth
}

// settle sets in a new session what only newer versions know.
func (c Config) settle(ctx context.Context, conn *pgx.Conn) error {
	version, _, _ := strings.Cut(conn.PgConn().ParameterStatus("server_version"), ".")
	if major, err := strconv.Atoi(version); !c.direct || err != nil || major < 17 {
		return nil
	}
	_, err := conn.Exec(ctx, "SET transaction_timeout = 0")
	return err
}

// postgresHostile returns what is wrong with a session that cannot be set, "" = nothing.
func postgresHostile(setting map[string]string) string {
	for _, c := range []struct{ name, want string }{
		{"server_encoding", "UTF8"}, {"client_encoding", "UTF8"}, {"standard_conforming_strings", "on"},
		{"default_transaction_read_only", "off"}, {"default_transaction_isolation", "read committed"}, {"bytea_output", "hex"}, {"array_nulls", "on"},
	} {
		if is := setting[c.name]; !strings.EqualFold(is, c.want) {
			hint := "change it for the database or its user"
			if c.name == "server_encoding" {
				hint = "create the database with ENCODING 'UTF8'"
			}
			return fmt.Sprintf("%s of this PostgreSQL is %s: want %s: %s", c.name, is, c.want, hint)
		}
	}
	return ""
}

var postgres = &dialect{
	name:   "PostgreSQL",
	ask:    dollars,
	clock:  "(extract(epoch FROM clock_timestamp()) * 1000000000)::bigint",
	holds:  "pg_try_advisory_lock(727469112)",
	letGo:  "SELECT pg_advisory_unlock_all()", // however often it was taken
	server: "'primary'",                       // there is one
	addLines: func(rows [][]any) (string, []any) {
		return "INSERT INTO carillon_logs (" + names(lineColumns) + ") SELECT * FROM " + unnest(lineColumns) + " ON CONFLICT DO NOTHING", lists(lineColumns, rows)
	},
	prune: func(table, key, which string) string {
		return "DELETE FROM " + table + " WHERE (" + key + ") IN (SELECT " + key + " FROM " + table + " WHERE " + which + " LIMIT ?)"
	},
	storing: func(table string, columns []column, rows [][]any, at string) (string, []any) {
		values := make([]string, len(columns))
		for i, c := range columns {
			values[i] = "h." + c.name
			switch c.kind {
			case moment:
				values[i] = postgresInstant("h." + c.name)
			case uuid:
				values[i] = "encode(h." + c.name + ", 'hex')::uuid"
			}
		}
		all, stored := names(columns), ""
		if at != "" {
			stored, at = "stored_at, ", at+", "
		}
		return "INSERT INTO " + table + " (" + stored + all + ") SELECT " + at + strings.Join(values, ", ") + " FROM " + unnest(columns) + " AS h(" + all + ")", lists(columns, rows)
	},
	// Of an IN with hundreds of IDs, a table without statistics is read whole.
	dropLive: func(rows [][]any) (string, []any) {
		return "DELETE FROM carillon_live AS l USING " + unnest(runKey) + " AS k(tenant, id) WHERE l.tenant = k.tenant AND l.id = encode(k.id, 'hex')::uuid", lists(runKey, rows)
	},
	ended:      postgresInstant("h.ended_at"),
	now:        "clock_timestamp()",
	unlessIdle: fmt.Sprintf(" RETURNING set_config('idle_in_transaction_session_timeout', '%d', true)", silence.Milliseconds()),
	partition:  makePartition,
	dropDays:   dropDays,
	unbox:      "DELETE FROM carillon_outbox WHERE id IN ",
	instant:    postgresInstant("?::bigint"),
	idBytes:    "decode(replace(id::text, '-', ''), 'hex')",
	storedAt:   "(extract(epoch FROM stored_at) * 1000000)::bigint",
	everyJob: `WITH RECURSIVE every AS (
		(SELECT tenant, job FROM carillon_runs ORDER BY tenant, job LIMIT 1)
		UNION ALL
		SELECT n.tenant, n.job FROM every, LATERAL (SELECT r.tenant, r.job FROM carillon_runs r WHERE (r.tenant, r.job) > (every.tenant, every.job) ORDER BY r.tenant, r.job LIMIT 1) n
	) SELECT tenant, job FROM every`, // a look at the index for each job, where DISTINCT would read the whole of it
	size:    "SELECT COALESCE(SUM(pg_total_relation_size(inhrelid)), 0)::bigint FROM pg_inherits WHERE inhparent = 'carillon_runs'::regclass",
	uuid:    func(id jobs.ID) any { return id.String() },
	dump:    "pg_dump --format=custom --file=carillon.dump DATABASE",
	analyze: "ANALYZE ",
	files:   "migrations/postgres",
	// Tables are made in transactions there: a file runs whole or not at all.
	lock: func(ctx context.Context, db *sql.DB) (unlock func() error, err error) {
		tx, err := db.BeginTx(ctx, nil) // a session may be a pooler's
		if err != nil {
			return nil, err
		}
		if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock(727469111)"); err != nil {
			return nil, errors.Join(err, tx.Rollback())
		}
		return tx.Commit, nil
	},
	fence: func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "LOCK TABLE carillon_log IN SHARE MODE NOWAIT")
		return err
	},
	examine: func(ctx context.Context, db *sql.DB) (string, error) {
		var commit, fsync, pages string
		var replica bool
		var version int
		err := db.QueryRowContext(ctx, "SELECT current_setting('synchronous_commit'), current_setting('fsync'), current_setting('full_page_writes'), "+
			"pg_is_in_recovery(), current_setting('server_version_num')::int").Scan(&commit, &fsync, &pages, &replica, &version)
		switch {
		case err != nil:
			return "", fmt.Errorf("read the settings of PostgreSQL: %w", err)
		case replica:
			return "", fmt.Errorf("this PostgreSQL is a replica and takes no writes: give the URL of the primary")
		case version < 140000:
			return "", fmt.Errorf("this PostgreSQL has version %d.%d: 14 or later is required", version/10000, version%10000)
		}
		setting := map[string]string{}
		rows, err := db.QueryContext(ctx, "SELECT name, setting FROM pg_settings")
		err = each(rows, err, func(scan func(...any) error) error {
			var name, value string
			err := scan(&name, &value)
			setting[name] = value
			return err
		})
		if err != nil {
			return "", fmt.Errorf("read the settings of PostgreSQL: %w", err)
		}
		if why := postgresHostile(setting); why != "" {
			return "", errors.New(why)
		}
		return postgresKeeps(commit, fsync, pages), nil
	},
}

// makePartition makes the partition of a day. A table is attached beside queries; one that is made as a partition would
// wait for them, and all others for it.
func makePartition(ctx context.Context, tx *sql.Tx, day time.Time) error {
	name, from, to := partitionName(day), day.Format(time.DateOnly), day.AddDate(0, 0, 1).Format(time.DateOnly)
	var there bool
	if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock(727469113)"); err != nil { // one node at a time
		return err
	}
	if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM pg_inherits WHERE inhparent = 'carillon_runs'::regclass AND inhrelid = to_regclass($1))", name).Scan(&there); err != nil || there {
		return err
	}
	for _, q := range []string{
		"SET LOCAL lock_timeout = '2s'",
		"CREATE TABLE " + name + " (LIKE carillon_runs)",
		"ALTER TABLE carillon_runs ATTACH PARTITION " + name + " FOR VALUES FROM ('" + from + " 00:00+00') TO ('" + to + " 00:00+00')",
	} {
		if _, err := tx.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// postgresInstant is a time from Unix nanoseconds, in integers: a float has no nanoseconds.
func postgresInstant(nanos string) string {
	return "timestamptz 'epoch' + " + nanos + " / 1000 * interval '1 microsecond'"
}

// postgresKeeps returns what such settings of PostgreSQL keep.
func postgresKeeps(commit, fsync, pages string) string {
	var lost []string
	if fsync != "on" {
		lost = append(lost, "lost with the machine: fsync is "+fsync)
	}
	if commit == "off" {
		lost = append(lost, "the last moments are lost with the server: synchronous_commit is off")
	}
	if pages != "on" {
		lost = append(lost, "may be torn by a power cut: full_page_writes is "+pages)
	}
	return mayLose(lost)
}

// mayLose is the durability of a database that loses such things.
func mayLose(lost []string) string {
	if len(lost) == 0 {
		return durable
	}
	return strings.Join(lost, "; ")
}

// durable is the durability of a database that keeps what it has acknowledged.
const durable = "on disk before it is acknowledged"

// dollars numbers the question marks.
func dollars(query string) string {
	var b strings.Builder
	n := 0
	for _, r := range query {
		if r == '?' {
			n++
			b.WriteString("$" + strconv.Itoa(n))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

var arrays = map[kind]string{number: "bigint[]", word: "text[]", raw: "bytea[]", uuid: "bytea[]", moment: "bigint[]"}

func unnest(columns []column) string {
	all := make([]string, len(columns))
	for i, c := range columns {
		all[i] = "$" + strconv.Itoa(i+1) + "::" + arrays[c.kind]
	}
	return "unnest(" + strings.Join(all, ", ") + ")"
}

// lists are the rows, column by column.
func lists(columns []column, rows [][]any) []any {
	all := make([]any, len(columns))
	for i, c := range columns {
		switch c.kind {
		case number, moment:
			all[i] = list[int64](rows, i)
		case word:
			all[i] = list[string](rows, i)
		case raw, uuid:
			values := make([][]byte, len(rows))
			for j, r := range rows {
				values[j], _ = r[i].([]byte)
			}
			all[i] = values
		}
	}
	return all
}

func list[T any](rows [][]any, i int) []*T {
	values := make([]*T, len(rows))
	for j, r := range rows {
		if v, ok := r[i].(T); ok {
			values[j] = &v
		}
	}
	return values
}
