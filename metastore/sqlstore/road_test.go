package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

func onBoth(t *testing.T, test func(t *testing.T, kind *sqltest.Kind)) {
	for name, kind := range map[string]*sqltest.Kind{"PostgreSQL": sqltest.Postgres, "MariaDB": sqltest.MariaDB} {
		t.Run(name, func(t *testing.T) { test(t, kind) })
	}
}

// A later term's leader replaces an earlier one's announcement, and not the other way round. Each withdraws its own.
func TestAnnounce(t *testing.T) {
	onBoth(t, func(t *testing.T, kind *sqltest.Kind) {
		s := open(t, Config{URL: kind.New(t)})
		if r, err := s.Announced(t.Context()); err != nil || r.Term != 0 {
			t.Errorf("at first: %+v (%v)", r, err)
		}
		for _, r := range []Road{{3, "a", "127.0.0.1:1", []byte("0123456789abcdef0123456789abcdef")}, {2, "b", "127.0.0.1:2", nil}} {
			if err := s.Announce(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := s.Announced(t.Context()); err != nil || r.Term != 3 || r.Node != "a" || r.Address != "127.0.0.1:1" || len(r.Certificate) != 32 {
			t.Errorf("%+v (%v)", r, err)
		}
		if err := s.Announce(t.Context(), Road{4, "b", "127.0.0.1:2", nil}); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Announced(t.Context()); err != nil || r.Node != "b" || r.Certificate != nil {
			t.Errorf("%+v (%v)", r, err)
		}
		for _, end := range []struct{ term, left uint64 }{{3, 4}, {4, 0}} {
			if err := s.Withdraw(t.Context(), end.term); err != nil {
				t.Fatal(err)
			}
			if r, err := s.Announced(t.Context()); err != nil || r.Term != end.left {
				t.Errorf("after the end of term %d: %+v (%v)", end.term, r, err)
			}
		}
		if err := s.Announce(t.Context(), Road{3, "a", "127.0.0.1:1", nil}); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Announced(t.Context()); err != nil || r.Term != 0 {
			t.Errorf("an earlier term's leader: %+v (%v)", r, err)
		}
	})
}

// A token opens the bus for as long as its process says so, and no row of the database has it.
func TestPeers(t *testing.T) {
	onBoth(t, func(t *testing.T, kind *sqltest.Kind) {
		s := open(t, Config{URL: kind.New(t), Node: "a"})
		if _, err := s.Peer(t.Context(), "secret"); !errors.Is(err, jobs.Forbidden) {
			t.Errorf("a token that no process has: %v", err)
		}
		for range 2 {
			if err := s.StayPeer(t.Context(), "secret"); err != nil {
				t.Fatal(err)
			}
		}
		if node, err := s.Peer(t.Context(), "secret"); err != nil || node != "a" {
			t.Errorf("%q (%v)", node, err)
		}
		var clear int
		if err := s.db.QueryRow(s.dialect.ask("SELECT COUNT(*) FROM carillon_peers WHERE token = ?"), []byte("secret")).Scan(&clear); err != nil || clear != 0 {
			t.Errorf("%d rows have the token itself (%v)", clear, err)
		}
		if _, err := s.db.Exec("UPDATE carillon_peers SET until = until - 61000000000"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Peer(t.Context(), "secret"); !errors.Is(err, jobs.Forbidden) {
			t.Errorf("a minute later: %v", err)
		}
	})
}

// Requests come through the database in any number, with their answers and refusals; one that has expired is not
// answered, and none stays.
func TestRequests(t *testing.T) {
	onBoth(t, func(t *testing.T, kind *sqltest.Kind) {
		url := kind.New(t)
		leader, other := open(t, Config{URL: url, Node: "leader"}), open(t, Config{URL: url, Node: "other"})
		late, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := other.Ask(late, "echo", []byte("late")); jobs.CodeOf(err) != jobs.Unknown {
			t.Errorf("without a leader: %v", err)
		}
		if _, err := other.db.Exec(other.dialect.ask("INSERT INTO carillon_requests (id, until, service, caller, request) VALUES (?, 1, 'echo', 'other', ?)"), bytesOf(jobs.NewID(time.Now())), []byte("late")); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var answering sync.WaitGroup
		answering.Go(func() {
			leader.Answer(ctx, func(_ context.Context, service string, from bus.Principal, request []byte) ([]byte, error) {
				switch {
				case string(request) == "late":
					t.Error("a request was answered too late")
				case service == "refuse":
					return nil, kernel.Refuse(jobs.Conflict, "no: %s", request)
				case from.Role != bus.Node || from.Name != "other":
					t.Errorf("a request of %+v", from)
				}
				return request, nil
			})
		})
		var asking sync.WaitGroup
		for i := range 100 {
			asking.Go(func() {
				want := fmt.Sprintf("%d", i)
				if i == 0 {
					want = "" // an empty answer is one, too
				}
				if answer, err := other.Ask(t.Context(), "echo", []byte(want)); err != nil || string(answer) != want {
					t.Errorf("%q (%v), want %q", answer, err, want)
				}
			})
		}
		asking.Wait()
		if _, err := other.Ask(t.Context(), "refuse", []byte("this")); !errors.Is(err, jobs.Conflict) || err.Error() != "no: this" {
			t.Errorf("a refusal: %v", err)
		}
		stop()
		answering.Wait()
		var left int
		if err := other.db.QueryRow("SELECT COUNT(*) FROM carillon_requests WHERE until > 1").Scan(&left); err != nil || left != 0 {
			t.Errorf("%d requests are left (%v)", left, err)
		}
	})
}

// Where others reach this machine follows from how it reaches the database.
func TestLocalHost(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://u:p@127.0.0.1:5432/d":      "127.0.0.1",
		"postgres://u:p@%2Frun%2Fpostgresql/d": "127.0.0.1",
		"postgres://u:p@no.such.host.invalid/": "127.0.0.1",
		"mariadb://u:p@127.0.0.1/d":            "127.0.0.1",
		"mariadb://u@localhost/d?socket=/s":    "127.0.0.1",
	} {
		if got := (&Store{cfg: Config{URL: url}}).LocalHost(); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
}
