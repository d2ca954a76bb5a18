package api

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// The requests and responses of the API, in JSON. They are types of their own, so that rows and API can change
// independently.

var durationPattern = regexp.MustCompile(`^(0|([0-9]+(\.[0-9]+)?(ms|s|m|h))+)$`)

// Duration is a duration as people write it: "90s", "1h30m".
type Duration time.Duration

// Schema describes it to clients. The name is huma's.
func (Duration) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Description: "A duration such as 90s, 5m or 1h30m.", Examples: []any{"1h30m"}, MaxLength: new(40),
		Pattern: durationPattern.String(), PatternDescription: "a duration such as 90s, 5m or 1h30m"}
}

// MarshalText writes it as Go does, without trailing zero units.
func (d Duration) MarshalText() ([]byte, error) {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return []byte(s), nil
}

// UnmarshalText reads what MarshalText writes, and the rest of Go's notation.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil && durationPattern.Match(b) {
		return kernel.Invalid("the duration %.40q is too long: most fields take at most %.0fh", b, kernel.MaxDuration.Hours())
	}
	if err != nil {
		return kernel.Invalid("invalid duration %.40q: want one such as 90s or 1h30m", b)
	}
	*d = Duration(v)
	return nil
}

// Moment is a point in time: with an offset, or without one, on the clocks of the job's zone.
type Moment time.Time

// wallLayouts are the forms of a time without an offset.
var wallLayouts = []string{"2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly}

// Schema describes it to clients. The name is huma's.
func (Moment) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Description: "RFC 3339; without an offset, a time in the job's zone.", Examples: []any{"2026-12-01T09:00:00+01:00"}, MaxLength: new(40),
		Pattern: `^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}.*)?$`, PatternDescription: "a time such as 2026-12-01T09:00:00Z or 2026-12-01 09:00"}
}

// MarshalText writes RFC 3339.
func (m Moment) MarshalText() ([]byte, error) { return time.Time(m).MarshalText() }

// UnmarshalText reads RFC 3339, or a time without an offset into kernel.WallClock.
func (m *Moment) UnmarshalText(b []byte) error {
	if (*time.Time)(m).UnmarshalText(b) == nil {
		return nil
	}
	for _, layout := range wallLayouts {
		in := kernel.WallClock
		if layout == time.DateOnly {
			in = wallDay
		}
		if t, err := time.ParseInLocation(layout, string(b), in); err == nil {
			*m = Moment(t)
			return nil
		}
	}
	return kernel.Invalid("invalid time %.40q: want 2026-12-01T09:00:00Z, or 2026-12-01T09:00:00 in the job's zone", b)
}

// wallDay is the location of a day without a time of day.
var wallDay = time.FixedZone("wall day", 0)

// instant returns the time for a setting: a day begins at midnight, but a schedule that ends on a day has that day.
func (m Moment) instant(setting string) time.Time {
	t := time.Time(m)
	if t.Location() == wallDay {
		if setting == "end" {
			t = t.Add(24*time.Hour - time.Second)
		}
		t = t.In(kernel.WallClock)
	}
	return kernel.Instant(t)
}

// Object is a JSON object, byte for byte as it was sent.
type Object json.RawMessage

// Schema describes it to clients. The name is huma's.
func (Object) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true, Description: "Any JSON object, up to 256 KiB."}
}

// MarshalJSON returns it unchanged.
func (o Object) MarshalJSON() ([]byte, error) { return json.RawMessage(o).MarshalJSON() }

// UnmarshalJSON keeps it unchanged.
func (o *Object) UnmarshalJSON(b []byte) error { return (*json.RawMessage)(o).UnmarshalJSON(b) }

// Value is any JSON, such as a handler's result.
type Value = json.RawMessage

// Rate is a rate limit: "10/s".
type Rate jobs.Rate

// Schema describes it to clients. The name is huma's.
func (Rate) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Description: "Number per time, such as 10/s, 100/m or 5/30s; none = no rate limit.", Examples: []any{"10/s"}, MaxLength: new(40),
		Pattern: `^(none|[0-9]+/(s|m|h|d|([0-9]+(\.[0-9]+)?(ms|s|m|h))+))$`, PatternDescription: "number per time, such as 10/s, 100/m or 5/30s"}
}

// MarshalText returns its notation.
func (r Rate) MarshalText() ([]byte, error) { return jobs.Rate(r).MarshalText() }

// UnmarshalText is the reverse of MarshalText.
func (r *Rate) UnmarshalText(b []byte) error { return (*jobs.Rate)(r).UnmarshalText(b) }

// Limit is a named concurrency limit that jobs share, or a rate limit.
type Limit struct {
	Name string `json:"name" minLength:"1" maxLength:"200"`
	Max  int    `json:"max,omitempty" minimum:"0" maximum:"1000000" doc:"Max parallel runs; 0 = only the rate limits."`
	By   string `json:"by,omitempty" maxLength:"200" doc:"An argument, such as args.customer_id: each of its values has its own limit."`
	Rate *Rate  `json:"rate,omitempty" doc:"Rate limit of starts."`
}

// RetryRule configures the retries of runs that failed with certain codes.
type RetryRule struct {
	Codes    []string  `json:"codes" minItems:"1" maxItems:"32" nullable:"false" doc:"Codes of jobs.Fail; or timeout, panic, error (any without a code); * = any."`
	Attempts *int      `json:"attempts,omitempty" minimum:"0" maximum:"1000" doc:"Retries by this rule. Default: 2; 0 = none."`
	Delay    *Duration `json:"delay,omitempty" doc:"Delay before the first retry. Default: 1s; 0s = at once."`
	Factor   float64   `json:"factor,omitempty" minimum:"0" maximum:"100" doc:"Growth of the delay; 0 = the job's."`
	MaxDelay *Duration `json:"maxDelay,omitempty" doc:"Max delay; 0s = the job's."`
}

// Limits converts limits for a command.
func Limits(list []Limit) []jobs.Limit {
	limits := make([]jobs.Limit, len(list))
	for i, l := range list {
		limits[i] = jobs.Limit{Name: l.Name, Max: l.Max, By: l.By}
		if l.Rate != nil {
			limits[i].Rate = jobs.Rate(*l.Rate)
		}
	}
	return limits
}

// LimitsOf is the reverse of Limits.
func LimitsOf(list []jobs.Limit) []Limit {
	limits := make([]Limit, len(list))
	for i, l := range list {
		limits[i] = Limit{Name: l.Name, Max: l.Max, By: l.By}
		if l.Rate.Max > 0 {
			limits[i].Rate = new(Rate(l.Rate))
		}
	}
	return limits
}

// Rules converts retry rules for a command.
func Rules(list []RetryRule) []jobs.RetryRule {
	rules := make([]jobs.RetryRule, len(list))
	for i, r := range list {
		rules[i] = jobs.RetryRule{Codes: r.Codes, Attempts: kernel.DefaultRuleAttempts, Delay: kernel.DefaultRuleDelay, Factor: r.Factor}
		if r.Attempts != nil {
			rules[i].Attempts = *r.Attempts
		}
		if r.Delay != nil {
			rules[i].Delay = time.Duration(*r.Delay)
		}
		if r.MaxDelay != nil {
			rules[i].MaxDelay = time.Duration(*r.MaxDelay)
		}
	}
	return rules
}

// RulesOf is the reverse of Rules.
func RulesOf(list []jobs.RetryRule) []RetryRule {
	rules := make([]RetryRule, len(list))
	for i, r := range list {
		rules[i] = RetryRule{Codes: r.Codes, Attempts: &list[i].Attempts, Delay: (*Duration)(&list[i].Delay), Factor: r.Factor}
		if r.MaxDelay > 0 {
			rules[i].MaxDelay = (*Duration)(&list[i].MaxDelay)
		}
	}
	return rules
}

// Policy is the settings of a job. Fields that are left out are not set.
type Policy struct {
	Name           *string   `json:"name,omitempty" maxLength:"200" doc:"Display name; empty = the key."`
	Description    *string   `json:"description,omitempty" doc:"What the job does, for users."`
	Tags           *[]string `json:"tags,omitempty" maxItems:"32" nullable:"false"`
	Schedule       *string   `json:"schedule,omitempty" maxLength:"256" doc:"Cron, an interval, an ISO 8601 repeat or an instant; empty = no schedule." example:"0 30 2 * * *"`
	Zone           *string   `json:"zone,omitempty" maxLength:"100" doc:"Time zone of the schedule, an IANA name; empty = the default zone." example:"Europe/Berlin"`
	Start          *Moment   `json:"start,omitempty" doc:"No due times before this instant."`
	End            *Moment   `json:"end,omitempty" doc:"No due times after this instant, or after this day."`
	Gap            *string   `json:"gap,omitempty" enum:"after,before,skip" doc:"When the job fires if clocks skip its time of day."`
	Twice          *string   `json:"twice,omitempty" enum:"first,second,both" doc:"When the job fires if its time of day occurs twice."`
	Args           *Object   `json:"args,omitempty" doc:"Default arguments."`
	MaxConcurrency *int      `json:"maxConcurrency,omitempty" minimum:"0" maximum:"1000000" doc:"Max parallel runs; 0 = no limit."`
	Limits         *[]Limit  `json:"limits,omitempty" maxItems:"8" nullable:"false" doc:"Concurrency limits shared with other jobs, by name."`
	Overlap        *string   `json:"overlap,omitempty" enum:"skip,queue,queue_one,replace" doc:"What happens to a run that finds no free slot."`
	Retries        *int      `json:"retries,omitempty" minimum:"0" maximum:"1000" doc:"Max retries after a failed attempt; 0 = none."`
	RetryDelay     *Duration `json:"retryDelay,omitempty" doc:"Delay before the first retry; retryFactor multiplies it for each later one; 0s = at once."`
	RetryDelayMax  *Duration `json:"retryDelayMax,omitempty" doc:"The longest delay between two attempts."`
	Timeout        *Duration `json:"timeout,omitempty" doc:"Timeout of one attempt; 0s = none."`
	OnLost         *string   `json:"onLost,omitempty" enum:"retry,fail" doc:"What happens to a run whose worker is lost."`
	LeaseLost      *string   `json:"leaseLost,omitempty" enum:"continue,cancel" doc:"What a worker does with a run whose lease expires because no node answers."`
	Misfire        *string   `json:"misfire,omitempty" enum:"fire_once,fire_all,skip" doc:"What happens to missed due times."`
	Priority       *int      `json:"priority,omitempty" minimum:"-100" maximum:"100" doc:"Higher first, among the runs of an app; -100 to 100."`
	StartWithin    *Duration `json:"startWithin,omitempty" doc:"Start deadline: a run that has not started so long after its due time is Skipped; 0s = none."`
	Disabled       *bool     `json:"disabled,omitempty" doc:"Skip all runs."`
	Route          *string   `json:"route,omitempty" enum:"any,first,last,round_robin,random,consistent_hash,least_recent,least_frequent,failover,idle,broadcast" doc:"How a worker is selected for a run."`
	RouteBy        *string   `json:"routeBy,omitempty" maxLength:"200" doc:"The argument that consistent_hash hashes, such as customer.id; empty = the job's key."`
	Needs          *[]string `json:"needs,omitempty" maxItems:"32" nullable:"false" doc:"Tags that a worker must have: tag, or key=value."`
	Pin            *string   `json:"pin,omitempty" maxLength:"200" doc:"Name of the worker that runs it; empty = any."`
	PinAway        *string   `json:"pinAway,omitempty" enum:"wait,any" doc:"Whether a run waits while that worker is offline, or any other worker runs it."`
	CodeVersion    *string   `json:"codeVersion,omitempty" enum:"any,current" doc:"Workers that may run it during a rollout: any, or those with the newest code version."`
	Slots          *int      `json:"slots,omitempty" minimum:"0" maximum:"1000000" doc:"Max parallel runs in one worker; 0 = as many as it has slots."`
	First          *Moment   `json:"first,omitempty" doc:"First due time of an interval; the others count from it."`
	TTL            *Duration `json:"ttl,omitempty" doc:"Duration after which the schedule ends, counted from start, or from the edit; 0s = never."`
	Early          *Duration `json:"early,omitempty" doc:"How long before its due time a run may start; 0s = never early."`
	Jitter         *Duration `json:"jitter,omitempty" doc:"Starts are spread over this duration, by job and due time; 0s = none."`
	Calendars      *[]string `json:"calendars,omitempty" maxItems:"8" nullable:"false" doc:"Calendars whose excluded times are no due times of the job."`

	Rate        *Rate        `json:"rate,omitempty" doc:"Rate limit of starts; none = no rate limit."`
	RetryFactor *float64     `json:"retryFactor,omitempty" minimum:"1" maximum:"100" doc:"Growth of the delay with each retry."`
	RetryJitter *string      `json:"retryJitter,omitempty" enum:"half,full,none" doc:"Random part of a retry's delay: up to half, up to all, or none."`
	RetryRules  *[]RetryRule `json:"retryRules,omitempty" maxItems:"16" nullable:"false" doc:"Retries by error code; the first match applies. If retries is not 0, it limits the retries of all rules together."`
	RetryBudget *Rate        `json:"retryBudget,omitempty" doc:"Rate limit of retries; those beyond it start later. none = no rate limit."`
	PauseAfter  *int         `json:"pauseAfter,omitempty" minimum:"0" maximum:"1000000" doc:"Number of consecutive Terminated runs that pauses the job; 0 = never."`
	HTTP        *Object      `json:"http,omitempty" doc:"HTTP requests that carillon worker sends: request, async, checkUrl, checkRateSeconds, qos, notification, serviceName; {} = no HTTP job. Up to 64 KiB."`
	Exec        *Object      `json:"exec,omitempty" doc:"Command that carillon worker --exec runs: argv or script, env, dir, user, stdin, killAfter, noRetry, snooze, limits; {} = no command. Up to 64 KiB."`
	Handler     *string      `json:"handler,omitempty" maxLength:"200" doc:"Key of a job that workers register: its code runs this job, with this job's arguments; empty = the job's own key."`
	OnSuccess   *[]string    `json:"onSuccess,omitempty" maxItems:"8" nullable:"false" doc:"Keys of jobs that start after a Succeeded run; they get its result as parent in their arguments."`
	OnFailure   *[]string    `json:"onFailure,omitempty" maxItems:"8" nullable:"false" doc:"Keys of jobs that start after a Terminated run."`
	Parent      *string      `json:"parent,omitempty" maxLength:"200" doc:"Key of the parent job; empty = none."`

	After         *[]string `json:"after,omitempty" maxItems:"16" nullable:"false" doc:"Jobs that this one follows: it has one run for each occasion for which a run of each of them ended. KEY wants a run that Succeeded, KEY:failed one that is Terminated, KEY:ended one in either state, or Cancelled. Only for triggered jobs."`
	AfterWithin   *Duration `json:"afterWithin,omitempty" doc:"How long an occasion waits for the other jobs of after; then it ends with an entry of the ledger."`
	AfterSpan     *Duration `json:"afterSpan,omitempty" doc:"Recurring jobs of after whose due times are less than this apart are of one occasion; 0s = equal due times."`
	KeepFor       *Duration `json:"keepFor,omitempty" doc:"Retention of finished runs; 0s = no limit."`
	KeepSucceeded *int      `json:"keepSucceeded,omitempty" minimum:"0" maximum:"1000000000" doc:"Number of Succeeded runs kept, the newest; 0 = no limit."`
	KeepOthers    *int      `json:"keepOthers,omitempty" minimum:"0" maximum:"1000000000" doc:"Number of other finished runs kept, the newest; 0 = no limit."`
}

// settings converts the policy for a command.
func (p *Policy) settings() (s kernel.Settings) {
	from, to := reflect.ValueOf(p).Elem(), reflect.ValueOf(&s).Elem()
	for i, f := range policyFields {
		v := from.Field(i)
		if v.IsNil() {
			continue
		}
		switch t := v.Interface().(type) {
		case *Moment:
			name, _, _ := strings.Cut(from.Type().Field(i).Tag.Get("json"), ",")
			v = reflect.ValueOf(new(t.instant(name)))
		case *[]Limit:
			v = reflect.ValueOf(new(Limits(*t)))
		case *[]RetryRule:
			v = reflect.ValueOf(new(Rules(*t)))
		}
		to.Field(f.setting).Set(v.Convert(to.Field(f.setting).Type()))
	}
	return s
}

// policyFields are the fields of kernel.Settings and kernel.Policy with the names of the fields of Policy.
var policyFields = func() (list []struct{ setting, policy int }) {
	settings, policy := reflect.TypeFor[kernel.Settings](), reflect.TypeFor[kernel.Policy]()
	for f := range reflect.TypeFor[Policy]().Fields() {
		s, ok := settings.FieldByName(f.Name)
		p, _ := policy.FieldByName(f.Name)
		if !ok || s.Tag.Get("json") != f.Tag.Get("json") {
			panic("add a field to Settings in internal/kernel/definition.go, named as in api/model.go: " + f.Name + " " + f.Tag.Get("json"))
		}
		switch f.Type {
		case reflect.TypeFor[*[]Limit](), reflect.TypeFor[*[]RetryRule]():
		default:
			if !f.Type.ConvertibleTo(s.Type) {
				panic("field " + f.Name + " of Policy in api/model.go must convert to " + s.Type.String())
			}
		}
		list = append(list, struct{ setting, policy int }{s.Index[0], p.Index[0]})
	}
	for f := range settings.Fields() {
		if _, ok := reflect.TypeFor[Policy]().FieldByName(f.Name); !ok {
			panic("add a field to Policy in api/model.go: " + f.Name)
		}
	}
	return list
}()

// policy converts the effective settings of a job. Lists are never null; a time or an object that is not set is left out.
func policy(from *kernel.Policy) (p Policy) {
	all, to := reflect.ValueOf(from).Elem(), reflect.ValueOf(&p).Elem()
	for i, f := range policyFields {
		v := all.Field(f.policy)
		switch t := v.Interface().(type) {
		case time.Time:
			v = reflect.ValueOf((*Moment)(when(t)))
		case json.RawMessage:
			v = reflect.ValueOf(object(t))
		case []string:
			v = reflect.ValueOf(listOf(t))
		case []jobs.Limit:
			v = reflect.ValueOf(new(LimitsOf(t)))
		case []jobs.RetryRule:
			v = reflect.ValueOf(new(RulesOf(t)))
		default:
			v = v.Addr().Convert(to.Field(i).Type())
		}
		to.Field(i).Set(v)
	}
	return p
}

// listOf returns a pointer to a list that is not null.
func listOf(words []string) *[]string {
	if words == nil {
		words = []string{}
	}
	return &words
}

// when returns a pointer to a time, or nil for the zero time.
func when(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func object(b []byte) *Object {
	if len(b) == 0 {
		return nil
	}
	return new(Object(b))
}

// Pause describes a pause: the job does not fire by itself.
type Pause struct {
	Reason string     `json:"reason,omitempty"`
	By     string     `json:"by"`
	At     time.Time  `json:"at"`
	Until  *time.Time `json:"until,omitempty"`
}

// Job is a job with its effective settings and next due times.
type Job struct {
	Key  jobs.Key `json:"key"`
	Kind string   `json:"kind" enum:"recurring,triggered"`
	App  string   `json:"app" doc:"The worker group that runs it."`
	Policy
	Words      string            `json:"words,omitempty" doc:"The schedule in plain text."`
	Next       []time.Time       `json:"next" nullable:"false" doc:"Next due times."`
	Silent     string            `json:"silent,omitempty" doc:"Why these due times would not get runs now."`
	State      string            `json:"state,omitempty" doc:"The most important of what keeps it from running as its settings say, or active."` // of jobStates
	States     []string          `json:"states,omitempty" nullable:"false" doc:"All of these, if there are several."`
	Finished   bool              `json:"finished,omitempty" doc:"Its schedule has no due time left."`
	Trouble    string            `json:"trouble,omitempty" doc:"Why its schedule is invalid."`
	Warnings   []string          `json:"warnings,omitempty" doc:"What the schedule may mean without its author's intent."`
	Paused     *Pause            `json:"paused,omitempty"`
	Stopped    *time.Time        `json:"stopped,omitempty" doc:"Since when live workers of its app no longer have it."`
	Bundle     string            `json:"bundle,omitempty" doc:"The bundle of files that created it, or that edits it."`
	Edited     []string          `json:"edited" nullable:"false" doc:"Fields that users have edited; the others follow the code."`
	Owners     map[string]string `json:"owners,omitempty" doc:"Not in lists: where the value of each field comes from: file (the configuration file of a server), tenant or app (defaults of all jobs, of an app's jobs), code or edit. A field that is missing has the built-in value."`
	ArgsSchema *Object           `json:"argsSchema,omitempty"`
	Version    int               `json:"version" doc:"Code version that registered it."`
	Revision   uint64            `json:"revision" doc:"Incremented by each change; also its ETag."`
	Created    time.Time         `json:"created"`
	Changed    time.Time         `json:"changed"`
}

func jobOf(j ops.Job) Job {
	out := Job{
		Key: j.Key, Kind: j.Kind.String(), App: j.App, Policy: policy(&j.Definition.Policy), Words: j.Words, Next: j.Next,
		Silent: string(j.Silent), Finished: j.Finished, Trouble: j.Trouble, Warnings: j.Warnings, Edited: j.Edits.Given(), ArgsSchema: object(j.Schema),
		Bundle: j.Bundle, Version: j.Version, Revision: j.Revision, Created: j.Created, Changed: j.Definition.Edited,
	}
	if out.Next == nil {
		out.Next = []time.Time{}
	}
	if out.Edited == nil {
		out.Edited = []string{}
	}
	out.Stopped = when(j.Stopped)
	if j.Known {
		out.State = string(j.State())
	}
	if len(j.Conditions) > 1 {
		for _, c := range j.Conditions {
			out.States = append(out.States, string(c))
		}
	}
	if p := j.Paused; p != nil {
		out.Paused = &Pause{Reason: p.Why(), By: p.By, At: p.At, Until: when(p.Until)}
	}
	return out
}

// Move is one transition of a run.
type Move struct {
	State   string    `json:"state"`
	Cause   string    `json:"cause,omitempty"`
	At      time.Time `json:"at"`
	Attempt uint32    `json:"attempt"`
	By      string    `json:"by,omitempty"`
	Text    string    `json:"text,omitempty"`
	Code    string    `json:"code,omitempty" doc:"Error code of jobs.Fail; or timeout, or panic."`
}

// Progress is the progress that a run reported.
type Progress struct {
	Done  int64  `json:"done"`
	Total int64  `json:"total,omitempty" doc:"0 = not known."`
	Text  string `json:"text,omitempty"`
}

// Run is one run of a job. Lists leave out args, result and moves.
type Run struct {
	ID          string     `json:"id" format:"uuid"`
	Job         jobs.Key   `json:"job"`
	App         string     `json:"app,omitempty"`
	Handler     jobs.Key   `json:"handler,omitempty" doc:"Key of the job whose code runs it; left out: its own."`
	State       string     `json:"state"` // of stateNames
	Cause       string     `json:"cause,omitempty" doc:"Why it is in this state."`
	Origin      string     `json:"origin" enum:"cron,misfire,code,person,api,retry,parent,backfill"`
	Actor       string     `json:"actor,omitempty" doc:"Who requested it."`
	Parent      string     `json:"parent,omitempty" format:"uuid"`
	Batch       string     `json:"batch,omitempty" format:"uuid" doc:"Batch that it is in."`
	Unique      string     `json:"unique,omitempty"`
	Priority    int        `json:"priority"`
	Due         *time.Time `json:"due,omitempty"`
	Created     *time.Time `json:"created,omitempty"`
	Queued      *time.Time `json:"queued,omitempty"`
	Started     *time.Time `json:"started,omitempty"`
	Ended       *time.Time `json:"ended,omitempty"`
	Deadline    *time.Time `json:"deadline,omitempty" doc:"When the current attempt times out."`
	RetryAt     *time.Time `json:"retryAt,omitempty"`
	Attempt     uint32     `json:"attempt" doc:"Attempts started so far."`
	Retries     int        `json:"retries" doc:"Attempts allowed after the first."`
	Worker      string     `json:"worker,omitempty"`
	Waits       string     `json:"waits,omitempty" doc:"The full limit that it waits for."`
	Opens       *time.Time `json:"opens,omitempty" doc:"When that rate limit lets the next run start."`
	Lingering   bool       `json:"lingering,omitempty" doc:"Finished, but its handler has not returned."`
	Stuck       bool       `json:"stuck,omitempty" doc:"Its handler was asked to stop and has not returned."`
	Unconfirmed bool       `json:"unconfirmed,omitempty" doc:"Processing: it was sent to the worker, which has not said yet that it began."`
	Progress    *Progress  `json:"progress,omitempty"`
	Error       string     `json:"error,omitempty"`
	Code        string     `json:"code,omitempty" doc:"Error code of jobs.Fail; or timeout, or panic."`
	Duplicate   bool       `json:"duplicate,omitempty" doc:"It existed before; a unique or idempotency key matched it."`
	Args        *Object    `json:"args,omitempty"`
	Result      Value      `json:"result,omitempty"`
	Moves       []Move     `json:"moves,omitempty" doc:"Its history."`
	Place       *Place     `json:"place,omitempty" doc:"Which worker it may go to; left out: any that has the job."`
}

// TransformSchema adds the states. The name is huma's.
func (*Run) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Properties["state"].Enum = stateNames()
	return s
}

// stateNames returns the names of all states for a schema.
func stateNames() (names []any) {
	for _, s := range kernel.States() {
		names = append(names, s.String())
	}
	return names
}

// Place describes which worker a run may go to.
type Place struct {
	Route   string   `json:"route"`
	By      string   `json:"by,omitempty" doc:"For consistent_hash: the value that is hashed."`
	Needs   []string `json:"needs,omitempty" doc:"Worker tags that it requires."`
	Pin     string   `json:"pin,omitempty" doc:"Name of the worker that runs it."`
	PinAway string   `json:"pinAway,omitempty"`
	Version int      `json:"version,omitempty" doc:"Lowest version of the job's code."`
	Slots   int      `json:"slots,omitempty" doc:"Max parallel runs of the job in one worker."`
	Index   uint32   `json:"index" doc:"For a broadcast: index of this run, from 0."`
	Total   uint32   `json:"total,omitempty" doc:"For a broadcast: number of its runs."`
	Group   string   `json:"group,omitempty" format:"uuid" doc:"For a broadcast: its run 0, the parent of the others."`
}

func placeOf(p *kernel.Place) *Place {
	if p == nil {
		return nil
	}
	return &Place{Route: string(p.Route), By: p.Hash, Needs: p.Needs, Pin: p.Pin, PinAway: string(p.PinAway), Version: p.Version, Slots: p.Slots,
		Index: p.Index, Total: p.Total, Group: p.Group.String()}
}

// listed converts a run for lists.
func listed(run *kernel.Run, now ops.Attempt) Run {
	out := Run{
		ID: run.ID.String(), Job: run.Key, App: run.App, Handler: run.Handler, State: run.State.String(), Cause: string(run.Cause), Origin: string(run.Origin),
		Actor: run.Actor, Parent: run.Parent.String(), Batch: run.Batch.String(), Unique: run.Unique, Priority: run.Priority,
		Due: when(run.Due), Created: when(run.Created), Queued: when(run.Queued), Started: when(run.Started), Ended: when(run.Ended),
		RetryAt: when(run.RetryAt), Attempt: run.Attempt, Retries: run.Terms.Retries, Worker: run.Worker, Waits: run.Waits,
		Lingering: run.Lingering, Stuck: now.Stuck, Unconfirmed: now.Unconfirmed && run.State == jobs.Processing, Error: run.Problem(), Place: placeOf(run.Place),
		Code: run.Code(), Opens: when(run.Opens),
	}
	if run.State == jobs.Processing {
		out.Deadline = when(run.Deadline)
		if p := now.Progress; p != nil {
			out.Progress = &Progress{Done: p.Done, Total: p.Total, Text: p.Text}
		}
	}
	return out
}

// whole converts a run with all its fields.
func whole(run *kernel.Run, now ops.Attempt) Run {
	out := listed(run, now)
	out.Args, out.Result = object(run.Args), Value(run.Result)
	for _, m := range run.Moves {
		out.Moves = append(out.Moves, Move{State: m.State.String(), Cause: string(m.Cause), At: m.At, Attempt: m.Attempt, By: m.By, Text: run.Text(&m), Code: codeOf(run, &m)})
	}
	return out
}

// codeOf returns the error code of the attempt of a move.
func codeOf(run *kernel.Run, m *kernel.Move) string {
	if m.State != jobs.Failed && m.State != jobs.Terminated {
		return ""
	}
	return run.CodeOf(m.Attempt)
}

// LogLine is one log line of a handler.
type LogLine struct {
	Attempt  uint32    `json:"attempt"`
	Sequence uint64    `json:"sequence"`
	At       time.Time `json:"at"`
	Level    string    `json:"level"`
	Text     string    `json:"text"`
}

func logLine(l metastore.LogLine) LogLine {
	return LogLine{Attempt: l.Attempt, Sequence: l.Sequence, At: l.At, Level: l.Level, Text: l.Text}
}

// Debug is a debug mode: while it is on, no run of its kind starts by itself.
type Debug struct {
	On bool       `json:"on"`
	By string     `json:"by,omitempty" doc:"Who switched it last."`
	At *time.Time `json:"at,omitempty"`
}

func debugOf(d kernel.Debug) Debug { return Debug{On: d.On, By: d.By, At: when(d.At)} }

// Worker describes a worker, from its heartbeats.
type Worker struct {
	Name    string              `json:"name"`
	Label   string              `json:"label"`
	App     string              `json:"app"`
	Host    string              `json:"host"`
	PID     int                 `json:"pid"`
	Tags    []string            `json:"tags,omitempty"`
	Slots   int                 `json:"slots" doc:"0 = unlimited."`
	Running int                 `json:"running"`
	Leaving bool                `json:"leaving,omitempty" doc:"It is stopping and takes no new runs."`
	Drained bool                `json:"drained,omitempty" doc:"It is drained: it takes no new runs, finishes its own, and stays."`
	Faults  map[jobs.Key]string `json:"faults,omitempty" doc:"Jobs that it cannot serve, and why."`
	Jobs    map[jobs.Key]int    `json:"jobs" doc:"Keys that it serves, with their code versions."`
	Started time.Time           `json:"started"`
	Seen    time.Time           `json:"seen"`
}

func workerOf(w ops.Worker) Worker {
	return Worker{Name: w.Name, Label: w.Label, App: w.App, Host: w.Host, PID: w.PID, Tags: w.Tags, Slots: w.Slots,
		Running: w.Running, Leaving: w.Leaving, Drained: w.Drained, Faults: w.Faults, Jobs: w.Keys, Started: w.Started, Seen: w.Seen}
}
