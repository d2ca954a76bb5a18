//go:build linux

package processtest

import (
	"database/sql"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-scheduler/carillon/bus/bustest/freeport"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// situation is what may happen to a store.
type situation struct {
	name   string
	stores []string // where it may happen
	// starts: runs start in it, so that a node is ready.
	starts bool
	// exits: a node that starts in it ends, with this code.
	exits      int
	begin, end func(*scene)
}

const (
	onPostgres = "PostgreSQL"
	onMariaDB  = "MariaDB"
	onRaft     = "own log"
)

var databases = []string{onPostgres, onMariaDB}

var situations = []situation{
	{name: "the database is stopped", stores: databases, exits: 6,
		begin: func(s *scene) { s.server.Kill() }, end: func(s *scene) { s.must(s.server.Again()) }},
	{name: "the database is frozen", stores: databases, exits: 6,
		begin: func(s *scene) { s.signal(syscall.SIGSTOP) }, end: func(s *scene) { s.signal(syscall.SIGCONT) }},
	{name: "the network to the database is cut", stores: databases, exits: 6,
		begin: func(s *scene) { s.way.Freeze() }, end: func(s *scene) { s.way.Mend() }},
	{name: "the database is read-only", stores: databases, exits: 1, begin: func(s *scene) {
		s.exec(map[string]string{onPostgres: "ALTER DATABASE carillon SET default_transaction_read_only = on", onMariaDB: "SET GLOBAL read_only = 1"})
		s.cut()
	}, end: func(s *scene) {
		s.exec(map[string]string{onPostgres: "BEGIN READ WRITE; ALTER DATABASE carillon RESET default_transaction_read_only; COMMIT", onMariaDB: "SET GLOBAL read_only = 0"})
		s.cut()
	}},
	{name: "the password is changed", stores: databases, exits: 6, begin: func(s *scene) {
		s.exec(map[string]string{onPostgres: "ALTER ROLE scheduler PASSWORD 'changed'", onMariaDB: "ALTER USER scheduler IDENTIFIED BY 'changed'"})
		s.cut()
	}, end: func(s *scene) {
		s.exec(map[string]string{onPostgres: "ALTER ROLE scheduler PASSWORD 'secret'", onMariaDB: "ALTER USER scheduler IDENTIFIED BY 'secret'"})
	}},
	{name: "the disk of the database is full", stores: databases, begin: func(s *scene) {
		s.exec(map[string]string{onPostgres: `CREATE FUNCTION no_space() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$;
			CREATE TRIGGER no_space BEFORE INSERT ON carillon_log EXECUTE FUNCTION no_space()`,
			onMariaDB: "CREATE TRIGGER no_space BEFORE INSERT ON carillon_log FOR EACH ROW SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1021, MESSAGE_TEXT = 'Disk full'"})
	}, end: func(s *scene) {
		s.exec(map[string]string{onPostgres: "DROP TRIGGER no_space ON carillon_log; DROP FUNCTION no_space", onMariaDB: "DROP TRIGGER no_space"})
	}},
	{name: "the database has lost its last entries", stores: databases, starts: true, begin: func(s *scene) {
		s.exec(map[string]string{onPostgres: "DELETE FROM carillon_log WHERE seq > (SELECT MAX(seq) - 3 FROM carillon_log)",
			onMariaDB: "DELETE FROM carillon_log ORDER BY seq DESC LIMIT 3"})
		s.cut()
	}},
	{name: "statements may have 1 MiB only", stores: []string{onMariaDB}, starts: true, begin: func(s *scene) {
		s.exec(map[string]string{onMariaDB: "SET GLOBAL max_allowed_packet = 1048576"})
		s.cut()
	}, end: func(s *scene) {
		s.exec(map[string]string{onMariaDB: "SET GLOBAL max_allowed_packet = 67108864"})
	}},
	{name: "the database has other session settings", stores: databases, starts: true, begin: func(s *scene) {
		s.exec(map[string]string{onPostgres: `ALTER DATABASE carillon SET client_encoding = 'LATIN1'; ALTER DATABASE carillon SET standard_conforming_strings = off;
			ALTER DATABASE carillon SET "TimeZone" = 'Asia/Tokyo'; ALTER DATABASE carillon SET "DateStyle" = 'German'`,
			onMariaDB: "SET GLOBAL sql_mode = 'ORACLE,NO_BACKSLASH_ESCAPES,ANSI_QUOTES', GLOBAL autocommit = 0, GLOBAL completion_type = 'CHAIN', GLOBAL time_zone = '+09:00'"})
		s.cut()
	}, end: func(s *scene) {
		s.exec(map[string]string{onPostgres: "ALTER DATABASE carillon RESET ALL", onMariaDB: "SET GLOBAL sql_mode = DEFAULT, GLOBAL autocommit = 1, GLOBAL completion_type = 'NO_CHAIN', GLOBAL time_zone = 'SYSTEM'"})
	}},
	{name: "two of three nodes are down", stores: []string{onRaft}, begin: func(s *scene) { s.others(false) }, end: func(s *scene) { s.others(true) }},
	{name: "the disk of the node is full", stores: []string{onRaft}, exits: 1, begin: func(s *scene) { s.fill(true) }, end: func(s *scene) { s.fill(false) }},
}

// scene is a store in a situation, with the node that is looked at.
type scene struct {
	t     *testing.T
	store string
	admin *sql.DB
	*databaseServer
	cluster []*seat // of raft; the first is looked at
	node    *seat
	disk    string
}

func (s *scene) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// databaseServer is a server for one kind of database, and the way to it.
type databaseServer struct {
	kind   *sqltest.Kind
	server *sqltest.Server
	way    *sqltest.Way
}

func newDatabaseServer(t *testing.T, kind *sqltest.Kind) *databaseServer {
	t.Helper()
	d := &databaseServer{kind: kind}
	var err error
	if d.server, err = kind.Serve(freeport.Address(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.server.Stop)
	return d
}

// database makes an empty database with a user whose rights and password are those of an installation.
func (s *scene) database() string {
	s.t.Helper()
	root, err := s.server.Database("carillon")
	s.must(err)
	s.admin = s.kind.Open(s.t, root)
	if s.store == onPostgres {
		var hba string
		s.must(s.admin.QueryRow("SHOW hba_file").Scan(&hba))
		was, err := os.ReadFile(hba)
		s.must(err)
		if rule := "host carillon scheduler 127.0.0.1/32 scram-sha-256\n"; !strings.HasPrefix(string(was), rule) {
			s.must(os.WriteFile(hba, append([]byte(rule), was...), 0o644))
		}
	}
	s.exec(map[string]string{onPostgres: "CREATE ROLE scheduler LOGIN PASSWORD 'secret'; ALTER DATABASE carillon OWNER TO scheduler; ALTER SCHEMA public OWNER TO scheduler; SELECT pg_reload_conf()",
		onMariaDB: "CREATE USER scheduler IDENTIFIED BY 'secret'"})
	if s.store == onMariaDB {
		s.exec(map[string]string{onMariaDB: "GRANT ALL ON carillon.* TO scheduler"})
	}
	u, err := url.Parse(root)
	s.must(err)
	u.User = url.UserPassword("scheduler", "secret")
	s.way = sqltest.NewWay(s.t, u.String())
	return s.way.URL
}

func (s *scene) exec(by map[string]string) {
	s.t.Helper()
	if _, err := s.admin.Exec(by[s.store]); err != nil {
		s.t.Fatalf("%s: %v", by[s.store], err)
	}
}

// cut ends the connections of the scheduler.
func (s *scene) cut() {
	s.t.Helper()
	if s.store == onPostgres {
		_, err := s.admin.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'scheduler'")
		s.must(err)
		return
	}
	_, err := s.admin.Exec("KILL USER scheduler")
	s.must(err)
}

// signal signals all processes of the database.
func (s *scene) signal(sig syscall.Signal) {
	s.t.Helper()
	all := []int{s.server.PID()}
	for i := 0; i < len(all); i++ {
		all = append(all, childrenOf(all[i])...)
	}
	for _, pid := range all {
		_ = syscall.Kill(pid, sig) // a child may have ended
	}
}

func childrenOf(parent int) (list []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(raw), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			list = append(list, pid)
		}
	}
	return list
}

// others stops the other nodes of a cluster, or starts them.
func (s *scene) others(up bool) {
	for _, n := range s.cluster[1:] {
		if up {
			n.begin(s.t)
		} else {
			n.process.kill()
		}
	}
}

// fill leaves no room on the disk of the node, or makes some.
func (s *scene) fill(full bool) {
	s.t.Helper()
	ballast := filepath.Join(s.disk, "ballast")
	if !full {
		s.must(os.Remove(ballast))
		return
	}
	f, err := os.Create(ballast)
	s.must(err)
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
}

// smallDisk mounts a disk of its own for a node.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m,mode=0700"); err != nil {
		t.Fatalf("cannot mount a disk that can be full: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// seat is a node of a scene, which keeps its settings when its process goes and comes.
type seat struct {
	name, http string
	env, args  []string
	process    *process
}

func (n *seat) begin(t *testing.T) {
	t.Helper()
	path, err := carillonProgram()
	if err != nil {
		t.Fatal(err)
	}
	n.process = start(t, "node "+n.name, path, n.env, n.args...)
}

// newScene makes a store of a kind with one node on it, or three on their own log.
func newScene(t *testing.T, store string) *scene {
	t.Helper()
	s := &scene{t: t, store: store}
	if store != onRaft {
		s.databaseServer = newDatabaseServer(t, map[string]*sqltest.Kind{onPostgres: sqltest.Postgres, onMariaDB: sqltest.MariaDB}[store])
		n := &seat{name: "n1", http: freeport.Address(t), env: []string{"CARILLON_STORE_URL=" + s.database()}}
		n.args = []string{"server", "--node", "n1", "--data", t.TempDir(), "--http", n.http, "--nats-addr", freeport.Address(t), "--log-format", "text"}
		s.node = n
		n.begin(t)
		return s
	}
	s.disk = smallDisk(t)
	ports := block(t, 6)
	secret := filepath.Join(t.TempDir(), "secret")
	s.must(os.WriteFile(secret, []byte("a secret of thirty-two characters"), 0o600))
	peers := strings.Join([]string{ports[0], ports[2], ports[4]}, ",")
	for i := range 3 {
		n := &seat{name: fmt.Sprintf("n%d", i+1), http: freeport.Address(t)}
		data := filepath.Join(s.disk, n.name)
		if i > 0 {
			data = t.TempDir()
		}
		n.args = []string{"server", "--node", n.name, "--data", data, "--http", n.http, "--nats-addr", freeport.Address(t), "--log-format", "text",
			"--cluster", ports[2*i], "--cluster-nats", ports[2*i+1], "--cluster-peers", peers, "--cluster-secret-file", secret}
		s.cluster = append(s.cluster, n)
		n.begin(t)
		n.await(t, "/readyz", http.StatusOK)
	}
	s.node = s.cluster[0]
	return s
}
