package kernel

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Kind is a kind of job.
type Kind uint8

// The kinds of job.
const (
	Recurring Kind = 1 // runs by its schedule
	Triggered Kind = 2 // runs on request, with arguments
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

// MarshalText encodes a kind as its name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Settings is the settings of one owner of a job (the defaults, the code, a person). A nil field is not set.
type Settings struct {
	Name           *string           `json:"name,omitempty"`
	Description    *string           `json:"description,omitempty"`
	Tags           *[]string         `json:"tags,omitempty"`
	Schedule       *string           `json:"schedule,omitempty"` // cron, interval, ISO 8601 or an instant; "" = no schedule
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
	Priority       *int              `json:"priority,omitempty"`    // higher starts first
	StartWithin    *time.Duration    `json:"startWithin,omitempty"` // start deadline after the due time; 0 = none
	Disabled       *bool             `json:"disabled,omitempty"`
	Route          *jobs.Route       `json:"route,omitempty"`
	RouteBy        *string           `json:"routeBy,omitempty"` // path of the argument that consistent_hash hashes; "" = the job's key
	Needs          *[]string         `json:"needs,omitempty"`   // worker tags that it requires: tag, or key=value
	Pin            *string           `json:"pin,omitempty"`     // the worker that runs it; "" = any
	PinAway        *jobs.PinAway     `json:"pinAway,omitempty"`
	CodeVersion    *jobs.CodeVersion `json:"codeVersion,omitempty"`
	Slots          *int              `json:"slots,omitempty"`       // max parallel runs in one worker; 0 = as many as it has slots
	First          *time.Time        `json:"first,omitempty"`       // first due time of an interval; the others count from it
	TTL            *time.Duration    `json:"ttl,omitempty"`         // duration after which the schedule ends; 0 = never
	Early          *time.Duration    `json:"early,omitempty"`       // how long before its due time a run may start
	Jitter         *time.Duration    `json:"jitter,omitempty"`      // starts are spread over this duration
	Calendars      *[]string         `json:"calendars,omitempty"`   // it is not due at the times that these exclude
	Rate           *jobs.Rate        `json:"rate,omitempty"`        // rate limit of starts
	RetryFactor    *float64          `json:"retryFactor,omitempty"` // growth of the delay with each retry
	RetryJitter    *jobs.Jitter      `json:"retryJitter,omitempty"`
	RetryRules     *[]jobs.RetryRule `json:"retryRules,omitempty"`    // by error code; the first that matches wins
	RetryBudget    *jobs.Rate        `json:"retryBudget,omitempty"`   // rate limit of retries; later ones are spread
	PauseAfter     *int              `json:"pauseAfter,omitempty"`    // this many consecutive runs that fail for good pause the job; 0 = never
	HTTP           *json.RawMessage  `json:"http,omitempty"`          // HTTP requests of the job; none = a worker has its code
	Exec           *json.RawMessage  `json:"exec,omitempty"`          // command of the job; none = a worker has its code
	Handler        *string           `json:"handler,omitempty"`       // key of the job whose code runs it; "" = its own
	OnSuccess      *[]string         `json:"onSuccess,omitempty"`     // jobs that run after a run that succeeded
	OnFailure      *[]string         `json:"onFailure,omitempty"`     // jobs that run after a run that failed for good
	Parent         *string           `json:"parent,omitempty"`        // the parent job; "" = none
	KeepFor        *time.Duration    `json:"keepFor,omitempty"`       // how long finished runs are kept; 0 = no limit
	KeepSucceeded  *int              `json:"keepSucceeded,omitempty"` // max finished runs that Succeeded, the newest; 0 = no limit
	KeepOthers     *int              `json:"keepOthers,omitempty"`    // max finished runs in other states; 0 = no limit
	After          *[]string         `json:"after,omitempty"`         // jobs whose runs must all have ended: job, job:failed or job:ended; see Occasion
	AfterWithin    *time.Duration    `json:"afterWithin,omitempty"`   // how long an occasion waits for the other jobs
	AfterSpan      *time.Duration    `json:"afterSpan,omitempty"`     // due times less than this apart are one occasion; 0 = equal ones
}

// Policy is the effective settings of a job: defaults, code and edits merged.
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
	Exec              json.RawMessage // none = a worker has its code
	Handler           string          // key of the job whose code runs it; "" = its own
	OnSuccess         []string
	OnFailure         []string
	Parent            string
	KeepFor           time.Duration
	KeepSucceeded     int
	KeepOthers        int
	After             []string
	AfterWithin       time.Duration
	AfterSpan         time.Duration
}

// SameTimes reports whether p and q have the same due times: no field of the schedule differs.
func (p *Policy) SameTimes(q *Policy) bool {
	return p.Schedule == q.Schedule && p.Zone == q.Zone && p.Start.Equal(q.Start) && p.End.Equal(q.End) &&
		p.Gap == q.Gap && p.Twice == q.Twice && p.First.Equal(q.First) && p.TTL == q.TTL && slices.Equal(p.Calendars, q.Calendars)
}

// Held is a pause: who paused the job, why, and until when (zero: until resumed).
type Held struct {
	Reason, By string // the text of the person who paused it; see Why
	At, Until  time.Time
	// For a job that paused itself: how many runs in a row failed, and the last of them. Reason is the error of that
	// one.
	Failed int
	Run    jobs.ID
}

// AfterPause is what a person decided, when they ended a pause, about the runs that it held. Otherwise requested runs
// begin, and those of due times are Skipped.
type AfterPause struct {
	Discard bool      // requested runs are cancelled
	From    time.Time // runs of due times from then on begin; zero = all are Skipped
	By      string
}

// ByItself is the actor that pauses a job whose runs failed again and again, see PauseAfter.
const ByItself = "carillon"

// Definition is a job in the store.
type Definition struct {
	Tenant  jobs.Tenant
	UID     jobs.ID // of this incarnation of the key: a deleted and re-created job has another
	Key     jobs.Key
	Kind    Kind
	App     string // the worker group that runs it
	Version int    // the highest Options.Version that registered it
	Schema  []byte // JSON Schema of the arguments, or nil

	Code   Settings // set by the code
	Edits  Settings // set by users: override the code field by field, until cleared
	Policy Policy   // effective settings

	Paused *Held
	// AfterPause is what is done with the runs that the last pause held; nil = see AfterPause.
	AfterPause *AfterPause

	Created  time.Time
	Edited   time.Time
	Revision uint64 // counts the changes of the effective settings; a fire names the one that it is based on
	Change   uint64 // the store's change number at the last change: "what changed since N"
	Defaults uint64 // revision of the tenant's Global that Policy is based on

	// Cursor is the last decided due time: all up to and including it have been decided.
	Cursor time.Time
	// SetAt is when the schedule was last changed: due times up to and including it are not its own.
	SetAt time.Time
	// Anchor is what intervals count from that have no start: their phase and their number of due times.
	Anchor time.Time
	// TTLFrom is when the lifetime of the schedule began, unless its start is later: TTL counts from it.
	TTLFrom time.Time
	// Missed is the From of the last missed range, which the next one may extend; zero if none.
	Missed time.Time
	// Deleted is when the job was deleted. The row is kept for the audit, and to distinguish registrations of workers
	// that still serve it from those of workers that started later.
	Deleted time.Time
	// Undecided are earlier schedules, oldest first, with due times after Cursor that may have been undecided when they
	// were changed. An edit never fires for the past, so the leader's next Fire puts those into the ledger.
	Undecided []Earlier
	// Ahead are earlier schedules of which due times after their change had been decided by then: their runs began early.
	Ahead []Earlier
	// Silences are pauses and disables that ended, oldest first, while due times in them were undecided.
	Silences []Silence
	// Running is the unfinished run of the schedule, and Ended when the last one ended, if the schedule counts from
	// that.
	Running jobs.ID
	Ended   time.Time
	// Stopped is since when its app has live workers of which none has the job; zero = it is not stopped. Its due times
	// are decided when a worker has it again, by the misfire policy.
	Stopped time.Time
	// Failing counts the consecutive runs that failed for good, while PauseAfter is set.
	Failing int
	// Purged is the time up to which finished runs were purged by hand.
	Purged time.Time
	// Executions counts the runs of an HTTP job; see Run.Execution.
	Executions uint32
	// Registered reports that a worker has registered the job: its code declares it, so no bundle deletes it.
	Registered bool
	// Bundle is the bundle that created the job, or edits a registered one; "" = none. BundleFields are the fields of
	// Edits that it set and that nothing else has changed since.
	Bundle       string
	BundleFields []string
}

// Silence is a time in which a job was paused or disabled, or the jobs of a tenant were silent. Due times after From and
// before Until are decided by it.
type Silence struct {
	Why         Reason
	From, Until time.Time
}

// Silenced remembers until when the job was paused or disabled, once a change has ended that: due times in that time
// may be undecided. Of more than there is room for, the last ones become one.
func (d *Definition) Silenced(before *Definition, at time.Time) {
	if d.Kind != Recurring {
		return
	}
	s := Silence{Why: MissedDisabled, Until: at}
	switch p := before.Paused; {
	case before.Policy.Disabled && !d.Policy.Disabled:
	case p == nil || p == d.Paused:
		return
	default:
		s = Silence{MissedPaused, p.At, at}
		if !p.Until.IsZero() && p.Until.Before(at) {
			s.Until = p.Until
		}
	}
	if !s.Until.After(d.Cursor) {
		return
	}
	d.Silences = append(slices.Clip(d.Silences), s)
	if n := len(d.Silences); n > MaxUndecided {
		d.Silences[n-2].Until = s.Until
		d.Silences = d.Silences[:n-1]
	}
}

// Decided forgets what does not matter to due times after the cursor.
func (d *Definition) Decided() {
	for len(d.Undecided) > 0 && !d.Cursor.Before(d.Undecided[0].Until) {
		d.Undecided = d.Undecided[1:]
	}
	for len(d.Ahead) > 0 && !d.Cursor.Before(d.Ahead[0].Decided) {
		d.Ahead = d.Ahead[1:]
	}
	for len(d.Silences) > 0 && !d.Cursor.Before(d.Silences[0].Until) {
		d.Silences = d.Silences[1:]
	}
}

// MaxUndecided is how many schedules of a job may wait for the leader's decision.
const MaxUndecided = 100

// Earlier is a schedule that a job had.
type Earlier struct {
	Schedule, Zone string
	Start, End     time.Time
	Gap            jobs.Gap
	Twice          jobs.Twice
	SetAt          time.Time
	Anchor         time.Time
	TTLFrom        time.Time
	Until          time.Time // when it was changed: due times up to and including it belong to it
	First          time.Time
	TTL            time.Duration
	Calendars      []string
	Decided        time.Time // of Ahead: its due times up to and including it had been decided
}

// ScheduleFields returns the names of the settings that shape the schedule: those of Earlier.
func ScheduleFields() (names []string) {
	for i, name := range fieldNames {
		if _, ok := reflect.TypeFor[Earlier]().FieldByName(settingsType.Field(i).Name); ok {
			names = append(names, name)
		}
	}
	return names
}

// Earlier returns the job's schedule for Undecided.
func (d *Definition) Earlier(until time.Time) Earlier {
	p := &d.Policy
	return Earlier{Schedule: p.Schedule, Zone: p.Zone, Start: p.Start, End: p.End, Gap: p.Gap, Twice: p.Twice, SetAt: d.SetAt, Anchor: d.Anchor, TTLFrom: d.TTLFrom,
		Until: until, First: p.First, TTL: p.TTL, Calendars: p.Calendars}
}

// Reschedule has the schedule of the definition, which differs from that of the definition before, apply from a time. It
// moves only what the change names: a new expression begins to count anew, and where there was none, it begins to
// live. All else keeps its phase, its number of due times and its lifetime.
func (d *Definition) Reschedule(before *Definition, at time.Time) {
	d.SetAt = at
	if d.Policy.Schedule != before.Policy.Schedule {
		d.Anchor = at
	}
	if before.Policy.Schedule == "" {
		d.TTLFrom = at
	}
}

// Restart has the schedule begin anew at a time, as that of a new job.
func (d *Definition) Restart(at time.Time) { d.SetAt, d.Anchor, d.TTLFrom = at, at, at }

// With returns the job with an earlier schedule.
func (d *Definition) With(e Earlier) *Definition {
	was := *d
	p := &was.Policy
	p.Schedule, p.Zone, p.Start, p.End, p.Gap, p.Twice = e.Schedule, e.Zone, e.Start, e.End, e.Gap, e.Twice
	was.SetAt, was.Anchor, was.TTLFrom = e.SetAt, e.Anchor, e.TTLFrom
	p.First, p.TTL, p.Calendars = e.First, e.TTL, e.Calendars
	return &was
}

// Since returns the time after which due times of the schedule are undecided.
func (d *Definition) Since() time.Time {
	if d.Cursor.Before(d.SetAt) {
		return d.SetAt
	}
	return d.Cursor
}

// HandlerKey returns the key of the job whose code runs it: its own, if no other is set.
func (d *Definition) HandlerKey() jobs.Key {
	return cmp.Or(jobs.Key(d.Policy.Handler), d.Key)
}

// Gone reports whether the job has been deleted.
func (d *Definition) Gone() bool { return !d.Deleted.IsZero() }

// Holds reports whether the job is paused at a time: no run begins then, but those that are requested by hand.
func (d *Definition) Holds(at time.Time) bool {
	return d.Paused != nil && (d.Paused.Until.IsZero() || d.Paused.Until.After(at))
}

// Idle reports whether a pause, a debug mode or the like keeps the job from beginning a run ahead of its due time.
func (d *Definition) Idle(g *Global, at time.Time) bool {
	return d.Policy.Disabled || g.Tenancy.Suspended.On || g.RecurringDebug.On || d.Holds(at)
}

// Silent returns why a due time of the job becomes part of a ledger range ("" = it fires). Of several reasons, the first
// here counts, whether it lasts or has ended.
func (d *Definition) Silent(g *Global, due time.Time) Reason {
	p, suspended, debug := d.Paused, g.Tenancy.Suspended, g.RecurringDebug
	switch {
	case d.Policy.Disabled || d.was(g, MissedDisabled, due):
		return MissedDisabled
	case suspended.On && due.After(suspended.At) || d.was(g, MissedSuspended, due):
		return MissedSuspended
	case p != nil && due.After(p.At) && (p.Until.IsZero() || due.Before(p.Until)) || d.was(g, MissedPaused, due):
		return MissedPaused
	case debug.On && due.After(debug.At) || d.was(g, MissedDebug, due):
		return MissedDebug
	}
	return ""
}

// was reports whether a due time lies in a silence that has ended.
func (d *Definition) was(g *Global, why Reason, due time.Time) bool {
	in := func(s Silence) bool { return s.Why == why && due.After(s.From) && due.Before(s.Until) }
	return slices.ContainsFunc(d.Silences, in) || slices.ContainsFunc(g.Silences, in)
}

// builtin returns the built-in settings.
func builtin(k Kind) Policy {
	p := Policy{Gap: jobs.GapAfter, Twice: jobs.TwiceFirst, Overlap: jobs.OverlapQueue, Timeout: time.Hour, OnLost: jobs.LostRetry,
		LeaseLost: jobs.LeaseContinue, Misfire: jobs.MisfireOnce, RetryDelay: time.Second, RetryDelayMax: 10 * time.Minute, Route: jobs.RouteAny, PinAway: jobs.PinWait, CodeVersion: jobs.CodeAny,
		RetryFactor: 2, RetryJitter: jobs.JitterHalf, RetryBudget: jobs.Rate{Max: 10, Per: time.Second},
		KeepFor: 5 * 24 * time.Hour, KeepSucceeded: 1_000, KeepOthers: 10_000, AfterWithin: 24 * time.Hour}
	if k == Recurring {
		p.MaxConcurrency, p.Overlap = 1, jobs.OverlapSkip
	}
	return p
}

// Resolve merges the settings of all owners: built in < configuration file < tenant < app < code < edits. An empty zone
// of the code or of an edit means the default zone.
func (d *Definition) Resolve(g *Global) Policy {
	p := g.defaults(d.Kind, d.App)
	zone := p.Zone
	d.Code.Lay(&p)
	d.Edits.Lay(&p)
	p.Zone = cmp.Or(p.Zone, zone)
	if p.Name == "" {
		p.Name = string(d.Key)
	}
	return p
}
