package main

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
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

func TestSettingPrecedence(t *testing.T) {
	file := "http:\n  addr: 127.0.0.1:1\nnode: from-file\nlog:\n  level: warn\n"
	env := []string{"CARILLON_HTTP_ADDR=127.0.0.1:2", "CARILLON_NODE=from-env", "HOME=/nowhere"}
	c, err := load(t, file, env, "--http", "127.0.0.1:3")
	if err != nil {
		t.Fatal(err)
	}
	if c.HTTP != "127.0.0.1:3" || c.Node != "from-env" || c.LogLevel != "warn" || c.NATS != "127.0.0.1:4222" || c.Grace != 25*time.Second {
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
	if c.Scheduler.RecurringDebug != nil || c.Scheduler.Defaults.MaxConcurrency != nil {
		t.Error("an unset setting has a value")
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
	if !*c.Scheduler.RecurringDebug || *c.Scheduler.TriggeredDebug || *c.Scheduler.Defaults.MaxConcurrency != 1 || *c.Scheduler.Defaults.Overlap != jobs.OverlapSkip {
		t.Errorf("%+v", c)
	}
}

// Rules are a list in the file, and the same list as text in the environment; sign-in requires authentication.
func TestSignInSettings(t *testing.T) {
	file := "sign-in:\n  issuer: https://login.example.com\n  client-id: carillon\n  rules:\n    # people\n    - {group: admins, role: operator, jobs: [billing.*, shop.pack], tags: [money]}\n" +
		"    - group: 'the: finance'\n      tenant: finance\n      role: viewer\n"
	c, err := load(t, file, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []embed.SignInRule{{Group: "admins", Role: "operator", Jobs: []string{"billing.*", "shop.pack"}, Tags: []string{"money"}}, {Group: "the: finance", Tenant: "finance", Role: "viewer"}}; !reflect.DeepEqual(c.SignIn.Rules, want) {
		t.Errorf("%+v", c.SignIn.Rules)
	}
	if !c.authenticates() || c.Sessions != (ops.SessionLimits{Idle: time.Hour, Longest: 12 * time.Hour}) {
		t.Errorf("authenticates %v, %+v", c.authenticates(), c.Sessions)
	}
	printed := c.print(false)
	again, err := load(t, printed, nil)
	if err != nil || !reflect.DeepEqual(again.SignIn.Rules, c.SignIn.Rules) {
		t.Errorf("printed as %s: %+v (%v)", printed, again.SignIn.Rules, err)
	}
	env, err := load(t, file, []string{"CARILLON_SIGN_IN_RULES=[{claim: email, value: a@example.com, role: operator}]"})
	if err != nil || !reflect.DeepEqual(env.SignIn.Rules, []embed.SignInRule{{Claim: "email", Value: "a@example.com", Role: "operator"}}) {
		t.Errorf("%+v (%v)", env.SignIn.Rules, err)
	}
}

func TestConfigRefused(t *testing.T) {
	for _, c := range []struct {
		name, file, env string
		args            []string
		text            string
	}{
		{"unknown key", "http:\n  adr: x\n", "", nil, "c.yaml:2: unknown key http.adr; did you mean http.addr?"},
		{"unknown key that is a section's, nearly", "htp:\n  addr: x\n", "", nil, "c.yaml:1: unknown key htp; did you mean http?"},
		{"unknown key that is like nothing", "foo: x\n", "", nil, "c.yaml:1: unknown key foo; see carillon config print"},
		{"unknown section", "node: n\nserver:\n  port: 1\n", "", nil, "c.yaml:2: unknown key server"},
		{"twice", "node: a\nnode: b\n", "", nil, "c.yaml:2: node is there twice"},
		{"a section with a value", "http: 8080\n", "", nil, "c.yaml:1: the file http must have keys and values"},
		{"a value with a section", "node:\n  name: x\n", "", nil, "c.yaml:1: node needs one value"},
		{"no value", "node:\n", "", nil, "c.yaml:1: node needs one value"},
		{"not YAML", "a: [\n", "", nil, "c.yaml: line"},
		{"unknown variable", "", "CARILLON_HTTP_ADR=x", nil, "did you mean CARILLON_HTTP_ADDR?"},
		{"bad boolean", "memory: maybe\n", "", nil, `memory (from `},
		{"bad level", "log: {level: loud}\n", "", nil, `invalid value "loud": want one of debug, info, warn, error`},
		{"bad overlap", "scheduler: {defaults: {overlap: both}}\n", "", nil, "overlap"},
		{"bad concurrency", "scheduler: {defaults: {maxConcurrency: -1}}\n", "", nil, "want 0 to"},
		{"bad duration", "", "", []string{"--grace", "soon"}, "shutdown.grace (from --grace)"},
		{"a duration without a unit", "shutdown:\n  grace: 30\n", "", nil, `c.yaml:2): invalid value "30": want a duration such as 30s or 5m`},
		{"a negative duration", "", "CARILLON_SHUTDOWN_GRACE=-5s", nil, `shutdown.grace (from CARILLON_SHUTDOWN_GRACE): invalid value "-5s": want a duration`},
		{"a look without a pause", "jobs: {every: 0s}\n", "", nil, `c.yaml:1): invalid value "0s": want at least 1s`},
		{"looks too often", "jobs: {every: 999ms}\n", "", nil, `invalid value "999ms"`},
		{"a flag twice", "", "", []string{"--node", "a", "--node", "b"}, "--node is given 2 times"},
		{"bad auth", "auth: maybe\n", "", nil, `auth (from `},
		{"a password in a flag", "", "", []string{"--nats", "nats://u:secret@127.0.0.1:4222"}, "nats.password-file"},
		{"a password of the database in a flag", "", "", []string{"--store", "postgres://u:secret@127.0.0.1/d"}, "store.password-file"},
		{"a table of a database without one", "store: {live: true}\n", "", nil, "store.live (from "},
		{"such a password as a parameter", "", "", []string{"--store", "postgres://u@127.0.0.1/d?password=secret"}, "store.password-file"},
		{"a token in a flag", "", "", []string{"--nats", "nats://secret@127.0.0.1:4222"}, "nats.token-file"},
		{"a bad NATS URL", "nats: {url: 'nats:/x'}\n", "", nil, "nats.url (from "},
		{"NATS over a network in the clear", "nats: {url: 'nats://nats.example:4222'}\n", "", nil, "use tls://"},
		{"half a certificate", "http: {tls-cert: x.pem}\n", "", nil, "http.tls-cert and http.tls-key belong together"},
		{"half a login", "nats: {url: 'nats://127.0.0.1:4222', user: x}\n", "", nil, "belong together"},
		{"two logins", "nats: {url: 'nats://127.0.0.1:4222', creds-file: x, token-file: y}\n", "", nil, "keep one"},
		{"a login without nats.url", "nats: {token-file: y}\n", "", nil, "nats.token-file (from "},
		{"a certificate with nats.url", "nats: {url: 'nats://127.0.0.1:4222', tls-cert: x, tls-key: y}\n", "", nil, "nats.tls-cert (from "},
		{"a public URL with a path", "http: {url: 'https://x.example/jobs'}\n", "", nil, "http.url (from "},
		{"a host with a port", "http: {hosts: 'a.example, b.example:80'}\n", "", nil, `"b.example:80" is not a host name`},
		{"sign-in without rules", "sign-in: {issuer: 'https://login.example.com', client-id: c}\n", "", nil, "needs rules"},
		{"sign-in without an issuer", "sign-in: {rules: [{group: a, role: admin}]}\n", "", nil, "sign-in.rules (from "},
		{"sign-in without TLS", "sign-in: {issuer: 'http://login.example.com', client-id: c, rules: [{group: a, role: admin}]}\n", "", nil, "has no TLS"},
		{"sign-in without a public URL", "http: {addr: '0.0.0.0:80', plain: true}\nsign-in: {issuer: 'https://login.example.com', client-id: c, rules: [{group: a, role: admin}]}\n", "", nil, "sign-in needs http.url"},
		{"a rule with an unknown key", "sign-in: {rules: [{groups: a, role: admin}]}\n", "", nil, "field groups not found"},
		{"a rule without a group", "", "CARILLON_SIGN_IN_RULES=[{role: admin}]", nil, "sign-in.rules (from CARILLON_SIGN_IN_RULES): rule 1: want a group"},
		{"a scope of an admin", "sign-in: {rules: [{group: a, role: admin, jobs: [x]}]}\n", "", nil, "only an operator or a client can be limited"},
		{"rules that are no list", "sign-in: {rules: {group: a}}\n", "", nil, "c.yaml:1: sign-in.rules needs one value"},
		{"an idle time that is too short", "sessions: {idle: 10s}\n", "", nil, "sessions.idle and sessions.longest"},
		{"a profiler for all", "", "", []string{"--debug-addr", "0.0.0.0:6060"}, "without authentication"},
		{"no auth and no fence", "auth: off\nhttp: {addr: '0.0.0.0:8080', plain: true}\n", "", nil, "auth (from "},
		{"no auth behind a proxy", "auth: off\nhttp: {url: 'https://jobs.example.com'}\n", "", nil, "http.url https://jobs.example.com is reachable"},
		{"no auth under a public name", "auth: off\nhttp: {hosts: 'jobs.example.com'}\n", "", nil, "http.hosts jobs.example.com is reachable"},
		{"no auth and no fence on the bus", "auth: off\nnats: {addr: ':4222', plain: true}\n", "", nil, "nats.addr :4222 is reachable"},
		{"tokens in the clear", "http: {addr: '10.0.0.1:8080'}\n", "", nil, "http.plain: true"},
		{"tokens in the clear, from everywhere", "http: {addr: '0.0.0.0:8080'}\n", "", nil, "http.addr 0.0.0.0:8080 is reachable"},
		{"tokens in the clear on the bus", "nats: {addr: '10.0.0.1:4222'}\n", "", nil, "nats.plain: true"},
		{"tokens that are forgotten", "auth: on\nmemory: true\n", "", nil, "tokens are lost"},
		{"memory and data", "data: /x\n", "", []string{"--memory"}, "are set: remove one"},
		{"shares without a database", "triggering: distributed\n", "", nil, "c.yaml:1) is distributed, but store.url is not set"},
		{"shares of copies", "cluster: {addr: '127.0.0.1:7946'}\n", "CARILLON_TRIGGERING=distributed", nil, "triggering (from CARILLON_TRIGGERING) is distributed"},
		{"bad triggering", "store: {url: 'postgres://h/d'}\n", "", []string{"--triggering", "all"}, `invalid value "all": want one of leader, distributed`},
		{"bad node", "", "CARILLON_NODE=a b", nil, "node"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := load(t, c.file, []string{c.env}, c.args...)
			if err == nil || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("%v, want %q", err, c.text)
			}
			if code := exitCode(err); code != 2 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// An error lists all mistakes of a configuration, each with its line.
func TestAllMistakesAtOnce(t *testing.T) {
	file := "htp:\n  addr: x\nnode: a\nnode: b\nlog:\n  level: loud\nshutdown:\n  grace: 5\n"
	_, err := load(t, file, []string{"CARILLON_HTTP_ADR=x"}, "--data", "a", "--data", "b")
	if err == nil || exitCode(err) != 2 {
		t.Fatal(err)
	}
	for _, want := range []string{"6 mistakes in the configuration", "c.yaml:1: unknown key htp", "c.yaml:4: node is there twice", "c.yaml:6): invalid value \"loud\"", "c.yaml:8): invalid value \"5\"",
		"unknown environment variable CARILLON_HTTP_ADR", "--data is given 2 times"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
}

// Authentication is on if other machines can reach an address, otherwise off.
func TestAuthAuto(t *testing.T) {
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
		} else if cfg.authenticates() != c.asks {
			t.Errorf("%s: asks: %v", c.file, cfg.authenticates())
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
		if text := c.print(true); strings.Contains(text, "hush") || !strings.Contains(text, "nats://***@127.0.0.1:1") {
			t.Errorf("it prints %s", text)
		}
	}
	for _, url := range []string{"postgres://u:hush@127.0.0.1/d", "postgres://u@127.0.0.1/d?password=hush", "postgres://127.0.0.1/d?sslmode=disable&password=hush"} {
		c, err := load(t, "", []string{"CARILLON_STORE_URL=" + url})
		if err != nil {
			t.Fatal(err)
		}
		if text := c.print(true); strings.Contains(text, "hush") || !strings.Contains(text, "postgres://***@127.0.0.1") {
			t.Errorf("it prints %s", text)
		}
	}
}

// Of the heartbeat URL only the host is printed.
func TestPrintTellsNoHeartbeatURL(t *testing.T) {
	c, err := load(t, "", []string{"CARILLON_ALARMS_HEARTBEAT_URL=https://hc.example.com/ping/hush"})
	if err != nil {
		t.Fatal(err)
	}
	if text := c.print(true); strings.Contains(text, "hush") || !strings.Contains(text, "https://hc.example.com/***") {
		t.Errorf("it prints %s", text)
	}
}

// The printed configuration can be read again, with the same result.
func TestPrintedConfigIsAConfig(t *testing.T) {
	c, err := load(t, "node: '007'\nscheduler:\n  debug:\n    triggered: true\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := load(t, c.print(true), nil)
	if err != nil {
		t.Fatalf("%v in\n%s", err, c.print(true))
	}
	if again.Node != "007" || !*again.Scheduler.TriggeredDebug || again.print(false) != c.print(false) {
		t.Errorf("it became\n%s", again.print(false))
	}
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"version"}, 0, ""},
		{[]string{"--version"}, 0, ""},
		{[]string{"dev", "--nonsense"}, 2, "unknown flag"},
		{[]string{"nonsense"}, 2, "no command"},
		{[]string{"dev", "now"}, 2, "takes no arguments"},
		{[]string{"dev", "--memory", "--http", "0.0.0.0:0"}, 2, "http.plain: true"},
		{[]string{"dev", "--memory", "--auth", "off", "--http", "0.0.0.0:0"}, 2, "auth (from --auth) is off"},
		{[]string{"server", "--memory", "--http", "127.0.0.1:0", "--nats-addr", "10.0.0.1:4222"}, 2, "nats.addr 10.0.0.1:4222 is reachable"},
		{[]string{"server", "--memory", "--http", "127.0.0.1:0", "--nats", "nats://u:secret@nats.example:4222"}, 2, "nats.password-file"},
		{[]string{"server", "--memory", "--http", "127.0.0.1:0", "--nats", "nats://127.0.0.1:1"}, 6, "nats://127.0.0.1:1 cannot be reached"},
		{[]string{"server", "--memory", "--http", "127.0.0.1:0", "--nats", "tls://127.0.0.1:1", "--auth", "on"}, 2, "tokens are lost"},
		{[]string{"server", "--memory", "--http", "8080"}, 2, "host:port"},
		{[]string{"server", "--config", "/nowhere/c.yaml"}, 2, "config file"},
	} {
		var out, errs bytes.Buffer
		if code := execute(t.Context(), c.args, &out, &errs); code != c.code || !strings.Contains(errs.String(), c.text) {
			t.Errorf("%v: exit code %d, want %d: %s", c.args, code, c.code, errs.String())
		}
		if strings.Contains(errs.String(), "secret") {
			t.Errorf("%v prints a password: %s", c.args, errs.String())
		}
	}
}

// A verb without its command suggests the commands that have it.
func TestUnknownCommandSuggestsVerbs(t *testing.T) {
	for verb, want := range map[string]string{
		"trigger": "did you mean jobs trigger?",
		"log":     "did you mean runs log?",
		"show":    "did you mean alarms show or batches show or calendars show or jobs show or runs show",
		"jbs":     "did you mean jobs?",
		"bash":    "see carillon --help",
	} {
		var out, errs bytes.Buffer
		if code := execute(t.Context(), []string{verb}, &out, &errs); code != 2 || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: exit code %d, got %q, want %q", verb, code, errs.String(), want)
		}
	}
}

var flagName = regexp.MustCompile(`(?m)^ {2}(?:-\w, | {4})--([\w-]+)`)

// Each command has a description and an example, and each of its flags a text.
func TestHelpIsComplete(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Short == "" {
			t.Errorf("%s has no description", c.CommandPath())
		}
		if c.Example == "" {
			t.Errorf("%s has no example", c.CommandPath())
		}
		for _, name := range flagName.FindAllStringSubmatch(c.LocalFlags().FlagUsages(), -1) { // without hidden ones
			if f := c.LocalFlags().Lookup(name[1]); strings.TrimSpace(f.Usage) == "" {
				t.Errorf("%s --%s has no text", c.CommandPath(), f.Name)
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(os.Stdout, os.Stderr))
}
