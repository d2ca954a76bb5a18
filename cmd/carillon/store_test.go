package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
	"github.com/carillon-scheduler/carillon/worker"
)

// storeKind is a kind of store that a server can have.
type storeKind struct {
	name string
	// make answers with the flags of a server that keeps its rows in a new one, and those of store copy that name it.
	make func(t *testing.T) madeStore
}

type madeStore struct {
	server []string
	place  func(side string) []string // "from" or "to"
}

func storeKinds() []storeKind {
	database := func(kind *sqltest.Kind) func(t *testing.T) madeStore {
		return func(t *testing.T) madeStore {
			u, err := url.Parse(kind.New(t))
			if err != nil {
				t.Fatal(err)
			}
			secret := ""
			if password, _ := u.User.Password(); password != "" {
				secret = filepath.Join(t.TempDir(), "password")
				if err := os.WriteFile(secret, []byte(password), 0o600); err != nil {
					t.Fatal(err)
				}
				u.User = url.User(u.User.Username())
			}
			made := madeStore{server: []string{"--data", t.TempDir(), "--store", u.String()}, place: func(side string) []string {
				if secret != "" {
					return []string{"--" + side, u.String(), "--" + side + "-password-file", secret}
				}
				return []string{"--" + side, u.String()}
			}}
			if secret != "" {
				made.server = append(made.server, "--store-password-file", secret)
			}
			return made
		}
	}
	return []storeKind{
		{"directory", func(t *testing.T) madeStore {
			dir := filepath.Join(t.TempDir(), "data")
			return madeStore{server: []string{"--data", dir}, place: func(side string) []string { return []string{"--" + side, dir} }}
		}},
		{"PostgreSQL", database(sqltest.Postgres)},
		{"MariaDB", database(sqltest.MariaDB)},
	}
}

// plant starts the worker of these tests: a job each second, one triggered by hand, and one with a limit.
func plant(t *testing.T, bus string) (leave func()) {
	t.Helper()
	nothing := jobs.RecurringFunc(func(ctx context.Context) error { jobs.Log(ctx).Info("tick \x00"); return nil })
	w, err := carillon.NewWorker(bus, worker.Config{App: "shop"},
		jobs.NewRecurring(nothing, jobs.Options{Key: "shop.tick", Cron: "* * * * * *", Misfire: jobs.MisfireAll}),
		jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(ctx context.Context, _ struct{}) error { return nil }), jobs.Options{Key: "shop.pack", MaxConcurrency: 1}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the worker: %v", err)
		}
	}
}

// ticks are the due times of shop.tick, each of which must have one run.
func ticks(p *program) (all []time.Time) {
	p.t.Helper()
	seen := map[time.Time]bool{}
	for _, run := range listed(p, "/api/v1/runs?limit=200&job=shop.tick") {
		if seen[run.Due] {
			p.t.Errorf("the due time %v has two runs", run.Due)
		}
		seen[run.Due] = true
		all = append(all, run.Due)
	}
	return all
}

type listedRun struct {
	ID, State string
	Due       time.Time
}

func listed(p *program, path string) []listedRun {
	p.t.Helper()
	var list struct{ Items []listedRun }
	p.get(path, func(status int, body []byte) bool { return status == 200 && json.Unmarshal(body, &list) == nil })
	return list.Items
}

// lived is a server that has worked for a moment, and was stopped with something of everything.
func lived(t *testing.T, flags []string) {
	t.Helper()
	p := start(t, append([]string{"server", "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0"}, flags...)...)
	p.get("/leaderz", ok)
	leave := plant(t, p.bus)
	p.get("/api/v1/jobs/shop.tick", ok)
	p.post("/api/v1/jobs/shop.pack/trigger", `{}`)
	p.get("/api/v1/runs?job=shop.pack&state=Succeeded", succeeded(1))
	p.get("/api/v1/runs?job=shop.tick&state=Succeeded", succeeded(2))
	leave()
	p.post("/api/v1/jobs/shop.pack/trigger", `{"delay":"3s","unique":"later"}`)
	p.post("/api/v1/jobs/shop.pack/trigger", `{}`)
	p.post("/api/v1/jobs/shop.pack/trigger", `{}`) // waits for the slot of the one before
	p.post("/api/v1/tokens", `{"name":"ann","role":"operator"}`)
	p.patch("/api/v1/settings", `{"misfireAfter":"45s"}`)
	p.end()
}

// goesOn starts a server on what was copied, and sees that nothing is lost, nothing is doubled, and all goes on.
func goesOn(t *testing.T, flags []string) {
	t.Helper()
	p := start(t, append([]string{"server", "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0"}, flags...)...)
	p.get("/leaderz", ok)
	before := len(ticks(p))
	leave := plant(t, p.bus)
	p.get("/api/v1/runs?limit=200&job=shop.pack&state=Succeeded", succeeded(4)) // the one that was done, two that waited, and the delayed one
	p.get("/api/v1/runs?limit=200&job=shop.tick&state=Succeeded", succeeded(before+2))
	p.get("/api/v1/settings", contains(`45s`))
	p.get("/api/v1/tokens", contains(`"ann"`))
	p.get("/api/v1/audit", contains(`shop.pack`))
	first := listed(p, "/api/v1/runs?limit=200&job=shop.tick&state=Succeeded")
	p.get("/api/v1/runs/"+first[len(first)-1].ID+"/log", contains("tick"))
	leave()
	p.patch("/api/v1/settings", `{"recurringDebug":true}`) // nothing fires while they are counted
	all := ticks(p)
	oldest, newest := all[0], all[0]
	for _, at := range all {
		if at.Before(oldest) {
			oldest = at
		}
		if at.After(newest) {
			newest = at
		}
	}
	if want := int(newest.Sub(oldest)/time.Second) + 1; len(all) != want {
		t.Errorf("from %v to %v there are %d due times with a run, want %d", oldest, newest, len(all), want)
	}
	p.end()
}

// move copies a store and returns the program's output.
func move(t *testing.T, args ...[]string) (string, int) {
	t.Helper()
	all := []string{"store", "copy"}
	for _, a := range args {
		all = append(all, a...)
	}
	var out bytes.Buffer
	code := execute(t.Context(), all, &out, &out)
	return out.String(), code
}

// A system that has run goes on in any other kind of store: delayed runs start, recurring jobs keep their cursor, no
// due time is lost or doubled, and the store that it comes from stays as it is.
func TestStoreCopy(t *testing.T) {
	tests.Long(t)
	for i, from := range storeKinds() {
		t.Run("from "+from.name, func(t *testing.T) {
			source := from.make(t)
			lived(t, source.server)
			first := ""
			for j, to := range storeKinds() {
				t.Run("to "+to.name, func(t *testing.T) {
					if j != (i+1)%3 {
						tests.Long(t)
					}
					target := to.make(t)
					text, code := move(t, source.place("from"), target.place("to"))
					if code != 0 {
						t.Fatalf("exit code %d: %s", code, text)
					}
					if first != "" && text != first {
						t.Errorf("the source has changed: it was\n%sand is\n%s", first, text)
					}
					first = text
					for _, what := range []string{"2 jobs", "live runs", "finished runs", "log lines", "tokens", "audits", "tallies", "limits in use"} {
						if !strings.Contains(text, what) {
							t.Errorf("%s: %s", what, text)
						}
					}
					if text, code := move(t, source.place("from"), target.place("to")); code != 4 || !strings.Contains(text, "already") && !strings.Contains(text, "not empty") {
						t.Errorf("over a store that is there: exit code %d: %s", code, text)
					}
					if j == (i+1)%3 || testing.Verbose() {
						goesOn(t, target.server)
					}
				})
			}
		})
	}
}

// A store that is being used is not copied, and nothing is left where it should have gone.
func TestStoreCopyOfOneInUse(t *testing.T) {
	for _, from := range storeKinds() {
		t.Run(from.name, func(t *testing.T) {
			source := from.make(t)
			p := start(t, append([]string{"server", "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0"}, source.server...)...)
			p.get("/leaderz", ok)
			dir := filepath.Join(t.TempDir(), "moved")
			text, code := move(t, source.place("from"), []string{"--to", dir})
			if code != 4 || !strings.Contains(text, "stop") {
				t.Errorf("exit code %d: %s", code, text)
			}
			if _, err := os.Stat(dir); err == nil {
				t.Error("something was begun")
			}
			p.end()
			if text, code := move(t, source.place("from"), []string{"--to", dir}); code != 0 {
				t.Errorf("once it is stopped: exit code %d: %s", code, text)
			}
		})
	}
}

func TestStoreCopyRefuses(t *testing.T) {
	here := t.TempDir()
	if err := os.WriteFile(filepath.Join(here, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{nil, 2, "--from and --to"},
		{[]string{"--from", filepath.Join(here, "none"), "--to", "y"}, 2, "no such file"},
		{[]string{"--from", here, "--to", "y"}, 3, "has no store"},
		{[]string{"--from", filepath.Join(here, "x"), "--to", "y"}, 1, "truncated"},
		{[]string{"--from", "sqlite://x", "--to", "y"}, 2, "postgres://"},
		{[]string{"--from", "postgres://u:hush@h/d", "--to", "y"}, 2, "--from-password-file"},
		{[]string{"--from", "postgres://u@h/d?password=hush", "--to", "y"}, 2, "--from-password-file"},
		{[]string{"--from", "postgres://127.0.0.1:1/d", "--to", "y"}, 6, "cannot be reached"},
	} {
		text, code := move(t, c.args)
		if code != c.code || !strings.Contains(text, c.text) || strings.Contains(text, "hush") {
			t.Errorf("%v: exit code %d: %s", c.args, code, text)
		}
	}
}
