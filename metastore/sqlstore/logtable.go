package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/carillon-scheduler/carillon/metastore/replica/dblog"
)

// logTable is the log as tables: see dblog.Database.
type logTable struct {
	s  *Store
	in querier // where the tables are read and written
}

var _ dblog.Database = logTable{}

// taken reports whether an error is that a row has the number of an inserted one.
func taken(err error) bool {
	if e, is := errors.AsType[*pgconn.PgError](err); is {
		return e.Code == "23505"
	}
	e, is := errors.AsType[*mysql.MySQLError](err)
	return is && e.Number == 1062
}

// Insert adds rows. A statement with a row whose number is taken adds none of its rows.
func (l logTable) Insert(ctx context.Context, rows []dblog.Row) (done bool, now time.Time, err error) {
	one := "SELECT ? AS seq, ? AS term, CAST(? AS BINARY) AS prev, CAST(? AS BINARY) AS hash, CAST(? AS BINARY) AS entry"
	if l.s.dialect == postgres {
		one = "SELECT ?::bigint AS seq, ?::bigint AS term, ?::bytea AS prev, ?::bytea AS hash, ?::bytea AS entry"
	}
	args := make([]any, 0, 5*len(rows)+2)
	for i := range rows {
		r := &rows[i]
		args = append(args, int64(r.Seq), int64(r.Term), r.Prev[:], r.Hash[:], r.Entry)
	}
	all := strings.TrimSuffix(strings.Repeat(one+" UNION ALL ", len(rows)), " UNION ALL ")
	args = append(args, int64(rows[0].Seq-1), rows[0].Prev[:])
	ctx, cancel := context.WithTimeout(ctx, l.s.cfg.patience)
	defer cancel()
	var at int64
	err = l.in.QueryRowContext(ctx, l.s.dialect.ask("INSERT INTO carillon_log (seq, term, prev, hash, entry) SELECT seq, term, prev, hash, entry FROM ("+all+
		") AS r WHERE EXISTS (SELECT 1 FROM carillon_log AS l WHERE l.seq = ? AND l.hash = ?) RETURNING "+l.s.dialect.clock), args...).Scan(&at)
	switch {
	case err == nil:
		return true, instant(at), nil
	case errors.Is(err, sql.ErrNoRows) || taken(err):
		return false, time.Time{}, nil
	}
	return false, time.Time{}, err
}

// mostEntries is how many rows of the log are read at once.
const mostEntries = 1000

// Rows reads rows.
func (l logTable) Rows(ctx context.Context, after uint64, most int) (found []dblog.Row, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.s.cfg.patience)
	defer cancel()
	// Sizes first, so that no more is read than wanted.
	last, size := int64(0), 0
	rows, err := l.in.QueryContext(ctx, l.s.dialect.ask("SELECT seq, OCTET_LENGTH(entry) FROM carillon_log WHERE seq > ? ORDER BY seq LIMIT ?"), int64(after), mostEntries)
	err = each(rows, err, func(scan func(...any) error) error {
		var seq int64
		var n int
		if err := scan(&seq, &n); err != nil {
			return err
		}
		if last > 0 && size+n > most {
			return errEnough
		}
		last, size = seq, size+n
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) || last == 0 {
		return nil, err
	}
	rows, err = l.in.QueryContext(ctx, l.s.dialect.ask("SELECT seq, term, prev, hash, entry FROM carillon_log WHERE seq > ? AND seq <= ? ORDER BY seq"), int64(after), last)
	err = each(rows, err, func(scan func(...any) error) error {
		var r dblog.Row
		var prev, hash []byte
		if err := scan(&r.Seq, &r.Term, &prev, &hash, &r.Entry); err != nil {
			return err
		}
		copy(r.Prev[:], prev)
		copy(r.Hash[:], hash)
		found = append(found, r)
		return nil
	})
	return found, err
}

// End is the number and the hash of the last row, and the clock. It also reads the lease.
func (l logTable) End(ctx context.Context) (seq uint64, hash dblog.Hash, now time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.s.cfg.patience)
	defer cancel()
	var b []byte
	var at, until int64
	err = l.in.QueryRowContext(ctx, "SELECT seq, hash, (SELECT until FROM carillon_leader WHERE one = 1), "+l.s.dialect.clock+" FROM carillon_log ORDER BY seq DESC LIMIT 1").Scan(&seq, &b, &until, &at)
	if err == nil {
		l.s.noteLease(time.Duration(until - at))
	}
	copy(hash[:], b)
	return seq, hash, instant(at), err
}

// Cut deletes rows before the newest snapshot.
func (l logTable) Cut(ctx context.Context, below uint64) error {
	ctx, cancel := context.WithTimeout(ctx, l.s.cfg.patience)
	defer cancel()
	for {
		query := l.s.dialect.prune("carillon_log", "seq", "seq < LEAST(?, (SELECT COALESCE(MAX(s.seq), 0) FROM carillon_snapshots s))")
		done, err := l.in.ExecContext(ctx, l.s.dialect.ask(query), int64(below), prunedAtOnce)
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil || n < prunedAtOnce {
			return err
		}
	}
}

// Take begins a term.
func (l logTable) Take(ctx context.Context, node string, after uint64, lease time.Duration) (term uint64, err error) {
	s := l.s
	sent := time.Now()
	over, free, mine, asked := s.free(ctx)
	if asked && !free {
		s.let(ctx)
		return 0, nil
	}
	session, expired := "''", "until < "+s.dialect.clock
	if mine {
		session, expired = s.dialect.server, "("+expired+" OR session = "+s.dialect.server+")"
	}
	done, err := l.in.ExecContext(ctx, s.dialect.ask("UPDATE carillon_leader SET node = ?, term = GREATEST(term, ?, (SELECT l.term FROM carillon_log l ORDER BY l.seq DESC LIMIT 1)) + 1, "+
		"until = "+s.dialect.clock+" + ?, session = "+session+" WHERE one = 1 AND "+expired), node, int64(after), int64(lease))
	if err == nil {
		var n int64
		if n, err = done.RowsAffected(); err == nil && n > 0 {
			// Whose term it is shows in the row: if it has changed, the lease of this one is over already.
			err = l.in.QueryRowContext(ctx, s.dialect.ask("SELECT term FROM carillon_leader WHERE one = 1 AND node = ?"), node).Scan(&term)
		}
	}
	switch {
	case err != nil || term == 0:
		s.let(ctx)
	case !mine:
		s.session.sure.Store(nil)
	default:
		if s.session.proved(sent); !over {
			select {
			case <-ctx.Done():
			case <-time.After(earlyWait): // the former leader may live, and answer reads
			}
		}
	}
	return term, err
}

// Renew renews a lease.
func (l logTable) Renew(ctx context.Context, node string, term uint64, lease time.Duration) (bool, error) {
	done, err := l.s.keep(ctx, func(session string) string {
		return "UPDATE carillon_leader SET until = " + l.s.dialect.clock + " + ?, session = " + session + " WHERE one = 1 AND node = ? AND term = ?"
	}, int64(lease), node, int64(term))
	if err != nil {
		return false, err
	}
	n, err := done.RowsAffected()
	return n > 0, err
}

// Release ends a lease.
func (l logTable) Release(ctx context.Context, node string, term uint64) error {
	defer l.s.session.drop()
	_, err := l.in.ExecContext(ctx, l.s.dialect.ask("UPDATE carillon_leader SET until = 0, session = '' WHERE one = 1 AND node = ? AND term = ?"), node, int64(term))
	return err
}

// Newest is the newest snapshot.
func (l logTable) Newest(ctx context.Context) (*dblog.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, l.s.cfg.patience)
	defer cancel()
	var s dblog.Snapshot
	var hash []byte
	err := l.in.QueryRowContext(ctx, "SELECT name, seq, term, hash, parts FROM carillon_snapshots ORDER BY seq DESC LIMIT 1").Scan(&s.Name, &s.Seq, &s.Term, &hash, &s.Parts)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	copy(s.Hash[:], hash)
	return &s, err
}

// Part reads a part of a snapshot.
func (l logTable) Part(ctx context.Context, of dblog.Snapshot, n int) (part []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.s.cfg.patience)
	defer cancel()
	err = l.in.QueryRowContext(ctx, l.s.dialect.ask("SELECT part FROM carillon_snapshot_parts WHERE name = ? AND n = ?"), of.Name, n).Scan(&part)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return part, err
}

// PutPart writes a part of a snapshot.
func (l logTable) PutPart(ctx context.Context, of dblog.Snapshot, n int, part []byte) error {
	ctx, cancel := context.WithTimeout(ctx, l.s.cfg.patience)
	defer cancel()
	_, err := l.in.ExecContext(ctx, l.s.dialect.ask("INSERT INTO carillon_snapshot_parts (name, seq, n, part) VALUES (?, ?, ?, ?)"),
		of.Name, int64(of.Seq), n, part)
	return err
}

// Publish completes a snapshot.
func (l logTable) Publish(ctx context.Context, s dblog.Snapshot) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, l.s.cfg.patience)
	defer cancel()
	done, err := l.in.ExecContext(ctx, l.s.dialect.ask("INSERT INTO carillon_snapshots (name, seq, term, hash, parts) "+
		"SELECT ?, ?, ?, ?, ? FROM carillon_log l WHERE l.seq = ? AND l.hash = ? AND "+
		"(SELECT COUNT(*) FROM carillon_snapshot_parts p WHERE p.name = ?) = ? AND "+
		"NOT EXISTS (SELECT 1 FROM carillon_snapshots n WHERE n.seq >= ?)"),
		s.Name, int64(s.Seq), int64(s.Term), s.Hash[:], s.Parts, int64(s.Seq), s.Hash[:], s.Name, s.Parts, int64(s.Seq))
	if err != nil {
		if taken(err) {
			return false, nil
		}
		return false, err
	}
	n, err := done.RowsAffected()
	return n > 0, err
}

// Sweep deletes what no reader needs.
func (l logTable) Sweep(ctx context.Context, upTo uint64) error {
	ctx, cancel := context.WithTimeout(ctx, l.s.cfg.patience)
	defer cancel()
	if _, err := l.in.ExecContext(ctx, "DELETE FROM carillon_snapshots WHERE seq < "+
		"(SELECT seq FROM (SELECT seq FROM carillon_snapshots ORDER BY seq DESC LIMIT 1 OFFSET 1) AS n)"); err != nil {
		return err
	}
	_, err := l.in.ExecContext(ctx, l.s.dialect.ask("DELETE FROM carillon_snapshot_parts WHERE seq <= ? AND "+
		"name NOT IN (SELECT name FROM carillon_snapshots)"), int64(upTo))
	return err
}
