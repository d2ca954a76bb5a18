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

// A leader whose row another node, or one of its own name, has taken leads no more, leaves that one's lease alone, and
// commits nothing.
func TestALeaseThatAnotherHasTaken(t *testing.T) {
	tests.Long(t)
	both(t, func(t *testing.T, url string) {
		a, b := open(t, Config{URL: url, Node: "a", leaseTime: longLease}), open(t, Config{URL: url, Node: "b"})
		type leading struct {
			term uint64
			lost chan struct{} // closed when it has ended
		}
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
			if r := a.Apply(t.Context(), []kernel.Envelope{envelope(register("k"))}); !errors.Is(r[0].Err, jobs.Unavailable) {
				t.Errorf("a commits after its term: %v", r[0].Err)
			}
			if _, err := b.db.Exec("UPDATE carillon_leader SET until = 0"); err != nil {
				t.Fatal(err)
			}
		}
	})
}
