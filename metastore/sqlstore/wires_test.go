package sqlstore

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// A database that is frozen, or cut off, keeps no store from its end: neither a leader with entries and finished runs
// under way, nor a transaction that waits for its commit.
func TestAStoreEndsWithoutItsDatabase(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		for name, breaks := range map[string]func(*sqltest.Way){"frozen": (*sqltest.Way).Freeze, "cut": (*sqltest.Way).Cut} {
			t.Run(name, func(t *testing.T) {
				way := sqltest.NewWay(t, url)
				s := open(t, Config{URL: way.URL})
				ctx, stop := context.WithCancel(t.Context())
				leads, led := make(chan struct{}), make(chan error, 1)
				go func() {
					led <- s.Lead(ctx, func(ctx context.Context, _ uint64) error { close(leads); <-ctx.Done(); return nil })
				}()
				<-leads
				do(t, s, kernel.Register{App: "app", Worker: "w", Start: true, Job: kernel.Declaration{Key: "k", Kind: kernel.Triggered}})
				began, committed := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(committed)
					_ = s.history.within(context.Background(), func(tx *sql.Tx) error {
						_, err := tx.Exec("UPDATE carillon_mark SET upto = upto WHERE one = 1")
						close(began)
						time.Sleep(10 * time.Millisecond) // the way breaks before the commit
						return err
					})
				}()
				<-began
				breaks(way)
				answered := make(chan error, 1)
				go func() { answered <- s.Apply(context.Background(), []kernel.Envelope{envelope(create("k"))})[0].Err }()
				at := time.Now()
				stop()
				if err := <-led; err != nil {
					t.Error(err)
				}
				if err := s.Close(); err != nil { // a process would end with it
					t.Error(err)
				}
				<-committed
				if code := jobs.CodeOf(<-answered); code != jobs.Unknown && code != jobs.Unavailable {
					t.Errorf("the entry: %v", code)
				}
				if took := time.Since(at); took > 10*time.Second {
					t.Errorf("its end took %v", took)
				}
			})
		}
	})
}
