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

	Cron     string        // when it runs: 5, 6 or 7 fields, or @every, @daily, ... (recurring jobs only)
	Every    time.Duration // or: at this interval
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
	OnLost         OnLost
	LeaseLost      LeaseLost
	Misfire        Misfire
	Priority       int           // -100 to 100; higher goes first
	StartWithin    time.Duration // not started by then: Skipped
	Disabled       bool
}

// Job is a job that a worker can run: made by NewRecurring or NewTriggered, handed to a worker.
type Job struct {
	key     Key
	kind    Kind
	options Options
	args    reflect.Type
	run     func(ctx context.Context, args []byte) error
	err     error
}

// NewRecurring makes a Job of a recurring one. What is wrong with it is told when a worker is made of it.
func NewRecurring(j RecurringJob, o Options) Job {
	job := Job{kind: Recurring, options: o, key: keyOf(j, o), err: missing(j, o)}
	job.run = func(ctx context.Context, _ []byte) error { return j.Run(ctx) }
	return job
}

// NewTriggered makes a Job of a triggered one; A is inferred from its Run. It is the only place that knows A:
// behind it, arguments are bytes.
func NewTriggered[A any](j TriggeredJob[A], o Options) Job {
	job := Job{kind: Triggered, options: o, key: keyOf(j, o), args: reflect.TypeFor[A](), err: missing(j, o)}
	job.run = func(ctx context.Context, raw []byte) error {
		var a A
		if len(raw) > 0 {
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

// Key of the job.
func (j Job) Key() Key { return j.key }

// Kind of the job.
func (j Job) Kind() Kind { return j.kind }

// Args is the type of the job's arguments, or nil.
func (j Job) Args() reflect.Type { return j.args }

// Run runs the job once, here, with arguments as JSON.
func (j Job) Run(ctx context.Context, args []byte) error { return j.run(ctx, args) }

// Declare is what a worker registers. The schema of the arguments is added by the worker.
func (j Job) Declare() (Declaration, error) {
	if j.err != nil {
		return Declaration{}, j.err
	}
	if err := j.key.Check(); err != nil {
		return Declaration{}, err
	}
	code, err := j.options.settings()
	if err != nil {
		return Declaration{}, fmt.Errorf("job %s: %w", j.key, err)
	}
	if err := code.Check(); err != nil {
		return Declaration{}, fmt.Errorf("job %s: %w", j.key, err)
	}
	if j.options.Version < 0 {
		return Declaration{}, Invalid("job %s: version is %d, it must not be negative", j.key, j.options.Version)
	}
	return Declaration{Key: j.key, Kind: j.kind, Version: j.options.Version, Code: code}, nil
}

func given[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
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
	switch {
	case o.Cron != "" && o.Every != 0:
		return s, Invalid("both Cron %q and Every %v are set: give one of them", o.Cron, o.Every)
	case o.Cron != "":
		s.Schedule = &o.Cron
	case o.Every != 0:
		s.Schedule = new("@every " + o.Every.String())
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
