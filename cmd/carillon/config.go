package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Where a setting comes from: flags win over the environment, that over the file, that over the defaults. All of them
// speak of the same table, so a setting has one name everywhere: http.addr in the file, CARILLON_HTTP_ADDR, --http.

// config is what the program runs by.
type config struct {
	HTTP     string
	NATS     string // where the NATS server in this process listens
	URL      string // of a NATS server elsewhere; "" = the one in this process
	Data     string
	Memory   bool
	Node     string
	LogLevel string
	LogJSON  string // auto, text, json
	Grace    time.Duration

	// What the file says about the scheduler itself; nil = nothing.
	DebugRecurring *bool
	DebugTriggered *bool
	MaxConcurrency *int
	Overlap        *jobs.Overlap

	values map[string]value // by key: what was said, and where
	file   string           // the config file that was read, or ""
}

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
	{"http.addr", "http", "127.0.0.1:8080", "address of the page and the API", textOf(func(c *config) *string { return &c.HTTP })},
	{"nats.addr", "nats-addr", "127.0.0.1:4222", "address of the NATS server in this process", textOf(func(c *config) *string { return &c.NATS })},
	{"nats.url", "nats", "", "a NATS server elsewhere, such as nats://127.0.0.1:4222", textOf(func(c *config) *string { return &c.URL })},
	{"data", "data", "./.carillon", "directory in which everything is kept", textOf(func(c *config) *string { return &c.Data })},
	{"memory", "memory", "false", "keep nothing: all is lost when the process ends", boolOf(func(c *config) *bool { return &c.Memory })},
	{"node", "node", "node", "name of this process", textOf(func(c *config) *string { return &c.Node })},
	{"log.level", "log-level", "info", "debug, info, warn or error", oneOf(func(c *config) *string { return &c.LogLevel }, "debug", "info", "warn", "error")},
	{"log.format", "log-format", "auto", "text, json, or auto: text on a terminal", oneOf(func(c *config) *string { return &c.LogJSON }, "auto", "text", "json")},
	{"shutdown.grace", "grace", "30s", "how long running jobs may go on when the process is told to stop", durationOf(func(c *config) *time.Duration { return &c.Grace })},
	{"scheduler.debug.recurring", "", "", "debug mode of recurring jobs: none of them fires by itself", givenBool(func(c *config) **bool { return &c.DebugRecurring })},
	{"scheduler.debug.triggered", "", "", "debug mode of triggered jobs: their runs are held back", givenBool(func(c *config) **bool { return &c.DebugTriggered })},
	{"scheduler.defaults.maxConcurrency", "", "", "runs of a job at the same time, where nobody says otherwise; 0 = no limit", setMaxConcurrency},
	{"scheduler.defaults.overlap", "", "", "what becomes of a run that finds no slot: skip or queue", setOverlap},
}

// env is the environment variable of a key: scheduler.defaults.maxConcurrency is CARILLON_SCHEDULER_DEFAULTS_MAX_CONCURRENCY.
func (s setting) env() string {
	var b strings.Builder
	b.WriteString(envPrefix)
	for _, r := range s.key {
		switch {
		case r == '.':
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

func setMaxConcurrency(c *config, text string) error {
	n, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("%q is not a whole number", text)
	}
	c.MaxConcurrency = &n
	return (&jobs.Settings{MaxConcurrency: &n}).Check()
}

func setOverlap(c *config, text string) error {
	c.Overlap = new(jobs.Overlap(text))
	return (&jobs.Settings{Overlap: c.Overlap}).Check()
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
	}
}

// loadConfig reads all that was said, in the order of who wins.
func loadConfig(cmd *cobra.Command, environ []string) (*config, error) {
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
	if err := c.readFile(path, must); err != nil {
		return nil, err
	}
	if err := c.readEnv(env); err != nil {
		return nil, err
	}
	for _, s := range settings {
		if s.flag != "" && cmd.Flags().Changed(s.flag) {
			c.values[s.key] = value{flagText(cmd, s.flag), "--" + s.flag}
		}
	}
	for _, s := range settings {
		v, said := c.values[s.key]
		if !said {
			continue
		}
		if err := s.set(c, v.text); err != nil {
			return nil, usage("%s (from %s): %v", s.key, v.origin, err)
		}
	}
	return c, c.check()
}

func flagText(cmd *cobra.Command, name string) string {
	if f := cmd.Flags().Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}

// check says what is wrong with settings that are right one by one.
func (c *config) check() error {
	if err := jobs.CheckName("node", c.Node); err != nil {
		return usageError{err}
	}
	if c.Memory && c.values["data"].origin != "default" {
		return usage("both data (from %s) and memory (from %s) are given: one keeps everything, the other nothing", c.values["data"].origin, c.values["memory"].origin)
	}
	if !c.Memory && c.Data == "" {
		return usage("data is empty: give a directory, or memory to keep nothing")
	}
	return nil
}

// readEnv takes the settings that the environment has. A name that is nearly a setting is a slip, and refused; others
// are somebody else's: Kubernetes, for one, sets CARILLON_PORT for a service called carillon.
func (c *config) readEnv(env map[string]string) error {
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
		if meant, far := closest(name, known); !ok && far <= slip {
			return usage("environment variable %s is no setting; did you mean %s?", name, meant)
		}
		if key != "" {
			c.values[key] = value{env[name], name}
		}
	}
	return nil
}

// readFile reads a config file into values, by the dotted paths of its keys.
func (c *config) readFile(path string, must bool) error {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !must {
		return nil
	}
	if err != nil {
		return usage("config file: %v", err)
	}
	c.file = path
	var document yaml.Node
	if err := yaml.Unmarshal(raw, &document); err != nil {
		return usage("%s: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(document.Content) == 0 {
		return nil
	}
	return c.readNode(path, "", document.Content[0])
}

func (c *config) readNode(path, prefix string, node *yaml.Node) error {
	if node.Kind != yaml.MappingNode {
		return usage("%s:%d: %s must hold keys and values", path, node.Line, strings.TrimSuffix("the file "+prefix, " "))
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, v := node.Content[i], node.Content[i+1]
		key := strings.TrimPrefix(prefix+"."+name.Value, ".")
		if seen[key] {
			return usage("%s:%d: %s is there twice", path, name.Line, key)
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
			return usage("%s:%d: %s needs one value", path, name.Line, key)
		case isSection && v.Tag == "!!null": // a section in which everything is commented out
		case isSection:
			if err := c.readNode(path, key, v); err != nil {
				return err
			}
		default:
			known := map[string]string{}
			for _, s := range settings {
				known[s.key] = ""
			}
			if meant, far := closest(key, known); far <= 2*slip {
				return usage("%s:%d: unknown key %s; did you mean %s?", path, name.Line, key, meant)
			}
			return usage("%s:%d: unknown key %s; carillon config print shows what there is", path, name.Line, key)
		}
	}
	return nil
}

// slip is how many letters one mistake may cost.
const slip = 2

// closest is the known word that is nearest, and how many letters it is away.
func closest(word string, known map[string]string) (best string, least int) {
	least = len(word) + 1
	for name := range known {
		if d := distance(word, name); d < least || d == least && name < best {
			best, least = name, d
		}
	}
	return best, least
}

// distance is how many letters must change to make b of a (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, row[j]+1, before+1)
		}
	}
	return row[len(b)]
}
