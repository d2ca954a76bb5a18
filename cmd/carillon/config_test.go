package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/jobs"
)

// load reads a configuration as a command would.
func load(t *testing.T, file string, env []string, args ...string) (*config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := &cobra.Command{Use: "test", RunE: func(*cobra.Command, []string) error { return nil }}
	addFlags(cmd)
	if err := cmd.ParseFlags(append([]string{"--config", path}, args...)); err != nil {
		t.Fatal(err)
	}
	return loadConfig(cmd, env)
}

func TestWhoWins(t *testing.T) {
	file := "http:\n  addr: 127.0.0.1:1\nnode: from-file\nlog:\n  level: warn\n"
	env := []string{"CARILLON_HTTP_ADDR=127.0.0.1:2", "CARILLON_NODE=from-env", "HOME=/nowhere"}
	c, err := load(t, file, env, "--http", "127.0.0.1:3")
	if err != nil {
		t.Fatal(err)
	}
	if c.HTTP != "127.0.0.1:3" || c.Node != "from-env" || c.LogLevel != "warn" || c.NATS != "127.0.0.1:4222" || c.Grace != 30*time.Second {
		t.Errorf("%+v", c)
	}
	for key, want := range map[string]string{"http.addr": "--http", "node": "CARILLON_NODE", "nats.addr": "default"} {
		if got := c.values[key].origin; got != want {
			t.Errorf("%s comes from %s, want %s", key, got, want)
		}
	}
	if got := c.values["log.level"].origin; !strings.HasSuffix(got, "c.yaml:5") {
		t.Errorf("log.level comes from %s", got)
	}
	if c.DebugRecurring != nil || c.MaxConcurrency != nil {
		t.Error("what nobody said is said")
	}
}

// Names that others set for reasons of their own are left alone.
func TestForeignVariables(t *testing.T) {
	if _, err := load(t, "", []string{"CARILLON_SERVICE_HOST=10.0.0.1", "CARILLON_PORT_4222_TCP=x", "CARILLON_NATS_SERVICE_PORT=4222", "CARILLON_LONG=1"}); err != nil {
		t.Error(err)
	}
}

func TestSchedulerSettings(t *testing.T) {
	c, err := load(t, "scheduler:\n  debug:\n    recurring: true\n  defaults: {maxConcurrency: 1, overlap: skip}\n", []string{"CARILLON_SCHEDULER_DEBUG_TRIGGERED=false"})
	if err != nil {
		t.Fatal(err)
	}
	if !*c.DebugRecurring || *c.DebugTriggered || *c.MaxConcurrency != 1 || *c.Overlap != jobs.OverlapSkip {
		t.Errorf("%+v", c)
	}
}

func TestConfigRefused(t *testing.T) {
	for _, c := range []struct {
		name, file, env string
		args            []string
		says            string
	}{
		{"unknown key", "http:\n  adr: x\n", "", nil, "c.yaml:2: unknown key http.adr; did you mean http.addr?"},
		{"unknown section", "node: n\nserver:\n  port: 1\n", "", nil, "c.yaml:2: unknown key server"},
		{"twice", "node: a\nnode: b\n", "", nil, "c.yaml:2: node is there twice"},
		{"a section with a value", "http: 8080\n", "", nil, "c.yaml:1: the file http must hold keys and values"},
		{"a value with a section", "node:\n  name: x\n", "", nil, "c.yaml:1: node needs one value"},
		{"no value", "node:\n", "", nil, "c.yaml:1: node needs one value"},
		{"not YAML", "a: [\n", "", nil, "c.yaml: line"},
		{"unknown variable", "", "CARILLON_HTTP_ADR=x", nil, "did you mean CARILLON_HTTP_ADDR?"},
		{"bad boolean", "memory: maybe\n", "", nil, `memory (from `},
		{"bad level", "log: {level: loud}\n", "", nil, `"loud" is none of debug, info, warn, error`},
		{"bad overlap", "scheduler: {defaults: {overlap: both}}\n", "", nil, "overlap"},
		{"bad concurrency", "scheduler: {defaults: {maxConcurrency: -1}}\n", "", nil, "between 0 and"},
		{"bad duration", "", "", []string{"--grace", "soon"}, "shutdown.grace (from --grace)"},
		{"memory and data", "data: /x\n", "", []string{"--memory"}, "one keeps everything, the other nothing"},
		{"bad node", "", "CARILLON_NODE=a b", nil, "node"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := load(t, c.file, []string{c.env}, c.args...)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("%v, want %q", err, c.says)
			}
			if code := exitCode(err); code != 2 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// What is printed can be read again, and says the same.
func TestPrintedConfigIsAConfig(t *testing.T) {
	c, err := load(t, "node: '007'\nscheduler:\n  debug:\n    triggered: true\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := load(t, c.print(true), nil)
	if err != nil {
		t.Fatalf("%v in\n%s", err, c.print(true))
	}
	if again.Node != "007" || !*again.DebugTriggered || again.print(false) != c.print(false) {
		t.Errorf("it became\n%s", again.print(false))
	}
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"version"}, 0, ""},
		{[]string{"--version"}, 0, ""},
		{[]string{"dev", "--nonsense"}, 2, "unknown flag"},
		{[]string{"nonsense"}, 2, "no command"},
		{[]string{"dev", "now"}, 2, "takes no arguments"},
		{[]string{"dev", "--memory", "--http", "0.0.0.0:0"}, 2, "asks nobody who they are"},
		{[]string{"server", "--memory", "--http", "127.0.0.1:0", "--nats-addr", "10.0.0.1:4222"}, 2, "--nats-addr 10.0.0.1:4222 could be reached"},
		{[]string{"server", "--memory", "--http", "127.0.0.1:0", "--nats", "nats://u:secret@nats.example:4222"}, 2, "could be reached"},
		{[]string{"server", "--memory", "--http", "8080"}, 2, "host:port"},
		{[]string{"server", "--config", "/nowhere/c.yaml"}, 2, "config file"},
	} {
		var out, errs bytes.Buffer
		if code := execute(t.Context(), c.args, &out, &errs); code != c.code || !strings.Contains(errs.String(), c.says) {
			t.Errorf("%v: exit code %d, want %d: %s", c.args, code, c.code, errs.String())
		}
		if strings.Contains(errs.String(), "secret") {
			t.Errorf("%v tells a password: %s", c.args, errs.String())
		}
	}
}

// Each command says how it is used.
func TestHelpHasExamples(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Example == "" || c.Short == "" {
			t.Errorf("%s has no example", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(os.Stdout, os.Stderr))
}

func TestSaidOnlyWhenNew(t *testing.T) {
	yes, no, one := true, false, 1
	for _, c := range []struct {
		name        string
		before, now said
		fresh       bool
	}{
		{"nothing is said", said{}, said{}, false},
		{"said for the first time", said{}, said{Recurring: &yes}, true},
		{"said before", said{Recurring: &yes}, said{Recurring: new(true)}, false},
		{"said otherwise before", said{Recurring: &yes}, said{Recurring: &no}, true},
		{"no longer said", said{Recurring: &yes}, said{}, false},
		{"defaults", said{}, said{MaxConcurrency: &one}, true},
		{"the same defaults", said{MaxConcurrency: &one}, said{MaxConcurrency: new(1)}, false},
	} {
		if _, fresh := c.before.command(c.now); fresh != c.fresh {
			t.Errorf("%s: a command: %v", c.name, fresh)
		}
	}
}
