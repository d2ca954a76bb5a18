package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
)

// server is a database that was started here, in a directory of its own, on a socket of its own. All of them keep
// what they have acknowledged, unless a setting changes that: none is faster because it does not sync.
type server struct {
	dir string
	url *url.URL
	cmd *exec.Cmd
	log bytes.Buffer
	as  *syscall.Credential // databases refuse to run as root
}

// launch makes a server's directory and starts it.
func launch(ctx context.Context, kind, dir string, args ...string) (*server, error) {
	s := &server{dir: filepath.Join(dir, kind)}
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		return nil, err
	}
	if err := s.disown(); err != nil {
		return nil, err
	}
	start := map[string]func(context.Context, []string) error{"postgres": s.postgres, "mariadb": s.mariadb, "redis": s.redis}[kind]
	if err := start(ctx, args); err != nil {
		s.stop()
		return nil, fmt.Errorf("%s: %w\n%s", kind, err, s.log.Bytes())
	}
	return s, nil
}

// disown gives the directory to a user other than root.
func (s *server) disown() error {
	if os.Geteuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "mysql", "redis", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		s.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return os.Chown(s.dir, uid, gid)
	}
	return errors.New("the server does not run as root, and no other user was found")
}

func (s *server) command(program string, args ...string) (*exec.Cmd, error) {
	path, err := find(program)
	if err != nil {
		return nil, err
	}
	c := exec.Command(path, args...)
	c.Dir, c.Stdout, c.Stderr = s.dir, &s.log, &s.log
	c.Env = append(os.Environ(), "HOME="+s.dir, "LC_ALL=C")
	c.SysProcAttr = &syscall.SysProcAttr{Credential: s.as, Pdeathsig: syscall.SIGKILL}
	return c, nil
}

func (s *server) run(program string, args ...string) error {
	c, err := s.command(program, args...)
	if err != nil {
		return err
	}
	return c.Run()
}

func (s *server) begin(program string, args ...string) (err error) {
	if s.cmd, err = s.command(program, args...); err != nil {
		return err
	}
	return s.cmd.Start()
}

// postgres has room for what is measured: buffers and a log that is not checkpointed all the time.
func (s *server) postgres(ctx context.Context, args []string) error {
	data := filepath.Join(s.dir, "data")
	if err := s.run("initdb", "-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8"); err != nil {
		return err
	}
	s.url = &url.URL{Scheme: "postgres", User: url.User("bench"), Path: "/postgres", RawQuery: url.Values{"host": {s.dir}}.Encode()}
	args = append([]string{"-D", data, "-k", s.dir, "-h", "", "-c", "fsync=on", "-c", "synchronous_commit=on", "-c", "max_connections=300",
		"-c", "shared_buffers=512MB", "-c", "max_wal_size=4GB"}, args...)
	if err := s.begin("postgres", args...); err != nil {
		return err
	}
	db, err := sql.Open("pgx", s.url.String())
	if err != nil {
		return err
	}
	defer db.Close()
	return s.await(ctx, db.PingContext)
}

func (s *server) mariadb(ctx context.Context, args []string) error {
	data, socket := filepath.Join(s.dir, "data"), filepath.Join(s.dir, "socket")
	if err := s.run("mariadb-install-db", "--no-defaults", "--datadir="+data, "--tmpdir="+s.dir, "--auth-root-authentication-method=normal", "--skip-test-db"); err != nil {
		return err
	}
	args = append([]string{"--no-defaults", "--datadir=" + data, "--tmpdir=" + s.dir, "--socket=" + socket, "--skip-networking", "--pid-file=" + filepath.Join(s.dir, "pid"),
		"--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=512M", "--innodb-log-file-size=1G", "--max-connections=300", "--skip-log-bin"}, args...)
	if err := s.begin("mariadbd", args...); err != nil {
		return err
	}
	c := mysql.NewConfig()
	c.User, c.DBName, c.Net, c.Addr = "root", "mysql", "unix", socket
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	if err := s.await(ctx, db.PingContext); err != nil {
		return err
	}
	s.url = &url.URL{Scheme: "mariadb", User: url.User("root"), Path: "/bench", RawQuery: url.Values{"socket": {socket}}.Encode()}
	_, err = db.ExecContext(ctx, "CREATE DATABASE bench")
	return err
}

// open connects to a SQL database.
func (s *server) open() (*sql.DB, error) {
	if s.url.Scheme == "postgres" {
		return sql.Open("pgx", s.url.String())
	}
	c := mysql.NewConfig()
	c.User, c.DBName, c.Net, c.Addr = "root", "bench", "unix", filepath.Join(s.dir, "socket")
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// redis keeps its data by an append-only file or not at all: no snapshots, which would fork while it is measured.
func (s *server) redis(ctx context.Context, args []string) error {
	socket := filepath.Join(s.dir, "socket")
	s.url = &url.URL{Scheme: "unix", Path: socket}
	if err := s.begin("redis-server", append([]string{"--port", "0", "--unixsocket", socket, "--dir", s.dir, "--save", ""}, args...)...); err != nil {
		return err
	}
	return s.await(ctx, func(context.Context) error { _, err := os.Stat(socket); return err })
}

// await waits until the server answers.
func (s *server) await(ctx context.Context, ping func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := ping(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (s *server) stop() {
	if s != nil && s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
}

// version returns the first line of a program's version output.
func version(program string) string {
	path, err := find(program)
	if err != nil {
		return ""
	}
	out, err := exec.Command(path, "--version").Output()
	if err != nil {
		return ""
	}
	line, _, _ := bytes.Cut(out, []byte("\n"))
	return string(line)
}
