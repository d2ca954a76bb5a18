// Package sqlstore stores rows in PostgreSQL or MariaDB, for users that operate a database already, or outgrow
// memory.
//
// It is not promised to programs outside this module.
//
//	s, err := sqlstore.Open(ctx, sqlstore.Config{URL: "postgres://carillon:secret@db/carillon"})
//
// Where to start: commit.go, the only transaction; view.go, the rows it works on; table.go and dialect.go, how
// statements are made. The tables are in migrations.
//
// Sharp edges: the database's clock is the store's clock. Any number of processes may open the same database, and one
// of them leads ([Store.Lead]). A commit is as durable as the database makes it: see [Store.Durability].
package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Config is the database and its use.
type Config struct {
	// URL is postgres://user:password@host:5432/database?sslmode=verify-full, or
	// mariadb://user:password@host:3306/database (mysql:// is the same). With the parameter sessions=off the end of a
	// connection does not prove that a leader is dead: for poolers that lend a connection to many clients.
	URL string
	// Node is this process's name, which readers of the leader see. Default: node.
	Node string
	// Connections is the most connections that are open at the same time. Default: 10.
	Connections int
	// LookEvery is how often WatchCommits polls where the database does not notify of commits: MariaDB. Default: 500
	// ms.
	LookEvery time.Duration
	// Logger gets messages for operators; default: none.
	Logger *slog.Logger
	// Now is the clock that commits are stamped by; nil means the database's, which all processes share.
	Now func() time.Time

	knows     uint32        // the newest version of the rules that this program knows; default: kernel.ApplyVersion
	leaseTime time.Duration // how long a lease of leadership lasts; default: leaseTime
	silence   time.Duration // how long a commit may be idle; default: silence
}

// Store is a store in a database.
type Store struct {
	cfg        Config
	dialect    *dialect
	db         *sql.DB
	log        *slog.Logger
	episodes   *episode.Log
	group      *metastore.Group
	durability string
	leads      atomic.Uint64                // the term in which this process does, as far as it knows; 0 = it does not
	confirmed  atomic.Pointer[confirmation] // of the lease
	session    session
	leasesOnly bool // sessions cannot be relied on
	retaining  retaining

	// older ends with metastore.ErrTooOld once another process has put rules in force that this program does not
	// know.
	older    context.Context
	outdated context.CancelCauseFunc

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
}

var _ metastore.Full = (*Store)(nil)

// Open connects, updates the tables, and checks whether the database keeps what it acknowledges. One that does not is
// opened all the same, with a warning; a replica is refused.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s, err := prepared(cfg)
	if err != nil {
		return nil, err
	}
	if err := s.begin(ctx); err != nil {
		_ = s.db.Close()
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.group = metastore.NewGroup(maxCommands, 1, s.commit)
	return s, nil
}

// prepared is a store with its pool of connections, none of which is open yet.
func prepared(cfg Config) (*Store, error) {
	if cfg.Node == "" {
		cfg.Node = "node"
	}
	if cfg.Connections <= 0 {
		cfg.Connections = 10
	}
	if cfg.LookEvery <= 0 {
		cfg.LookEvery = besidePoll
	}
	cfg.knows = cmp.Or(cfg.knows, kernel.ApplyVersion)
	cfg.leaseTime, cfg.silence = cmp.Or(cfg.leaseTime, leaseTime), cmp.Or(cfg.silence, silence)
	direct, off, err := withoutSessions(cfg.URL)
	if err != nil {
		return nil, kernel.Invalid("invalid URL of the database: %v: want on or off", err)
	}
	cfg.URL = direct
	s := &Store{cfg: cfg, log: cfg.Logger, leasesOnly: off}
	s.older, s.outdated = context.WithCancelCause(context.Background())
	if s.log == nil {
		s.log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	s.episodes = episode.New(s.log)
	if s.dialect, s.db, err = connect(cfg); err != nil {
		return nil, err
	}
	s.db.SetMaxOpenConns(cfg.Connections)
	s.db.SetMaxIdleConns(cfg.Connections)
	s.db.SetConnMaxIdleTime(5 * time.Minute)
	return s, nil
}

func (s *Store) begin(ctx context.Context) error {
	if err := s.db.PingContext(ctx); err != nil {
		return kernel.Refuse(jobs.Unavailable, "%s cannot be reached: %s", s.dialect.name, quiet(err, s.cfg.URL))
	}
	var err error
	if s.durability, err = s.dialect.examine(ctx, s.db); err != nil {
		return err
	}
	if s.durability != durable {
		s.log.Warn("the database does not keep all it acknowledges", "database", s.dialect.name, "lost", s.durability)
	}
	if err := s.migrate(ctx); err != nil {
		return err
	}
	state, err := s.State(ctx)
	if err != nil {
		return err
	}
	return s.readable(state)
}

// Durability returns what a crash of the database, or its machine, may lose.
func (s *Store) Durability() string { return s.durability }

// Where returns where the rows are, without secrets.
func (s *Store) Where() string {
	if u, err := url.Parse(s.cfg.URL); err == nil {
		return fmt.Sprintf("in %s, %s (%s)", s.dialect.name, u.Host+u.Path, s.durability)
	}
	return "in " + s.dialect.name
}

// HowToBackUp returns the command that backs up the database.
func (s *Store) HowToBackUp() string {
	name := "DATABASE"
	if u, err := url.Parse(s.cfg.URL); err == nil {
		name = strings.TrimPrefix(u.Path, "/")
	}
	return fmt.Sprintf("the rows are in %s: back it up with its own tool, also while this server runs: %s", s.dialect.name, strings.ReplaceAll(s.dialect.dump, "DATABASE", name))
}

// Node returns this process's name.
func (s *Store) Node() string { return s.cfg.Node }

// Stats returns how many commits there have been, how large, and how long they took.
func (s *Store) Stats() metastore.Stats { return s.group.Stats() }

// Close ends all connections. Requests under way fail.
func (s *Store) Close() error {
	s.cancel()
	s.episodes.Reset()
	s.session.drop()
	return s.db.Close()
}

// connect makes a pool, without a connection yet.
func connect(cfg Config) (*dialect, *sql.DB, error) {
	raw := cfg.URL
	u, err := url.Parse(raw)
	if err != nil {
		return nil, nil, kernel.Invalid("invalid URL of the database: want postgres://user:password@host/database")
	}
	switch u.Scheme {
	case "postgres", "postgresql":
		db, err := sql.Open("pgx", raw)
		if err != nil {
			return nil, nil, kernel.Invalid("the URL of the database: %s", quiet(err, raw))
		}
		return postgres, db, nil
	case "mariadb", "mysql":
		c, err := mariadbConfig(u, cfg.silence)
		if err != nil {
			return nil, nil, err
		}
		connector, err := mysql.NewConnector(c)
		if err != nil {
			return nil, nil, kernel.Invalid("the URL of the database: %s", quiet(err, raw))
		}
		return mariadb, sql.OpenDB(connector), nil
	}
	return nil, nil, kernel.Invalid("invalid URL of the database: it begins with %.20q, want postgres, mariadb or mysql", u.Scheme)
}

// mariadbConfig is the driver's configuration, from a URL.
func mariadbConfig(u *url.URL, silence time.Duration) (*mysql.Config, error) {
	query := u.Query()
	var own []string
	for _, name := range []string{"socket", "tls"} {
		own = append(own, query.Get(name))
		query.Del(name)
	}
	if len(query) > 0 {
		return nil, kernel.Invalid("unknown parameters in the URL of the database: want only socket and tls")
	}
	c := mysql.NewConfig()
	c.User, c.DBName = u.User.Username(), strings.TrimPrefix(u.Path, "/")
	c.Passwd, _ = u.User.Password()
	c.Net, c.Addr = "tcp", u.Host
	if u.Port() == "" && u.Host != "" {
		c.Addr = u.Hostname() + ":3306"
	}
	if own[0] != "" {
		c.Net, c.Addr = "unix", own[0]
	}
	c.TLSConfig = own[1]
	c.InterpolateParams = true // one round trip for each statement
	c.Collation = "utf8mb4_bin"
	c.MaxAllowedPacket = 0 // the server's limit
	// The clock is read as a local time, and an hour of local time may come twice. A server's default could let
	// statements read uncommitted rows; the two have different names for that setting. MySQL lacks the rest, and
	// takes it for a comment, as MariaDB does with the other.
	c.Params = map[string]string{"@carillon": fmt.Sprintf("1, time_zone = '+00:00' /*!80000 , transaction_isolation = 'REPEATABLE-READ' */ "+
		"/*M! , tx_isolation = 'REPEATABLE-READ', idle_transaction_timeout = %d, in_predicate_conversion_threshold = 0 */", int(silence.Seconds()))}
	return c, nil
}

// quiet is an error's text without the URL's password.
func quiet(err error, raw string) string {
	text := err.Error()
	if u, e := url.Parse(raw); e == nil {
		text = strings.ReplaceAll(text, raw, u.Redacted())
		if password, ok := u.User.Password(); ok && password != "" {
			text = strings.ReplaceAll(text, password, "xxxxx")
		}
	}
	return text
}

// failed handles a failed read: callers learn that the store does not answer, the log gets the reason.
func (s *Store) failed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w: %w", what, kernel.Refuse(jobs.Unavailable, "%s does not answer", s.dialect.name), err)
}

// query reads rows outside of a commit, until fn returns errEnough. A name that PostgreSQL does not take as text is
// bad input, with every database, and no outage of the database.
func (s *Store) query(ctx context.Context, what string, fn func(scan func(...any) error) error, query string, args ...any) error {
	for _, a := range args {
		if name, ok := a.(string); ok {
			if err := kernel.CheckText(what+": the name", name); err != nil {
				return err
			}
		}
	}
	rows, err := s.db.QueryContext(ctx, s.dialect.ask(query), args...)
	if err = each(rows, err, fn); errors.Is(err, errEnough) {
		return nil
	}
	return s.failed(what, err)
}
