package api

import (
	"encoding/json"
	"regexp"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// What the API says and is told, in JSON. These are written out, and not the rows themselves, so that a row may
// change without the API changing, and the other way round.

var durationPattern = regexp.MustCompile(`^(0|([0-9]+(\.[0-9]+)?(ms|s|m|h))+)$`)

// Duration is a length of time as people write it: "90s", "1h30m".
type Duration time.Duration

// Schema describes it to clients. The name is huma's.
func (Duration) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Description: "A length of time, such as 90s, 5m or 1h30m.", Examples: []any{"1h30m"}, MaxLength: new(40),
		Pattern: durationPattern.String(), PatternDescription: "a length of time such as 90s, 5m or 1h30m"}
}

// MarshalText writes it as Go does, without the zeros.
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
		return kernel.Invalid("the length of time %.40q is too long: most fields take at most %.0fh", b, kernel.MaxDuration.Hours())
	}
	if err != nil {
		return kernel.Invalid("%.40q is not a length of time such as 90s or 1h30m", b)
	}
	*d = Duration(v)
	return nil
}

// Object is a JSON object as it was sent, to the byte.
type Object json.RawMessage

// Schema describes it to clients. The name is huma's.
func (Object) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true, Description: "Any JSON object, up to 256 KiB."}
}

// MarshalJSON writes it as it is.
func (o Object) MarshalJSON() ([]byte, error) { return json.RawMessage(o).MarshalJSON() }

// UnmarshalJSON keeps it as it is.
func (o *Object) UnmarshalJSON(b []byte) error { return (*json.RawMessage)(o).UnmarshalJSON(b) }

// Value is any JSON, as a handler left it.
type Value = json.RawMessage

// Rate is how often something may happen: "10/s".
type Rate jobs.Rate

// Schema describes it to clients. The name is huma's.
func (Rate) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Description: "So many per time, such as 10/s, 100/m or 5/30s; none = as often as like.", Examples: []any{"10/s"}, MaxLength: new(40),
		Pattern: `^(none|[0-9]+/(s|m|h|d|([0-9]+(\.[0-9]+)?(ms|s|m|h))+))$`, PatternDescription: "so many per time, such as 10/s, 100/m or 5/30s"}
}

// MarshalText writes it as people do.
func (r Rate) MarshalText() ([]byte, error) { return jobs.Rate(r).MarshalText() }

// UnmarshalText is the reverse of MarshalText.
func (r *Rate) UnmarshalText(b []byte) error { return (*jobs.Rate)(r).UnmarshalText(b) }

// Limit is a number of slots that jobs share, or how often runs may start.
type Limit struct {
	Name string `json:"name" minLength:"1" maxLength:"200"`
	Max  int    `json:"max,omitempty" minimum:"0" maximum:"1000000" doc:"Runs at the same time; 0 = as many as the rate lets."`
	By   string `json:"by,omitempty" maxLength:"200" doc:"An argument, such as args.customer_id: each of its values has a limit of its own."`
	Rate *Rate  `json:"rate,omitempty" doc:"How often runs may start."`
}

// RetryRule says how runs that failed with one of some codes are tried again.
type RetryRule struct {
	Codes    []string  `json:"codes" minItems:"1" maxItems:"32" nullable:"false" doc:"As jobs.Fail gives them; timeout, panic, error (any without a code); * = any."`
	Attempts *int      `json:"attempts,omitempty" minimum:"0" maximum:"1000" doc:"Retries by this rule; 2 if left out, 0 = none."`
	Delay    *Duration `json:"delay,omitempty" doc:"Before the first of them; 1s if left out, 0s = at once."`
	Factor   float64   `json:"factor,omitempty" minimum:"0" maximum:"100" doc:"What the delay grows by; 0 = as the job says."`
	MaxDelay *Duration `json:"maxDelay,omitempty" doc:"The longest delay; 0s = as the job says."`
}

// Limits are limits in the words of a command.
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

// Rules are retry rules in the words of a command.
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

// Policy is what can be said about a job. Fields that are left out say nothing.
type Policy struct {
	Name           *string    `json:"name,omitempty" maxLength:"200"`
	Description    *string    `json:"description,omitempty"`
	Tags           *[]string  `json:"tags,omitempty" maxItems:"32" nullable:"false"`
	Schedule       *string    `json:"schedule,omitempty" maxLength:"256" doc:"Cron, an interval, an ISO 8601 repeat or an instant; empty = never by itself." example:"0 30 2 * * *"`
	Zone           *string    `json:"zone,omitempty" maxLength:"100" doc:"IANA name." example:"Europe/Berlin"`
	Start          *time.Time `json:"start,omitempty" doc:"No run before."`
	End            *time.Time `json:"end,omitempty" doc:"No run after."`
	Gap            *string    `json:"gap,omitempty" enum:"after,before,skip" doc:"When it is due if clocks skip its time of day."`
	Twice          *string    `json:"twice,omitempty" enum:"first,second,both" doc:"When it is due if its time of day comes twice."`
	Args           *Object    `json:"args,omitempty" doc:"Default arguments."`
	MaxConcurrency *int       `json:"maxConcurrency,omitempty" minimum:"0" maximum:"1000000" doc:"Runs at the same time; 0 = no limit."`
	Limits         *[]Limit   `json:"limits,omitempty" maxItems:"8" nullable:"false" doc:"Slots shared with other jobs, by name."`
	Overlap        *string    `json:"overlap,omitempty" enum:"skip,queue,queue_one,replace" doc:"What becomes of a run that finds no slot."`
	Retries        *int       `json:"retries,omitempty" minimum:"0" maximum:"1000"`
	RetryDelay     *Duration  `json:"retryDelay,omitempty" doc:"Before the first retry, doubled each time; 0s = at once."`
	RetryDelayMax  *Duration  `json:"retryDelayMax,omitempty"`
	Timeout        *Duration  `json:"timeout,omitempty" doc:"Of one attempt; 0s = none."`
	OnLost         *string    `json:"onLost,omitempty" enum:"retry,fail" doc:"What becomes of a run whose worker died."`
	LeaseLost      *string    `json:"leaseLost,omitempty" enum:"continue,cancel" doc:"What a worker does with a run while no control plane answers."`
	Misfire        *string    `json:"misfire,omitempty" enum:"fire_once,fire_all,skip" doc:"What becomes of missed due times."`
	Priority       *int       `json:"priority,omitempty" minimum:"-100" maximum:"100"`
	StartWithin    *Duration  `json:"startWithin,omitempty" doc:"Not started by then: Skipped; 0s = no deadline."`
	Disabled       *bool      `json:"disabled,omitempty"`
	Route          *string    `json:"route,omitempty" enum:"any,first,last,round_robin,random,consistent_hash,least_recent,least_frequent,failover,idle,broadcast" doc:"Which worker of those that may take a run is offered it."`
	RouteBy        *string    `json:"routeBy,omitempty" maxLength:"200" doc:"The argument that consistent_hash goes by, such as customer.id; empty = the job's key."`
	Needs          *[]string  `json:"needs,omitempty" maxItems:"32" nullable:"false" doc:"What a worker must have: tags, or key=value."`
	Pin            *string    `json:"pin,omitempty" maxLength:"200" doc:"The worker that runs it, by name; empty = none is meant."`
	PinAway        *string    `json:"pinAway,omitempty" enum:"wait,any" doc:"While that worker is away, a run waits, or goes to any other."`
	CodeVersion    *string    `json:"codeVersion,omitempty" enum:"any,current" doc:"Which workers may run it while a new version of its code is rolled out: any, or those with the current one."`
	Slots          *int       `json:"slots,omitempty" minimum:"0" maximum:"1000000" doc:"Runs of it in one worker at the same time; 0 = as many as it has slots."`
	First          *time.Time `json:"first,omitempty" doc:"The first due time of an interval, from which the others count."`
	TTL            *Duration  `json:"ttl,omitempty" doc:"The schedule ends so long after it began: after start, or after it was written; 0s = never."`
	Early          *Duration  `json:"early,omitempty" doc:"A run may start so long before it is due; 0s = never before."`
	Jitter         *Duration  `json:"jitter,omitempty" doc:"Starts are spread over so long a time, by job and due time; 0s = not."`
	Calendars      *[]string  `json:"calendars,omitempty" maxItems:"8" nullable:"false" doc:"It is not due at the times that these calendars exclude."`

	Rate        *Rate        `json:"rate,omitempty" doc:"How often runs may start; none = as often as like."`
	RetryFactor *float64     `json:"retryFactor,omitempty" minimum:"1" maximum:"100" doc:"What the delay grows by with each retry."`
	RetryJitter *string      `json:"retryJitter,omitempty" enum:"half,full,none" doc:"How much is taken off a retry's delay at most."`
	RetryRules  *[]RetryRule `json:"retryRules,omitempty" maxItems:"16" nullable:"false" doc:"How failures are tried again, by their codes; the first rule that matches wins. retries, if it is not 0, caps all rules together."`
	RetryBudget *Rate        `json:"retryBudget,omitempty" doc:"How often runs may be tried again; later retries are spread. none = as often as like."`
	PauseAfter  *int         `json:"pauseAfter,omitempty" minimum:"0" maximum:"1000000" doc:"So many runs in a row that fail for good pause the job; 0 = never."`
	HTTP        *Object      `json:"http,omitempty" doc:"What it is to do as a chain of HTTP requests, run by Carillon's own worker: request, async, checkUrl, checkRateSeconds, qos, notification, serviceName; {} = nothing, its code is somewhere else. Up to 64 KiB."`
	OnSuccess   *[]string    `json:"onSuccess,omitempty" maxItems:"8" nullable:"false" doc:"Keys of jobs that run after one that succeeded, with what became of it as parent in their arguments."`
	OnFailure   *[]string    `json:"onFailure,omitempty" maxItems:"8" nullable:"false" doc:"Keys of jobs that run after one that failed for good."`
	Parent      *string      `json:"parent,omitempty" maxLength:"200" doc:"Key of the job that this one belongs to; empty = none."`

	KeepFor       *Duration `json:"keepFor,omitempty" doc:"How long runs can be read once they are over; 0s = for ever."`
	KeepSucceeded *int      `json:"keepSucceeded,omitempty" minimum:"0" maximum:"1000000000" doc:"So many of them that Succeeded, the newest, if those are fewer; 0 = all."`
	KeepOthers    *int      `json:"keepOthers,omitempty" minimum:"0" maximum:"1000000000" doc:"And so many that ended otherwise; 0 = all."`
}

// settings is what the policy says, in the words of a command.
func (p *Policy) settings() kernel.Settings {
	s := kernel.Settings{
		Name: p.Name, Description: p.Description, Tags: p.Tags, Schedule: p.Schedule, Zone: p.Zone,
		Start: instant(p.Start), End: instant(p.End), Gap: (*jobs.Gap)(p.Gap), Twice: (*jobs.Twice)(p.Twice),
		MaxConcurrency: p.MaxConcurrency, Retries: p.Retries, Priority: p.Priority, Disabled: p.Disabled,
		RetryDelay: (*time.Duration)(p.RetryDelay), RetryDelayMax: (*time.Duration)(p.RetryDelayMax),
		Timeout: (*time.Duration)(p.Timeout), StartWithin: (*time.Duration)(p.StartWithin),
		Overlap: (*jobs.Overlap)(p.Overlap), OnLost: (*jobs.OnLost)(p.OnLost), LeaseLost: (*jobs.LeaseLost)(p.LeaseLost), Misfire: (*jobs.Misfire)(p.Misfire),
		Args: (*json.RawMessage)(p.Args), HTTP: (*json.RawMessage)(p.HTTP),
		Route: (*jobs.Route)(p.Route), RouteBy: p.RouteBy, Needs: p.Needs, Pin: p.Pin, PinAway: (*jobs.PinAway)(p.PinAway),
		CodeVersion: (*jobs.CodeVersion)(p.CodeVersion), Slots: p.Slots,
		First: instant(p.First), TTL: (*time.Duration)(p.TTL), Early: (*time.Duration)(p.Early), Jitter: (*time.Duration)(p.Jitter), Calendars: p.Calendars,
	}
	if p.Limits != nil {
		s.Limits = new(Limits(*p.Limits))
	}
	if p.RetryRules != nil {
		s.RetryRules = new(Rules(*p.RetryRules))
	}
	s.Rate, s.RetryBudget, s.RetryFactor, s.RetryJitter, s.PauseAfter = (*jobs.Rate)(p.Rate), (*jobs.Rate)(p.RetryBudget), p.RetryFactor, (*jobs.Jitter)(p.RetryJitter), p.PauseAfter
	s.OnSuccess, s.OnFailure, s.Parent = p.OnSuccess, p.OnFailure, p.Parent
	s.KeepFor, s.KeepSucceeded, s.KeepOthers = (*time.Duration)(p.KeepFor), p.KeepSucceeded, p.KeepOthers
	return s
}

func instant(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	return new(kernel.Instant(*t))
}

// policy is what holds for a job.
func policy(p *kernel.Policy) Policy {
	limits, rules := LimitsOf(p.Limits), RulesOf(p.RetryRules)
	tags := p.Tags
	if tags == nil {
		tags = []string{}
	}
	needs := p.Needs
	if needs == nil {
		needs = []string{}
	}
	calendars := p.Calendars
	if calendars == nil {
		calendars = []string{}
	}
	return Policy{
		First: when(p.First), TTL: (*Duration)(&p.TTL), Early: (*Duration)(&p.Early), Jitter: (*Duration)(&p.Jitter), Calendars: &calendars,
		Name: &p.Name, Description: &p.Description, Tags: &tags, Schedule: &p.Schedule, Zone: &p.Zone,
		Start: when(p.Start), End: when(p.End), Gap: (*string)(&p.Gap), Twice: (*string)(&p.Twice), Args: object(p.Args), HTTP: object(p.HTTP), Limits: &limits,
		MaxConcurrency: &p.MaxConcurrency, Retries: &p.Retries, Priority: &p.Priority, Disabled: &p.Disabled,
		RetryDelay: (*Duration)(&p.RetryDelay), RetryDelayMax: (*Duration)(&p.RetryDelayMax),
		Timeout: (*Duration)(&p.Timeout), StartWithin: (*Duration)(&p.StartWithin),
		Overlap: (*string)(&p.Overlap), OnLost: (*string)(&p.OnLost), LeaseLost: (*string)(&p.LeaseLost), Misfire: (*string)(&p.Misfire),
		Route: (*string)(&p.Route), RouteBy: &p.RouteBy, Needs: &needs, Pin: &p.Pin, PinAway: (*string)(&p.PinAway),
		CodeVersion: (*string)(&p.CodeVersion), Slots: &p.Slots,
		Rate: (*Rate)(&p.Rate), RetryFactor: &p.RetryFactor, RetryJitter: (*string)(&p.RetryJitter), RetryRules: &rules, RetryBudget: (*Rate)(&p.RetryBudget),
		PauseAfter: &p.PauseAfter,
		OnSuccess:  listOf(p.OnSuccess), OnFailure: listOf(p.OnFailure), Parent: &p.Parent,
		KeepFor: (*Duration)(&p.KeepFor), KeepSucceeded: &p.KeepSucceeded, KeepOthers: &p.KeepOthers,
	}
}

// listOf is a list that is there even if it is empty.
func listOf(words []string) *[]string {
	if words == nil {
		words = []string{}
	}
	return &words
}

// when is a time that may not be there.
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

// Pause says that a job does not fire by itself.
type Pause struct {
	Reason string     `json:"reason,omitempty"`
	By     string     `json:"by"`
	At     time.Time  `json:"at"`
	Until  *time.Time `json:"until,omitempty"`
}

// Job is a job with what holds for it and when it comes next.
type Job struct {
	Key  jobs.Key `json:"key"`
	Kind string   `json:"kind" enum:"recurring,triggered"`
	App  string   `json:"app" doc:"The worker group that runs it."`
	Policy
	Words      string      `json:"words,omitempty" doc:"The schedule in plain words."`
	Next       []time.Time `json:"next" nullable:"false" doc:"Due times ahead."`
	Silent     string      `json:"silent,omitempty" doc:"Why those would not become runs, as things stand."`
	Finished   bool        `json:"finished,omitempty" doc:"Its schedule has no due time left."`
	Trouble    string      `json:"trouble,omitempty" doc:"Why its schedule cannot be read."`
	Warnings   []string    `json:"warnings,omitempty" doc:"What the schedule may mean that its writer did not."`
	Paused     *Pause      `json:"paused,omitempty"`
	Stopped    *time.Time  `json:"stopped,omitempty" doc:"Since when workers of its app live of which none has it any more."`
	Edited     []string    `json:"edited" nullable:"false" doc:"Fields that people have set; the others follow the code."`
	ArgsSchema *Object     `json:"argsSchema,omitempty"`
	Version    int         `json:"version" doc:"Of the code that registered it."`
	Revision   uint64      `json:"revision" doc:"Counts its changes; also its ETag."`
	Created    time.Time   `json:"created"`
	Changed    time.Time   `json:"changed"`
}

func jobOf(j ops.Job) Job {
	out := Job{
		Key: j.Key, Kind: j.Kind.String(), App: j.App, Policy: policy(&j.Definition.Policy), Words: j.Words, Next: j.Next,
		Silent: string(j.Silent), Finished: j.Finished, Trouble: j.Trouble, Warnings: j.Warnings, Edited: j.Edits.Given(), ArgsSchema: object(j.Schema),
		Version: j.Version, Revision: j.Revision, Created: j.Created, Changed: j.Definition.Edited,
	}
	if out.Next == nil {
		out.Next = []time.Time{}
	}
	if out.Edited == nil {
		out.Edited = []string{}
	}
	out.Stopped = when(j.Stopped)
	if p := j.Paused; p != nil {
		out.Paused = &Pause{Reason: p.Why(), By: p.By, At: p.At, Until: when(p.Until)}
	}
	return out
}

// Move is one line of a run's history.
type Move struct {
	State   string    `json:"state"`
	Cause   string    `json:"cause,omitempty"`
	At      time.Time `json:"at"`
	Attempt uint32    `json:"attempt"`
	By      string    `json:"by,omitempty"`
	Text    string    `json:"text,omitempty"`
	Code    string    `json:"code,omitempty" doc:"Of the error, as jobs.Fail gave it; or timeout, or panic."`
}

// Progress is how far a run said it is.
type Progress struct {
	Done  int64  `json:"done"`
	Total int64  `json:"total,omitempty" doc:"0 = not known."`
	Text  string `json:"text,omitempty"`
}

// Run is one run of a job. Lists leave out args, result and moves.
type Run struct {
	ID        string     `json:"id" format:"uuid"`
	Job       jobs.Key   `json:"job"`
	App       string     `json:"app,omitempty"`
	State     string     `json:"state" enum:"Scheduled,Enqueued,Processing,Succeeded,Failed,Terminated,Cancelled,Skipped"`
	Cause     string     `json:"cause,omitempty" doc:"Why it is in this state."`
	Origin    string     `json:"origin" enum:"cron,misfire,code,person,api,retry,parent,backfill"`
	Actor     string     `json:"actor,omitempty" doc:"Who asked for it."`
	Parent    string     `json:"parent,omitempty" format:"uuid"`
	Unique    string     `json:"unique,omitempty"`
	Priority  int        `json:"priority"`
	Due       *time.Time `json:"due,omitempty"`
	Created   *time.Time `json:"created,omitempty"`
	Queued    *time.Time `json:"queued,omitempty"`
	Started   *time.Time `json:"started,omitempty"`
	Ended     *time.Time `json:"ended,omitempty"`
	Deadline  *time.Time `json:"deadline,omitempty" doc:"When the current attempt times out."`
	RetryAt   *time.Time `json:"retryAt,omitempty"`
	Attempt   uint32     `json:"attempt" doc:"Attempts begun so far."`
	Retries   int        `json:"retries" doc:"Attempts allowed after the first."`
	Worker    string     `json:"worker,omitempty"`
	Waits     string     `json:"waits,omitempty" doc:"The full gate it waits at."`
	Opens     *time.Time `json:"opens,omitempty" doc:"When that gate lets the next run start, by its rate."`
	Lingering bool       `json:"lingering,omitempty" doc:"Over for us, but its handler has not returned."`
	Stuck     bool       `json:"stuck,omitempty" doc:"Its handler was told to stop and has not returned."`
	Progress  *Progress  `json:"progress,omitempty"`
	Error     string     `json:"error,omitempty"`
	Code      string     `json:"code,omitempty" doc:"Of the error, as jobs.Fail gave it; or timeout, or panic."`
	Duplicate bool       `json:"duplicate,omitempty" doc:"It was there before; a unique or idempotency key led to it."`
	Args      *Object    `json:"args,omitempty"`
	Result    Value      `json:"result,omitempty"`
	Moves     []Move     `json:"moves,omitempty" doc:"Its history."`
	Place     *Place     `json:"place,omitempty" doc:"Which worker it may go to; left out: any that has the job."`
}

// Place says which worker a run may go to.
type Place struct {
	Route   string   `json:"route"`
	By      string   `json:"by,omitempty" doc:"Of consistent_hash: what is hashed."`
	Needs   []string `json:"needs,omitempty" doc:"What a worker must have."`
	Pin     string   `json:"pin,omitempty" doc:"The worker that is meant."`
	PinAway string   `json:"pinAway,omitempty"`
	Version int      `json:"version,omitempty" doc:"The least version of the job's code."`
	Slots   int      `json:"slots,omitempty" doc:"How many runs of the job one worker may have."`
	Index   uint32   `json:"index" doc:"Of a broadcast: which of its runs this is, from 0."`
	Total   uint32   `json:"total,omitempty" doc:"Of a broadcast: how many there are."`
	Group   string   `json:"group,omitempty" format:"uuid" doc:"Of a broadcast: its part 0, the parent of the others."`
}

func placeOf(p *kernel.Place) *Place {
	if p == nil {
		return nil
	}
	return &Place{Route: string(p.Route), By: p.Hash, Needs: p.Needs, Pin: p.Pin, PinAway: string(p.PinAway), Version: p.Version, Slots: p.Slots,
		Index: p.Index, Total: p.Total, Group: p.Group.String()}
}

// listed is a run as lists show it.
func listed(run *kernel.Run, now ops.Attempt) Run {
	out := Run{
		ID: run.ID.String(), Job: run.Key, App: run.App, State: run.State.String(), Cause: string(run.Cause), Origin: string(run.Origin),
		Actor: run.Actor, Parent: run.Parent.String(), Unique: run.Unique, Priority: run.Priority,
		Due: when(run.Due), Created: when(run.Created), Queued: when(run.Queued), Started: when(run.Started), Ended: when(run.Ended),
		RetryAt: when(run.RetryAt), Attempt: run.Attempt, Retries: run.Terms.Retries, Worker: run.Worker, Waits: run.Waits,
		Lingering: run.Lingering, Stuck: now.Stuck, Error: run.Problem(), Place: placeOf(run.Place),
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

// whole is a run with all that is known of it.
func whole(run *kernel.Run, now ops.Attempt) Run {
	out := listed(run, now)
	out.Args, out.Result = object(run.Args), Value(run.Result)
	for _, m := range run.Moves {
		out.Moves = append(out.Moves, Move{State: m.State.String(), Cause: string(m.Cause), At: m.At, Attempt: m.Attempt, By: m.By, Text: run.Says(&m), Code: codeOf(run, &m)})
	}
	return out
}

// codeOf is the code that the attempt failed with which a line of a history is about.
func codeOf(run *kernel.Run, m *kernel.Move) string {
	if m.State != jobs.Failed && m.State != jobs.Terminated {
		return ""
	}
	return run.CodeOf(m.Attempt)
}

// LogLine is one line a handler wrote.
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

// Debug is a debug mode: while it is on, nothing of its kind runs by itself.
type Debug struct {
	On bool       `json:"on"`
	By string     `json:"by,omitempty" doc:"Who switched it last."`
	At *time.Time `json:"at,omitempty"`
}

func debugOf(d kernel.Debug) Debug { return Debug{On: d.On, By: d.By, At: when(d.At)} }

// Worker is a worker as its heartbeats describe it.
type Worker struct {
	Name    string              `json:"name"`
	Label   string              `json:"label"`
	App     string              `json:"app"`
	Host    string              `json:"host"`
	PID     int                 `json:"pid"`
	Tags    []string            `json:"tags,omitempty"`
	Slots   int                 `json:"slots" doc:"0 = unlimited."`
	Running int                 `json:"running"`
	Leaving bool                `json:"leaving,omitempty" doc:"It is stopping and takes nothing new."`
	Drained bool                `json:"drained,omitempty" doc:"Somebody has it take nothing new; it finishes what it runs, and stays."`
	Faults  map[jobs.Key]string `json:"faults,omitempty" doc:"Jobs that it should have and does not serve, and why."`
	Jobs    map[jobs.Key]int    `json:"jobs" doc:"Keys that it serves, with their code versions."`
	Started time.Time           `json:"started"`
	Seen    time.Time           `json:"seen"`
}

func workerOf(w ops.Worker) Worker {
	return Worker{Name: w.Name, Label: w.Label, App: w.App, Host: w.Host, PID: w.PID, Tags: w.Tags, Slots: w.Slots,
		Running: w.Running, Leaving: w.Leaving, Drained: w.Drained, Faults: w.Faults, Jobs: w.Keys, Started: w.Started, Seen: w.Seen}
}
