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
	if _, err := load(t, "", []string{"CARILLON_SERVICE_HOST=10.0.0.1", "CARILLON_PORT_4222_TCP=x", "CARILLON_NATS_SERVICE_PORT=4222", "CARILLON_TESTS=all"}); err != nil {
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
		{"unknown key that is a section's, nearly", "htp:\n  addr: x\n", "", nil, "c.yaml:1: unknown key htp; did you mean http?"},
		{"unknown key that is like nothing", "foo: x\n", "", nil, "c.yaml:1: unknown key foo; carillon config print shows"},
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
		{"a duration without a unit", "shutdown:\n  grace: 30\n", "", nil, `c.yaml:2): "30" is not a length of time such as 30s or 5m`},
		{"a negative duration", "", "CARILLON_SHUTDOWN_GRACE=-5s", nil, `shutdown.grace (from CARILLON_SHUTDOWN_GRACE): "-5s" is not a length of time`},
		{"a look without a pause", "jobs: {every: 0s}\n", "", nil, `c.yaml:1): "0s" is too short a pause between two looks: give 1s or more`},
		{"looks too often", "jobs: {every: 999ms}\n", "", nil, `"999ms" is too short a pause`},
		{"a flag twice", "", "", []string{"--node", "a", "--node", "b"}, "--node is given 2 times"},
		{"bad auth", "auth: maybe\n", "", nil, `auth (from `},
		{"a password in a flag", "", "", []string{"--nats", "nats://u:secret@127.0.0.1:4222"}, "nats.password-file"},
		{"a password of the database in a flag", "", "", []string{"--store", "postgres://u:secret@127.0.0.1/d"}, "store.password-file"},
		{"such a password as a parameter", "", "", []string{"--store", "postgres://u@127.0.0.1/d?password=secret"}, "store.password-file"},
		{"a token in a flag", "", "", []string{"--nats", "nats://secret@127.0.0.1:4222"}, "nats.token-file"},
		{"a bad NATS URL", "nats: {url: 'nats:/x'}\n", "", nil, "nats.url (from "},
		{"NATS over a network in the clear", "nats: {url: 'nats://nats.example:4222'}\n", "", nil, "begin it with tls://"},
		{"half a certificate", "http: {tls-cert: x.pem}\n", "", nil, "http.tls-cert and http.tls-key belong together"},
		{"half a login", "nats: {url: 'nats://127.0.0.1:4222', user: x}\n", "", nil, "belong together"},
		{"two logins", "nats: {url: 'nats://127.0.0.1:4222', creds-file: x, token-file: y}\n", "", nil, "leave all but one out"},
		{"a login for nobody", "nats: {token-file: y}\n", "", nil, "nats.token-file (from "},
		{"a certificate for nobody", "nats: {url: 'nats://127.0.0.1:4222', tls-cert: x, tls-key: y}\n", "", nil, "nats.tls-cert (from "},
		{"a public URL with a path", "http: {url: 'https://x.example/jobs'}\n", "", nil, "http.url (from "},
		{"a host with a port", "http: {hosts: 'a.example, b.example:80'}\n", "", nil, `"b.example:80" is not the name of a host`},
		{"a profiler for all", "", "", []string{"--debug-addr", "0.0.0.0:6060"}, "asks nobody"},
		{"no auth and no fence", "auth: off\nhttp: {addr: '0.0.0.0:8080', plain: true}\n", "", nil, "auth (from "},
		{"no auth behind a proxy", "auth: off\nhttp: {url: 'https://jobs.example.com'}\n", "", nil, "http.url https://jobs.example.com can be reached"},
		{"no auth under a public name", "auth: off\nhttp: {hosts: 'jobs.example.com'}\n", "", nil, "http.hosts jobs.example.com can be reached"},
		{"no auth and no fence on the bus", "auth: off\nnats: {addr: ':4222', plain: true}\n", "", nil, "nats.addr :4222 can be reached"},
		{"tokens in the clear", "http: {addr: '10.0.0.1:8080'}\n", "", nil, "http.plain: true"},
		{"tokens in the clear, from everywhere", "http: {addr: '0.0.0.0:8080'}\n", "", nil, "http.addr 0.0.0.0:8080 can be reached"},
		{"tokens in the clear on the bus", "nats: {addr: '10.0.0.1:4222'}\n", "", nil, "nats.plain: true"},
		{"tokens that are forgotten", "auth: on\nmemory: true\n", "", nil, "would be forgotten"},
		{"memory and data", "data: /x\n", "", []string{"--memory"}, "one keeps everything, the other nothing"},
		{"shares without a database", "triggering: distributed\n", "", nil, "c.yaml:1) is distributed, and store.url is not set"},
		{"shares of copies", "cluster: {addr: '127.0.0.1:7946'}\n", "CARILLON_TRIGGERING=distributed", nil, "triggering (from CARILLON_TRIGGERING) is distributed"},
		{"bad triggering", "store: {url: 'postgres://h/d'}\n", "", []string{"--triggering", "all"}, `"all" is none of leader, distributed`},
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

// Somebody who has several things wrong is told of all of them, each with its line.
func TestAllMistakesAtOnce(t *testing.T) {
	file := "htp:\n  addr: x\nnode: a\nnode: b\nlog:\n  level: loud\nshutdown:\n  grace: 5\n"
	_, err := load(t, file, []string{"CARILLON_HTTP_ADR=x"}, "--data", "a", "--data", "b")
	if err == nil || exitCode(err) != 2 {
		t.Fatal(err)
	}
	for _, want := range []string{"6 things are wrong", "c.yaml:1: unknown key htp", "c.yaml:4: node is there twice", "c.yaml:6): \"loud\"", "c.yaml:8): \"5\"",
		"CARILLON_HTTP_ADR is no setting", "--data is given 2 times"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("it does not say %q:\n%v", want, err)
		}
	}
}

// Everybody is asked as soon as others than this machine can come, and not before.
func TestWhoIsAsked(t *testing.T) {
	for _, c := range []struct {
		file string
		asks bool
	}{
		{"", false},
		{"http: {addr: 'localhost:1'}\nnats: {addr: '[::1]:1'}\n", false},
		{"auth: on\n", true},
		{"auth: off\n", false},
		{"http: {addr: '0.0.0.0:8080', plain: true}\n", true},
		{"http: {addr: ':8080', plain: true}\n", true},
		{"http: {addr: '10.0.0.1:8080', url: 'https://jobs.example.com'}\n", true},
		{"http: {addr: '10.0.0.1:8080', tls-cert: a, tls-key: b}\n", true},
		{"nats: {addr: '10.0.0.1:4222', tls-cert: a, tls-key: b}\n", true},
		{"http: {url: 'https://jobs.example.com'}\n", true},
		{"http: {url: 'http://localhost:9000'}\n", false},
		{"http: {hosts: 'jobs.example.com'}\n", true},
		{"http: {hosts: 'localhost, 10.0.0.1'}\n", true},
		{"http: {hosts: 'localhost, 127.0.0.1'}\n", false},
		{"nats: {url: 'tls://nats.example:4222'}\n", false},
	} {
		cfg, err := load(t, c.file, nil)
		if err != nil {
			t.Errorf("%s: %v", c.file, err)
		} else if cfg.asks() != c.asks {
			t.Errorf("%s: asks: %v", c.file, cfg.asks())
		}
	}
}

// What is secret in the configuration is not printed.
func TestPrintTellsNoSecret(t *testing.T) {
	for _, url := range []string{"nats://u:hush@127.0.0.1:1", "nats://hush@127.0.0.1:1,nats://hush@127.0.0.1:2"} {
		c, err := load(t, "", []string{"CARILLON_NATS_URL=" + url})
		if err != nil {
			t.Fatal(err)
		}
		if said := c.print(true); strings.Contains(said, "hush") || !strings.Contains(said, "nats://***@127.0.0.1:1") {
			t.Errorf("it prints %s", said)
		}
	}
	for _, url := range []string{"postgres://u:hush@127.0.0.1/d", "postgres://u@127.0.0.1/d?password=hush", "postgres://127.0.0.1/d?sslmode=disable&password=hush"} {
		c, err := load(t, "", []string{"CARILLON_STORE_URL=" + url})
		if err != nil {
			t.Fatal(err)
		}
		if said := c.print(true); strings.Contains(said, "hush") || !strings.Contains(said, "postgres://***@127.0.0.1") {
			t.Errorf("it prints %s", said)
		}
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
		{[]string{"dev", "--memory", "--http", "0.0.0.0:0"}, 2, "http.plain: true"},
		{[]string{"dev", "--memory", "--auth", "off", "--http", "0.0.0.0:0"}, 2, "auth (from --auth) is off"},
		{[]string{"server", "--memory", "--http", "127.0.0.1:0", "--nats-addr", "10.0.0.1:4222"}, 2, "nats.addr 10.0.0.1:4222 can be reached"},
		{[]string{"server", "--memory", "--http", "127.0.0.1:0", "--nats", "nats://u:secret@nats.example:4222"}, 2, "nats.password-file"},
		{[]string{"server", "--memory", "--http", "127.0.0.1:0", "--nats", "nats://127.0.0.1:1"}, 6, "nats://127.0.0.1:1 cannot be reached"},
		{[]string{"server", "--memory", "--http", "127.0.0.1:0", "--nats", "tls://127.0.0.1:1", "--auth", "on"}, 2, "would be forgotten"},
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

// A word that is a verb of other commands leads to them.
func TestWordsThatAreNoCommand(t *testing.T) {
	for word, want := range map[string]string{
		"trigger": "did you mean jobs trigger?",
		"log":     "did you mean runs log?",
		"show":    "did you mean calendars show or jobs show or runs show",
		"jbs":     "did you mean jobs?",
		"bash":    "see carillon --help",
	} {
		var out, errs bytes.Buffer
		if code := execute(t.Context(), []string{word}, &out, &errs); code != 2 || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: exit code %d, and %q instead of %q", word, code, errs.String(), want)
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
