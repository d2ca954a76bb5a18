package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/carillon-scheduler/carillon/jobs"
)

// MariaDB, 10.6 or later. The statements are also MySQL's, but untested there.

var mariadb = &dialect{
	name:   "MariaDB",
	ask:    func(query string) string { return query },
	clock:  "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000000 AS SIGNED)",
	holds:  "COALESCE(GET_LOCK(CONCAT('carillon.', MD5(DATABASE())), 0), 0) = 1",
	letGo:  "DO RELEASE_ALL_LOCKS()",
	server: "CONCAT(@@hostname, ':', @@port, ':', @@server_id)", // of several masters each has locks of its own
	addLines: func(rows [][]any) (string, []any) {
		return "INSERT IGNORE INTO carillon_logs (" + names(lineColumns) + ") VALUES " + strings.TrimSuffix(strings.Repeat(marks(len(lineColumns))+", ", len(rows)), ", "), flat(rows)
	},
	prune: func(table, _, which string) string {
		return "DELETE FROM " + table + " WHERE " + which + " LIMIT ?"
	},
	storing: func(table string, columns []column, rows [][]any, at string) (string, []any) {
		values := make([]string, len(columns))
		for i, c := range columns {
			values[i] = "?"
			if c.kind == moment {
				values[i] = mariadbInstant("?")
			}
		}
		// A column that comes later in a row may be set from one that comes before.
		stored := ""
		if at != "" {
			stored, at = ", stored_at", ", "+at
		}
		one := "(" + strings.Join(values, ", ") + at + ")"
		return "INSERT INTO " + table + " (" + names(columns) + stored + ") VALUES " + strings.TrimSuffix(strings.Repeat(one+", ", len(rows)), ", "), flat(rows)
	},
	dropLive: func(rows [][]any) (string, []any) {
		return "DELETE FROM carillon_live WHERE (tenant, id) IN (" + listed(marks(len(runKey)), len(rows)) + ")", flat(rows)
	},
	ended: "ended_at",
	now:   "SYSDATE(6)",
	// A scan of the table would wait for all transactions with requests.
	unbox:    "DELETE o FROM carillon_outbox AS o FORCE INDEX (PRIMARY) WHERE o.id IN ",
	instant:  mariadbInstant("?"),
	idBytes:  "id",
	storedAt: "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', stored_at)",
	everyJob: "SELECT DISTINCT tenant, job FROM carillon_runs", // it goes from job to job in the index
	size:     "SELECT COALESCE(SUM(data_length + index_length), 0) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'carillon_runs'",
	uuid:     func(id jobs.ID) any { return id[:] },
	dump:     "mariadb-dump --single-transaction DATABASE > carillon.sql",
	analyze:  "ANALYZE TABLE ",
	files:    "migrations/mariadb",
	// Each statement commits by itself there, so each may run twice.
	lock: func(ctx context.Context, db *sql.DB) (unlock func() error, err error) {
		c, err := db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		var got sql.NullInt64
		err = c.QueryRowContext(ctx, "SELECT GET_LOCK(CONCAT('carillon.', DATABASE()), 60)").Scan(&got)
		if err == nil && got.Int64 != 1 {
			err = errors.New("another process has had the lock for a minute")
		}
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		return func() error {
			_, err := c.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK(CONCAT('carillon.', DATABASE()))")
			return errors.Join(err, c.Close())
		}, nil
	},
	fence: func(ctx context.Context, tx *sql.Tx) error {
		// Repeatable reads lock the gap behind the last row, too.
		var n int
		return tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM carillon_log WHERE seq >= (SELECT MAX(l.seq) FROM carillon_log l) FOR UPDATE NOWAIT").Scan(&n)
	},
	packet: func(ctx context.Context, db *sql.DB) (most int, err error) {
		if err = db.QueryRowContext(ctx, "SELECT @@max_allowed_packet").Scan(&most); err == nil && most < leastPacket {
			err = fmt.Errorf("max_allowed_packet of this MariaDB is %d bytes: at least %d are required, 16777216 are its default", most, leastPacket)
		}
		return most, err
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

// A statement, an argument or a row that is longer than max_allowed_packet fails. The driver writes the arguments of a
// statement into its text, with each quote and backslash twice, and prepares it if it is too long then.
const (
	leastPacket = 4 << 20  // a part of a snapshot may have 1 MiB, which may be twice as long in a statement
	packetRest  = 64 << 10 // what a row has beside its longest value
	packetShare = 4        // the part of a packet that the entries of one statement have
)

// mariadbSession is what a session sets.
var mariadbSession = []string{
	"time_zone = '+00:00', autocommit = 1, completion_type = 'NO_CHAIN', sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'",
	", character_set_client = utf8mb4, character_set_results = utf8mb4, collation_connection = utf8mb4_bin",
	", sql_safe_updates = 0, sql_big_selects = 1, sql_select_limit = 18446744073709551615, sql_auto_is_null = 0, unique_checks = 1, default_storage_engine = InnoDB",
	"/*!80000 , transaction_isolation = 'REPEATABLE-READ', transaction_read_only = 0, max_execution_time = 0 */",
	"/*M! , tx_isolation = 'REPEATABLE-READ', tx_read_only = 0, max_statement_time = 0 */",
}

// mariadbInstant is a time from Unix nanoseconds.
func mariadbInstant(nanos string) string {
	return "TIMESTAMP'1970-01-01 00:00:00.000000' + INTERVAL (" + nanos + " DIV 1000) MICROSECOND"
}

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
