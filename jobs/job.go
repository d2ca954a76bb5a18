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

// None says "explicitly nothing" where a zero in Options would mean "as the defaults say": no limit, no timeout, no
// retries.
const None = -1

// Options are what the code says about a job. Zero fields say nothing: the defaults hold. People may change all
// but the key later, and what they change wins.
type Options struct {
	Key         Key    // default: the type's import path and name, with dots for slashes
	Name        string // default: the key
	Description string
	Tags        []string
	Version     int // of the code: the highest that registers sets unedited fields

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
	RetryDelay     time.Duration // before the first retry, doubled each time; None = none; default 1 s
	RetryDelayMax  time.Duration // default 10 min
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
	options Options
	args    reflect.Type
	run     func(ctx context.Context, args []byte) error
	value   any
	err     error
}

// NewRecurring makes a Job of a recurring one. worker.New returns what is wrong with it.
func NewRecurring(j RecurringJob, o Options) Job {
	job := Job{value: j, options: o, key: keyOf(j, o), err: missing(j, o)}
	job.run = func(ctx context.Context, _ []byte) error { return j.Run(ctx) }
	return job
}

// NewTriggered makes a Job of a triggered one; A is inferred from its Run. It is the only place that knows A:
// behind it, arguments are bytes.
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

// Key of the job.
func (j Job) Key() Key { return j.key }

// Options the job was made with.
func (j Job) Options() Options { return j.options }

// Args is the type of a triggered job's arguments; nil for a recurring job.
func (j Job) Args() reflect.Type { return j.args }

// Err is what is wrong with the job, or nil. A worker that is made with the job returns it.
func (j Job) Err() error { return j.err }

// Run runs the job once, here, with arguments as JSON.
func (j Job) Run(ctx context.Context, args []byte) error { return j.run(ctx, args) }

// Init prepares the job in a worker, before the worker registers it: a job with a method Init(context.Context) error
// has it called once for each start of a worker. One that fails is not served there.
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

// missing is what a job cannot do without: something to run, and a name for it.
func missing(j any, o Options) error {
	switch t := reflect.TypeOf(j); {
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
