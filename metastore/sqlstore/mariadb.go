package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// MariaDB, 10.6 or later. The statements are also MySQL's, but untested there.

var mariadb = &dialect{
	name:         "MariaDB",
	ask:          func(query string) string { return query },
	live:         "live IS NOT NULL",
	liveSequence: "live",
	clock:        "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000000 AS SIGNED)",
	holds:        "COALESCE(GET_LOCK(CONCAT('carillon.', MD5(DATABASE())), 0), 0) = 1",
	letGo:        "DO RELEASE_ALL_LOCKS()",
	server:       "CONCAT(@@hostname, ':', @@port, ':', @@server_id)", // of several masters each has locks of its own
	bound:        func(time.Duration) string { return "''" },          // its connections set it once: see mariadbConfig
	getting: func(t *table, keys [][]any) (string, []any) {
		where, args := t.under(keys)
		return "SELECT " + t.all() + " FROM " + t.name + " FORCE INDEX (PRIMARY) WHERE " + where, args
	},
	putting: func(t *table, rows [][]any) (string, []any) {
		set := make([]string, 0, len(t.columns))
		for _, c := range t.columns[t.keys:] {
			if t.adds[c.name] {
				set = append(set, c.name+" = "+c.name+" + VALUES("+c.name+")")
			} else {
				set = append(set, c.name+" = VALUES("+c.name+")")
			}
		}
		return values("INSERT INTO ", t, len(rows)) + " ON DUPLICATE KEY UPDATE " + strings.Join(set, ", "), flat(rows)
	},
	adding: func(t *table, rows [][]any) (string, []any) {
		return values("INSERT IGNORE INTO ", t, len(rows)), flat(rows)
	},
	dropping: func(t *table, keys [][]any) (string, []any) {
		where, args := t.under(keys)
		return "DELETE FROM " + t.name + " WHERE " + where, args
	},
	firsts: func(gates []waiting) (string, []any) {
		one := "(SELECT " + runs.all() + " FROM carillon_runs WHERE tenant = ? AND waits = ? ORDER BY " + inTurn + " LIMIT ?)"
		var args []any
		for _, g := range gates {
			args = append(args, g.tenant, g.gate, g.n)
		}
		return strings.TrimSuffix(strings.Repeat(one+" UNION ALL ", len(gates)), " UNION ALL "), args
	},
	oldest: "SELECT body FROM carillon_runs WHERE tenant = l.tenant AND app = l.name AND ready IS NOT NULL ORDER BY ready LIMIT 1",
	prune: func(table, _, which string) string {
		return "DELETE FROM " + table + " WHERE " + which + " LIMIT ?"
	},
	tableSize: "SELECT data_length + index_length FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'carillon_runs'",
	storing: func(rows [][]any, old bool) (string, []any) {
		names, values := make([]string, len(historyColumns)), make([]string, len(historyColumns))
		for i, c := range historyColumns {
			names[i], values[i] = c.name, "?"
			if c.kind == moment {
				values[i] = mariadbInstant
			}
		}
		// A column that comes later in a row may be set from one that comes before.
		all, one := strings.Join(names, ", "), strings.Join(values, ", ")
		if old {
			one += ", ended_at"
		} else {
			one += ", SYSDATE(6)"
		}
		return "INSERT INTO carillon_history (" + all + ", stored_at) VALUES " + strings.TrimSuffix(strings.Repeat("("+one+"), ", len(rows)), ", "), flat(rows)
	},
	instant:     mariadbInstant,
	idBytes:     "id",
	historySize: "SELECT COALESCE(SUM(data_length + index_length), 0) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'carillon_history'",
	uuid:        func(id jobs.ID) any { return id[:] },
	dump:        "mariadb-dump --single-transaction DATABASE > carillon.sql",
	analyze:     "ANALYZE TABLE ",
	files:       "migrations/mariadb",
	// Each statement commits by itself there, so each may run twice.
	lock: func(ctx context.Context, c *sql.Conn) (unlock func() error, err error) {
		var got sql.NullInt64
		if err := c.QueryRowContext(ctx, "SELECT GET_LOCK(CONCAT('carillon.', DATABASE()), 60)").Scan(&got); err != nil {
			return nil, err
		}
		if got.Int64 != 1 {
			return nil, fmt.Errorf("another process has had the lock for a minute")
		}
		return func() error {
			_, err := c.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK(CONCAT('carillon.', DATABASE()))")
			return err
		}, nil
	},
	examine: func(ctx context.Context, db *sql.DB) (string, error) {
		var flush, doublewrite, readOnly, version string
		err := db.QueryRowContext(ctx, "SELECT @@innodb_flush_log_at_trx_commit, @@innodb_doublewrite, @@read_only, version()").Scan(&flush, &doublewrite, &readOnly, &version)
		switch {
		case err != nil:
			return "", fmt.Errorf("read the settings of MariaDB: %w", err)
		case readOnly != "0" && readOnly != "OFF":
			return "", fmt.Errorf("this MariaDB is read-only, a replica perhaps: give the URL of the primary")
		}
		return mariadbKeeps(flush, doublewrite), nil
	},
}

// mariadbInstant is a time from Unix nanoseconds.
const mariadbInstant = "TIMESTAMP'1970-01-01 00:00:00.000000' + INTERVAL (? DIV 1000) MICROSECOND"

// mariadbKeeps returns what such settings of MariaDB keep.
func mariadbKeeps(flush, doublewrite string) string {
	var lost []string
	if flush != "1" {
		lost = append(lost, "the last second is lost with the machine: innodb_flush_log_at_trx_commit is "+flush)
	}
	if doublewrite == "0" || doublewrite == "OFF" {
		lost = append(lost, "may be torn by a power cut: innodb_doublewrite is off")
	}
	return mayLose(lost)
}

// under is the condition that a row's key is one of some: a list of its last column's values for each prefix that
// they share, such as a tenant. The optimizer uses such lists at once; it takes a list of tuples apart for each index
// with that prefix, which took a hundred times as long as reading the rows.
func (t *table) under(keys [][]any) (where string, args []any) {
	last := t.keys - 1
	lists := map[string][][]any{}
	var order []string
	for _, k := range keys {
		begin := fmt.Sprintf("%#v", k[:last]) // %q would make one of large numbers
		if lists[begin] == nil {
			order = append(order, begin)
		}
		lists[begin] = append(lists[begin], k)
	}
	var text strings.Builder
	for i, begin := range order {
		if i > 0 {
			text.WriteString(" OR ")
		}
		list := lists[begin]
		for _, c := range t.columns[:last] {
			text.WriteString(c.name + " = ? AND ")
		}
		args = append(args, list[0][:last]...)
		text.WriteString(t.columns[last].name + " IN (" + strings.TrimSuffix(strings.Repeat("?,", len(list)), ",") + ")")
		for _, k := range list {
			args = append(args, k[last])
		}
	}
	return text.String(), args
}

func values(verb string, t *table, n int) string {
	return verb + t.name + " (" + t.all() + ") VALUES " + tuples(n, len(t.columns))
}
