package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// RecurringJob is work that is done by a schedule. What it needs is in its fields:
//
//	type CloseDay struct{ DB *sql.DB }
//	func (j *CloseDay) Run(ctx context.Context) error { ... }
type RecurringJob interface {
	Run(ctx context.Context) error
}

// TriggeredJob is work that is done when asked, with arguments of type A, a struct that JSON can carry.
type TriggeredJob[A any] interface {
	Run(ctx context.Context, args A) error
}

// RecurringFunc and TriggeredFunc let a function be a job. Give such a job a Key.
type (
	RecurringFunc        func(ctx context.Context) error
	TriggeredFunc[A any] func(ctx context.Context, args A) error
)

// Run calls f.
func (f RecurringFunc) Run(ctx context.Context) error { return f(ctx) }

// Run calls f.
func (f TriggeredFunc[A]) Run(ctx context.Context, args A) error { return f(ctx, args) }

// None says "explicitly nothing" where a zero in Options would mean "as the defaults say": no limit, no timeout, no retries.
const None = -1

// Options are what the code says about a job. Zero fields say nothing: the defaults hold. People may change all
// but the key later, and what they change wins.
type Options struct {
	Key         Key    // default: the type's import path and name, with dots for slashes
	Name        string // default: the key
	Description string
	Tags        []string
	Version     int // of the code: the highest that registers sets what nobody edited

	Cron     string        // when it runs: 5 fields; 6, seconds first; 7, years last; or @daily, ... (recurring jobs only)
	Every    time.Duration // or: at this interval; neither: only when asked, until somebody gives it a schedule
	TimeZone string        // IANA name; default UTC
	Start    time.Time     // no run before
	End      time.Time     // no run after
	Gap      Gap           // when clocks skip its time of day; default after
	Twice    Twice         // when its time of day comes twice; default first
	Args     any           // default arguments

	MaxConcurrency int           // runs at the same time; None = no limit; default 1 if recurring, none if triggered
	Limits         []Limit       // slots shared with other jobs, by name
	Overlap        Overlap       // what becomes of a run that finds no slot; default skip if recurring, queue if triggered
	Retries        int           // attempts after the first; None = none; default 0
	RetryDelay     time.Duration // before the first retry, doubled each time; default: at once
	RetryDelayMax  time.Duration // default 1 h
	Timeout        time.Duration // of one attempt; None = none; default 1 h
	OnLost         OnLost        // when its worker has died; default retry
	LeaseLost      LeaseLost     // while no control plane answers its worker; default continue
	Misfire        Misfire       // what becomes of due times that were missed; default fire_once
	Priority       int           // -100 to 100; higher goes first
	StartWithin    time.Duration // not started by then: Skipped
	Disabled       bool          // nothing of it starts until somebody enables it

	Route       Route         // which worker of those that may take it; default any, the first that asks
	RouteBy     string        // the argument that RouteHash goes by, such as customer.id; default the job's key
	Needs       []string      // tags, or key=value, that a worker must have
	Pin         string        // the worker that runs it, by its configured name
	PinAway     PinAway       // while that worker is away; default wait
	CodeVersion CodeVersion   // which versions of the code may run it, while a new one is rolled out; default any
	Slots       int           // runs of it in one worker at the same time, so that a slow one leaves room for others; default no bound
	AfterEnd    bool          // Every counts from the end of the last run
	First       time.Time     // the first due time of an interval, from which the others count
	TTL         time.Duration // the schedule ends so long after it began
	Early       time.Duration // a run may start so long before it is due
	Jitter      time.Duration // starts are spread over so long a time, by job and due time
	Calendars   []string      // it is not due at the times that these calendars exclude
	Rate        Rate          // how often runs may start, such as Rate{10, time.Second}
	RetryFactor float64       // what the delay grows by with each retry; default 2
	RetryJitter Jitter        // how much is taken off a retry's delay at most; default half
	RetryRules  []RetryRule   // by error code, see Fail; the first that matches wins. Here, 0 attempts mean 2 and no delay 1 s; None = none
	RetryBudget Rate          // how often runs may be tried again, later retries are spread; Max: None = no budget; default 10/s
	PauseAfter  int           // so many runs in a row that fail for good pause the job; default never
	OnSuccess   []string      // jobs that run after one that succeeded, with what became of it in their arguments, see ParentRun
	OnFailure   []string      // jobs that run after one that failed for good
	Parent      string        // the job that this one belongs to
	KeepFor     time.Duration // how long its runs can be read once they are over; None = for ever; default 5 days

	KeepSucceeded int // and so many of them that Succeeded, the newest; None = all; default 1,000
	KeepOthers    int // and so many that ended otherwise; None = all; default 10,000
}

// Job is a job that a worker can run: made by NewRecurring or NewTriggered, handed to a worker.
type Job struct {
	key     Key
	kind    Kind
	options Options
	args    reflect.Type
	run     func(ctx context.Context, args []byte) error
	value   any
	err     error
	// declared is what somebody else's code says about it; nil: what options say.
	declared *Declaration
}

// NewRecurring makes a Job of a recurring one. What is wrong with it is told when a worker is made of it.
func NewRecurring(j RecurringJob, o Options) Job {
	job := Job{value: j, kind: Recurring, options: o, key: keyOf(j, o), err: missing(j, o)}
	job.run = func(ctx context.Context, _ []byte) error { return j.Run(ctx) }
	return job
}

// NewTriggered makes a Job of a triggered one; A is inferred from its Run. It is the only place that knows A:
// behind it, arguments are bytes.
func NewTriggered[A any](j TriggeredJob[A], o Options) Job {
	job := Job{value: j, kind: Triggered, options: o, key: keyOf(j, o), args: reflect.TypeFor[A](), err: missing(j, o)}
	reader := readerOf(reflect.TypeFor[A]())
	job.run = func(ctx context.Context, raw []byte) error {
		var a A
		if len(raw) > 0 && !reader.read(raw, reflect.ValueOf(&a).Elem()) {
			a = *new(A)
			if err := json.Unmarshal(raw, &a); err != nil {
				return NoRetry(fmt.Errorf("arguments do not fit %T: %w", a, err))
			}
		}
		return j.Run(ctx, a)
	}
	if job.err == nil && (o.Cron != "" || o.Every != 0) {
		job.err = Invalid("job %s: a triggered job has no schedule; make it a recurring one, or trigger it from one", job.key)
	}
	return job
}

// NewDeclared makes a Job of what code elsewhere says about it: of a worker in another language, for which run stands in.
func NewDeclared(d Declaration, run func(ctx context.Context, args []byte) error) Job {
	job := Job{key: d.Key, kind: d.Kind, run: run, declared: &d}
	switch {
	case d.Kind != Recurring && d.Kind != Triggered:
		job.err = Invalid("job %s is neither recurring nor triggered", d.Key)
	case d.Kind == Triggered && d.Code.Schedule != nil && *d.Code.Schedule != "":
		job.err = Invalid("job %s: a triggered job has no schedule; make it a recurring one, or trigger it from one", d.Key)
	}
	return job
}

// Key of the job.
func (j Job) Key() Key { return j.key }

// Kind of the job.
func (j Job) Kind() Kind { return j.kind }

// Args is the type of the job's arguments, or nil.
func (j Job) Args() reflect.Type { return j.args }

// Run runs the job once, here, with arguments as JSON.
func (j Job) Run(ctx context.Context, args []byte) error { return j.run(ctx, args) }

// Init prepares the job in a worker, before the worker registers it: a job with a method Init(context.Context) error has
// it called once for each start of a worker. One that fails is not served there.
func (j Job) Init(ctx context.Context) error {
	if i, ok := j.value.(interface{ Init(context.Context) error }); ok {
		return i.Init(ctx)
	}
	return nil
}

// Close gives up what Init has opened, when the worker ends: a job with a method Close() error has it called once.
func (j Job) Close() error {
	if c, ok := j.value.(interface{ Close() error }); ok {
		return c.Close()
	}
	return nil
}

// Declare is what a worker registers. The schema of the arguments is added by the worker.
func (j Job) Declare() (Declaration, error) {
	if j.err != nil {
		return Declaration{}, j.err
	}
	if err := j.key.Check(); err != nil {
		return Declaration{}, err
	}
	var d Declaration
	if j.declared != nil {
		d = *j.declared
	} else {
		code, err := j.options.settings()
		if err != nil {
			return Declaration{}, fmt.Errorf("job %s: %w", j.key, err)
		}
		d = Declaration{Key: j.key, Kind: j.kind, Version: j.options.Version, Code: code}
	}
	if err := d.Code.Check(); err != nil {
		return Declaration{}, fmt.Errorf("job %s: %w", j.key, err)
	}
	if d.Version < 0 {
		return Declaration{}, Invalid("job %s: version is %d, it must not be negative", j.key, d.Version)
	}
	return d, nil
}

func given[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// unbounded is what is given of a bound of which None says that there is none.
func unbounded[T ~int | ~int64](v T) *T {
	if v == None {
		return new(T)
	}
	return given(v)
}

// settings turns zero fields into "says nothing" and None into 0.
func (o Options) settings() (Settings, error) {
	s := Settings{
		Name: given(o.Name), Description: given(o.Description), Zone: given(o.TimeZone),
		Gap: given(o.Gap), Twice: given(o.Twice),
		MaxConcurrency: given(o.MaxConcurrency), Overlap: given(o.Overlap), Retries: given(o.Retries),
		RetryDelay: given(o.RetryDelay), RetryDelayMax: given(o.RetryDelayMax), Timeout: given(o.Timeout),
		OnLost: given(o.OnLost), LeaseLost: given(o.LeaseLost), Misfire: given(o.Misfire), Priority: given(o.Priority),
		StartWithin: given(o.StartWithin), Disabled: given(o.Disabled),
		Route: given(o.Route), RouteBy: given(o.RouteBy), Pin: given(o.Pin), PinAway: given(o.PinAway), CodeVersion: given(o.CodeVersion), Slots: given(o.Slots),
		TTL: given(o.TTL), Early: given(o.Early), Jitter: given(o.Jitter),
	}
	if len(o.Needs) > 0 {
		s.Needs = &o.Needs
	}
	s.Rate, s.RetryFactor, s.RetryJitter = given(o.Rate), given(o.RetryFactor), given(o.RetryJitter)
	s.RetryBudget, s.PauseAfter = given(o.RetryBudget), given(o.PauseAfter)
	s.Parent = given(o.Parent)
	if len(o.OnSuccess) > 0 {
		s.OnSuccess = &o.OnSuccess
	}
	if len(o.OnFailure) > 0 {
		s.OnFailure = &o.OnFailure
	}
	s.KeepFor, s.KeepSucceeded, s.KeepOthers = unbounded(o.KeepFor), unbounded(o.KeepSucceeded), unbounded(o.KeepOthers)
	if o.RetryBudget.Max == None {
		s.RetryBudget = new(Rate)
	}
	if o.PauseAfter == None {
		*s.PauseAfter = 0
	}
	if len(o.RetryRules) > 0 {
		s.RetryRules = new(explicit(o.RetryRules))
	}
	if o.MaxConcurrency == None {
		*s.MaxConcurrency = 0
	}
	if o.Timeout == None {
		*s.Timeout = 0
	}
	if o.Retries == None {
		*s.Retries = 0
	}
	if len(o.Tags) > 0 {
		s.Tags = &o.Tags
	}
	if len(o.Limits) > 0 {
		s.Limits = &o.Limits
	}
	if !o.Start.IsZero() {
		s.Start = new(Instant(o.Start))
	}
	if !o.End.IsZero() {
		s.End = new(Instant(o.End))
	}
	if !o.First.IsZero() {
		s.First = new(Instant(o.First))
	}
	if len(o.Calendars) > 0 {
		s.Calendars = &o.Calendars
	}
	switch {
	case o.AfterEnd && o.Every == 0:
		return s, Invalid("AfterEnd is set, but Every is not: only an interval can count from the end of a run")
	case o.Cron != "" && o.Every != 0:
		return s, Invalid("both Cron %q and Every %v are set: give one of them", o.Cron, o.Every)
	case o.Cron != "":
		s.Schedule = &o.Cron
	case o.Every != 0:
		s.Schedule = new("@every " + o.Every.String())
		if o.AfterEnd {
			*s.Schedule += afterEnd
		}
	}
	if o.Args != nil {
		raw, err := json.Marshal(o.Args)
		if err != nil {
			return s, Invalid("default arguments cannot be written as JSON: %v", err)
		}
		s.Args = new(json.RawMessage(raw))
	}
	return s, nil
}

// missing is what a job cannot do without: something to run, and a name for it.
func missing(j any, o Options) error {
	switch t := reflect.TypeOf(j); {
	case t == nil:
		return Invalid("job %q is nil", o.Key)
	case t.Kind() == reflect.Func && o.Key == "":
		return Invalid("a job that is a function has no name of its own: set Options.Key")
	}
	return nil
}

// keyOf is the key a job has if none is given: its type's import path and name, with dots for slashes.
// Functions and nil have none.
func keyOf(j any, o Options) Key {
	t := reflect.TypeOf(j)
	if o.Key != "" || t == nil || t.Kind() == reflect.Func {
		return o.Key
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name := strings.ReplaceAll(t.PkgPath(), "/", ".") + "." + t.Name()
	return Key(strings.Map(func(r rune) rune {
		if r < 0x80 && checkName("", "a"+string(r), 2) == nil || r == '.' {
			return r
		}
		return '-'
	}, name))
}
