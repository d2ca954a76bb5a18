package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// A dead leader's lease expires after four seconds. The database knows at once: a connection that ends releases its
// locks. So a leader holds one, and notes in its row that it does; a node that gets that lock while the row has the
// note need not wait for the lease. It may be wrong about that, as about a lease (a leader whose connection broke is
// alive): what the late one would write no longer fits into the log. But it would answer reads. So it takes its rows for
// current only for a moment after its session has answered, and a node that takes over early waits for longer than that.
//
// A lock means nothing where a pooler lends one connection to many clients. One in front of PostgreSQL is detected;
// for others set sessions=off in the database's URL. Then the lease counts, as it does for a leader that is frozen or
// cut off.

// session is the connection that holds the lock, or waits for it.
type session struct {
	mu   sync.Mutex
	db   *sql.DB // with one connection; nil = only leases count
	conn *sql.Conn
	held bool

	// sure is until when no other node can have taken over early; nil = none can, since the row names no session.
	sure atomic.Pointer[time.Time]
}

const (
	proofEvery = 50 * time.Millisecond  // how often a leader's session proves that it lives
	proofTime  = 100 * time.Millisecond // how long a proof counts
	// proofAnswer is how long the session may take: the lease is then renewed without it.
	proofAnswer = time.Second
	earlyWait   = 120 * time.Millisecond // how long a node that takes over early waits
)

// alone reports whether no other node can have taken over early.
func (n *session) alone() bool {
	until := n.sure.Load()
	return until == nil || time.Now().Before(*until)
}

// proved notes that the session has answered what was sent at a time.
func (n *session) proved(sent time.Time) { n.sure.Store(new(sent.Add(proofTime))) }

// prove has the session prove that it lives until ctx ends: while this node leads.
func (s *Store) prove(ctx context.Context) {
	tick := time.NewTicker(proofEvery)
	defer tick.Stop()
	for n := &s.session; ctx.Err() == nil; {
		n.mu.Lock()
		if sent := time.Now(); n.held {
			asked, cancel := context.WithTimeout(ctx, proofAnswer)
			err := n.conn.PingContext(asked)
			cancel()
			if err != nil {
				n.failed(ctx, s.logger, err)
			} else {
				n.proved(sent)
			}
		}
		n.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// withoutSessions returns the database's URL for its driver, and whether sessions=off was in it.
func withoutSessions(raw string) (rest string, off bool, err error) {
	u, err := url.Parse(raw)
	if err != nil || !u.Query().Has("sessions") {
		return raw, false, nil // connecting reports what is wrong with it
	}
	q := u.Query()
	switch v := q.Get("sessions"); v {
	case "on":
	case "off":
		off = true
	default:
		return "", false, fmt.Errorf("sessions=%.20s", v)
	}
	q.Del("sessions")
	u.RawQuery = q.Encode()
	return u.String(), off, nil
}

// begin makes n usable, until end.
func (n *session) begin(cfg Config) error {
	_, db, err := connect(cfg)
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.db = db
	return nil
}

func (n *session) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lose()
	if n.db != nil {
		_ = n.db.Close() // its connection is gone
	}
	n.db = nil
}

// errShared: the connection is a pooler's, and serves others in between.
var errShared = errors.New("there is a pooler in front of the database: only the lease shows which node leads")

// open makes sure that there is a connection. mu is locked.
func (n *session) open(ctx context.Context, d *dialect) error {
	if n.conn != nil {
		return nil
	}
	c, err := n.db.Conn(ctx)
	if err != nil {
		return err
	}
	if d == postgres {
		shared, err := throughPooler(ctx, c)
		if err == nil && shared {
			err = errShared
		}
		if err != nil {
			hangUp(c)
			return err
		}
	}
	n.conn = c
	return nil
}

// throughPooler reports whether a connection to PostgreSQL is that of a pooler, which lends it to others, too: it gives
// a client the ID of a process that the database does not have.
func throughPooler(ctx context.Context, c *sql.Conn) (shared bool, err error) {
	var here uint32
	if err := c.QueryRowContext(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&here); err != nil {
		return false, err
	}
	err = c.Raw(func(c any) error {
		if direct, is := c.(*stdlib.Conn); is {
			shared = here != direct.Conn().PgConn().PID()
		}
		return nil
	})
	return shared, err
}

// drop ends the connection, and with it the lock.
func (n *session) drop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lose()
}

// lose is drop with mu locked.
func (n *session) lose() {
	if n.conn != nil {
		hangUp(n.conn)
	}
	n.conn, n.held = nil, false
	n.sure.Store(new(time.Time)) // the row may name the session, even later
}

// hangUp ends a connection instead of giving it back to its pool.
func hangUp(c *sql.Conn) {
	_ = c.Raw(func(any) error { return driver.ErrBadConn })
	_ = c.Close()
}

// failed handles a failed query in the session: it is gone. mu is locked.
func (n *session) failed(ctx context.Context, log *slog.Logger, err error) {
	n.lose()
	switch {
	case errors.Is(err, errShared):
		log.Info("a node that takes over waits for the lease", "err", err)
		_ = n.db.Close()
		n.db = nil
	case ctx.Err() == nil:
		log.Debug("no session shows whether the leader lives", "err", err)
	}
}

// free reports whether leadership is free: the leader's lease is over, or its session is gone. mine means that its lock
// is ours now. ok is false if there is no session.
func (s *Store) free(ctx context.Context) (over, free, mine, ok bool) {
	n := &s.session
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.db == nil || s.ctx.Err() != nil {
		return false, false, false, false
	}
	err := n.open(ctx, s.dialect)
	var gone bool
	if err == nil {
		err = n.conn.QueryRowContext(ctx, "SELECT until < "+s.dialect.clock+", session = "+s.dialect.server+", "+s.dialect.holds+" FROM carillon_leader WHERE one = 1").Scan(&over, &gone, &n.held)
	}
	if err != nil {
		n.failed(ctx, s.logger, err)
		return false, false, false, false
	}
	return over, over || n.held && gone, n.held, true
}

// let releases the lock, if we have it: a leader needs none.
func (s *Store) let(ctx context.Context) {
	n := &s.session
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.held {
		return
	}
	if _, err := n.conn.ExecContext(ctx, s.dialect.letGo); err != nil {
		n.lose()
	}
	n.held = false
}

// keep runs a statement that renews the lease in the session, which proves that the session lives, and notes it in
// the row. Without a session the statement runs elsewhere.
func (s *Store) keep(ctx context.Context, statement func(session string) string, args ...any) (sql.Result, error) {
	if done, err := s.keepIn(ctx, statement, args...); done != nil {
		return done, err
	}
	return s.db.ExecContext(ctx, s.dialect.ask(statement("''")), args...)
}

func (s *Store) keepIn(ctx context.Context, statement func(session string) string, args ...any) (done sql.Result, err error) {
	n := &s.session
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.db == nil || s.ctx.Err() != nil {
		return nil, nil
	}
	err = n.open(ctx, s.dialect)
	if err == nil && !n.held {
		err = n.conn.QueryRowContext(ctx, "SELECT "+s.dialect.holds).Scan(&n.held)
	}
	sent := time.Now()
	if err == nil && n.held {
		if n.sure.Load() == nil {
			n.sure.Store(new(time.Time)) // the row may name the session before the answer comes
		}
		done, err = n.conn.ExecContext(ctx, s.dialect.ask(statement(s.dialect.server)), args...)
	}
	if err != nil {
		n.failed(ctx, s.logger, err)
		return nil, err
	}
	if n.held {
		n.proved(sent)
	}
	return done, nil
}
