package main

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/ops"
)

// A user's change overrules the configuration, also after a restart, until it is reset. A configuration that
// no longer sets a value leaves the built-in one.
func TestAnEditOverrulesTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("CARILLON_SCHEDULER_DEBUG_RECURRING", "true")
	t.Setenv("CARILLON_SCHEDULER_DEFAULTS_RETRIES", "3")
	args := []string{"server", "--data", dir, "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0"}
	p := start(t, args...)
	source := func(text string) {
		t.Helper()
		p.get("/api/v1/settings", contains(text))
	}
	source(`"recurringDebug":{"on":true,"by":"config:node"`)
	source(`{"name":"defaults.retries","value":3,"from":"file","by":"config:node"`)
	p.patch("/api/v1/settings", `{"recurringDebug":false,"defaults":{"retries":5}}`)
	p.end()
	p = start(t, args...)
	source(`"recurringDebug":{"on":false,"by":"person:api"`)
	source(`{"name":"defaults.retries","value":5,"from":"tenant","by":"person:api"`)
	p.patch("/api/v1/settings", `{"reset":["recurringDebug","defaults.retries"]}`)
	source(`"recurringDebug":{"on":true,"by":"person:api"`)
	source(`{"name":"defaults.retries","value":3,"from":"file","by":"config:node"`)
	p.end()
	os.Unsetenv("CARILLON_SCHEDULER_DEBUG_RECURRING")
	os.Unsetenv("CARILLON_SCHEDULER_DEFAULTS_RETRIES")
	p = start(t, args...)
	source(`{"name":"defaults.retries","value":0,"from":"built-in"`)
	source(`"recurringDebug":{"on":false,"by":"config:node"`)
	p.end()
}

// Each start logs the stored settings that overrule the configuration, with how to reset them. Nodes that configure
// nothing leave the settings of another node's configuration as they are.
func TestOverrulingSettingsAreLogged(t *testing.T) {
	s, err := embed.Start(t.Context(), embed.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	var logged bytes.Buffer
	file := kernel.File{RecurringDebug: new(true), Defaults: kernel.Settings{Retries: new(3)}}
	apply := func(node string, file kernel.File, want string) {
		t.Helper()
		logged.Reset()
		p := &process{cfg: &config{Node: node, Scheduler: file}, log: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelWarn}))}
		if err := p.applyConfigured(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(logged.String(), "\n"); n > 0 != (want != "") || n > 1 || !strings.Contains(logged.String(), want) {
			t.Errorf("it logs %q, want %q", logged.String(), want)
		}
	}
	retries := func(want int) {
		t.Helper()
		g, err := s.Ops().Settings(t.Context(), ops.Who{})
		if got := (&kernel.Definition{}).Resolve(g).Retries; err != nil || got != want {
			t.Errorf("%d retries, want %d (%v)", got, want, err)
		}
	}
	apply("n1", file, "")
	apply("n2", kernel.File{}, "")
	retries(3)
	if _, err := s.Ops().Configure(t.Context(), ops.Who{Actor: "person:ann", Role: ops.Admin}, kernel.Configure{Defaults: &kernel.Settings{Retries: new(5)}}, ""); err != nil {
		t.Fatal(err)
	}
	apply("n1", file, "carillon settings reset NAME\" name=defaults.retries value=5 configured=3 actor=person:ann")
	retries(5)
	if _, err := s.Ops().Configure(t.Context(), ops.Who{Actor: "person:ann", Role: ops.Admin}, kernel.Configure{Reset: []string{"defaults.retries"}}, ""); err != nil {
		t.Fatal(err)
	}
	apply("n1", file, "")
	retries(3)
	apply("n1", kernel.File{}, "")
	retries(0)
}
