// Package sqltest gives tests a database: PostgreSQL or MariaDB, started in a temporary directory, without a network.
//
// It is not promised to programs outside this module.
//
//	func TestMain(m *testing.M) { os.Exit(sqltest.Main(m)) }
//	func TestX(t *testing.T)    { url := sqltest.Postgres.New(t) }
//
// To use another server, set CARILLON_TEST_POSTGRES or CARILLON_TEST_MARIADB to the URL of a user that may create
// databases. Without that and without a program to start, tests are skipped with a message; with CI=true they fail.
// By default tests use only PostgreSQL; CARILLON_TESTS=all uses both.
package sqltest

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

// Kind is a kind of server.
type Kind struct {
	name     string
	env      string
	programs []string // needed to start one; * in a path is filled in
	start    func(s *server, programs []string) error
	open     func(url string) (*sql.DB, error)

	once sync.Once
	base *url.URL // of a database that always exists
	err  error
	made atomic.Int64
	run  *server

	mu   sync.Mutex
	used []string // names of databases that tests no longer use
}

// The servers.
var (
	Postgres = &Kind{name: "PostgreSQL", env: "CARILLON_TEST_POSTGRES", programs: []string{"initdb", "postgres"}, start: startPostgres,
		open: func(u string) (*sql.DB, error) { return sql.Open("pgx", u) }}
	MariaDB = &Kind{name: "MariaDB", env: "CARILLON_TEST_MARIADB", programs: []string{"mariadb-install-db", "mariadbd"}, start: startMariaDB, open: openMariaDB}
)

// server is one that was started here.
type server struct {
	dir    string
	url    *url.URL
	cmd    *exec.Cmd
	log    bytes.Buffer
	uid    int // the servers refuse to run as root; 0 = the user of the test
	gid    int
	listen string   // host:port, "" = it has a socket only
	start  []string // the program, and its arguments
}

// Main runs the tests and stops the servers that they have started.
func Main(m *testing.M) int {
	tests.InMemory()
	code := m.Run()
	for _, k := range []*Kind{Postgres, MariaDB} {
		if k.run != nil {
			k.run.stop()
		}
	}
	return code
}

// New is the URL of a new, empty database.
func (k *Kind) New(t testing.TB) string {
	t.Helper()
	if k == MariaDB {
		tests.Long(t)
	}
	k.once.Do(k.begin)
	if errors.Is(k.err, errMissing) {
		tests.Missing(t, fmt.Sprintf("%s: install it, or give the URL of one in %s (%v)", k.name, k.env, k.err))
	}
	if k.err != nil {
		t.Fatalf("start %s: %v", k.name, k.err)
	}
	name, err := k.database()
	if err != nil {
		t.Fatalf("create a database: %v", err)
	}
	u := *k.base
	u.Path = "/" + name
	t.Cleanup(func() {
		if err := k.clear(u.String()); err != nil {
			t.Logf("database %s is not used again: %v", name, err)
			return
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.used = append(k.used, name)
	})
	return u.String()
}

// Bounced is the URL of a PostgreSQL database of New through a PgBouncer, which lends a connection to a client for one
// transaction.
func Bounced(t testing.TB, direct string) string {
	t.Helper()
	path, err := find("pgbouncer")
	if err != nil {
		tests.Missing(t, "PgBouncer: "+err.Error())
	}
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	b := &server{}
	if err := b.prepare(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.stop)
	at := "host=" + u.Query().Get("host")
	if u.Host != "" {
		at = "host=" + u.Hostname() + " port=" + u.Port()
	}
	if password, ok := u.User.Password(); ok {
		at += " password=" + password
	}
	config := filepath.Join(b.dir, "pgbouncer.ini")
	text := "[databases]\n* = " + at + " user=" + u.User.Username() + "\n[pgbouncer]\nunix_socket_dir = " + b.dir +
		"\nlisten_port = 6432\nauth_type = any\npool_mode = transaction\nmax_client_conn = 200\ndefault_pool_size = 20\n"
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	b.start = []string{path, config}
	b.url = &url.URL{Scheme: "postgres", User: u.User, Path: u.Path, RawQuery: url.Values{"host": {b.dir}, "port": {"6432"}, "sslmode": {"disable"}}.Encode()}
	err = b.run()
	if err == nil {
		err = b.await(Postgres.open)
	}
	if err != nil {
		t.Fatalf("start PgBouncer: %v\n%s", err, b.log.Bytes())
	}
	return b.url.String()
}

// Open opens a database that New has made, as a program of its user would.
func (k *Kind) Open(t testing.TB, url string) *sql.DB {
	t.Helper()
	db, err := k.open(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// database is the name of an empty one: a used one, or a new one.
func (k *Kind) database() (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := len(k.used); n > 0 {
		name := k.used[n-1]
		k.used = k.used[:n-1]
		return name, nil
	}
	db, err := k.open(k.base.String())
	if err != nil {
		return "", err
	}
	defer db.Close()
	name := fmt.Sprintf("carillon_test_%d_%d", os.Getpid(), k.made.Add(1))
	_, err = db.Exec("CREATE DATABASE " + name)
	return name, err
}

// clear drops all tables.
func (k *Kind) clear(url string) error {
	db, err := k.open(url)
	if err != nil {
		return err
	}
	defer db.Close()
	schema := "DATABASE()"
	if k == Postgres {
		schema = "'public'"
	}
	rows, err := db.Query("SELECT table_name FROM information_schema.tables WHERE table_schema = " + schema)
	if err != nil {
		return err
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		names = append(names, name)
	}
	if len(names) > 0 {
		_, err = db.Exec("DROP TABLE " + strings.Join(names, ", "))
	}
	return errors.Join(rows.Err(), err)
}

// errMissing: there is no program to start.
var errMissing = errors.New("no program")

func (k *Kind) begin() {
	if given := os.Getenv(k.env); given != "" {
		k.base, k.err = url.Parse(given)
		return
	}
	paths, err := k.paths()
	if err != nil {
		k.err = err
		return
	}
	s := &server{}
	if k.err = s.prepare(); k.err != nil {
		return
	}
	k.run = s
	k.base, k.err = s.begin(k, paths)
}

func (s *server) begin(k *Kind, paths []string) (*url.URL, error) {
	err := k.start(s, paths)
	if err == nil {
		err = s.await(k.open)
	}
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, s.log.Bytes())
	}
	return s.url, nil
}

func (k *Kind) paths() (paths []string, err error) {
	for _, p := range k.programs {
		path, err := find(p)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// find looks for a program where distributions put it.
func find(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin/", "/opt/homebrew/opt/postgresql*/bin/", "/usr/local/pgsql/bin/", "/usr/sbin/", "/usr/local/mysql/bin/"} {
		if found, _ := filepath.Glob(pattern + name); len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return "", fmt.Errorf("%w: %s is not on this machine", errMissing, name)
}

func (s *server) prepare() (err error) {
	// Sockets have short paths.
	if s.dir, err = os.MkdirTemp("", "db"); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "mysql", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		s.uid, s.gid = uid, gid
		return os.Chown(s.dir, uid, gid)
	}
	return errors.New("the server does not run as root, and no other user was found")
}

func (s *server) command(path string, args ...string) *exec.Cmd {
	c := exec.Command(path, args...)
	c.Dir, c.Stdout, c.Stderr = s.dir, &s.log, &s.log
	// The test's own TMPDIR may be closed to the server's user.
	c.Env = append(os.Environ(), "HOME="+s.dir, "TMPDIR="+s.dir, "LC_ALL=C")
	c.SysProcAttr = s.attributes()
	return c
}

func startPostgres(s *server, programs []string) error {
	data := filepath.Join(s.dir, "data")
	if err := s.command(programs[0], "-D", data, "-U", "carillon", "-A", "trust", "-E", "UTF8", "--no-sync").Run(); err != nil {
		return err
	}
	s.url = &url.URL{Scheme: "postgres", User: url.User("carillon"), Path: "/postgres", RawQuery: url.Values{"host": {s.dir}}.Encode()}
	network := []string{"-h", ""}
	if host, port, err := net.SplitHostPort(s.listen); err == nil {
		network = []string{"-h", host, "-p", port}
		s.url.Host, s.url.RawQuery = s.listen, "sslmode=disable"
	}
	// Shared memory is in files of the folder, since a server that is killed leaves it behind.
	s.start = append([]string{programs[1], "-D", data, "-k", s.dir, "-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=200",
		"-c", "dynamic_shared_memory_type=mmap"}, network...)
	return s.run()
}

func startMariaDB(s *server, programs []string) error {
	data := filepath.Join(s.dir, "data")
	if err := s.command(programs[0], "--no-defaults", "--datadir="+data, "--tmpdir="+s.dir, "--auth-root-authentication-method=normal", "--skip-test-db").Run(); err != nil {
		return err
	}
	socket := filepath.Join(s.dir, "socket")
	s.url = &url.URL{Scheme: "mariadb", User: url.User("root"), Path: "/mysql", RawQuery: url.Values{"socket": {socket}}.Encode()}
	network, flush := []string{"--skip-networking"}, "0"
	if host, port, err := net.SplitHostPort(s.listen); err == nil {
		network = []string{"--bind-address=" + host, "--port=" + port}
		flush = "2" // it may be killed: acknowledged writes must have left the process
		s.url.Host, s.url.RawQuery = s.listen, ""
	}
	s.start = append([]string{programs[1], "--no-defaults", "--datadir=" + data, "--tmpdir=" + s.dir, "--socket=" + socket, "--pid-file=" + filepath.Join(s.dir, "pid"),
		"--innodb-flush-log-at-trx-commit=" + flush, "--innodb-flush-method=nosync", "--skip-innodb-doublewrite", "--max-connections=300", "--skip-log-bin"}, network...)
	return s.run()
}

func (s *server) run() error {
	s.cmd = s.command(s.start[0], s.start[1:]...)
	return s.cmd.Start()
}

func openMariaDB(raw string) (*sql.DB, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, err
	}
	c := mysql.NewConfig()
	c.User, c.DBName, c.Net, c.Addr = u.User.Username(), u.Path[1:], "tcp", u.Host
	c.Passwd, _ = u.User.Password()
	if socket := u.Query().Get("socket"); socket != "" {
		c.Net, c.Addr = "unix", socket
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// await waits until the server answers.
func (s *server) await(open func(string) (*sql.DB, error)) error {
	db, err := open(s.url.String())
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		err := db.PingContext(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (s *server) stop() {
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
	_ = os.RemoveAll(s.dir)
}
