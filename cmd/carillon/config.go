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

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/cmd/carillon/cli"
	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Where a setting comes from: flags win over the environment, that over the file, that over the defaults. All of them
// speak of the same table, so a setting has one name everywhere: http.addr in the file, CARILLON_HTTP_ADDR, --http.

// config is what the program runs by.
type config struct {
	HTTP     string
	NATS     string // where the NATS server in this process listens
	URL      string // of a NATS server elsewhere; "" = the one in this process
	Auth     string // auto, on, off
	Debug    string // address of the profiler; "" = there is none
	Public   string // URL of the page as its users know it; "" = the address
	Hosts    string // names, with commas, under which the page is known beside
	HTTPTLS  keyPair
	NATSTLS  keyPair
	HTTPOpen bool // tokens may go over HTTP in the clear
	NATSOpen bool // and over NATS
	Login    natsLogin
	Cluster  clusterConfig
	Data     string
	Store    string // URL of a database; "" = the data directory
	Password string // file with the database's password
	Memory   bool
	Node     string
	LogLevel string
	LogJSON  string // auto, text, json
	Grace    time.Duration

	Triggering string // who fires: leader, spread

	OnFailure struct {
		URL, SecretFile string
		Interval        time.Duration
	}

	HTTPJobs httpJobsConfig

	// Jobs that are stated elsewhere; From "" = none.
	Jobs struct {
		From  string // a file, a folder or a URL
		Every time.Duration
		Exact bool
	}

	// What the file says about the scheduler itself; nil = nothing.
	DebugRecurring *bool
	DebugTriggered *bool
	MaxConcurrency *int
	Overlap        *jobs.Overlap
	NewJobs        *kernel.NewJobs
	Keep           keeps

	Limits limitsConfig

	RetainBytes int64         // what runs that are over may take
	KeepCounts  time.Duration // how long counts by the hour are kept

	values map[string]value // by key: what was said, and where
	file   string           // the config file that was read, or ""

	mistakes []string
}

// keyPair are the files of a certificate and its key; "" = there are none.
type keyPair struct{ Cert, Key string }

// keeps are defaults of what is kept of runs that are over; nil = nothing is said.
type keeps struct {
	For       *time.Duration `json:"keepFor,omitempty"`
	Succeeded *int           `json:"keepSucceeded,omitempty"`
	Others    *int           `json:"keepOthers,omitempty"`
}

func (k *keeps) said() bool { return k.For != nil || k.Succeeded != nil || k.Others != nil }

func (k *keeps) same(o *keeps) bool {
	return same(k.For, o.For) && same(k.Succeeded, o.Succeeded) && same(k.Others, o.Others)
}

// limitsConfig bounds what one address, token or tenant can take of this process.
type limitsConfig struct {
	Connections         int // of one address, to HTTP
	LoopbackConnections int // of all loopback addresses
	embed.Limits
}

// natsLogin is how this process shows itself to a NATS server elsewhere.
type natsLogin struct{ User, PasswordFile, TokenFile, CredsFile, CA string }

// clusterConfig is where other nodes are met; "" = none can join.
type clusterConfig struct{ Addr, NATS, Advertise, JoinFile string }

// value is what was said about a setting.
type value struct {
	text   string
	origin string
}

// setting is one line of the table.
type setting struct {
	key   string
	flag  string // "" = none
	def   string // "" = nothing is said
	about string
	set   func(c *config, text string) error
}

// settings is the table.
var settings = []setting{
	{"auth", "auth", "auto", "ask for tokens: on, off, or auto: as soon as others than this machine can come", oneOf(func(c *config) *string { return &c.Auth }, "auto", "on", "off")},
	{"http.addr", "http", "127.0.0.1:8080", "address of the page and the API", textOf(func(c *config) *string { return &c.HTTP })},
	{"http.tls-cert", "http-tls-cert", "", "file with the certificate (and those above it) for the page and the API", textOf(func(c *config) *string { return &c.HTTPTLS.Cert })},
	{"http.tls-key", "http-tls-key", "", "file with its key, which only its owner may read", textOf(func(c *config) *string { return &c.HTTPTLS.Key })},
	{"http.url", "http-url", "", "the page as its users know it, such as https://jobs.example.com behind a proxy", textOf(func(c *config) *string { return &c.Public })},
	{"http.hosts", "http-hosts", "", "more names under which the page is known, with commas", textOf(func(c *config) *string { return &c.Hosts })},
	{"http.plain", "http-plain", "false", "let tokens go over the network in the clear", boolOf(func(c *config) *bool { return &c.HTTPOpen })},
	{"nats.addr", "nats-addr", "127.0.0.1:4222", "address of the NATS server in this process", textOf(func(c *config) *string { return &c.NATS })},
	{"nats.tls-cert", "nats-tls-cert", "", "file with the certificate of the NATS server in this process", textOf(func(c *config) *string { return &c.NATSTLS.Cert })},
	{"nats.tls-key", "nats-tls-key", "", "file with its key, which only its owner may read", textOf(func(c *config) *string { return &c.NATSTLS.Key })},
	{"nats.plain", "nats-plain", "false", "let tokens of workers go over the network in the clear", boolOf(func(c *config) *bool { return &c.NATSOpen })},
	{"nats.url", "nats", "", "a NATS server elsewhere, such as nats://127.0.0.1:4222", textOf(func(c *config) *string { return &c.URL })},
	{"nats.user", "nats-user", "", "user at a NATS server elsewhere", textOf(func(c *config) *string { return &c.Login.User })},
	{"nats.password-file", "nats-password-file", "", "file with that user's password, which only its owner may read", textOf(func(c *config) *string { return &c.Login.PasswordFile })},
	{"nats.token-file", "nats-token-file", "", "file with a token for a NATS server elsewhere", textOf(func(c *config) *string { return &c.Login.TokenFile })},
	{"nats.creds-file", "nats-creds-file", "", "file with credentials (JWT and key) for a NATS server elsewhere", textOf(func(c *config) *string { return &c.Login.CredsFile })},
	{"nats.tls-ca", "nats-tls-ca", "", "file with certificates that vouch for a NATS server elsewhere; default: the system's", textOf(func(c *config) *string { return &c.Login.CA })},
	{"cluster.addr", "cluster", "", "host:port where other nodes reach this one; default: none can join", textOf(func(c *config) *string { return &c.Cluster.Addr })},
	{"cluster.nats-addr", "cluster-nats", "", "host:port where their NATS servers reach the one in this process; default: the next port", textOf(func(c *config) *string { return &c.Cluster.NATS })},
	{"cluster.advertise", "cluster-advertise", "", "name or address by which other nodes know this machine, if it is not in cluster.addr", textOf(func(c *config) *string { return &c.Cluster.Advertise })},
	{"cluster.join-file", "join-file", "", "file with an invitation (carillon cluster invite), by which an empty data directory joins", textOf(func(c *config) *string { return &c.Cluster.JoinFile })},
	{"data", "data", "./.carillon", "directory in which everything is kept", textOf(func(c *config) *string { return &c.Data })},
	{"store.url", "store", "", "a database that keeps the rows, such as postgres://carillon@db/carillon or mariadb://carillon@db/carillon", textOf(func(c *config) *string { return &c.Store })},
	{"store.password-file", "store-password-file", "", "file with the database's password, which only its owner may read", textOf(func(c *config) *string { return &c.Password })},
	{"triggering", "triggering", "leader", "which nodes fire due times: leader, or distributed (each node a share of the jobs; needs store.url)", oneOf(func(c *config) *string { return &c.Triggering }, "leader", "distributed")},
	{"memory", "memory", "false", "keep nothing: all is lost when the process ends", boolOf(func(c *config) *bool { return &c.Memory })},
	{"node", "node", "node", "name of this process", textOf(func(c *config) *string { return &c.Node })},
	{"debug.addr", "debug-addr", "", "address on this machine for the profiler; default: there is none", textOf(func(c *config) *string { return &c.Debug })},
	{"log.level", "log-level", "info", "debug, info, warn or error", oneOf(func(c *config) *string { return &c.LogLevel }, "debug", "info", "warn", "error")},
	{"log.format", "log-format", "auto", "text, json, or auto: text on a terminal", oneOf(func(c *config) *string { return &c.LogJSON }, "auto", "text", "json")},
	{"shutdown.grace", "grace", "30s", "how long running jobs may go on when the process is told to stop", durationOf(func(c *config) *time.Duration { return &c.Grace })},
	{"on-failure.url", "", "", "who is told of runs that end badly: a URL that takes a POST of JSON", textOf(func(c *config) *string { return &c.OnFailure.URL })},
	{"on-failure.secret-file", "", "", "file with the secret that signs what is sent there, which only its owner may read", textOf(func(c *config) *string { return &c.OnFailure.SecretFile })},
	{"on-failure.min-interval", "", "1m", "how long a job that was told of is not told of again", durationOf(func(c *config) *time.Duration { return &c.OnFailure.Interval })},
	{"jobs.from", "jobs-from", "", "a file, a folder or a URL that states jobs, as carillon apply takes them; what is new there is applied", jobsFrom},
	{"jobs.every", "", "2m", "how often it is looked at, at least 1s", setEvery},
	{"jobs.exact", "", "false", "fields that people have set and that are not stated there follow the code again", boolOf(func(c *config) *bool { return &c.Jobs.Exact })},
	{"http-jobs.on", "http-jobs", "false", "run HTTP jobs (those of app http) in this process", boolOf(func(c *config) *bool { return &c.HTTPJobs.On })},
	{"http-jobs.allow", "http-jobs-allow", "", "networks that HTTP jobs may call although they are not public, with commas: 10.1.0.0/16,127.0.0.1", textOf(func(c *config) *string { return &c.HTTPJobs.Allow })},
	{"http-jobs.ports", "http-jobs-ports", "", "ports that HTTP jobs may call beside 80 and 443, with commas", textOf(func(c *config) *string { return &c.HTTPJobs.Ports })},
	{"http-jobs.services", "http-jobs-services", "", "where services are that HTTP jobs name, with commas: billing=http://billing:8080", textOf(func(c *config) *string { return &c.HTTPJobs.Services })},
	{"http-jobs.variables", "http-jobs-variables", "", "names that HTTP jobs may use, with commas: REGION=eu", textOf(func(c *config) *string { return &c.HTTPJobs.Variables })},
	{"http-jobs.feedback-url", "http-jobs-feedback-url", "", "where others reach the API to call back about asynchronous HTTP jobs, such as https://jobs.example.com (default: http.url)", textOf(func(c *config) *string { return &c.HTTPJobs.FeedbackURL })},
	{"http-jobs.inner-feedback-url", "http-jobs-inner-feedback-url", "", "the same as neighbours of the server reach it, where that differs", textOf(func(c *config) *string { return &c.HTTPJobs.InnerFeedback })},
	{"http-jobs.secrets", "http-jobs-secrets", "", "secrets that HTTP jobs may use, each with the hosts that it may be sent to (+ between several) and a file that only its owner may read, with commas: BILLING@api.example.com=/etc/carillon/billing", textOf(func(c *config) *string { return &c.HTTPJobs.Secrets })},
	{"http-jobs.breaker-after", "http-jobs-breaker-after", "5", "failures in a row after which a target of HTTP jobs is left alone; 0 = never", textOf(func(c *config) *string { return &c.HTTPJobs.BreakerAfter })},
	{"http-jobs.breaker-pause", "http-jobs-breaker-pause", "2m", "for how long it is", durationOf(func(c *config) *time.Duration { return &c.HTTPJobs.BreakerPause })},
	{"retention.bytes", "retention-bytes", "8589934592", "what runs that are over may take on disk, in bytes: beyond, the oldest go; 0 = any number", setRetainBytes},
	{"retention.counts", "", "840h", "how long counts by the hour are kept, at least 840h", durationOf(func(c *config) *time.Duration { return &c.KeepCounts })},
	{"limits.connections", "", "500", "connections to http.addr from one address at the same time", countOf(func(c *config) *int { return &c.Limits.Connections })},
	{"limits.connections-loopback", "", "4000", "connections to http.addr from loopback at the same time", countOf(func(c *config) *int { return &c.Limits.LoopbackConnections })},
	{"limits.request-memory", "", "1073741824", "bytes of memory for requests in process, as estimated from their bodies, at least 319635456", memoryOf(func(c *config) *int64 { return &c.Limits.RequestMemory })},
	{"limits.request-memory-per-token", "", "536870912", "bytes of memory for requests of one token in process, at least 319635456", memoryOf(func(c *config) *int64 { return &c.Limits.RequestMemoryPerToken })},
	{"limits.http-workers", "", "2000", "HTTP workers of this process at the same time", countOf(func(c *config) *int { return &c.Limits.HTTPWorkers })},
	{"limits.http-workers-per-tenant", "", "1000", "HTTP workers of one tenant in this process at the same time", countOf(func(c *config) *int { return &c.Limits.HTTPWorkersPerTenant })},
	{"limits.http-workers-per-token", "", "500", "HTTP workers of one token in this process at the same time", countOf(func(c *config) *int { return &c.Limits.HTTPWorkersPerToken })},
	{"limits.waiting-runs", "", "2000000", "runs of one tenant that wait before requests for more are refused", countOf(func(c *config) *int { return &c.Limits.WaitingRuns })},
	{"limits.waiting-runs-per-token", "", "1500000", "the same of one token; all workers of an app count as one, and all clients of a tenant on the bus", countOf(func(c *config) *int { return &c.Limits.WaitingRunsPerToken })},
	{"limits.jobs-per-app", "", "10000", "jobs that workers may register in one app", countOf(func(c *config) *int { return &c.Limits.JobsPerApp })},
	{"scheduler.debug.recurring", "", "", "debug mode of recurring jobs: none of them fires by itself", givenBool(func(c *config) **bool { return &c.DebugRecurring })},
	{"scheduler.debug.triggered", "", "", "debug mode of triggered jobs: their runs are held back", givenBool(func(c *config) **bool { return &c.DebugTriggered })},
	{"scheduler.defaults.maxConcurrency", "", "", "runs of a job at the same time, where nobody says otherwise; 0 = no limit", setMaxConcurrency},
	{"scheduler.defaults.overlap", "", "", "what becomes of a run that finds no slot: skip, queue, queue_one or replace", setOverlap},
	{"scheduler.defaults.keepFor", "", "", "how long runs can be read once they are over, such as 120h; 0s = for ever", setKeepFor},
	{"scheduler.defaults.keepSucceeded", "", "", "so many runs of a job that succeeded, the newest; 0 = all", setKept(func(k *keeps) **int { return &k.Succeeded })},
	{"scheduler.defaults.keepOthers", "", "", "so many runs of a job that ended otherwise, the newest; 0 = all", setKept(func(k *keeps) **int { return &k.Others })},
	{"scheduler.newJobs", "", "", "how a job begins that a worker registers for the first time: enabled, or disabled until somebody starts it", setNewJobs},
}

// env is the environment variable of a key: scheduler.defaults.maxConcurrency is CARILLON_SCHEDULER_DEFAULTS_MAX_CONCURRENCY.
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
	return false, fmt.Errorf("%q is neither true nor false", text)
}

func oneOf(at func(*config) *string, words ...string) func(*config, string) error {
	return func(c *config, text string) error {
		if !slices.Contains(words, text) {
			return fmt.Errorf("%q is none of %s", text, strings.Join(words, ", "))
		}
		*at(c) = text
		return nil
	}
}

func durationOf(at func(*config) *time.Duration) func(*config, string) error {
	return func(c *config, text string) error {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return fmt.Errorf("%q is not a length of time such as 30s or 5m", text)
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

// memoryOf reads a number of bytes that the largest request fits into.
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
			return fmt.Errorf("%.100q is neither a path nor a URL with http or https", text)
		}
		if err := checkSource(text); err != nil {
			return err
		}
	}
	c.Jobs.From = text
	return nil
}

// leastEvery is the least pause between two looks at watched jobs. Tests have less.
var leastEvery = time.Second

func setEvery(c *config, text string) error {
	if err := durationOf(func(c *config) *time.Duration { return &c.Jobs.Every })(c, text); err != nil {
		return err
	}
	if c.Jobs.Every < leastEvery {
		return fmt.Errorf("%q is too short a pause between two looks: give %v or more", text, leastEvery)
	}
	return nil
}

func setMaxConcurrency(c *config, text string) error {
	n, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("%q is not a whole number", text)
	}
	c.MaxConcurrency = &n
	return (&kernel.Settings{MaxConcurrency: &n}).Check()
}

func setNewJobs(c *config, text string) error {
	c.NewJobs = new(kernel.NewJobs(text))
	return kernel.Configure{NewJobs: c.NewJobs}.Check()
}

func setKeepFor(c *config, text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is not a length of time such as 120h", text)
	}
	c.Keep.For = &d
	return (&kernel.Settings{KeepFor: &d}).Check()
}

func setKept(at func(*keeps) **int) func(*config, string) error {
	return func(c *config, text string) error {
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		*at(&c.Keep) = &n
		return (&kernel.Settings{KeepOthers: &n}).Check()
	}
}

func setRetainBytes(c *config, text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > 0 && n < 1<<20 {
		return fmt.Errorf("%q is not a number of bytes from 1048576 on, or 0 for any number", text)
	}
	c.RetainBytes = cmp.Or(n, -1)
	return nil
}

func setOverlap(c *config, text string) error {
	c.Overlap = new(jobs.Overlap(text))
	return (&kernel.Settings{Overlap: c.Overlap}).Check()
}

// addFlags gives a command the flags of the table, but not those named.
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

// loadConfig reads all that was said, in the order of who wins. What is wrong is said all at once.
func loadConfig(cmd *cobra.Command, environ []string) (*config, error) {
	return loadChecked(cmd, environ, (*config).check)
}

// loadChecked is loadConfig for a command that asks something else of settings that are right one by one.
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
		v, said := c.values[s.key]
		if !said {
			continue
		}
		if err := s.set(c, v.text); err != nil {
			c.wrong("%s (from %s): %v", s.key, v.origin, err)
		}
	}
	if len(c.mistakes) == 0 { // one mistake often looks like two
		check(c)
	}
	return c, c.verdict()
}

// wrong notes a mistake.
func (c *config) wrong(format string, args ...any) {
	c.mistakes = append(c.mistakes, fmt.Sprintf(format, args...))
}

// verdict is all mistakes as one, or nil.
func (c *config) verdict() error {
	switch len(c.mistakes) {
	case 0:
		return nil
	case 1:
		return usage("%s", c.mistakes[0])
	}
	return usage("%d things are wrong:\n  %s", len(c.mistakes), strings.Join(c.mistakes, "\n  "))
}

// readFlags takes the settings that flags give.
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

// readEnv takes the settings that the environment has. A name that is nearly a setting is a slip, and refused; others
// are somebody else's: Kubernetes, for one, sets CARILLON_PORT for a service called carillon.
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
		if meant, far := cli.Closest(name, known); !ok && far <= slip {
			c.wrong("environment variable %s is no setting; did you mean %s?", name, meant)
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
		c.wrong("%s:%d: %s must hold keys and values", path, node.Line, strings.TrimSuffix("the file "+prefix, " "))
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
		case isSetting:
			c.wrong("%s:%d: %s needs one value", path, name.Line, key)
		case isSection && v.Tag == "!!null": // a section in which everything is commented out
		case isSection:
			c.readNode(path, key, v)
		default:
			known := map[string]string{}
			for _, s := range settings {
				for k := s.key; k != ""; k = k[:max(strings.LastIndexByte(k, '.'), 0)] { // it may be a section that is meant
					known[k] = ""
				}
			}
			if meant, far := cli.Closest(key, known); far <= min(2*slip, len(key)/2) { // of a short word nothing may be left
				c.wrong("%s:%d: unknown key %s; did you mean %s?", path, name.Line, key, meant)
				continue
			}
			c.wrong("%s:%d: unknown key %s; carillon config print shows what there is", path, name.Line, key)
		}
	}
}

// slip is how many letters one mistake may cost.
const slip = 2
