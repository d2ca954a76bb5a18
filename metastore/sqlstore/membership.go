package sqlstore

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/metastore"
)

// Each member is a row with the end of its lease, by the database's clock. Expired rows stay for an hour, and are
// ignored.

var _ metastore.Membership = (*Store)(nil)

// Stay renews a member's lease.
func (s *Store) Stay(ctx context.Context, m metastore.Member, lease time.Duration) error {
	clock := s.dialect.clock
	// Of the columns, since comes first: it reads the old nonce and until, and MariaDB changes them in this order.
	done, err := s.db.ExecContext(ctx, s.dialect.ask("UPDATE carillon_members SET since = CASE WHEN nonce = ? AND until >= "+clock+" THEN since ELSE "+clock+" END, "+
		"nonce = ?, until = "+clock+" + ?, fired = ? WHERE node = ?"), m.Nonce, m.Nonce, int64(lease), int64(m.Fired), m.Node)
	if err != nil {
		return s.failed("stay a member", err)
	}
	if n, err := done.RowsAffected(); err != nil || n > 0 {
		return s.failed("stay a member", err)
	}
	if _, err := s.db.ExecContext(ctx, s.dialect.ask("DELETE FROM carillon_members WHERE until < "+clock+" - ?"), int64(time.Hour)); err != nil {
		return s.failed("delete old members", err)
	}
	_, err = s.db.ExecContext(ctx, s.dialect.ask("INSERT INTO carillon_members (node, nonce, since, until, fired) VALUES (?, ?, "+clock+", "+clock+" + ?, ?)"),
		m.Node, m.Nonce, int64(lease), int64(m.Fired))
	return s.failed("become a member", err)
}

// Leave removes a member.
func (s *Store) Leave(ctx context.Context, m metastore.Member) error {
	_, err := s.db.ExecContext(ctx, s.dialect.ask("DELETE FROM carillon_members WHERE node = ? AND nonce = ?"), m.Node, m.Nonce)
	return s.failed("leave the members", err)
}

// Members lists the members.
func (s *Store) Members(ctx context.Context) (list []metastore.Member, err error) {
	err = s.query(ctx, "read the members", func(scan func(...any) error) error {
		var m metastore.Member
		var since, fired int64
		err := scan(&m.Node, &m.Nonce, &since, &fired)
		m.Since, m.Fired = instant(since), uint64(fired)
		list = append(list, m)
		return err
	}, "SELECT node, nonce, since, fired FROM carillon_members WHERE until >= "+s.dialect.clock+" ORDER BY node")
	return list, err
}
