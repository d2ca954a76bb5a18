//go:build linux

package processtest

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
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
	// running is the outcome on a node that runs, 0 = a running node does not get into it; starting on one that starts.
	running, starting outcome
	code              int    // of a node that ends
	line              string // that the log of one that does not end must have, "" = any about the situation
	begin, end        func(*scene)
	// env is added to the environment of the nodes, and less to that of the one that starts in the situation; standby: there
	// is a second node, with another way to the database.
	env, less []string
	standby   bool
}

// outcome is what becomes of a node in a situation.
type outcome int

const (
	goesOn  outcome = iota + 1 // it leads, and runs start
	refuses                    // it leads, and refuses new runs
	cutOff                     // nothing starts here, and another node leads
	away                       // nothing starts anywhere
	ends                       // it ends by itself
)

const (
	onPostgres = "PostgreSQL"
	onMariaDB  = "MariaDB"
	onRaft     = "own log"
)

var databases = []string{onPostgres, onMariaDB}

const leadershipLost = "leadership was lost"

var situations = []situation{
	{name: "the database is stopped", stores: databases, running: away, starting: ends, code: 6, line: leadershipLost,
		begin: func(s *scene) { s.server.Kill() }, end: func(s *scene) { s.must(s.server.Again()) }},
	{name: "the database is frozen", stores: databases, running: away, starting: ends, code: 6, line: leadershipLost,
		begin: func(s *scene) { s.signal(syscall.SIGSTOP) }, end: func(s *scene) { s.signal(syscall.SIGCONT) }},
	{name: "the network to the database is cut", stores: databases, running: away, starting: ends, code: 6, line: leadershipLost,
		begin: func(s *scene) { s.way.Freeze() }, end: func(s *scene) { s.way.Mend() }},
	{name: "the database is read-only", stores: databases, running: away, starting: ends, code: 1, line: leadershipLost, begin: func(s *scene) {
		s.exec(map[string]string{onPostgres: "ALTER DATABASE carillon SET default_transaction_read_only = on", onMariaDB: "SET GLOBAL read_only = 1"})
		s.cut()
	}, end: func(s *scene) {
		s.exec(map[string]string{onPostgres: "BEGIN READ WRITE; ALTER DATABASE carillon RESET default_transaction_read_only; COMMIT", onMariaDB: "SET GLOBAL read_only = 0"})
		s.cut()
	}},
	{name: "the password is changed", stores: databases, running: away, starting: ends, code: 6, line: leadershipLost, begin: func(s *scene) {
		s.exec(map[string]string{onPostgres: "ALTER ROLE scheduler PASSWORD 'changed'", onMariaDB: "ALTER USER scheduler IDENTIFIED BY 'changed'"})
		s.cut()
	}, end: func(s *scene) {
		s.exec(map[string]string{onPostgres: "ALTER ROLE scheduler PASSWORD 'secret'", onMariaDB: "ALTER USER scheduler IDENTIFIED BY 'secret'"})
	}},
	{name: "the disk of the database is full", stores: databases, running: away, starting: away, line: "an entry was not written", begin: func(s *scene) {
		s.exec(map[string]string{onPostgres: `CREATE FUNCTION no_space() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$;
			CREATE TRIGGER no_space BEFORE INSERT ON carillon_log EXECUTE FUNCTION no_space()`,
			onMariaDB: "CREATE TRIGGER no_space BEFORE INSERT ON carillon_log FOR EACH ROW SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1021, MESSAGE_TEXT = 'Disk full'"})
	}, end: func(s *scene) {
		s.exec(map[string]string{onPostgres: "DROP TRIGGER no_space ON carillon_log; DROP FUNCTION no_space", onMariaDB: "DROP TRIGGER no_space"})
	}},
	{name: "the database has lost its last entries", stores: databases, running: goesOn, starting: goesOn, begin: func(s *scene) {
		s.exec(map[string]string{onPostgres: "DELETE FROM carillon_log WHERE seq > (SELECT MAX(seq) - 3 FROM carillon_log)",
			onMariaDB: "DELETE FROM carillon_log ORDER BY seq DESC LIMIT 3"})
		s.cut()
	}},
	{name: "statements may have 1 MiB only", stores: []string{onMariaDB}, running: goesOn, starting: ends, code: 1, begin: func(s *scene) {
		s.exec(map[string]string{onMariaDB: "SET GLOBAL max_allowed_packet = 1048576"})
		s.cut()
	}, end: func(s *scene) {
		s.exec(map[string]string{onMariaDB: "SET GLOBAL max_allowed_packet = 67108864"})
	}},
	{name: "the database has other session settings", stores: databases, running: goesOn, starting: goesOn, begin: func(s *scene) {
		s.exec(map[string]string{onPostgres: `ALTER DATABASE carillon SET client_encoding = 'LATIN1'; ALTER DATABASE carillon SET standard_conforming_strings = off;
			ALTER DATABASE carillon SET "TimeZone" = 'Asia/Tokyo'; ALTER DATABASE carillon SET "DateStyle" = 'German'`,
			onMariaDB: "SET GLOBAL sql_mode = 'ORACLE,NO_BACKSLASH_ESCAPES,ANSI_QUOTES', GLOBAL autocommit = 0, GLOBAL completion_type = 'CHAIN', GLOBAL time_zone = '+09:00'"})
		s.cut()
	}, end: func(s *scene) {
		s.exec(map[string]string{onPostgres: "ALTER DATABASE carillon RESET ALL", onMariaDB: "SET GLOBAL sql_mode = DEFAULT, GLOBAL autocommit = 1, GLOBAL completion_type = 'NO_CHAIN', GLOBAL time_zone = 'SYSTEM'"})
	}},
	{name: "the memory limit is reached", stores: []string{onPostgres, onMariaDB, onRaft}, running: refuses, starting: refuses,
		env: []string{"GOMEMLIMIT=128MiB"}, less: []string{"GOMEMLIMIT=48MiB"}, line: "too little memory", begin: func(s *scene) { s.crowd() }, end: func(s *scene) { s.clear() }},
	{name: "one of two servers is cut off from the database", stores: databases, standby: true, running: cutOff, starting: ends, code: 6, line: leadershipLost,
		begin: func(s *scene) { s.way.Freeze() }, end: func(s *scene) { s.way.Mend() }},
	{name: "two of three nodes are down", stores: []string{onRaft}, running: away, starting: away, line: "no leader is known",
		begin: func(s *scene) { s.others(false) }, end: func(s *scene) { s.others(true) }},
	{name: "the disk of one of three nodes is full", stores: []string{onRaft}, running: ends, starting: ends, code: 1,
		begin: func(s *scene) { s.fill(true) }, end: func(s *scene) { s.fill(false) }},
	{name: "all three nodes have other addresses", stores: []string{onRaft}, starting: away, line: "no leader is known",
		begin: func(s *scene) { s.move() }, end: func(s *scene) { s.move() }},
}

// scene is a store in a situation, with the node that is looked at.
type scene struct {
	t     *testing.T
	store string
	admin *sql.DB
	*databaseServer
	cluster []*seat // all nodes; the first is looked at
	node    *seat
	disk    string
	body    string     // of a request for a run
	args    [][]string // of the nodes at their other addresses
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
	direct string // the URL without the way
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
	s.direct = u.String()
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
		if up && n.process.over() {
			n.begin(s.t)
		} else if !up {
			n.process.kill()
		}
	}
}

// move stops all nodes but the one that is looked at, which is about to start again, and gives all other addresses.
func (s *scene) move() {
	s.others(false)
	for i, n := range s.cluster {
		n.args, s.args[i] = s.args[i], n.args
	}
	s.others(true)
}

// lastingly is how many requests are refused in a row when the memory is full: the node counts what it accepts twice until
// garbage was collected twice, which takes fewer.
const lastingly = 100

// crowd stores runs until the memory limit refuses them.
func (s *scene) crowd() {
	s.t.Helper()
	var text strings.Builder // that does not compress
	for rng := rand.New(rand.NewPCG(1, 2)); text.Len() < 200_000; {
		text.WriteString(strconv.FormatUint(rng.Uint64(), 36))
	}
	s.body = fmt.Sprintf(`{"args":{"text":%q}}`, text.String())
	refused := 0 // in a row
	await(s.t, "the memory limit is reached", func() bool {
		status, answer := s.node.ask(http.MethodPost, "/api/v1/jobs/away.ask/trigger", s.body, answers)
		switch {
		case status == http.StatusTooManyRequests:
			refused++
		case status/100 == 2 || status == http.StatusServiceUnavailable:
			refused = 0
		default:
			s.t.Fatalf("status %d: %s", status, answer)
		}
		return refused == lastingly
	})
}

// clear cancels what waits.
func (s *scene) clear() {
	s.t.Helper()
	await(s.t, "the runs are cancelled", func() bool {
		status, _ := s.node.ask(http.MethodPost, "/api/v1/bulk/runs/cancel", `{"filter":{"state":"Enqueued"}}`, answers)
		return status/100 == 2
	})
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
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=512m,mode=0700"); err != nil {
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

func (n *seat) begin(t *testing.T, more ...string) {
	t.Helper()
	path, err := carillonProgram()
	if err != nil {
		t.Fatal(err)
	}
	n.process = start(t, "node "+n.name, path, slices.Concat(n.env, more), n.args...)
}

// newScene makes a store of a kind with one node on it, with a standby, or with three on their own log.
func newScene(t *testing.T, store string, k *situation) *scene {
	t.Helper()
	s := &scene{t: t, store: store, body: "{}"}
	if store == onRaft {
		s.three()
	} else {
		s.databaseServer = newDatabaseServer(t, map[string]*sqltest.Kind{onPostgres: sqltest.Postgres, onMariaDB: sqltest.MariaDB}[store])
		s.add(t.TempDir()).env = []string{"CARILLON_STORE_URL=" + s.database()}
		if k.standby {
			s.add(t.TempDir()).env = []string{"CARILLON_STORE_URL=" + sqltest.NewWay(t, s.direct).URL}
		}
	}
	s.node = s.cluster[0]
	for _, n := range s.cluster {
		n.env = append(n.env, k.env...)
		n.begin(t)
		if store != onRaft { // the first leads
			n.await(t, "/readyz", http.StatusOK)
		}
	}
	return s
}

// add makes a node, which does not run yet.
func (s *scene) add(data string, args ...string) *seat {
	n := &seat{name: fmt.Sprintf("n%d", len(s.cluster)+1), http: freeport.Address(s.t)}
	n.args = append([]string{"server", "--node", n.name, "--data", data, "--http", n.http, "--nats-addr", freeport.Address(s.t), "--log-format", "text"}, args...)
	s.cluster = append(s.cluster, n)
	return n
}

// three makes three nodes on their own log, with two sets of addresses. The first has a disk of its own.
func (s *scene) three() {
	s.disk = smallDisk(s.t)
	secret := filepath.Join(s.t.TempDir(), "secret")
	s.must(os.WriteFile(secret, []byte("a secret of thirty-two characters"), 0o600))
	for i := range 3 {
		data := s.t.TempDir()
		if i == 0 {
			data = filepath.Join(s.disk, "data")
		}
		s.add(data)
	}
	at := func() (all [][]string) {
		ports := block(s.t, 6) // each node's NATS server has the port after its own
		peers := strings.Join([]string{ports[0], ports[2], ports[4]}, ",")
		for i, n := range s.cluster {
			all = append(all, append(slices.Clone(n.args), "--cluster", ports[2*i], "--cluster-peers", peers, "--cluster-secret-file", secret))
		}
		return all
	}
	first, other := at(), at()
	for i, n := range s.cluster {
		n.args = first[i]
	}
	s.args = other
}
