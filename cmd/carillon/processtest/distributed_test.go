//go:build unix

package processtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/bus/bustest/freeport"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// shareJobs is how many jobs are due every second.
const shareJobs = 300

// Three servers on a database each fire a share of three hundred jobs that are due every second. One is killed
// meanwhile, one is frozen until the others take over its share, and one is stopped cleanly. Each due time is fired
// once, and all servers fire.
func TestS3_26ThreeFireAShareEach(t *testing.T) {
	tests.Long(t)
	t.Parallel() // it waits for leases most of the time
	for name, kind := range map[string]*sqltest.Kind{"PostgreSQL": sqltest.Postgres, "MariaDB": sqltest.MariaDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, dir := kind.New(t), t.TempDir()
			path, err := carillonProgram()
			if err != nil {
				t.Fatal(err)
			}
			nodes := map[string]*half{}
			begin := func(name string) {
				n := &half{name: name, http: freeport.Address(t), nats: freeport.Address(t)}
				n.process = start(t, "node "+name, path, []string{"CARILLON_STORE_URL=" + url, "CARILLON_TRIGGERING=distributed"},
					"server", "--node", name, "--data", filepath.Join(dir, name), "--http", n.http, "--nats-addr", n.nats)
				nodes[name] = n
			}
			store, err := sqlstore.Open(t.Context(), sqlstore.Config{URL: url, Node: "test", Copy: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close() })
			batch := make([]kernel.Envelope, shareJobs)
			for i := range batch {
				batch[i] = kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "client:test", Command: kernel.Register{App: "bells", Worker: "w", Start: true,
					Job: kernel.Declaration{Key: jobs.Key(fmt.Sprintf("bell-%03d", i)), Kind: kernel.Recurring,
						Code: kernel.Settings{Schedule: new("* * * * * *"), MaxConcurrency: new(0), Misfire: new(jobs.MisfireAll), Timeout: new(time.Hour)}}}}
			}
			// Only a leader commits: this one leads before there are others.
			done := errors.New("the jobs are there")
			if err := store.Lead(t.Context(), func(ctx context.Context, _ uint64) error {
				for _, r := range store.Apply(ctx, batch) {
					if r.Err != nil {
						return r.Err
					}
				}
				return done
			}); !errors.Is(err, done) {
				t.Fatal(err)
			}
			for i := range 3 {
				begin(fmt.Sprint("n", i+1))
			}
			// shares returns a node's view of which node fires how many jobs; nil if it does not respond.
			shares := func(n *half) map[string]api.Share {
				h := &fixture{t: t, http: n.http}
				status, raw, err := h.ask(http.MethodGet, "/api/v1/overview", "")
				if err != nil || status != http.StatusOK {
					return nil
				}
				by := map[string]api.Share{}
				for _, s := range decode[api.Overview](t, raw).Shares {
					by[s.Node] = s
				}
				return by
			}
			agree := func(want int) {
				t.Helper()
				await(t, fmt.Sprintf("%d nodes fire, and all of them know", want), func() bool {
					for _, n := range nodes {
						by, all := shares(n), 0
						for _, s := range by {
							all += s.Jobs
						}
						if len(by) != want || all != shareJobs {
							return false
						}
					}
					return true
				})
			}
			agree(3)
			for name, n := range nodes {
				all := 0
				for _, m := range get[api.Cluster](&fixture{t: t, http: n.http}, "/api/v1/cluster").Nodes {
					if m.Share != nil && m.Share.Node == m.Name {
						all += m.Share.Jobs
					}
				}
				if all != shareJobs {
					t.Errorf("the nodes that %s lists fire %d jobs of %d", name, all, shareJobs)
				}
			}
			// fired waits until each of the nodes has fired something since now.
			fired := func(names ...string) {
				t.Helper()
				before := shares(nodes[names[0]])
				await(t, strings.Join(names, ", ")+" fire", func() bool {
					now := shares(nodes[names[0]])
					for _, name := range names {
						if now[name].Fired < before[name].Fired+uint64(shareJobs/6) {
							return false
						}
					}
					return true
				})
			}
			fired("n1", "n2", "n3")
			nodes["n2"].process.kill()
			delete(nodes, "n2")
			agree(2)
			fired("n1", "n3")
			begin("n4")
			agree(3)
			nodes["n3"].process.freeze(t)
			frozen := nodes["n3"]
			delete(nodes, "n3")
			agree(2)
			frozen.process.thaw(t)
			nodes["n3"] = frozen
			agree(3)
			fired("n3", "n1", "n4")
			nodes["n1"].process.stop(t, syscall.SIGTERM)
			delete(nodes, "n1")
			agree(2)
			fired("n3", "n4")
			for _, n := range nodes {
				n.process.stop(t, syscall.SIGTERM)
			}

			if err := store.Linearizable(t.Context()); err != nil {
				t.Fatal(err)
			}
			by := map[string]int{}
			due := map[jobs.Key]map[time.Time]int{}
			for q := (metastore.RunQuery{Tenant: jobs.DefaultTenant, Limit: metastore.MaxPage}); ; {
				page, err := store.Runs(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				for _, run := range page.Runs {
					by[run.Moves[0].By]++
					if due[run.Key] == nil {
						due[run.Key] = map[time.Time]int{}
					}
					due[run.Key][run.Due]++
				}
				if q.Cursor = page.Next; q.Cursor == "" {
					break
				}
			}
			defs, err := store.Definitions(t.Context(), metastore.DefinitionQuery{Tenant: jobs.DefaultTenant})
			if err != nil {
				t.Fatal(err)
			}
			times := 0
			for _, d := range defs {
				for at := d.Created.Truncate(time.Second).Add(time.Second); !at.After(d.Cursor); at = at.Add(time.Second) {
					if n := due[d.Key][at]; n != 1 {
						t.Errorf("%s was fired %d times for %v", d.Key, n, at)
					}
					times++
					delete(due[d.Key], at)
				}
				if len(due[d.Key]) > 0 {
					t.Errorf("%s was fired for %v", d.Key, due[d.Key])
				}
			}
			for _, name := range []string{"n1", "n2", "n3", "n4"} {
				if by["member:"+name] == 0 {
					t.Errorf("%s has fired nothing: %v", name, by)
				}
			}
			t.Logf("%d due times of %d jobs, fired by %v", times, len(defs), by)
			if len(defs) != shareJobs || times < 10*shareJobs {
				t.Errorf("%d due times of %d jobs: this shows little", times, len(defs))
			}
		})
	}
}
