//go:build unix

package processtest

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// A leader loses its way to the database, which the other node keeps, while it commits every second: it is frozen, or
// cut. With its lease it no longer leads, to all who ask; the other node leads, and the worker goes on there. Stopped, it
// ends as soon as ever.
func TestLeaderLosesItsDatabase(t *testing.T) {
	tests.Long(t)
	for name, kind := range map[string]*sqltest.Kind{"PostgreSQL": sqltest.Postgres, "MariaDB": sqltest.MariaDB} {
		for how, breaks := range map[string]func(*sqltest.Way){"frozen": (*sqltest.Way).Freeze, "cut": (*sqltest.Way).Cut} {
			t.Run(name+" "+how, func(t *testing.T) {
				url := kind.New(t)
				ways := []*sqltest.Way{sqltest.NewWay(t, url), sqltest.NewWay(t, url)}
				p := newPairAt(t, ways[0].URL, ways[1].URL)
				p.hire(workerSpec{Name: "one", Slots: 8, Ticks: true})
				p.wrote(began, p.enqueue(plainJob, task{}).ID, 1)
				old, next := p.leader()
				for i, n := range p.nodes {
					if n == old {
						breaks(ways[i])
					}
				}
				broke := time.Now()
				status := func(n *half, path string) int {
					h := fixture{t: t, http: n.http}
					code, _, err := h.ask(http.MethodGet, path, "")
					if err != nil {
						t.Fatal(err)
					}
					return code
				}
				await(t, "it no longer leads, and the other node does", func() bool {
					return status(old, "/leaderz") == http.StatusServiceUnavailable && status(next, "/leaderz") == http.StatusOK && !old.open()
				})
				if took := time.Since(broke); took > 20*time.Second { // of which a lease is four
					t.Errorf("the other node led after %v", took)
				}
				p.http = next.http
				p.wrote(began, p.enqueue(plainJob, task{}).ID, 1)
				t.Logf("a run began after %v", time.Since(broke))
				if code := status(old, "/readyz"); code != http.StatusServiceUnavailable {
					t.Errorf("/readyz without the database: %d", code)
				}
				stopped := time.Now()
				old.process.stop(t, syscall.SIGTERM)
				if took := time.Since(stopped); took > 10*time.Second {
					t.Errorf("its stop took %v", took)
				}
			})
		}
	}
}
