package jobs

import (
	"bytes"
	"encoding/json"
	"time"
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

// Overlap says what becomes of a run that finds no free slot.
type Overlap string

// The answers to a full slot.
const (
	OverlapSkip  Overlap = "skip"  // it becomes Skipped
	OverlapQueue Overlap = "queue" // it waits for its turn
)

// Misfire says what becomes of due times that were missed by more than the misfire threshold.
type Misfire string

// The answers to missed due times.
const (
	MisfireOnce Misfire = "fire_once" // the newest missed one fires, the rest become one Missed record
	MisfireAll  Misfire = "fire_all"  // all of them fire (up to a cap)
	MisfireSkip Misfire = "skip"      // none of them fires
)

// Gap says when a job is due whose time of day clocks skip, where its schedule names hour and minute as numbers.
type Gap string

// The answers to a missing time of day.
const (
	GapAfter  Gap = "after"  // once, right after the gap
	GapBefore Gap = "before" // once, in the last second before it
	GapSkip   Gap = "skip"   // not that day
)

// Twice says when a job is due whose time of day comes twice because clocks go back, where its schedule names hour and
// minute as numbers.
type Twice string

// The answers to a time of day that comes twice.
const (
	TwiceFirst  Twice = "first"
	TwiceSecond Twice = "second"
	TwiceBoth   Twice = "both"
)

// OnLost says what becomes of a run whose worker died.
type OnLost string

// The answers to a lost worker.
const (
	LostRetry OnLost = "retry" // another worker takes it up, three times at most
	LostFail  OnLost = "fail"  // it is Terminated: started at most once
)

// LeaseLost says what a worker does with a run while no control plane answers it.
type LeaseLost string

// The answers to a lost lease.
const (
	LeaseContinue LeaseLost = "continue" // the run goes on
	LeaseCancel   LeaseLost = "cancel"   // its context is cancelled when the lease lapses
)

// Limit is a named number of slots that several jobs may share.
type Limit struct {
	Name string `json:"name"`
	Max  int    `json:"max"`
}

// Settings is what one owner (the defaults, the code, a person) says about a job. A nil field says nothing.
type Settings struct {
	Name           *string          `json:"name,omitempty"`
	Description    *string          `json:"description,omitempty"`
	Tags           *[]string        `json:"tags,omitempty"`
	Schedule       *string          `json:"schedule,omitempty"` // cron, interval, ISO 8601 or an instant; "" = never by itself
	Zone           *string          `json:"zone,omitempty"`
	Start          *time.Time       `json:"start,omitempty"`
	End            *time.Time       `json:"end,omitempty"`
	Gap            *Gap             `json:"gap,omitempty"`
	Twice          *Twice           `json:"twice,omitempty"`
	Args           *json.RawMessage `json:"args,omitempty"`
	MaxConcurrency *int             `json:"maxConcurrency,omitempty"` // 0 = no limit
	Limits         *[]Limit         `json:"limits,omitempty"`
	Overlap        *Overlap         `json:"overlap,omitempty"`
	Retries        *int             `json:"retries,omitempty"`
	RetryDelay     *time.Duration   `json:"retryDelay,omitempty"`    // before the first retry; 0 = at once
	RetryDelayMax  *time.Duration   `json:"retryDelayMax,omitempty"` // the delay doubles up to this
	Timeout        *time.Duration   `json:"timeout,omitempty"`       // 0 = none
	OnLost         *OnLost          `json:"onLost,omitempty"`
	LeaseLost      *LeaseLost       `json:"leaseLost,omitempty"`
	Misfire        *Misfire         `json:"misfire,omitempty"`
	Priority       *int             `json:"priority,omitempty"`    // higher goes first
	StartWithin    *time.Duration   `json:"startWithin,omitempty"` // start deadline after the due time; 0 = none
	Disabled       *bool            `json:"disabled,omitempty"`
}

// Policy is what holds for a job once defaults, code and edits are laid over each other.
type Policy struct {
	Name, Description string
	Tags              []string
	Schedule, Zone    string
	Start, End        time.Time
	Gap               Gap
	Twice             Twice
	Args              json.RawMessage
	MaxConcurrency    int
	Limits            []Limit
	Overlap           Overlap
	Retries           int
	RetryDelay        time.Duration
	RetryDelayMax     time.Duration
	Timeout           time.Duration
	OnLost            OnLost
	LeaseLost         LeaseLost
	Misfire           Misfire
	Priority          int
	StartWithin       time.Duration
	Disabled          bool
}

// SameTimes says that p and q are due at the same times: nothing differs that makes up the schedule.
func (p *Policy) SameTimes(q *Policy) bool {
	return p.Schedule == q.Schedule && p.Zone == q.Zone && p.Start.Equal(q.Start) && p.End.Equal(q.End) &&
		p.Gap == q.Gap && p.Twice == q.Twice
}

// Held says that a job does not fire, who said so, why, and until when (zero: until resumed).
type Held struct {
	Reason, By string
	At, Until  time.Time
}

// Definition is a job as the store remembers it.
type Definition struct {
	Tenant  Tenant
	UID     ID // of this life of the key: a deleted and re-created job has another
	Key     Key
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
	Tenant            Tenant
	RecurringDebug    Debug
	TriggeredDebug    Debug
	RecurringDefaults Settings
	TriggeredDefaults Settings
	MisfireAfter      time.Duration // 0 = DefaultMisfireAfter
	Revision          uint64        // counts its changes
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
	p := Policy{Gap: GapAfter, Twice: TwiceFirst, Overlap: OverlapQueue, Timeout: time.Hour, OnLost: LostRetry,
		LeaseLost: LeaseContinue, Misfire: MisfireOnce, RetryDelayMax: time.Hour}
	if k == Recurring {
		p.MaxConcurrency, p.Overlap = 1, OverlapSkip
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

// What the numbers of a job may be.
const (
	MaxArgs           = 256 << 10
	MaxResult         = 64 << 10
	MaxError          = 16 << 10
	MaxCheckpoint     = 64 << 10
	MaxDescription    = 4 << 10
	MaxNameLen        = 200
	MaxSchedule       = 1 << 10
	MaxZone           = 100
	MaxConcurrencyTop = 1_000_000
	MaxRetries        = 1_000
	MaxDuration       = 366 * 24 * time.Hour
	MaxPriority       = 100
	MaxTags           = 32
	MaxLimits         = 8
	MaxDelay          = 5 * 366 * 24 * time.Hour // how far ahead a run may be due
	MaxBulk           = 100_000                  // runs in one bulk
)

// Check says what is wrong with the settings, naming the field, the value and what is allowed; or nil. The text
// of the schedule is not judged here but by jobs/schedule, before a command is made of it.
func (s *Settings) Check() error {
	if s.Name != nil && len(*s.Name) > MaxNameLen {
		return Invalid("name has %d bytes, at most %d are allowed", len(*s.Name), MaxNameLen)
	}
	if s.Description != nil && len(*s.Description) > MaxDescription {
		return Invalid("description has %d bytes, at most %d are allowed", len(*s.Description), MaxDescription)
	}
	if s.Schedule != nil && len(*s.Schedule) > MaxSchedule {
		return Invalid("schedule has %d bytes, at most %d are allowed", len(*s.Schedule), MaxSchedule)
	}
	if s.Zone != nil && len(*s.Zone) > MaxZone {
		return Invalid("time zone has %d bytes, at most %d are allowed", len(*s.Zone), MaxZone)
	}
	if err := oneOf("gap", s.Gap, GapAfter, GapBefore, GapSkip); err != nil {
		return err
	}
	if err := oneOf("twice", s.Twice, TwiceFirst, TwiceSecond, TwiceBoth); err != nil {
		return err
	}
	if s.Tags != nil {
		if len(*s.Tags) > MaxTags {
			return Invalid("tags: %d given, at most %d are allowed", len(*s.Tags), MaxTags)
		}
		for _, t := range *s.Tags {
			if t == "" || len(t) > 100 {
				return Invalid("tag %.120q: a tag has 1 to 100 bytes", t)
			}
		}
	}
	if s.Args != nil {
		if err := CheckArgs(*s.Args); err != nil {
			return err
		}
	}
	if err := within("max concurrency", s.MaxConcurrency, 0, MaxConcurrencyTop); err != nil {
		return err
	}
	if s.Limits != nil {
		if len(*s.Limits) > MaxLimits {
			return Invalid("limits: %d given, at most %d are allowed", len(*s.Limits), MaxLimits)
		}
		for _, l := range *s.Limits {
			if err := checkName("limit name", l.Name, 200); err != nil {
				return err
			}
			if l.Max < 1 || l.Max > MaxConcurrencyTop {
				return Invalid("limit %s is %d, it must be between 1 and %d", l.Name, l.Max, MaxConcurrencyTop)
			}
		}
	}
	if err := oneOf("overlap", s.Overlap, OverlapSkip, OverlapQueue); err != nil {
		return err
	}
	if err := within("retries", s.Retries, 0, MaxRetries); err != nil {
		return err
	}
	for _, d := range []struct {
		name string
		v    *time.Duration
	}{{"retry delay", s.RetryDelay}, {"longest retry delay", s.RetryDelayMax}, {"timeout", s.Timeout}, {"start deadline", s.StartWithin}} {
		if err := within(d.name, d.v, 0, MaxDuration); err != nil {
			return err
		}
	}
	if err := oneOf("on lost", s.OnLost, LostRetry, LostFail); err != nil {
		return err
	}
	if err := oneOf("lease lost", s.LeaseLost, LeaseContinue, LeaseCancel); err != nil {
		return err
	}
	if err := oneOf("misfire", s.Misfire, MisfireOnce, MisfireAll, MisfireSkip); err != nil {
		return err
	}
	if err := within("priority", s.Priority, -MaxPriority, MaxPriority); err != nil {
		return err
	}
	for _, t := range []struct {
		name string
		v    *time.Time
	}{{"start", s.Start}, {"end", s.End}} {
		if t.v != nil {
			if err := checkTime(t.name, *t.v); err != nil {
				return err
			}
		}
	}
	if s.Start != nil && s.End != nil && !s.Start.IsZero() && !s.End.IsZero() && s.Start.After(*s.End) {
		return Invalid("start %s is after end %s", s.Start.Format(time.RFC3339), s.End.Format(time.RFC3339))
	}
	return nil
}

// checkTime keeps times within what Unix nanoseconds, and so rows, can hold. The zero time says nothing.
func checkTime(what string, t time.Time) error {
	if y := t.UTC().Year(); !t.IsZero() && (y < 1970 || y > 2199) {
		return Invalid("%s is %s, the year must be between 1970 and 2199", what, t.Format(time.RFC3339))
	}
	return nil
}

func within[T int | time.Duration](what string, v *T, lo, hi T) error {
	if v != nil && (*v < lo || *v > hi) {
		return Invalid("%s is %v, it must be between %v and %v", what, *v, lo, hi)
	}
	return nil
}

func oneOf[T ~string](what string, v *T, allowed ...T) error {
	if v == nil {
		return nil
	}
	for _, a := range allowed {
		if *v == a {
			return nil
		}
	}
	return Invalid("%s is %.40q, it must be one of %q", what, string(*v), allowed)
}

// CheckArgs says what is wrong with arguments: they are a JSON object of at most MaxArgs bytes and 64 levels, or
// nothing at all.
func CheckArgs(args []byte) error {
	if len(args) == 0 {
		return nil
	}
	if len(args) > MaxArgs {
		return Invalid("arguments have %d bytes, at most %d are allowed: pass a reference to the data instead", len(args), MaxArgs)
	}
	depth, deepest, inText := 0, 0, false
	for i := 0; i < len(args); i++ {
		switch c := args[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	if deepest > 64 {
		return Invalid("arguments are nested %d deep, at most 64 levels are allowed", deepest)
	}
	if !json.Valid(args) {
		return Invalid("arguments are not valid JSON")
	}
	if args[0] == '{' || bytes.TrimLeft(args, " \t\r\n")[0] == '{' {
		return nil
	}
	return Invalid("arguments must be a JSON object such as {\"customer\":\"c7\"}, not %.20q", args)
}
