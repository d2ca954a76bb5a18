package kernel

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Debug is a debug mode: while it is on, no job of its kind runs by itself.
type Debug struct {
	On bool
	By string
	At time.Time

	Discard bool // it is off, and what it held is cancelled
}

// Global is the settings of a tenant: the debug modes and the defaults of jobs. A setting without a setter has the
// value of File, or the built-in one.
type Global struct {
	Tenant         jobs.Tenant
	RecurringDebug Debug
	TriggeredDebug Debug
	MisfireAfter   time.Duration // 0 = DefaultMisfireAfter
	Revision       uint64        // counts the changes of the settings
	MaxJobs        int           // max number of jobs; 0 = DefaultMaxJobs
	NewJobs        NewJobs       // state of a job that a worker registers for the first time; "" = NewEnabled
	AppLimits      []jobs.Limit  // by app, the limit of its parallel runs and starts
	RetryBudget    *jobs.Rate    // rate limit of retries of all jobs; nil = DefaultRetryBudget

	File     File          // set by the configuration file
	Defaults Settings      // of jobs, set by users: they override those of File
	Apps     []AppDefaults // by name; they override both
	Setters  []Setter      // who set each setting that a user set

	// Counters that commands maintain. Revision does not count their changes.
	Jobs    int    // number of jobs
	Admins  int    // number of admin tokens that never expire
	Audits  uint64 // number of the last audit
	Batches int    // number of batches
	// Tenants is the number of tenants that were created; of the default tenant only.
	Tenants int

	AuditHead []byte // hash of the last audit; nil if there is none
	// AuditsFrom is the number of the oldest audit that is kept; 0 = 1. See FirstAudit.
	AuditsFrom uint64
	// AuditSinks is how far the audit is exported to each sink of the leader's configuration, by name.
	AuditSinks []AuditSink

	// Calendars counts the changes of calendars. A fire of a job that uses any names the one that it is based on.
	Calendars     uint64
	CalendarCount int // number of calendars

	Tenancy Tenancy

	// Purged is the time up to which finished runs of all jobs were purged by hand.
	Purged time.Time

	// Silences are the last debug modes of recurring jobs and suspensions that ended, oldest first: due times in them may
	// be undecided.
	Silences []Silence
}

// Silenced remembers a debug mode or a suspension that ends at a time.
func (g *Global) Silenced(why Reason, from, until time.Time) {
	g.Silences = append(slices.Clip(g.Silences), Silence{why, from, until})
	g.Silences = g.Silences[max(0, len(g.Silences)-MaxUndecided):]
}

// DebugOf returns the debug mode of a kind of job.
func (g *Global) DebugOf(kind Kind) Debug {
	if kind == Recurring {
		return g.RecurringDebug
	}
	return g.TriggeredDebug
}

// File is what the configuration file of a server sets; nil = nothing. Settings of users override it until they are
// reset.
type File struct {
	RecurringDebug *bool
	TriggeredDebug *bool
	NewJobs        *NewJobs
	Defaults       Settings
	By             string // the actor that read it, and when; set by the commit
	At             time.Time
}

// Same reports whether f and o set the same.
func (f *File) Same(o *File) bool {
	return same(f.RecurringDebug, o.RecurringDebug) && same(f.TriggeredDebug, o.TriggeredDebug) && same(f.NewJobs, o.NewJobs) && f.Defaults.Equal(&o.Defaults)
}

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// Empty reports whether f sets nothing.
func (f *File) Empty() bool { return f.Same(&File{}) }

// AppDefaults is the defaults of the jobs of an app.
type AppDefaults struct {
	App string
	Set Settings
}

// Setter is who set a setting of all jobs, and when.
type Setter struct {
	App  string // whose default it is; "" = the tenant's
	Name string // one of GlobalFields
	By   string
	At   time.Time
}

// MaxAppDefaults is the limit of apps with defaults of their own.
const MaxAppDefaults = 200

// defaultFields are the settings of jobs that may have a default: those that suit many jobs.
var defaultFields = []string{"zone", "gap", "twice", "misfire", "maxConcurrency", "overlap", "priority", "timeout", "startWithin",
	"retries", "retryDelay", "retryDelayMax", "retryFactor", "retryJitter", "retryRules", "retryBudget", "pauseAfter", "onLost", "leaseLost",
	"codeVersion", "keepFor", "keepSucceeded", "keepOthers"}

// DefaultFields returns the names of the settings of jobs that may have a default.
func DefaultFields() []string { return slices.Clone(defaultFields) }

// InDefaults precedes the name of a job's setting in GlobalFields.
const InDefaults = "defaults."

// The names of the settings of all jobs besides defaults.
const (
	FieldRecurringDebug = "recurringDebug"
	FieldTriggeredDebug = "triggeredDebug"
	FieldMisfireAfter   = "misfireAfter"
	FieldMaxJobs        = "maxJobs"
	FieldNewJobs        = "newJobs"
	FieldAppLimits      = "appLimits"
	FieldRetryBudget    = "retryBudget"
)

// GlobalFields returns the names of the settings of all jobs.
func GlobalFields() []string {
	names := []string{FieldRecurringDebug, FieldTriggeredDebug, FieldNewJobs, FieldMisfireAfter, FieldMaxJobs, FieldAppLimits, FieldRetryBudget}
	for _, name := range defaultFields {
		names = append(names, InDefaults+name)
	}
	return names
}

// Setter returns who set a setting, or nil if no user did.
func (g *Global) Setter(app, name string) *Setter {
	for i := range g.Setters {
		if m := &g.Setters[i]; m.App == app && m.Name == name {
			return m
		}
	}
	return nil
}

// OfApp returns the defaults of an app's jobs.
func (g *Global) OfApp(app string) Settings {
	for i := range g.Apps {
		if g.Apps[i].App == app {
			return g.Apps[i].Set
		}
	}
	return Settings{}
}

// defaults returns the settings of a job whose code sets none.
func (g *Global) defaults(k Kind, app string) Policy {
	p := builtin(k)
	g.File.Defaults.Lay(&p)
	g.Defaults.Lay(&p)
	own := g.OfApp(app)
	own.Lay(&p)
	return p
}

// checkDefaults validates defaults.
func checkDefaults(s *Settings) error {
	for _, name := range s.Given() {
		if !slices.Contains(defaultFields, name) {
			return Invalid("setting %s has no default; those with one are %s", name, strings.Join(defaultFields, ", "))
		}
	}
	if s.Zone != nil && *s.Zone == "" {
		return Invalid("empty default zone: want a time zone such as UTC")
	}
	return s.Check()
}

// Configure changes the settings of a tenant. Nil fields do not change.
type Configure struct {
	RecurringDebug *bool
	TriggeredDebug *bool
	MisfireAfter   *time.Duration
	MaxJobs        *int // 0 = DefaultMaxJobs
	NewJobs        *NewJobs
	AppLimits      *[]jobs.Limit
	RetryBudget    *jobs.Rate
	Defaults       *Settings // of jobs: those that it sets
	App            string    // Defaults and Reset concern this app's defaults; "" = the tenant's
	Reset          []string  // GlobalFields that follow the configuration file again
	File           *File     // all that the configuration file sets now
	Discard        bool      // runs that a debug mode held which this command switches off are cancelled
}

// Verb returns the verb of the command.
func (Configure) Verb() Verb { return VerbConfigure }

// Check validates the settings.
func (c Configure) Check() error {
	for _, s := range []*Settings{c.Defaults, c.fileDefaults()} {
		if s != nil {
			if err := checkDefaults(s); err != nil {
				return err
			}
		}
	}
	if c.AppLimits != nil {
		if err := CheckAppLimits(*c.AppLimits); err != nil {
			return err
		}
	}
	if c.RetryBudget != nil {
		if err := checkRate(*c.RetryBudget, "retry budget"); err != nil {
			return err
		}
	}
	if err := c.checkReset(); err != nil {
		return err
	}
	if err := within("max jobs", c.MaxJobs, 0, 100*DefaultMaxJobs); err != nil {
		return err
	}
	for _, state := range []*NewJobs{c.NewJobs, c.fileNewJobs()} {
		if err := oneOf("new jobs", state, NewEnabled, NewDisabled); err != nil {
			return err
		}
	}
	return within("misfire after", c.MisfireAfter, time.Second, MaxDuration)
}

func (c Configure) fileDefaults() *Settings {
	if c.File == nil {
		return nil
	}
	return &c.File.Defaults
}

func (c Configure) fileNewJobs() *NewJobs {
	if c.File == nil {
		return nil
	}
	return c.File.NewJobs
}

func (c Configure) checkReset() error {
	all := GlobalFields()
	for _, name := range c.Reset {
		if !slices.Contains(all, name) {
			return Invalid("there is no setting %.60q to reset; the settings are %s", name, strings.Join(all, ", "))
		}
		if c.App != "" && !strings.HasPrefix(name, InDefaults) {
			return Invalid("setting %s is not one of an app: want one that begins with %s", name, InDefaults)
		}
	}
	if c.App == "" {
		return nil
	}
	if err := CheckName("app", c.App); err != nil {
		return err
	}
	c.App, c.Defaults, c.Reset = "", nil, nil
	if !reflect.ValueOf(c).IsZero() {
		return Invalid("an app has defaults only: change other settings in a request of their own")
	}
	return nil
}

// NewJobs is the state of a job that a worker registers for the first time.
type NewJobs string

// The states of a new job.
const (
	NewEnabled  NewJobs = "enabled"
	NewDisabled NewJobs = "disabled" // a person enables it, once all workers have it
)

// DefaultMaxJobs is the default limit of a tenant's jobs: more than a million definitions come from a program that
// creates keys where it should create runs.
const DefaultMaxJobs = 1_000_000

// Quota returns the limit of jobs.
func (g *Global) Quota() int {
	most := cmp.Or(g.MaxJobs, DefaultMaxJobs)
	if n := g.Tenancy.Limits.Jobs; n > 0 {
		return min(most, n)
	}
	return most
}

// Budget returns the rate limit of retries of all jobs.
func (g *Global) Budget() jobs.Rate {
	if g.RetryBudget != nil {
		return *g.RetryBudget
	}
	return DefaultRetryBudget
}

// DefaultMisfireAfter is how late a due time may be and still fire by itself.
const DefaultMisfireAfter = 30 * time.Second

// NeverOnTime as Global.MisfireAfter: each due time that has come is late. No tenant can have it.
const NeverOnTime = -1

// Late returns how late a due time may be and still fire by itself.
func (g *Global) Late() time.Duration {
	return cmp.Or(g.MisfireAfter, DefaultMisfireAfter)
}
