package kernel

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Kind is which of the two kinds of job this is.
type Kind uint8

// The kinds of job.
const (
	Recurring Kind = 1 // runs by its schedule
	Triggered Kind = 2 // runs when asked, with arguments
)

func (k Kind) String() string {
	switch k {
	case Recurring:
		return "recurring"
	case Triggered:
		return "triggered"
	}
	return "?"
}

// MarshalText carries a kind by its name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Settings is what one owner (the defaults, the code, a person) says about a job. A nil field says nothing.
type Settings struct {
	Name           *string           `json:"name,omitempty"`
	Description    *string           `json:"description,omitempty"`
	Tags           *[]string         `json:"tags,omitempty"`
	Schedule       *string           `json:"schedule,omitempty"` // cron, interval, ISO 8601 or an instant; "" = never by itself
	Zone           *string           `json:"zone,omitempty"`
	Start          *time.Time        `json:"start,omitempty"`
	End            *time.Time        `json:"end,omitempty"`
	Gap            *jobs.Gap         `json:"gap,omitempty"`
	Twice          *jobs.Twice       `json:"twice,omitempty"`
	Args           *json.RawMessage  `json:"args,omitempty"`
	MaxConcurrency *int              `json:"maxConcurrency,omitempty"` // 0 = no limit
	Limits         *[]jobs.Limit     `json:"limits,omitempty"`
	Overlap        *jobs.Overlap     `json:"overlap,omitempty"`
	Retries        *int              `json:"retries,omitempty"`
	RetryDelay     *time.Duration    `json:"retryDelay,omitempty"`    // before the first retry; 0 = at once
	RetryDelayMax  *time.Duration    `json:"retryDelayMax,omitempty"` // the delay doubles up to this
	Timeout        *time.Duration    `json:"timeout,omitempty"`       // 0 = none
	OnLost         *jobs.OnLost      `json:"onLost,omitempty"`
	LeaseLost      *jobs.LeaseLost   `json:"leaseLost,omitempty"`
	Misfire        *jobs.Misfire     `json:"misfire,omitempty"`
	Priority       *int              `json:"priority,omitempty"`    // higher goes first
	StartWithin    *time.Duration    `json:"startWithin,omitempty"` // start deadline after the due time; 0 = none
	Disabled       *bool             `json:"disabled,omitempty"`
	Route          *jobs.Route       `json:"route,omitempty"`
	RouteBy        *string           `json:"routeBy,omitempty"` // path of the argument that consistent_hash goes by; "" = the job's key
	Needs          *[]string         `json:"needs,omitempty"`   // tags, or key=value, that a worker must have
	Pin            *string           `json:"pin,omitempty"`     // the worker that runs it; "" = none is meant
	PinAway        *jobs.PinAway     `json:"pinAway,omitempty"`
	CodeVersion    *jobs.CodeVersion `json:"codeVersion,omitempty"`
	Slots          *int              `json:"slots,omitempty"`       // runs of it in one worker at the same time; 0 = as many as it has slots
	First          *time.Time        `json:"first,omitempty"`       // the first due time of an interval, from which the others count
	TTL            *time.Duration    `json:"ttl,omitempty"`         // the schedule ends so long after it began; 0 = never
	Early          *time.Duration    `json:"early,omitempty"`       // a run may start so long before it is due
	Jitter         *time.Duration    `json:"jitter,omitempty"`      // starts are spread over so long a time
	Calendars      *[]string         `json:"calendars,omitempty"`   // it is not due at the times that these exclude
	Rate           *jobs.Rate        `json:"rate,omitempty"`        // how often runs may start
	RetryFactor    *float64          `json:"retryFactor,omitempty"` // what the delay grows by with each retry
	RetryJitter    *jobs.Jitter      `json:"retryJitter,omitempty"`
	RetryRules     *[]jobs.RetryRule `json:"retryRules,omitempty"`    // by error code; the first that matches wins
	RetryBudget    *jobs.Rate        `json:"retryBudget,omitempty"`   // how often runs may be tried again; later retries are spread
	PauseAfter     *int              `json:"pauseAfter,omitempty"`    // so many runs in a row that fail for good pause the job; 0 = never
	HTTP           *json.RawMessage  `json:"http,omitempty"`          // what it is to do, as a chain of HTTP requests; none = its code says
	OnSuccess      *[]string         `json:"onSuccess,omitempty"`     // jobs that run after one that succeeded
	OnFailure      *[]string         `json:"onFailure,omitempty"`     // jobs that run after one that failed for good
	Parent         *string           `json:"parent,omitempty"`        // the job that this one belongs to; "" = none
	KeepFor        *time.Duration    `json:"keepFor,omitempty"`       // how long runs that are over can be read; 0 = for ever
	KeepSucceeded  *int              `json:"keepSucceeded,omitempty"` // so many that Succeeded, the newest; 0 = all
	KeepOthers     *int              `json:"keepOthers,omitempty"`    // and so many that ended otherwise; 0 = all
}

// Policy is what holds for a job once defaults, code and edits are laid over each other.
type Policy struct {
	Name, Description string
	Tags              []string
	Schedule, Zone    string
	Start, End        time.Time
	Gap               jobs.Gap
	Twice             jobs.Twice
	Args              json.RawMessage
	MaxConcurrency    int
	Limits            []jobs.Limit
	Overlap           jobs.Overlap
	Retries           int
	RetryDelay        time.Duration
	RetryDelayMax     time.Duration
	Timeout           time.Duration
	OnLost            jobs.OnLost
	LeaseLost         jobs.LeaseLost
	Misfire           jobs.Misfire
	Priority          int
	StartWithin       time.Duration
	Disabled          bool
	Route             jobs.Route
	RouteBy           string
	Needs             []string
	Pin               string
	PinAway           jobs.PinAway
	CodeVersion       jobs.CodeVersion
	Slots             int
	First             time.Time
	TTL               time.Duration
	Early             time.Duration
	Jitter            time.Duration
	Calendars         []string
	Rate              jobs.Rate
	RetryFactor       float64
	RetryJitter       jobs.Jitter
	RetryRules        []jobs.RetryRule
	RetryBudget       jobs.Rate
	PauseAfter        int
	HTTP              json.RawMessage // none = a worker has its code
	OnSuccess         []string
	OnFailure         []string
	Parent            string
	KeepFor           time.Duration
	KeepSucceeded     int
	KeepOthers        int
}

// SameTimes says that p and q are due at the same times: nothing differs that makes up the schedule.
func (p *Policy) SameTimes(q *Policy) bool {
	return p.Schedule == q.Schedule && p.Zone == q.Zone && p.Start.Equal(q.Start) && p.End.Equal(q.End) &&
		p.Gap == q.Gap && p.Twice == q.Twice && p.First.Equal(q.First) && p.TTL == q.TTL && slices.Equal(p.Calendars, q.Calendars)
}

// Held says that a job does not fire, who said so, why, and until when (zero: until resumed).
type Held struct {
	Reason, By string // as whoever paused it put it; see Why
	At, Until  time.Time
	// Of a job that paused itself: how many runs in a row failed, and the last of them. Reason is the error of that one.
	Failed int
	Run    jobs.ID
}

// ByItself is who has paused a job whose runs failed again and again, see PauseAfter.
const ByItself = "carillon"

// Definition is a job as the store remembers it.
type Definition struct {
	Tenant  jobs.Tenant
	UID     jobs.ID // of this life of the key: a deleted and re-created job has another
	Key     jobs.Key
	Kind    Kind
	App     string // the worker group that runs it
	Version int    // the highest Options.Version that registered it
	Schema  []byte // JSON Schema of the arguments, or nil

	Code   Settings // what the code says
	Edits  Settings // what people said: wins, field by field, for ever
	Policy Policy   // what holds

	Paused   *Held
	Created  time.Time
	Edited   time.Time
	Revision uint64 // counts the changes of what holds; a fire names the one it was decided by
	Change   uint64 // the store's change number at the last change: "what changed since N"
	Defaults uint64 // revision of the tenant's Global that Policy was made with

	// Cursor is the schedule's memory: every due time up to and including it has been decided.
	Cursor time.Time
	// Anchor is when the schedule was written: intervals without a start count from it.
	Anchor time.Time
	// Missed is the From of the last missed range, which the next one may extend; zero if none.
	Missed time.Time
	// Deleted is when the job was taken away. What is left is shown to nobody but those who ask what changed, and tells
	// registrations of workers that went on serving it from those that want it back.
	Deleted time.Time
	// Undecided are earlier schedules, oldest first, of which due times after Cursor may not have been decided when
	// they were changed. An edit never fires for the past, so the leader's next Fire puts those into the ledger.
	Undecided []Earlier
	// Running is the run of the schedule that is not over, and Ended when the last one was over, as far as the schedule
	// counts from that.
	Running jobs.ID
	Ended   time.Time
	// Stopped is since when workers of its app live and none of them has the job; zero = it is not so. Its due times are
	// decided when one has it again, as the misfire policy says.
	Stopped time.Time
	// Failing counts the runs in a row that failed for good, while PauseAfter is set.
	Failing int
	// Cleaned is up to when runs that are over were cleared away by hand.
	Cleaned time.Time
}

// MaxUndecided is how many schedules of a job may be waiting for a leader to look at them.
const MaxUndecided = 100

// Earlier is a schedule that a job had.
type Earlier struct {
	Schedule, Zone string
	Start, End     time.Time
	Gap            jobs.Gap
	Twice          jobs.Twice
	Anchor         time.Time
	Until          time.Time // when it was changed: due times up to and including it are its own
	First          time.Time
	TTL            time.Duration
	Calendars      []string
}

// Earlier is the job's schedule as something to remember.
func (d *Definition) Earlier(until time.Time) Earlier {
	p := &d.Policy
	return Earlier{Schedule: p.Schedule, Zone: p.Zone, Start: p.Start, End: p.End, Gap: p.Gap, Twice: p.Twice, Anchor: d.Anchor, Until: until,
		First: p.First, TTL: p.TTL, Calendars: p.Calendars}
}

// With is the job as it would be with an earlier schedule.
func (d *Definition) With(e Earlier) *Definition {
	was := *d
	p := &was.Policy
	p.Schedule, p.Zone, p.Start, p.End, p.Gap, p.Twice, was.Anchor = e.Schedule, e.Zone, e.Start, e.End, e.Gap, e.Twice, e.Anchor
	p.First, p.TTL, p.Calendars = e.First, e.TTL, e.Calendars
	return &was
}

// Since is the time after which due times of the schedule have not been decided.
func (d *Definition) Since() time.Time {
	if d.Cursor.Before(d.Anchor) {
		return d.Anchor
	}
	return d.Cursor
}

// Gone says that the job has been deleted.
func (d *Definition) Gone() bool { return !d.Deleted.IsZero() }

// Holds says that new runs of a triggered job wait at a time, because it is paused.
func (d *Definition) Holds(at time.Time) bool {
	return d.Kind == Triggered && d.Paused != nil && (d.Paused.Until.IsZero() || d.Paused.Until.After(at))
}

// Silent says that a due time of the job becomes part of a ledger range, and why ("" = it fires).
func (d *Definition) Silent(g *Global, due time.Time) Reason {
	switch p := d.Paused; {
	case d.Policy.Disabled:
		return MissedDisabled
	case p != nil && due.After(p.At) && (p.Until.IsZero() || due.Before(p.Until)):
		return MissedPaused
	case g.RecurringDebug.On && due.After(g.RecurringDebug.At):
		return MissedDebug
	}
	return ""
}

// Debug is a debug mode: while it is on, nothing of its kind runs by itself.
type Debug struct {
	On bool
	By string
	At time.Time
}

// Global is what holds for all jobs of a tenant: the debug modes and the defaults.
type Global struct {
	Tenant            jobs.Tenant
	RecurringDebug    Debug
	TriggeredDebug    Debug
	RecurringDefaults Settings
	TriggeredDefaults Settings
	MisfireAfter      time.Duration // 0 = DefaultMisfireAfter
	Revision          uint64        // counts its changes
	MaxJobs           int           // how many jobs there may be; 0 = DefaultMaxJobs
	NewJobs           NewJobs       // how a job begins that a worker registers for the first time; "" = NewEnabled
	AppLimits         []jobs.Limit  // by app, how many of its runs may be under way, and how often they start
	RetryBudget       *jobs.Rate    // how often runs of all jobs may be tried again; nil = DefaultRetryBudget

	// What commands count beside what people say. Revision does not tell of it.
	Jobs   int    // jobs there are
	Admins int    // tokens of admins that have no end
	Audits uint64 // number of the last audit

	// Calendars counts the changes of calendars. A fire of a job that uses any names the one it was decided by.
	Calendars     uint64
	CalendarCount int // how many there are

	// Cleaned is up to when runs of all jobs that are over were cleared away by hand.
	Cleaned time.Time
}

// NewJobs says how a job begins that a worker registers for the first time.
type NewJobs string

// The beginnings of a job.
const (
	NewEnabled  NewJobs = "enabled"
	NewDisabled NewJobs = "disabled" // a person starts it, once all workers have it
)

// DefaultMaxJobs is how many jobs a tenant may have if nobody says otherwise: more than a million rows of definitions
// are a program that makes keys where it should make runs.
const DefaultMaxJobs = 1_000_000

// Quota is how many jobs there may be.
func (g *Global) Quota() int {
	if g.MaxJobs > 0 {
		return g.MaxJobs
	}
	return DefaultMaxJobs
}

// Budget is how often runs of all jobs may be tried again.
func (g *Global) Budget() jobs.Rate {
	if g.RetryBudget != nil {
		return *g.RetryBudget
	}
	return DefaultRetryBudget
}

// DefaultMisfireAfter is how late a due time may be and still fire by itself.
const DefaultMisfireAfter = 30 * time.Second

// Late is how late a due time may be and still fire by itself.
func (g *Global) Late() time.Duration {
	if g.MisfireAfter > 0 {
		return g.MisfireAfter
	}
	return DefaultMisfireAfter
}

// builtin is what holds when nobody says anything.
func builtin(k Kind) Policy {
	p := Policy{Gap: jobs.GapAfter, Twice: jobs.TwiceFirst, Overlap: jobs.OverlapQueue, Timeout: time.Hour, OnLost: jobs.LostRetry,
		LeaseLost: jobs.LeaseContinue, Misfire: jobs.MisfireOnce, RetryDelay: time.Second, RetryDelayMax: 10 * time.Minute, Route: jobs.RouteAny, PinAway: jobs.PinWait, CodeVersion: jobs.CodeAny,
		RetryFactor: 2, RetryJitter: jobs.JitterHalf, RetryBudget: jobs.Rate{Max: 10, Per: time.Second},
		KeepFor: 5 * 24 * time.Hour, KeepSucceeded: 1_000, KeepOthers: 10_000}
	if k == Recurring {
		p.MaxConcurrency, p.Overlap = 1, jobs.OverlapSkip
	}
	return p
}

// Resolve lays the owners over each other: built in < defaults < code < edits.
func (d *Definition) Resolve(g *Global) Policy {
	p := builtin(d.Kind)
	defaults := &g.TriggeredDefaults
	if d.Kind == Recurring {
		defaults = &g.RecurringDefaults
	}
	for _, s := range []*Settings{defaults, &d.Code, &d.Edits} {
		s.lay(&p)
	}
	if p.Name == "" {
		p.Name = string(d.Key)
	}
	return p
}
