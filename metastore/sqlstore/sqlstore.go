// Package sqlstore is a store in PostgreSQL or MariaDB, for users that operate a database already: the database keeps
// the log of commits and the finished runs, and every process has the live rows in memory.
//
// It is not promised to programs outside this module.
//
//	s, err := sqlstore.Open(ctx, sqlstore.Config{URL: "postgres://carillon:secret@db/carillon"})
//
// Where to start: Open, which puts the parts together: a replica.Replica over a dblog.Log; logtable.go, the log as
// tables; history.go, the finished runs. The tables are in migrations.
//
// Sharp edges: any number of processes may open the same database, one of them leads ([Store.Lead]), and only that one
// commits. The database's clock is the store's clock. A commit is as durable as the database makes it: see
// [Store.Durability].
package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/replica"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog"
)

// Config is the database and its use.
type Config struct {
	// URL is postgres://user:password@host:5432/database?sslmode=verify-full, or
	// mariadb://user:password@host:3306/database (mysql:// is the same). With the parameter sessions=off the end of a
	// connection does not prove that a leader is dead: for poolers that lend a connection to many clients.
	URL string
	// Node is this process's name, which readers of the leader see. Default: node.
	Node string
	// Connections is the most connections that are open at the same time, beside three for the log and one that shows
	// whether the leader lives. Default: 10.
	Connections int
	// Copy has this process keep the rows in memory in any case. Default: the leader and two standbys do, and other
	// processes know no rows ([Store.Whole]) until one of those is gone.
	Copy bool
	// Live has the leader keep unfinished runs in the table carillon_live, for queries of users.
	Live bool
	// Logger gets messages for operators; default: none.
	Logger *slog.Logger
	// Now is the clock that commits are stamped by; nil means the database's, which all processes share.
	Now func() time.Time

	knows     uint32        // the newest version of the rules that this program knows; default: kernel.ApplyVersion
	leaseTime time.Duration // how long a lease of leadership lasts; default: dblog.DefaultLease
	reachTime time.Duration // how long the first answer may take; default: reachTime
	patience  time.Duration // how long a statement may take that commits; default: patience
	silence   time.Duration // how long a transaction may be idle; default: silence; negative: for ever
	// snapshotAfter is how many bytes of log lie between two snapshots; default: snapshotAfter
	snapshotAfter int64
	checkEvery    time.Duration                           // how often nodes compare their rows; default: as with raft
	liveEvery     time.Duration                           // how often some of carillon_live are written; default: liveEvery
	pooled        bool                                    // there is a pooler in front of PostgreSQL
	direct        bool                                    // there is none: a session of PostgreSQL is ours
	prepared      bool                                    // MariaDB prepares each statement, as the driver does with long ones
	through       func(driver.Connector) driver.Connector // the way to the database, but of the session; nil = directly
	wires         *wires                                  // of all connections; nil = they are not known
}

const (
	// maxEntry is how long an entry of several commands may be: a database reads and writes several entries at once.
	maxEntry = 1 << 20
	// logConnections are those of the log: one statement writes at a time, and another may read.
	logConnections = 3
	// snapshotAfter is as long as in other logs.
	snapshotAfter = 64 << 20
	// replayTime is how long a start may take to apply the log, about.
	replayTime = time.Second
	// patience is how long a statement may take before it is sent again.
	patience = 30 * time.Second
	// silence is how long a process that writes finished runs may be idle in a transaction before the database ends it: one
	// that is frozen, or cut off, in the middle would block the next leader until the database noticed that it is gone,
	// perhaps for hours. A healthy one is idle for milliseconds.
	silence = 4 * time.Second
)

// Store is a store in a database.
type Store struct {
	*replica.Replica
	cfg        Config
	dialect    *dialect
	db         *sql.DB
	logDB      *sql.DB // of the log alone: no query that takes long holds up a commit
	logger     *slog.Logger
	episodes   *episode.Log
	durability string
	packet     int // how many bytes the database takes at once; 0 = any
	machine    *replica.Machine
	history    *history
	live       live
	now        func() time.Time
	log        *dblog.Log
	session    session
	leasesOnly bool       // sessions cannot be relied on
	placing    sync.Mutex // guards places.place
	places     places
	duties     sync.WaitGroup
	led        atomic.Pointer[time.Time] // until when some node leads, as this one last read it

	failing  sync.Once
	failures chan error
	broken   context.Context // ends with the error after which the store does nothing more
	breaks   context.CancelCauseFunc

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
}

var (
	_ metastore.Full     = (*Store)(nil)
	_ metastore.Measured = (*Store)(nil)
	_ metastore.Retainer = (*Store)(nil)
)

// Open connects, updates the tables, checks whether the database keeps what it acknowledges, and reads the rows. A
// database that may lose commits is opened all the same, with a warning; a replica is refused.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s, err := dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := s.begin(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// reachTime is how long a database may take for its first answer. One that is frozen, or behind a network that drops
// packets, takes for ever.
const reachTime = 20 * time.Second

// dial connects, and changes nothing.
func dial(ctx context.Context, cfg Config) (*Store, error) {
	s, err := prepared(cfg)
	if err != nil {
		return nil, err
	}
	within := cmp.Or(cfg.reachTime, reachTime)
	reaching, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("no answer within %v", within))
	defer cancel()
	if err := s.reach(reaching); err != nil {
		if reaching.Err() != nil {
			err = context.Cause(reaching)
		}
		_ = s.Close()
		return nil, kernel.Refuse(jobs.Unavailable, "%s cannot be reached: %s", s.dialect.name, quiet(err, cfg.URL))
	}
	s.cfg.through = nil
	return s, nil
}

// reach makes a connection, and finds out whether it is a pooler's.
func (s *Store) reach(ctx context.Context) error {
	c, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if s.dialect != postgres {
		return nil
	}
	if s.cfg.pooled, err = throughPooler(ctx, c); err != nil {
		return err
	}
	s.cfg.direct = !s.cfg.pooled // a pooler refuses connections with most settings
	return s.reopen()
}

// reopen makes new pools of connections.
func (s *Store) reopen() (err error) {
	s.closePools() // nothing uses them yet
	if s.dialect, s.db, err = connect(s.cfg); err != nil {
		return err
	}
	s.db.SetMaxOpenConns(s.cfg.Connections)
	s.db.SetMaxIdleConns(s.cfg.Connections)
	s.db.SetConnMaxIdleTime(5 * time.Minute)
	if _, s.logDB, err = connect(s.cfg); err != nil {
		return err
	}
	s.logDB.SetMaxOpenConns(logConnections)
	s.logDB.SetMaxIdleConns(logConnections)
	return nil
}

// closePools closes what reopen has made.
func (s *Store) closePools() (err error) {
	for _, db := range []*sql.DB{s.db, s.logDB} {
		if db != nil {
			err = errors.Join(err, db.Close())
		}
	}
	return err
}

// prepared is a store with its pool of connections, none of which is open yet.
func prepared(cfg Config) (*Store, error) {
	cfg.Node = cmp.Or(cfg.Node, "node")
	if cfg.Connections <= 0 {
		cfg.Connections = 10
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.leaseTime, cfg.patience, cfg.silence = cmp.Or(cfg.leaseTime, dblog.DefaultLease), cmp.Or(cfg.patience, patience), cmp.Or(cfg.silence, silence)
	cfg.knows = cmp.Or(cfg.knows, kernel.ApplyVersion)
	cfg.snapshotAfter = cmp.Or(cfg.snapshotAfter, snapshotAfter)
	direct, off, err := withoutSessions(cfg.URL)
	if err != nil {
		return nil, kernel.Invalid("invalid URL of the database: %v: want on or off", err)
	}
	cfg.URL, cfg.wires = direct, new(wires)
	s := &Store{cfg: cfg, logger: cfg.Logger, episodes: episode.New(cfg.Logger), leasesOnly: off, failures: make(chan error, 1), places: newPlaces()}
	if err := s.reopen(); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.broken, s.breaks = context.WithCancelCause(context.Background())
	return s, nil
}

func (s *Store) begin(ctx context.Context) (err error) {
	if s.durability, err = s.dialect.examine(ctx, s.db); err != nil {
		return err
	}
	if s.dialect.packet != nil {
		if s.packet, err = s.dialect.packet(ctx, s.db); err != nil {
			return err
		}
	}
	if s.durability != durable {
		s.logger.Warn("the database does not keep all it acknowledges", "database", s.dialect.name, "lost", s.durability)
	}
	if err := s.migrate(ctx); err != nil {
		return err
	}
	s.cfg.wires.wait(answerTime)
	return s.load(ctx)
}

// load reads the rows, and follows the log from then on.
func (s *Store) load(ctx context.Context) (err error) {
	var log atomic.Pointer[dblog.Log]
	s.history = newHistory(historyConfig{db: s.db, dialect: s.dialect, episodes: s.episodes, byEnd: s.cfg.Now != nil,
		leads: func() bool { l := log.Load(); return l != nil && l.Leads() }})
	var changed func(*kernel.Run)
	if s.cfg.Live {
		changed = s.live.note
	}
	s.machine = replica.NewMachine(replica.MachineConfig{History: s.history, Knows: s.cfg.knows, Fail: s.fail, Diverged: func(err error) { log.Load().ReadAgain(err) },
		SnapshotAfter: s.cfg.snapshotAfter, Replay: replayTime, Trailing: s.cfg.snapshotAfter, Changed: changed})
	s.log = dblog.New(dblog.Config{Database: logTable{s, s.logDB}, Machine: s.machine, Node: s.cfg.Node, Logger: s.logger,
		Forget: s.history.forget, Applying: s.history.applying, Settled: s.history.settled, Alone: s.session.alone,
		Lease: s.cfg.leaseTime, Statement: s.packet / packetShare})
	log.Store(s.log)
	context.AfterFunc(s.broken, func() { _ = s.log.Close() })
	if s.now = s.cfg.Now; s.now == nil {
		s.now = s.log.Now
	}
	largest := 0
	if s.packet > 0 {
		largest = s.packet - packetRest
	}
	s.Replica = replica.New(replica.Config{Machine: s.machine, Log: s.log, Now: s.now, MaxEntry: maxEntry, Largest: largest})
	return s.beginFollowing(ctx)
}

// unread is the error of rows that could not be read.
func (s *Store) unread(err error) error {
	if errors.Is(err, metastore.ErrTooOld) {
		return fmt.Errorf("read the store in this %s: %w", s.dialect.name, err)
	}
	return kernel.Refuse(jobs.Unavailable, "read the store in this %s: %s", s.dialect.name, quiet(err, s.cfg.URL))
}

// fail ends the store for good: its rows are no longer those of the log.
func (s *Store) fail(err error) {
	s.failing.Do(func() {
		s.logger.Error("store failed", "database", s.dialect.name, "err", err)
		s.failures <- err
		close(s.failures)
		s.breaks(err)
	})
}

// Err delivers the one error after which the store does nothing more, such as metastore.ErrTooOld: the process should end.
func (s *Store) Err() <-chan error { return s.failures }

// Apply applies a batch of commands, if this node leads.
func (s *Store) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	if s.broken.Err() != nil {
		return metastore.Refused(batch, kernel.Refuse(jobs.Unavailable, "not done: %v", context.Cause(s.broken)))
	}
	return s.Replica.Apply(ctx, batch)
}

// Retain purges finished runs and log lines. The age of a run is the time since it was stored.
func (s *Store) Retain(ctx context.Context, r metastore.Retention) (done metastore.Retained, err error) {
	if !s.Whole() {
		return done, metastore.ErrNotWhole
	}
	if err := s.history.settled(ctx); err != nil {
		return done, err
	}
	if done, err = s.history.Retain(ctx, r); err == nil && r.Logs > 0 {
		err = s.dropLines(ctx, r.Now.Add(-r.Logs))
	}
	return done, err
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

// Close ends the store. What was acknowledged stays. It waits a moment for a database that does not answer.
func (s *Store) Close() error {
	time.AfterFunc(closeTime, s.cfg.wires.end) // also those of abandoned calls
	s.cancel()
	s.duties.Wait()
	s.leavePlace()
	if s.log != nil {
		_ = s.log.Close() // it has no error
	}
	if s.history != nil {
		s.history.close()
	}
	s.session.drop()
	s.episodes.Reset()
	if err := s.closePools(); err != nil && !s.cfg.wires.ended() { // what drivers report of ended wires is no failure
		return err
	}
	return nil
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
		c, err := pgx.ParseConfig(raw)
		if err != nil {
			return nil, nil, kernel.Invalid("the URL of the database: %s", quiet(err, raw))
		}
		if cfg.pooled && c.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
			c.DefaultQueryExecMode = pgx.QueryExecModeExec // a prepared statement would be another connection's
		}
		maps.Copy(c.RuntimeParams, postgresPooled)
		if cfg.direct {
			maps.Copy(c.RuntimeParams, postgresSession)
		}
		c.DialFunc = pgconn.DialFunc(cfg.wires.dial(dialing(c.DialFunc)))
		return postgres, cfg.pool(stdlib.GetConnector(*c, stdlib.OptionAfterConnect(cfg.settle))), nil
	case "mariadb", "mysql":
		c, err := mariadbConfig(u, cfg)
		if err != nil {
			return nil, nil, err
		}
		c.DialFunc = cfg.wires.dial(new(net.Dialer).DialContext)
		if cfg.Logger != nil {
			c.Logger = driverLog{cfg.Logger}
		}
		connector, err := mysql.NewConnector(c)
		if err != nil {
			return nil, nil, kernel.Invalid("the URL of the database: %s", quiet(err, raw))
		}
		return mariadb, cfg.pool(connector), nil
	}
	return nil, nil, kernel.Invalid("invalid URL of the database: it begins with %.20q, want postgres, mariadb or mysql", u.Scheme)
}

func (c Config) pool(to driver.Connector) *sql.DB {
	if c.through != nil {
		to = c.through(to)
	}
	return sql.OpenDB(to)
}

// driverLog takes what the driver would write to the standard error: that of broken connections, which we report, too.
type driverLog struct{ *slog.Logger }

// Print logs for those who debug.
func (l driverLog) Print(v ...any) { l.Debug("database driver", "err", fmt.Sprint(v...)) }

// mariadbConfig is the driver's configuration, from a URL.
func mariadbConfig(u *url.URL, cfg Config) (*mysql.Config, error) {
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
	c.InterpolateParams = !cfg.prepared // one round trip for each statement
	c.Collation = "utf8mb4_bin"
	c.MaxAllowedPacket = 0 // the server's limit
	// What a session is like must not depend on the server, or on the user: the clock is read as a local time, and an hour
	// of local time may come twice, others read uncommitted rows, and modes change what a statement means. MySQL and
	// MariaDB have settings that the other one lacks, and takes for comments.
	c.Params = map[string]string{"@carillon": "1, " + strings.Join(append(mariadbSession, fmt.Sprintf("/*M! , idle_transaction_timeout = %d */", max(0, int(cfg.silence.Seconds())))), " ")}
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

// errEnough ends a query early.
var errEnough = errors.New("enough")

// query reads rows until fn returns errEnough. A name that PostgreSQL does not take as text is
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
