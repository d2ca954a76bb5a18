package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/carillon-scheduler/carillon/alarms"
	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// Sources of a setting: flags override the environment, which overrides the file, which overrides the defaults. All use
// one table, so a setting has one name everywhere: http.addr in the file, CARILLON_HTTP_ADDR, --http.

// config is the configuration of the program.
type config struct {
	HTTP     string
	NATS     string // address of the built-in NATS server
	URL      string // of an external NATS server; "" = the built-in one
	Auth     string // auto, on, off
	Debug    string // address of the profiler; "" = there is none
	Public   string // URL of the page as its users know it; "" = the address
	Hosts    string // names, with commas, under which the page is known beside
	HTTPTLS  keyPair
	NATSTLS  keyPair
	HTTPOpen bool // tokens may go over HTTP in the clear
	NATSOpen bool // and over NATS
	Login    natsLogin
	Admin    string // file with the text of the first admin's token; "" = it is generated
	Cluster  clusterConfig
	Data     string
	Store    string // URL of a database; "" = the data directory
	Password string // file with the database's password
	Memory   bool
	Live     bool // unfinished runs in a table of the database
	Node     string
	LogLevel string
	LogJSON  string // auto, text, json
	Grace    time.Duration

	Triggering string // which nodes fire: leader, distributed
	RaftLog    string // what stores the Raft log: wal, boltdb; "" = what is there, or wal

	AlarmNetworks       string // that targets of alarms may be in besides public ones
	AlarmTenantNetworks string // the same for other tenants than the default one
	Heartbeat           string // URL that the leader requests every minute; secret but for its host

	Audit struct{ Export, SecretFile, CA string }

	SMTP struct{ Address, TLS, User, PasswordFile, From, CA string }

	HTTPJobs httpJobsConfig

	MetricsJobs []string

	// Watched job definitions; From "" = none.
	Jobs struct {
		From  string // a file, a folder or a URL
		Every time.Duration
		Exact bool
		Prune bool
	}

	Scheduler kernel.File // settings of the scheduler itself

	Limits limitsConfig

	Sessions ops.SessionLimits
	SignIn   signInConfig

	RetainBytes int64         // disk space of finished runs and log lines
	KeepCounts  time.Duration // retention of counts of runs

	values map[string]value // by key, with their origins
	file   string           // the config file that was read, or ""

	mistakes []string
}

// keyPair are the files of a certificate and its key; "" = there are none.
type keyPair struct{ Cert, Key string }

// limitsConfig bounds what one address, token or tenant can take of this process.
type limitsConfig struct {
	Connections         int // of one address, to HTTP
	LoopbackConnections int // of all loopback addresses
	embed.Limits
}

// natsLogin is how this process authenticates at an external NATS server.
type natsLogin struct{ User, PasswordFile, TokenFile, CredsFile, CA string }

// clusterConfig has the addresses for other nodes; "" = none can join.
type clusterConfig struct {
	Addr, NATS, Advertise, JoinFile string

	Peers      string // addresses of all nodes, with commas; "" = nodes need invitations
	SecretFile string // that peers have in common
}

// value is a setting's text and its origin.
type value struct {
	text   string
	origin string
}

// setting is one line of the table.
type setting struct {
	key   string
	flag  string // "" = none
	def   string // "" = no default
	about string
	set   func(c *config, text string) error
}

// settings is the table.
var settings = []setting{
	{"auth", "auth", "auto", "require tokens: on, off, or auto (when listening beyond loopback)", oneOf(func(c *config) *string { return &c.Auth }, "auto", "on", "off")},
	{"admin-token-file", "admin-token-file", "", "file with the first admin token, readable by its owner only; default: one is generated in the data directory", textOf(func(c *config) *string { return &c.Admin })},
	{"http.addr", "http", "127.0.0.1:8080", "address of the dashboard and the API", textOf(func(c *config) *string { return &c.HTTP })},
	{"http.tls-cert", "http-tls-cert", "", "file with the certificate and its chain for the dashboard and the API", textOf(func(c *config) *string { return &c.HTTPTLS.Cert })},
	{"http.tls-key", "http-tls-key", "", "file with its key, readable by its owner only", textOf(func(c *config) *string { return &c.HTTPTLS.Key })},
	{"http.url", "http-url", "", "public URL of the dashboard, such as https://jobs.example.com behind a proxy", textOf(func(c *config) *string { return &c.Public })},
	{"http.hosts", "http-hosts", "", "more host names of the dashboard, comma-separated", textOf(func(c *config) *string { return &c.Hosts })},
	{"http.plain", "http-plain", "false", "allow tokens over HTTP without TLS", boolOf(func(c *config) *bool { return &c.HTTPOpen })},
	{"nats.addr", "nats-addr", "127.0.0.1:4222", "address of the built-in NATS server", textOf(func(c *config) *string { return &c.NATS })},
	{"nats.tls-cert", "nats-tls-cert", "", "file with the certificate of the built-in NATS server", textOf(func(c *config) *string { return &c.NATSTLS.Cert })},
	{"nats.tls-key", "nats-tls-key", "", "file with its key, readable by its owner only", textOf(func(c *config) *string { return &c.NATSTLS.Key })},
	{"nats.plain", "nats-plain", "false", "allow tokens over NATS without TLS", boolOf(func(c *config) *bool { return &c.NATSOpen })},
	{"nats.url", "nats", "", "URL of an external NATS server, such as nats://127.0.0.1:4222", textOf(func(c *config) *string { return &c.URL })},
	{"nats.user", "nats-user", "", "user at the external NATS server", textOf(func(c *config) *string { return &c.Login.User })},
	{"nats.password-file", "nats-password-file", "", "file with that user's password, readable by its owner only", textOf(func(c *config) *string { return &c.Login.PasswordFile })},
	{"nats.token-file", "nats-token-file", "", "file with a token for the external NATS server", textOf(func(c *config) *string { return &c.Login.TokenFile })},
	{"nats.creds-file", "nats-creds-file", "", "file with credentials (JWT and key) for the external NATS server", textOf(func(c *config) *string { return &c.Login.CredsFile })},
	{"nats.tls-ca", "nats-tls-ca", "", "file with certificate authorities for the external NATS server; default: the system's", textOf(func(c *config) *string { return &c.Login.CA })},
	{"cluster.addr", "cluster", "", "host:port where other nodes reach this one; default: no node can join", textOf(func(c *config) *string { return &c.Cluster.Addr })},
	{"cluster.nats-addr", "cluster-nats", "", "host:port for the routes of the built-in NATS server; default: the next port", textOf(func(c *config) *string { return &c.Cluster.NATS })},
	{"cluster.advertise", "cluster-advertise", "", "host name or address that other nodes use for this one, if not that of cluster.addr", textOf(func(c *config) *string { return &c.Cluster.Advertise })},
	{"cluster.join-file", "join-file", "", "file with an invitation (carillon cluster invite), for a node with an empty data directory", textOf(func(c *config) *string { return &c.Cluster.JoinFile })},
	{"cluster.peers", "cluster-peers", "", "host:port of all nodes, comma-separated; the first may found the cluster, the others join it", textOf(func(c *config) *string { return &c.Cluster.Peers })},
	{"cluster.secret-file", "cluster-secret-file", "", "file with the secret that peers have in common, readable by its owner only; more lines are secrets that are accepted, too", textOf(func(c *config) *string { return &c.Cluster.SecretFile })},
	{"data", "data", "./.carillon", "data directory", textOf(func(c *config) *string { return &c.Data })},
	{"raft.log", "raft-log", "", "what stores the Raft log of a new data directory: wal (default) or boltdb, which takes twice the time of a commit", oneOf(func(c *config) *string { return &c.RaftLog }, "wal", "boltdb")},
	{"store.url", "store", "", "URL of a database as store, such as postgres://carillon@db/carillon or mariadb://carillon@db/carillon", textOf(func(c *config) *string { return &c.Store })},
	{"store.password-file", "store-password-file", "", "file with the database's password, readable by its owner only", textOf(func(c *config) *string { return &c.Password })},
	{"store.live", "store-live", "false", "keep unfinished runs older than 5s in the database's table carillon_live, for your queries; needs store.url", boolOf(func(c *config) *bool { return &c.Live })},
	{"triggering", "triggering", "leader", "which nodes fire due times: leader, or distributed (each node a share of the jobs; needs store.url)", oneOf(func(c *config) *string { return &c.Triggering }, "leader", "distributed")},
	{"memory", "memory", "false", "store nothing on disk: all data is lost when the process ends", boolOf(func(c *config) *bool { return &c.Memory })},
	{"node", "node", "node", "name of this process", textOf(func(c *config) *string { return &c.Node })},
	{"debug.addr", "debug-addr", "", "loopback address of the profiler; default: no profiler", textOf(func(c *config) *string { return &c.Debug })},
	{"log.level", "log-level", "info", "debug, info, warn or error", oneOf(func(c *config) *string { return &c.LogLevel }, "debug", "info", "warn", "error")},
	{"log.format", "log-format", "auto", "text, json, or auto: text on a terminal", oneOf(func(c *config) *string { return &c.LogJSON }, "auto", "text", "json")},
	{"shutdown.grace", "grace", "25s", "time that running jobs have to finish on shutdown", durationOf(func(c *config) *time.Duration { return &c.Grace })},
	{"alarms.allow", "", "", "private networks that targets of alarms may be in, comma-separated: 10.1.0.0/16,127.0.0.1", textOf(func(c *config) *string { return &c.AlarmNetworks })},
	{"alarms.tenants-allow", "", "", "private networks that targets of alarms of other tenants than default may be in", textOf(func(c *config) *string { return &c.AlarmTenantNetworks })},
	{"alarms.heartbeat-url", "", "", "URL that the leader requests every minute while it can commit, such as https://hc.example.com/ping/cluster-1", textOf(func(c *config) *string { return &c.Heartbeat })},
	{"smtp.address", "", "", "host:port of the server for e-mail", textOf(func(c *config) *string { return &c.SMTP.Address })},
	{"smtp.tls", "", "starttls", "TLS to that server: starttls, tls (from the first byte) or none", oneOf(func(c *config) *string { return &c.SMTP.TLS }, alarms.StartTLS, alarms.TLS, alarms.PlainSMTP)},
	{"smtp.user", "", "", "user at that server; default: no authentication", textOf(func(c *config) *string { return &c.SMTP.User })},
	{"smtp.password-file", "", "", "file with the user's password, readable by its owner only", textOf(func(c *config) *string { return &c.SMTP.PasswordFile })},
	{"smtp.from", "", "", "address of the sender of e-mail", textOf(func(c *config) *string { return &c.SMTP.From })},
	{"smtp.ca-file", "", "", "file with certificate authorities of that server, besides the system's", textOf(func(c *config) *string { return &c.SMTP.CA })},
	{"audit.export", "", "", "NAME=ADDRESS pairs that the audit is exported to as it grows, comma-separated: a file by its absolute path, syslog+tls://host:port (tcp, udp, unix) or https://host/path", textOf(func(c *config) *string { return &c.Audit.Export })},
	{"audit.secret-file", "", "", "file with the secret that signs requests to webhooks of audit.export, readable by its owner only", textOf(func(c *config) *string { return &c.Audit.SecretFile })},
	{"audit.ca-file", "", "", "file with certificate authorities of servers of audit.export, instead of the system's", textOf(func(c *config) *string { return &c.Audit.CA })},
	{"jobs.from", "jobs-from", "", "file, folder or URL with job definitions for carillon apply; changes are applied", jobsFrom},
	{"jobs.every", "", "2m", "interval between two reads of jobs.from, at least 1s", setEvery},
	{"jobs.exact", "", "false", "reset edited fields that jobs.from does not name to the code's values", boolOf(func(c *config) *bool { return &c.Jobs.Exact })},
	{"jobs.prune", "", "false", "delete jobs and calendars that the bundle in jobs.from created and no longer names", boolOf(func(c *config) *bool { return &c.Jobs.Prune })},
	{"metrics.jobs", "metrics-jobs", "", "jobs with metrics of their own, at most 200, comma-separated keys or patterns: billing.*,shop.pack", patternsOf(func(c *config) *[]string { return &c.MetricsJobs })},
	{"http-jobs.on", "http-jobs", "false", "run HTTP jobs (those of app http) in this process", boolOf(func(c *config) *bool { return &c.HTTPJobs.On })},
	{"http-jobs.allow", "http-jobs-allow", "", "private networks that HTTP jobs may call, comma-separated: 10.1.0.0/16,127.0.0.1", textOf(func(c *config) *string { return &c.HTTPJobs.Allow })},
	{"http-jobs.tenants-allow", "http-jobs-tenants-allow", "", "private networks that HTTP jobs of other tenants than default may call", textOf(func(c *config) *string { return &c.HTTPJobs.TenantsAllow })},
	{"http-jobs.ports", "http-jobs-ports", "", "ports that HTTP jobs may call besides 80 and 443, comma-separated", textOf(func(c *config) *string { return &c.HTTPJobs.Ports })},
	{"http-jobs.services", "http-jobs-services", "", "name=URL pairs of services for HTTP jobs, comma-separated: billing=http://billing:8080", textOf(func(c *config) *string { return &c.HTTPJobs.Services })},
	{"http-jobs.variables", "http-jobs-variables", "", "variables for HTTP jobs, comma-separated: REGION=eu", textOf(func(c *config) *string { return &c.HTTPJobs.Variables })},
	{"http-jobs.feedback-url", "http-jobs-feedback-url", "", "URL for callbacks of asynchronous HTTP jobs, such as https://jobs.example.com (default: http.url)", textOf(func(c *config) *string { return &c.HTTPJobs.FeedbackURL })},
	{"http-jobs.inner-feedback-url", "http-jobs-inner-feedback-url", "", "the same URL inside the server's network, if it differs", textOf(func(c *config) *string { return &c.HTTPJobs.InnerFeedback })},
	{"http-jobs.secrets", "http-jobs-secrets", "", "secrets for HTTP jobs, comma-separated: name@host=file, with + between hosts and files readable by their owner only: BILLING@api.example.com=/etc/carillon/billing", textOf(func(c *config) *string { return &c.HTTPJobs.Secrets })},
	{"http-jobs.call-timeout", "http-jobs-call-timeout", "60s", "time for one call of an HTTP job, at most 1h", durationOf(func(c *config) *time.Duration { return &c.HTTPJobs.CallTimeout })},
	{"http-jobs.breaker-after", "http-jobs-breaker-after", "5", "consecutive failures after which a target of HTTP jobs is paused; 0 = never", textOf(func(c *config) *string { return &c.HTTPJobs.BreakerAfter })},
	{"http-jobs.breaker-pause", "http-jobs-breaker-pause", "2m", "duration of that pause", durationOf(func(c *config) *time.Duration { return &c.HTTPJobs.BreakerPause })},
	{"retention.bytes", "retention-bytes", "8589934592", "disk space of finished runs and log lines in bytes; beyond it the oldest are purged; 0 = unlimited", setRetainBytes},
	{"retention.counts", "", "840h", "retention of counts of runs, at least 840h", durationOf(func(c *config) *time.Duration { return &c.KeepCounts })},
	{"limits.connections", "", "500", "connections to http.addr from one address at the same time", countOf(func(c *config) *int { return &c.Limits.Connections })},
	{"limits.connections-loopback", "", "4000", "connections to http.addr from loopback at the same time", countOf(func(c *config) *int { return &c.Limits.LoopbackConnections })},
	{"limits.request-memory", "", "1073741824", "memory in bytes for concurrent requests, estimated from their bodies, at least 319635456", memoryOf(func(c *config) *int64 { return &c.Limits.RequestMemory })},
	{"limits.request-memory-per-token", "", "536870912", "memory in bytes for concurrent requests of one token, at least 319635456", memoryOf(func(c *config) *int64 { return &c.Limits.RequestMemoryPerToken })},
	{"limits.http-workers", "", "2000", "HTTP workers of this process at the same time", countOf(func(c *config) *int { return &c.Limits.HTTPWorkers })},
	{"limits.http-workers-per-tenant", "", "1000", "HTTP workers of one tenant in this process at the same time", countOf(func(c *config) *int { return &c.Limits.HTTPWorkersPerTenant })},
	{"limits.http-workers-per-token", "", "500", "HTTP workers of one token in this process at the same time", countOf(func(c *config) *int { return &c.Limits.HTTPWorkersPerToken })},
	{"limits.waiting-runs", "", "2000000", "max waiting runs of one tenant", countOf(func(c *config) *int { return &c.Limits.WaitingRuns })},
	{"limits.waiting-runs-per-token", "", "1500000", "max waiting runs of one token; workers of an app, and bus clients of a tenant, count as one", countOf(func(c *config) *int { return &c.Limits.WaitingRunsPerToken })},
	{"limits.jobs-per-app", "", "10000", "max jobs that workers may register in one app", countOf(func(c *config) *int { return &c.Limits.JobsPerApp })},
	{"scheduler.debug.recurring", "", "", "debug mode of recurring jobs: due times create no runs", givenBool(func(c *config) **bool { return &c.Scheduler.RecurringDebug })},
	{"scheduler.debug.triggered", "", "", "debug mode of triggered jobs: their runs are held", givenBool(func(c *config) **bool { return &c.Scheduler.TriggeredDebug })},
	{"scheduler.newJobs", "", "", "state of newly registered jobs: enabled or disabled", setNewJobs},
}

func init() {
	for _, name := range kernel.DefaultFields() {
		settings = append(settings, setting{"scheduler.defaults." + name, "", "", "default of the jobs' setting " + name, setDefault(name)})
	}
}

// env is the environment variable of a key: scheduler.defaults.maxConcurrency is
// CARILLON_SCHEDULER_DEFAULTS_MAX_CONCURRENCY.
func (s setting) env() string {
	var b strings.Builder
	b.WriteString(envPrefix)
	for _, r := range s.key {
		switch {
		case r == '.' || r == '-':
			b.WriteByte('_')
		case r >= 'A' && r <= 'Z':
			b.WriteByte('_')
			b.WriteRune(r)
		default:
			b.WriteString(strings.ToUpper(string(r)))
		}
	}
	return b.String()
}

const (
	envPrefix   = "CARILLON_"
	envConfig   = "CARILLON_CONFIG"
	defaultFile = "carillon.yaml"
)

func textOf(at func(*config) *string) func(*config, string) error {
	return func(c *config, text string) error { *at(c) = text; return nil }
}

// patternsOf reads keys of jobs and patterns of keys.
func patternsOf(at func(*config) *[]string) func(*config, string) error {
	return func(c *config, text string) error {
		for _, pattern := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
			if err := metastore.CheckMatch(pattern); err != nil {
				return err
			}
			*at(c) = append(*at(c), pattern)
		}
		return nil
	}
}

func boolOf(at func(*config) *bool) func(*config, string) error {
	return func(c *config, text string) (err error) { *at(c), err = parseBool(text); return err }
}

func givenBool(at func(*config) **bool) func(*config, string) error {
	return func(c *config, text string) error {
		b, err := parseBool(text)
		*at(c) = &b
		return err
	}
}

func parseBool(text string) (bool, error) {
	switch text {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("invalid value %q: want true or false", text)
}

func oneOf(at func(*config) *string, values ...string) func(*config, string) error {
	return func(c *config, text string) error {
		if !slices.Contains(values, text) {
			return fmt.Errorf("invalid value %q: want one of %s", text, strings.Join(values, ", "))
		}
		*at(c) = text
		return nil
	}
}

func durationOf(at func(*config) *time.Duration) func(*config, string) error {
	return func(c *config, text string) error {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return fmt.Errorf("invalid value %q: want a duration such as 30s or 5m", text)
		}
		*at(c) = d
		return nil
	}
}

func countOf(at func(*config) *int) func(*config, string) error {
	return func(c *config, text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("invalid number %q: want a whole number, at least 1", text)
		}
		*at(c) = n
		return nil
	}
}

// memoryOf parses a number of bytes that is enough for the largest request.
func memoryOf(at func(*config) *int64) func(*config, string) error {
	return func(c *config, text string) error {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < api.LeastMemory {
			return fmt.Errorf("invalid number of bytes %q: want at least %d, which the largest request needs", text, api.LeastMemory)
		}
		*at(c) = n
		return nil
	}
}

func jobsFrom(c *config, text string) error {
	if scheme, _, is := strings.Cut(text, "://"); is {
		if u, err := url.Parse(text); err != nil || u.Host == "" || scheme != "http" && scheme != "https" {
			return fmt.Errorf("invalid value %.100q: want a path, or a URL with http or https", text)
		}
		if err := checkSource(text); err != nil {
			return err
		}
	}
	c.Jobs.From = text
	return nil
}

// leastEvery is the minimum interval between two reads of watched jobs. Tests set less.
var leastEvery = time.Second

func setEvery(c *config, text string) error {
	if err := durationOf(func(c *config) *time.Duration { return &c.Jobs.Every })(c, text); err != nil {
		return err
	}
	if c.Jobs.Every < leastEvery {
		return fmt.Errorf("invalid value %q: want at least %v", text, leastEvery)
	}
	return nil
}

func setNewJobs(c *config, text string) error {
	c.Scheduler.NewJobs = new(kernel.NewJobs(text))
	return kernel.Configure{NewJobs: c.Scheduler.NewJobs}.Check()
}

func setDefault(name string) func(*config, string) error {
	return func(c *config, text string) error {
		var s kernel.Settings
		if err := s.Read(name, text); err != nil {
			return err
		}
		c.Scheduler.Defaults = s.Over(c.Scheduler.Defaults)
		return ops.CheckDefaults(s)
	}
}

func setRetainBytes(c *config, text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > 0 && n < 1<<20 {
		return fmt.Errorf("invalid value %q: want a number of bytes, at least 1048576, or 0 for unlimited", text)
	}
	c.RetainBytes = cmp.Or(n, -1)
	return nil
}

// addFlags adds the flags of the table to a command, except those named.
func addFlags(cmd *cobra.Command, but ...string) {
	flags := cmd.Flags()
	flags.String("config", "", "config file (default ./"+defaultFile+" if there is one)")
	for _, s := range settings {
		if s.flag == "" || slices.Contains(but, s.flag) {
			continue
		}
		if s.def == "true" || s.def == "false" {
			flags.Bool(s.flag, s.def == "true", s.about)
		} else {
			flags.String(s.flag, s.def, s.about)
		}
		f := flags.Lookup(s.flag)
		f.Value = &counted{flagValue: f.Value}
	}
}

// counted is a flag that counts how often it is given.
type counted struct {
	flagValue
	times int
}

type flagValue interface {
	String() string
	Set(string) error
	Type() string
}

func (f *counted) Set(text string) error {
	f.times++
	return f.flagValue.Set(text)
}

// loadConfig reads all sources in the order of precedence. Its error lists all mistakes.
func loadConfig(cmd *cobra.Command, environ []string) (*config, error) {
	return loadChecked(cmd, environ, (*config).check)
}

// loadChecked is loadConfig with another check of the combination of settings.
func loadChecked(cmd *cobra.Command, environ []string, check func(*config)) (*config, error) {
	c := &config{values: map[string]value{}}
	for _, s := range settings {
		if s.def != "" {
			c.values[s.key] = value{s.def, "default"}
		}
	}
	env := map[string]string{}
	for _, e := range environ {
		if name, text, _ := strings.Cut(e, "="); strings.HasPrefix(name, envPrefix) {
			env[name] = text
		}
	}
	path, must := flagText(cmd, "config"), true
	if path == "" {
		path = env[envConfig]
	}
	if path == "" {
		path, must = defaultFile, false
	}
	c.readFile(path, must)
	c.readEnv(env)
	c.readFlags(cmd)
	for _, s := range settings {
		v, given := c.values[s.key]
		if !given {
			continue
		}
		if err := s.set(c, v.text); err != nil {
			c.wrong("%s (from %s): %v", s.key, v.origin, err)
		}
	}
	if len(c.mistakes) == 0 { // one mistake often causes a second one
		check(c)
	}
	return c, c.verdict()
}

// wrong records a mistake.
func (c *config) wrong(format string, args ...any) {
	c.mistakes = append(c.mistakes, fmt.Sprintf(format, args...))
}

// verdict returns all mistakes as one error, or nil.
func (c *config) verdict() error {
	switch len(c.mistakes) {
	case 0:
		return nil
	case 1:
		return usage("%s", c.mistakes[0])
	}
	return usage("%d mistakes in the configuration:\n  %s", len(c.mistakes), strings.Join(c.mistakes, "\n  "))
}

// readFlags reads settings from flags.
func (c *config) readFlags(cmd *cobra.Command) {
	for _, s := range settings {
		if s.flag == "" || !cmd.Flags().Changed(s.flag) {
			continue
		}
		f := cmd.Flags().Lookup(s.flag)
		if n, ok := f.Value.(*counted); ok && n.times > 1 {
			c.wrong("--%s is given %d times", s.flag, n.times)
		}
		c.values[s.key] = value{f.Value.String(), "--" + s.flag}
	}
}

func flagText(cmd *cobra.Command, name string) string {
	if f := cmd.Flags().Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}

// readEnv reads settings from the environment. It refuses a name that is nearly a setting, as a typing mistake, and
// ignores others: Kubernetes sets CARILLON_PORT for a service called carillon.
func (c *config) readEnv(env map[string]string) {
	known := map[string]string{envConfig: ""}
	for _, s := range settings {
		known[s.env()] = s.key
	}
	names := make([]string, 0, len(env))
	for name := range env {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		key, ok := known[name]
		if meant, far := plain.Closest(name, known); !ok && far <= plain.Slip {
			c.wrong("unknown environment variable %s; did you mean %s?", name, meant)
		}
		if key != "" {
			c.values[key] = value{env[name], name}
		}
	}
}

// readFile reads a config file into values, by the dotted paths of its keys.
func (c *config) readFile(path string, must bool) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !must {
		return
	}
	if err != nil {
		c.wrong("config file: %v", err)
		return
	}
	c.file = path
	var document yaml.Node
	if err := yaml.Unmarshal(raw, &document); err != nil {
		c.wrong("%s: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
		return
	}
	if len(document.Content) > 0 {
		c.readNode(path, "", document.Content[0])
	}
}

func (c *config) readNode(path, prefix string, node *yaml.Node) {
	if node.Kind != yaml.MappingNode {
		c.wrong("%s:%d: %s must have keys and values", path, node.Line, strings.TrimSuffix("the file "+prefix, " "))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, v := node.Content[i], node.Content[i+1]
		key := strings.TrimPrefix(prefix+"."+name.Value, ".")
		if seen[key] {
			c.wrong("%s:%d: %s is there twice", path, name.Line, key)
		}
		seen[key] = true
		isSection, isSetting := false, false
		for _, s := range settings {
			isSection = isSection || strings.HasPrefix(s.key, key+".")
			isSetting = isSetting || s.key == key
		}
		switch {
		case isSetting && v.Kind == yaml.ScalarNode && v.Tag != "!!null":
			c.values[key] = value{v.Value, fmt.Sprintf("%s:%d", path, v.Line)}
		case isSetting && isList(key) && v.Kind == yaml.SequenceNode:
			text, err := listText(v)
			if err != nil {
				c.wrong("%s:%d: %s: %v", path, v.Line, key, err)
			}
			c.values[key] = value{text, fmt.Sprintf("%s:%d", path, v.Line)}
		case isSetting:
			c.wrong("%s:%d: %s needs one value", path, name.Line, key)
		case isSection && v.Tag == "!!null": // a section in which everything is commented out
		case isSection:
			c.readNode(path, key, v)
		default:
			known := map[string]string{}
			for _, s := range settings {
				for k := s.key; k != ""; k = k[:max(strings.LastIndexByte(k, '.'), 0)] { // a section may be meant
					known[k] = ""
				}
			}
			if meant, far := plain.Closest(key, known); far <= min(2*plain.Slip, len(key)/2) { // or any short key would match
				c.wrong("%s:%d: unknown key %s; did you mean %s?", path, name.Line, key, meant)
				continue
			}
			c.wrong("%s:%d: unknown key %s; see carillon config print", path, name.Line, key)
		}
	}
}
