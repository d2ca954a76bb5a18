package main

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
	"github.com/carillon-scheduler/carillon/worker"
)

// hire starts a worker with one job, and stops it at the end of the test.
func hire(t *testing.T, url string) {
	t.Helper()
	w, err := carillon.NewWorker(url, worker.Config{App: "shop"},
		jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(ctx context.Context, _ struct{}) error {
			jobs.Log(ctx).Info("packing")
			return jobs.Result(ctx, "packed")
		}), jobs.Options{Key: "shop.pack"}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		err := <-ended
		_, unreported := errors.AsType[*worker.UnreportedError](err) // a server that ends may leave a report unanswered
		if err != nil && !unreported {
			t.Errorf("the worker: %v", err)
		}
	})
}

// packs has a run done by a worker that came over the bus, and finds it in the API with its log.
func packs(p *program) {
	p.t.Helper()
	p.get("/api/v1/jobs/shop.pack", ok)
	p.post("/api/v1/jobs/shop.pack/trigger", `{}`)
	var id string
	p.get("/api/v1/runs?job=shop.pack&state=Succeeded", func(_ int, body []byte) bool {
		found := regexp.MustCompile(`"id":"([0-9a-f-]{36})"`).FindSubmatch(body)
		if found != nil {
			id = string(found[1])
		}
		return found != nil
	})
	p.get("/api/v1/runs/"+id+"/log", contains("packing"))
	p.get("/api/v1/runs/"+id, contains(`"packed"`))
	p.get("/api/v1/workers", contains("shop.pack"))
	p.get("/runs/"+id, contains("packing"))
}

func contains(text string) func(int, []byte) bool {
	return func(_ int, body []byte) bool { return regexp.MustCompile(regexp.QuoteMeta(text)).Match(body) }
}

// A worker finds a server by the address that it prints.
func TestServer(t *testing.T) {
	p := start(t, "server", "--data", t.TempDir(), "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0")
	hire(t, p.bus)
	packs(p)
	p.end()
}

// The same over a NATS server that is not ours.
func TestServerWithItsOwnNATS(t *testing.T) {
	nats, err := embedded.Start(embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := nats.Stop(); err != nil {
			t.Error(err)
		}
	})
	p := start(t, "server", "--memory", "--http", "127.0.0.1:0", "--nats", nats.URL())
	hire(t, nats.URL())
	packs(p)
	p.end()
}

// With --store the rows are in the database: another server, with another data directory, finds them there.
func TestServerWithADatabase(t *testing.T) {
	for name, kind := range map[string]*sqltest.Kind{"PostgreSQL": sqltest.Postgres, "MariaDB": sqltest.MariaDB} {
		t.Run(name, func(t *testing.T) {
			u, err := url.Parse(kind.New(t))
			if err != nil {
				t.Fatal(err)
			}
			secret := filepath.Join(t.TempDir(), "password")
			password, _ := u.User.Password()
			args := []string{"server", "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0"}
			if password != "" {
				if err := os.WriteFile(secret, []byte(password), 0o600); err != nil {
					t.Fatal(err)
				}
				u.User = url.User(u.User.Username())
				args = append(args, "--store-password-file", secret)
			}
			args = append(args, "--store", u.String(), "--data")
			p := start(t, append(args, t.TempDir())...)
			p.get("/leaderz", ok) // the bus of a server with a database opens when it leads
			hire(t, p.bus)
			packs(p)
			p.end()
			p = start(t, append(args, t.TempDir())...)
			p.get("/api/v1/runs?job=shop.pack&state=Succeeded", succeeded(1))
			p.end()
		})
	}
}

// The defaults of the configuration apply to jobs without own settings, also to those registered before.
func TestDefaultsOfTheConfiguration(t *testing.T) {
	tests.Long(t)
	dir := t.TempDir()
	args := []string{"server", "--data", dir, "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0"}
	p := start(t, args...)
	hire(t, p.bus)
	p.get("/api/v1/jobs/shop.pack", contains(`"overlap":"queue"`))
	p.get("/api/v1/workers", contains("shop.pack")) // its registration is complete, so it stops cleanly
	p.end()
	t.Setenv("CARILLON_SCHEDULER_DEFAULTS_MAX_CONCURRENCY", "1")
	t.Setenv("CARILLON_SCHEDULER_DEFAULTS_OVERLAP", "skip")
	p = start(t, args...)
	p.get("/api/v1/jobs/shop.pack", contains(`"maxConcurrency":1`))
	p.get("/api/v1/jobs/shop.pack", contains(`"overlap":"skip"`))
	p.end()
}
