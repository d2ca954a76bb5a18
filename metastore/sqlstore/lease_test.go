package sqlstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A leader that is stopped while it is about to renew its lease, and has no session for it, gives that up.
func TestARenewalThatIsGivenUp(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := open(t, Config{URL: url})
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if at := s.renew(ctx, 1); !at.IsZero() {
			t.Errorf("it was renewed at %v", at)
		}
	})
}

// A leader whose row another node, or one of its own name, has taken leads no more and leaves that one's lease alone,
// and its further commits as a leader are refused.
func TestALeaseThatAnotherHasTaken(t *testing.T) {
	tests.Long(t)
	both(t, func(t *testing.T, url string) {
		a, b := open(t, Config{URL: url, Node: "a", leaseTime: longLease}), open(t, Config{URL: url, Node: "b"})
		type leading struct {
			term uint64
			lost chan struct{} // closed when it has ended
		}
		from := kernel.Instant(time.Now())
		fire := kernel.Fire{Key: "k", Job: jobs.NewID(from), Revision: 1, From: from, To: from.Add(time.Second), Due: []time.Time{from.Add(time.Second)}, Origin: kernel.FromCron}
		for _, by := range []struct {
			node string
			adds uint64 // to the term
		}{{"b", 1}, {"b", 0}, {"a", 1}} {
			ctx, stop := context.WithCancel(t.Context())
			began, done := make(chan leading, 16), make(chan error, 1)
			go func() {
				done <- a.Lead(ctx, func(ctx context.Context, term uint64) error {
					l := leading{term, make(chan struct{})}
					began <- l
					<-ctx.Done()
					close(l.lost)
					return nil
				})
			}()
			var l leading
			select {
			case l = <-began:
			case <-time.After(time.Minute):
				t.Fatal("a does not lead")
			}
			term := l.term
			if r := a.Apply(t.Context(), []kernel.Envelope{envelope(kernel.Lead{Term: term, Node: "a"})}); r[0].Err != nil {
				t.Fatal(r[0].Err)
			}
			taken := term + by.adds
			if _, err := b.db.Exec(b.dialect.ask("UPDATE carillon_leader SET node = ?, term = ?, session = '', until = "+b.dialect.clock+" + ?"), by.node, int64(taken), int64(time.Hour)); err != nil {
				t.Fatal(err)
			}
			select {
			case <-l.lost:
			case <-time.After(time.Minute):
				t.Fatalf("a leads in term %d, and %s has term %d", term, by.node, taken)
			}
			stop()
			if err := <-done; err != nil { // it has released its lease by then
				t.Error(err)
			}
			var node string
			var now, until int64
			var row uint64
			if err := b.db.QueryRow("SELECT node, term, until, "+b.dialect.clock+" FROM carillon_leader WHERE one = 1").Scan(&node, &row, &until, &now); err != nil {
				t.Fatal(err)
			}
			if node != by.node || row != taken || until < now {
				t.Errorf("the row of %s in term %d has become that of %s in term %d, for %v", by.node, taken, node, row, time.Duration(until-now))
			}
			if r := b.Apply(t.Context(), []kernel.Envelope{envelope(kernel.Lead{Term: term + 1, Node: by.node})}); r[0].Err != nil {
				t.Fatal(r[0].Err)
			}
			fire.Term = term
			for _, k := range []kernel.Command{kernel.Lead{Term: term, Node: "a"}, fire} {
				if r := a.Apply(t.Context(), []kernel.Envelope{envelope(k)}); !errors.Is(r[0].Err, jobs.Stale) {
					t.Errorf("%T of the former term: %v", k, r[0].Err)
				}
			}
			if _, err := b.db.Exec("UPDATE carillon_leader SET until = 0"); err != nil {
				t.Fatal(err)
			}
		}
	})
}
