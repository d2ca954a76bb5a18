package sqlstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// candidate is a node that would like to lead.
type candidate struct {
	*Store
	leads chan uint64 // the terms that it begins
}

func stand(t *testing.T, url, node string) candidate {
	c := candidate{open(t, Config{URL: url, Node: node, leaseTime: longLease}), make(chan uint64, 16)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Lead(ctx, func(ctx context.Context, term uint64) error {
			c.leads <- term
			<-ctx.Done()
			return nil
		}); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return c
}

// soon waits for the next term.
func (c candidate) soon(t *testing.T) {
	t.Helper()
	select {
	case <-c.leads:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s does not lead", c.cfg.Node)
	}
}

// never checks that it does not lead after a few attempts.
func (c candidate) never(t *testing.T) {
	t.Helper()
	select {
	case term := <-c.leads:
		t.Fatalf("%s leads, in term %d", c.cfg.Node, term)
	case <-time.After(2 * time.Second):
	}
}

// crash ends all that a node has with its database, as the end of its process would.
func (s *Store) crash(t *testing.T) {
	t.Helper()
	s.session.end()
	if err := s.db.Close(); err != nil {
		t.Fatal(err)
	}
}

// says waits until the row names the leader's session, or none.
func (s *Store) says(t *testing.T, some bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var session string
		if err := s.db.QueryRow("SELECT session FROM carillon_leader").Scan(&session); err != nil {
			t.Fatal(err)
		}
		if some == (session != "") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the leader is in session %q", session)
		}
	}
}

// forever has the leader's lease last longer than any test.
func (s *Store) forever(t *testing.T) {
	t.Helper()
	if _, err := s.db.Exec("UPDATE carillon_leader SET until = " + s.dialect.clock + " + 3600000000000"); err != nil {
		t.Fatal(err)
	}
}

// A node that takes over from a dead leader does not wait for its lease: its session is gone.
func TestADeadLeaderIsNotWaitedFor(t *testing.T) {
	tests.Long(t)
	both(t, func(t *testing.T, url string) {
		a := stand(t, url, "a")
		a.soon(t)
		a.says(t, true)
		b := stand(t, url, "b")
		b.never(t)
		a.crash(t)
		b.forever(t)
		b.soon(t)
		b.says(t, true) // and so does the next one
	})
}

// kill ends the session that holds the leader's lock, if there is one, as a person may.
func (s *Store) kill(t *testing.T) {
	t.Helper()
	query := "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = 727469112 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
	if s.dialect == mariadb {
		var id *int
		if err := s.db.QueryRow("SELECT IS_USED_LOCK(CONCAT('carillon.', MD5(DATABASE())))").Scan(&id); err != nil {
			t.Fatal(err)
		}
		if id == nil {
			return
		}
		query = fmt.Sprintf("KILL %d", *id)
	}
	if _, err := s.db.Exec(query); err != nil {
		t.Fatal(err)
	}
}

// A leader whose session was ended is replaced at once, and has not noticed that for as long as it is not to renew its
// lease. What the next one acknowledges it reads nevertheless.
func TestALeaderWhoseSessionWasEnded(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		a := stand(t, url, "a")
		a.soon(t)
		a.says(t, true)
		b := stand(t, url, "b")
		renewed := func() (at int64) {
			if err := b.db.QueryRow("SELECT until FROM carillon_leader WHERE one = 1").Scan(&at); err != nil {
				t.Fatal(err)
			}
			return at
		}
		for led := false; !led; {
			was := renewed()
			within(t, "the lease is renewed", func() bool { return renewed() != was })
			b.kill(t)
			select {
			case <-b.leads:
				led = true
			case <-time.After(2 * time.Second): // the former leader has it again
			}
		}
		do(t, b.Store, register("k"))
		if err := a.Linearizable(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Definition(t.Context(), jobs.DefaultTenant, "k"); err != nil {
			t.Errorf("it is up to date, and lacks what was acknowledged: %v", err)
		}
	})
}

// A leader that has no session is waited for, whichever node could have the lock.
func TestALeaderWithoutASession(t *testing.T) {
	tests.Long(t)
	both(t, func(t *testing.T, raw string) {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		q.Set("sessions", "off")
		u.RawQuery = q.Encode()
		a := stand(t, u.String(), "a")
		a.soon(t)
		a.says(t, false)
		b := stand(t, raw, "b")
		b.never(t)
		// One that is frozen does not lose its session, but its lease.
		c, err := b.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer hangUp(c)
		var held bool
		for end := time.Now().Add(30 * time.Second); !held; {
			if err := c.QueryRowContext(t.Context(), "SELECT "+b.dialect.holds).Scan(&held); err != nil {
				t.Fatal(err)
			}
			if time.Now().After(end) {
				t.Fatal("a standby keeps the lock")
			}
		}
		a.crash(t)
		if _, err := b.db.Exec("UPDATE carillon_leader SET until = 0, session = " + b.dialect.server); err != nil {
			t.Fatal(err)
		}
		b.soon(t)
		b.says(t, false)
		hangUp(c)
		b.says(t, true)
	})
}

func TestSessionsAreOnOrOff(t *testing.T) {
	if _, err := Open(t.Context(), Config{URL: "postgres://user@localhost/x?sessions=maybe"}); jobs.CodeOf(err) != jobs.BadInput {
		t.Error(err)
	}
}

// Behind a pooler a session is not its leader's own: the lease alone counts.
func TestAPoolerIsNoticed(t *testing.T) {
	tests.Long(t)
	u, err := url.Parse(sqltest.Postgres.New(t))
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	network, address := "tcp", u.Host
	if dir := q.Get("host"); dir != "" {
		port := q.Get("port")
		if port == "" {
			port = "5432"
		}
		network, address = "unix", filepath.Join(dir, ".s.PGSQL."+port)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go pool(client, network, address)
		}
	}()
	q.Del("host")
	q.Del("port")
	q.Set("sslmode", "disable")
	direct := u.String()
	u.Host, u.RawQuery = l.Addr().String(), q.Encode()
	a := stand(t, u.String(), "a")
	a.soon(t)
	a.says(t, false)
	b := stand(t, direct, "b")
	b.never(t)
	b.says(t, false)
}

// pool passes on all traffic, and gives the client the ID of an invented process, as poolers do.
func pool(client net.Conn, network, address string) {
	defer client.Close()
	server, err := net.Dial(network, address)
	if err != nil {
		return
	}
	defer server.Close()
	go func() { _, _ = io.Copy(server, client); _ = server.(interface{ CloseWrite() error }).CloseWrite() }()
	for {
		head := make([]byte, 5)
		if _, err := io.ReadFull(server, head); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(server, body); err != nil {
			return
		}
		if head[0] == 'K' {
			binary.BigEndian.PutUint32(body, 1)
		}
		if _, err := client.Write(append(head, body...)); err != nil {
			return
		}
	}
}

// The cost of a standby, each time it checks whether the leader lives.
func BenchmarkStandBy(b *testing.B) {
	for name, kind := range map[string]*sqltest.Kind{"PostgreSQL": sqltest.Postgres, "MariaDB": sqltest.MariaDB} {
		b.Run(name, func(b *testing.B) {
			s, err := Open(b.Context(), Config{URL: kind.New(b)})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			if err := s.session.begin(s.cfg); err != nil {
				b.Fatal(err)
			}
			defer s.session.end()
			for b.Loop() {
				if _, _, _, ok := s.free(b.Context()); !ok {
					b.Fatal("there is no session")
				}
			}
		})
	}
}

// A leader whose duties fail releases its lease, so that the next one need not wait.
func TestAFailedDutyLetsGo(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := open(t, Config{URL: url, leaseTime: longLease})
		broken := errors.New("it cannot be done here")
		if err := s.Lead(t.Context(), func(context.Context, uint64) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("leading ended with %v", err)
		}
		var until, term int64
		if err := s.db.QueryRow("SELECT until, term FROM carillon_leader WHERE one = 1").Scan(&until, &term); err != nil || until != 0 || term != 1 {
			t.Errorf("term %d, until %d (%v)", term, until, err)
		}
	})
}
