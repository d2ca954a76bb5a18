package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/fastjson"
	"github.com/carillon-scheduler/carillon/internal/plain"
)

// RecurringJob is work that a schedule starts. Its fields carry its dependencies:
//
//	type CloseDay struct{ DB *sql.DB }
//	func (j *CloseDay) Run(ctx context.Context) error { ... }
type RecurringJob interface {
	Run(ctx context.Context) error
}

// TriggeredJob is work that a request starts. Its arguments have type A, a struct that encoding/json can convert. Its
// runs are found by those fields (text, numbers, times, booleans) that have the tag carillon:"search":
//
//	type ChargeArgs struct {
//		Customer string `json:"customer" carillon:"search"` // runs with args.customer = c7
//	}
type TriggeredJob[A any] interface {
	Run(ctx context.Context, args A) error
}

// RecurringFunc and TriggeredFunc make a job of a function. Such a job needs Options.Key.
type (
	RecurringFunc        func(ctx context.Context) error
	TriggeredFunc[A any] func(ctx context.Context, args A) error
)

// Run calls f.
func (f RecurringFunc) Run(ctx context.Context) error { return f(ctx) }

// Run calls f.
func (f TriggeredFunc[A]) Run(ctx context.Context, args A) error { return f(ctx, args) }

// None sets a field of [Options] to nothing (no limit, no timeout, no retries), where 0 would select the default.
const None = -1

// Options are the settings of a job in its code. A zero field has its default. Users can edit all settings but the key
// at run time; an edited setting overrides the code. docs/settings.md describes each.
type Options struct {
	Key         Key    // default: the type's import path and name, with dots for slashes
	Name        string // default: the key
	Description string
	Tags        []string
	Version     int // of the code: the highest registered version sets the fields that are not edited

	Cron     string        // schedule: 5 fields; 6, seconds first; 7, years last; or @daily, ... (recurring jobs only)
	Every    time.Duration // or an interval; with neither, the job runs on request only, until an edit sets a schedule
	TimeZone string        // IANA name; default UTC
	Start    time.Time     // no due times before
	End      time.Time     // no due times after
	Gap      Gap           // when it fires if clocks skip its time of day; default after
	Twice    Twice         // when it fires if its time of day occurs twice; default first
	Args     any           // default arguments

	MaxConcurrency int           // concurrent runs; None = no limit; default 1 if recurring, none if triggered
	Limits         []Limit       // slots shared with other jobs, by name
	Overlap        Overlap       // what happens to a run without a free slot; default skip if recurring, queue if triggered
	Retries        int           // attempts after the first; None = none; default 0
	RetryDelay     time.Duration // before the first retry, grows by RetryFactor; None = none; default 1 s
	RetryDelayMax  time.Duration // default 10 min
	Timeout        time.Duration // of one attempt; None = none; default 1 h
	OnLost         OnLost        // what happens to a run whose worker is lost; default retry
	LeaseLost      LeaseLost     // what its worker does if the lease expires because no node answers; default continue
	Misfire        Misfire       // what happens to missed due times; default fire_once
	Priority       int           // -100 to 100; higher starts first
	StartWithin    time.Duration // a run that has not started so long after its due time is Skipped; default no limit
	Disabled       bool          // no run starts until a user enables it

	Route       Route         // how an eligible worker is selected; default any, the first with a free slot
	RouteBy     string        // the argument that RouteHash hashes, such as customer.id; default the job's key
	Needs       []string      // tags, or key=value, that a worker must have
	Pin         string        // the worker that runs it, by its configured name
	PinAway     PinAway       // what happens to a run while that worker is offline; default wait
	CodeVersion CodeVersion   // which code versions may run it during a rollout; default any
	Slots       int           // concurrent runs in one worker, so that other jobs get slots; default no limit
	AfterEnd    bool          // Every counts from the end of the last run
	First       time.Time     // the first due time of an interval, from which the others count
	TTL         time.Duration // how long after its start the schedule ends; default it does not end
	Early       time.Duration // how long before its due time a run may start
	Jitter      time.Duration // range over which starts are spread, by job and due time
	Calendars   []string      // it is not due at the times that these calendars exclude
	Rate        Rate          // how often runs may start, such as Rate{10, time.Second}
	RetryFactor float64       // growth of the delay with each retry; default 2
	RetryJitter Jitter        // largest random reduction of a retry's delay; default half
	RetryRules  []RetryRule   // by error code, see Fail; first match. Here, Attempts 0 = 2 and Delay 0 = 1 s; None = 0
	RetryBudget Rate          // rate limit of retries; those beyond it start later; Max: None = no limit; default 10/s
	PauseAfter  int           // number of consecutive Terminated runs that pauses the job; default never
	Handler     string        // key of the job whose code runs it; default its own
	OnSuccess   []string      // jobs that start after a Succeeded run, and get it as an argument, see ParentRun
	OnFailure   []string      // jobs that start after a Terminated run
	Parent      string        // the job to which this one belongs
	KeepFor     time.Duration // retention of finished runs; None = no limit; default 5 days

	KeepSucceeded int // Succeeded runs kept, the newest; None = all; default 1,000
	KeepOthers    int // other finished runs kept, the newest; None = all; default 10,000

	// After names jobs: a run starts once for each occasion for which runs of all of them ended. "extract" wants a run
	// that Succeeded, "extract:failed" one that is Terminated, "extract:ended" one in either state, or Cancelled. The
	// run gets them as an argument, see ParentRun. Only for triggered jobs.
	After       []string
	AfterWithin time.Duration // how long an occasion waits for the other jobs; default 24 h
	AfterSpan   time.Duration // recurring jobs whose due times are less than this apart are of one occasion; default equal due times
}

// Job is a job that a worker can run. NewRecurring and NewTriggered make one; pass it to a worker.
type Job struct {
	key     Key
	options Options
	args    reflect.Type
	run     func(ctx context.Context, args []byte) error
	value   any
	err     error
}

// NewRecurring makes a Job of a RecurringJob. worker.New returns an error if j or o is invalid. With Options.Handler, j may
// be nil: the job is a schedule with arguments for the code of another one.
func NewRecurring(j RecurringJob, o Options) Job {
	job := Job{value: j, options: o, key: keyOf(j, o), err: missing(j, o)}
	job.run = func(ctx context.Context, _ []byte) error {
		if j == nil {
			return NoRetry(fmt.Errorf("job %s has no code of its own, and its handler %s was cleared", o.Key, o.Handler))
		}
		return j.Run(ctx)
	}
	return job
}

// NewTriggered makes a Job of a TriggeredJob; A is inferred from its Run. worker.New returns an error if j or o is
// invalid.
func NewTriggered[A any](j TriggeredJob[A], o Options) Job {
	job := Job{value: j, options: o, key: keyOf(j, o), args: reflect.TypeFor[A](), err: missing(j, o)}
	reader := fastjson.ReaderOf(reflect.TypeFor[A]())
	job.run = func(ctx context.Context, raw []byte) error {
		var a A
		if len(raw) > 0 && !reader.Read(raw, reflect.ValueOf(&a).Elem()) {
			a = *new(A)
			if err := json.Unmarshal(raw, &a); err != nil {
				return NoRetry(fmt.Errorf("arguments do not fit %T: %w", a, err))
			}
		}
		return j.Run(ctx, a)
	}
	if job.err == nil && (o.Cron != "" || o.Every != 0) {
		job.err = invalid("job %s: a triggered job has no schedule; make it a recurring one, or trigger it from one", job.key)
	}
	return job
}

// Key returns the key of the job.
func (j Job) Key() Key { return j.key }

// Options returns the options of NewRecurring or NewTriggered.
func (j Job) Options() Options { return j.options }

// Args returns the type of a triggered job's arguments; nil for a recurring job.
func (j Job) Args() reflect.Type { return j.args }

// Err returns why the job is invalid, or nil. worker.New returns the same error.
func (j Job) Err() error { return j.err }

// Run calls the handler once, in this process, with arguments as JSON.
func (j Job) Run(ctx context.Context, args []byte) error { return j.run(ctx, args) }

// Init calls the method Init(context.Context) error of the job's value, if it has one. A worker calls it once at its
// start, before it registers the job; a job whose Init fails does not run on that worker.
func (j Job) Init(ctx context.Context) error {
	if i, ok := j.value.(interface{ Init(context.Context) error }); ok {
		return i.Init(ctx)
	}
	return nil
}

// Close calls the method Close() error of the job's value, if it has one. A worker calls it once when it ends.
func (j Job) Close() error {
	if c, ok := j.value.(interface{ Close() error }); ok {
		return c.Close()
	}
	return nil
}

// missing is what a job cannot do without: something to run, and a name for it.
func missing(j any, o Options) error {
	switch t := reflect.TypeOf(j); {
	case t == nil && o.Handler != "" && o.Key != "":
	case t == nil:
		return invalid("job %q is nil", o.Key)
	case t.Kind() == reflect.Func && o.Key == "":
		return invalid("a job that is a function has no name of its own: set Options.Key")
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
		if r < 0x80 && plain.Name("", "a"+string(r), 2) == nil || r == '.' {
			return r
		}
		return '-'
	}, name))
}
