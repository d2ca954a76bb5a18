package sqlstore

import (
	"context"
	"crypto/sha256"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Processes that share only a database find each other in it: the leader announces where its bus is, and the others
// leave the hashes of their tokens. So to connect as a node takes the right to write to the database: a reader finds
// neither a credential nor a way to make one.

// Road is where the bus of the leader is.
type Road struct {
	Term        uint64 // 0 = no leader has announced its bus, or the last one has withdrawn it
	Node        string
	Address     string // host:port
	Certificate []byte // its SHA-256; nil = no TLS
}

// Announce tells other processes where the bus of this one is, unless a later term's leader has.
func (s *Store) Announce(ctx context.Context, r Road) error {
	_, err := s.db.ExecContext(ctx, s.dialect.ask("UPDATE carillon_road SET term = ?, node = ?, address = ?, certificate = ? WHERE one = 1 AND term <= ?"),
		int64(r.Term), r.Node, r.Address, r.Certificate, int64(r.Term))
	return s.failed("announce the bus", err)
}

// Withdraw ends the announcement of a term, unless a later term's leader has replaced it.
func (s *Store) Withdraw(ctx context.Context, term uint64) error {
	_, err := s.db.ExecContext(ctx, s.dialect.ask("UPDATE carillon_road SET address = '' WHERE one = 1 AND term = ?"), int64(term))
	return s.failed("withdraw the bus", err)
}

// Announced is where the bus of the leader is, or of the last one that there was, unless that one has withdrawn it.
func (s *Store) Announced(ctx context.Context) (r Road, err error) {
	err = s.query(ctx, "read where the bus is", func(scan func(...any) error) error {
		return scan(&r.Term, &r.Node, &r.Address, &r.Certificate)
	}, "SELECT term, node, address, certificate FROM carillon_road WHERE one = 1 AND address <> ''")
	return r, err
}

// peerTime is for how long a process may connect after it has said so last.
const peerTime = time.Minute

// StayPeer lets this process connect to the leader by a token, for a minute.
func (s *Store) StayPeer(ctx context.Context, token string) error {
	hash := sha256.Sum256([]byte(token))
	done, err := s.db.ExecContext(ctx, s.dialect.ask("UPDATE carillon_peers SET until = "+s.dialect.clock+" + ? WHERE token = ?"), int64(peerTime), hash[:])
	if err != nil {
		return s.failed("stay a peer", err)
	}
	if n, err := done.RowsAffected(); err != nil || n > 0 {
		return s.failed("stay a peer", err)
	}
	if _, err := s.db.ExecContext(ctx, s.dialect.ask("DELETE FROM carillon_peers WHERE until < "+s.dialect.clock)); err != nil {
		return s.failed("delete old peers", err)
	}
	_, err = s.db.ExecContext(ctx, s.dialect.ask("INSERT INTO carillon_peers (token, node, until) VALUES (?, ?, "+s.dialect.clock+" + ?)"), hash[:], s.cfg.Node, int64(peerTime))
	return s.failed("become a peer", err)
}

// Peer returns the node that has a token. Refused as jobs.Forbidden if none has.
func (s *Store) Peer(ctx context.Context, token string) (node string, err error) {
	hash := sha256.Sum256([]byte(token))
	err = s.query(ctx, "look for a peer", func(scan func(...any) error) error { return scan(&node) },
		"SELECT node FROM carillon_peers WHERE token = ? AND until >= "+s.dialect.clock, hash[:])
	if err == nil && node == "" {
		err = kernel.Refuse(jobs.Forbidden, "no node has this token")
	}
	return node, err
}

// LocalHost is the address by which this machine reaches the database, so that others in its network reach it there:
// 127.0.0.1 if the database is on this machine.
func (s *Store) LocalHost() string {
	const here = "127.0.0.1"
	address := databaseAddress(s.cfg.URL)
	if address == "" {
		return here
	}
	c, err := net.Dial("udp", address) // sends nothing
	if err != nil {
		return here
	}
	defer func() { _ = c.Close() }()
	host, _, err := net.SplitHostPort(c.LocalAddr().String())
	if err != nil {
		return here
	}
	return host
}

// databaseAddress is the host:port of a database, "" if it is a socket of this machine.
func databaseAddress(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	if u.Scheme == "mariadb" || u.Scheme == "mysql" {
		if c, err := mariadbConfig(u, Config{silence: silence}); err == nil && c.Net == "tcp" {
			return c.Addr
		}
		return ""
	}
	c, err := pgx.ParseConfig(raw)
	if err != nil || len(c.Host) == 0 || c.Host[0] == '/' {
		return ""
	}
	return net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
}
