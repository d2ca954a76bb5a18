package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/run"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/pool"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Config configures a worker. The zero value works.
type Config struct {
	Tenant jobs.Tenant // tenant of the jobs; default jobs.DefaultTenant
	App    string      // the group of workers that share these jobs; default DefaultApp
	Name   string      // name of this worker; default: made from the names of the app and the host
	Slots  int         // max concurrent runs; default DefaultSlots(), or Unlimited
	Tags   []string    // tags that jobs may need, such as "gpu"

	// Others runs attempts of the app's jobs that were not passed to New; jobs.Attempt(ctx) returns the job. If another
	// worker was given a job by name, runs of that job go to that worker. Default none.
	Others Handler
	// Only restricts Others to jobs with this setting: "http" or "exec". A job of another kind that no worker has is not
	// fired. Default: all jobs.
	Only string

	// Middleware wraps every handler; the first is the outermost. jobs.Attempt(ctx) returns the run.
	Middleware []func(next Handler) Handler
	// Logger gets log lines for operators; default none. Handlers log with jobs.Log instead.
	Logger *slog.Logger
	// Echo gets copies of the lines that handlers write with jobs.Log, and the errors of attempts, each with job, run and
	// attempt: for a terminal, or the program's log. Both are stored with the run in any case. Default none.
	Echo *slog.Logger

	Grace          time.Duration // how long handlers may continue after the ctx of Run has ended; default DefaultGrace, negative none
	HeartbeatEvery time.Duration // how often the worker sends a heartbeat; default 3 s
	Lease          time.Duration // lease of its runs without an answer to heartbeats, unless the leader sets it; default 15 s
}

// DefaultApp is the app of workers that name none.
const DefaultApp = "default"

// Unlimited is the Slots of a worker without a limit: it starts as many handlers at once as there are runs.
const Unlimited = -1

// DefaultSlots is the Slots of workers whose configuration sets none: eight for each core that Go uses, at least 16.
// Handlers that wait more than they compute may have more, those that need much memory less.
func DefaultSlots() int { return max(16, 8*runtime.GOMAXPROCS(0)) }

// slots is how the bus names a limit: 0 is none.
func (c *Config) slots() int { return max(0, c.Slots) }

// DefaultGrace is the grace of workers whose configuration sets none. With it, a worker ends within 28 s.
const DefaultGrace = 25 * time.Second

// Handler runs one attempt. Its arguments are JSON, or nil.
type Handler func(ctx context.Context, args []byte) error

// Bus is the part of a bus that a worker uses. It is not promised.
type Bus interface {
	bus.Acceptor
	bus.Signals
	bus.Calls
}

// Worker runs jobs. Make one with New.
type Worker struct {
	config   Config
	name     string // unique per start: the configured name and a nonce
	actor    string // who asks, in envelopes
	started  time.Time
	store    metastore.Applier
	bus      Bus
	log      *slog.Logger
	episodes *episode.Log
	jobs     map[jobs.Key]*job
	order    []jobs.Key // of registration: as they were given
	begun    []source   // that were initialised, in that order
	faulty   sync.Mutex // guards faults while jobs are initialised
	faults   map[jobs.Key]string
	given    []kernel.Declaration // of all jobs, in their order
	others   Handler              // of jobs that are not among them; nil = none

	held       *held
	pool       *pool.Pool[*attempt] // nil until Run is at work
	young      young
	reports    reports
	lines      *logbook
	leader     leader
	hurry      chan struct{} // asks for a heartbeat now
	again      chan struct{} // asks for another registration
	stopPushes func()        // ends the subscription to pushes; nil = there is none
	term       atomic.Uint64 // whose leader has called
	quit       chan struct{} // closed when the grace of a drain has passed
	remote     *Remote       // that it acts for; nil = none
	ran        atomic.Bool
	ready      atomic.Bool // the jobs are registered
	ended      atomic.Bool // Run has returned
}

// New makes a worker of a store and a bus, and checks all that can be checked here: names, the jobs' settings, their
// schedules. Nothing is sent before Run. Packages metastore and bus are not promised: programs call carillon.NewWorker.
func New(cfg Config, store metastore.Applier, b Bus, js ...jobs.Job) (*Worker, error) {
	sources := make([]source, len(js))
	for i, j := range js {
		sources[i] = j
	}
	return newWorker(cfg, store, b, sources)
}

func newWorker(cfg Config, store metastore.Applier, b Bus, js []source) (*Worker, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	started := time.Now()
	w := &Worker{
		config:  cfg,
		name:    cfg.Name + "-" + strings.ToLower(rand.Text()[:8]),
		actor:   cfg.principal().Actor(),
		started: started,
		store:   store,
		bus:     b,
		jobs:    make(map[jobs.Key]*job, len(js)),
		held:    newHeld(cfg.Tenant, cfg.slots(), started),
		lines:   newLogbook(),
		leader:  leader{lease: cfg.Lease},
		hurry:   make(chan struct{}, 1),
		again:   make(chan struct{}, 1),
		quit:    make(chan struct{}),
	}
	w.log = cfg.Logger.With("worker", w.name)
	w.episodes = episode.New(w.log)
	if w.others = w.wrapped(cfg.Others); len(js) == 0 && w.others == nil {
		return nil, errors.New("worker: no jobs")
	}
	if len(js) > bus.MostJobs {
		return nil, fmt.Errorf("worker: %d jobs, at most %d are allowed: divide them among several workers", len(js), bus.MostJobs)
	}
	for _, j := range js {
		if _, twice := w.jobs[j.Key()]; twice {
			return nil, fmt.Errorf("worker: job %s is given twice", j.Key())
		}
		prepared, err := w.prepare(j)
		if err != nil {
			return nil, fmt.Errorf("worker: %w", err)
		}
		w.jobs[j.Key()] = prepared
		w.order = append(w.order, j.Key())
		w.given = append(w.given, prepared.declaration)
	}
	return w, nil
}

// complete puts the defaults in and checks the rest.
func (c Config) complete() (Config, error) {
	if c.Tenant == "" {
		c.Tenant = jobs.DefaultTenant
	}
	if c.App == "" {
		c.App = DefaultApp
	}
	if c.Slots == 0 {
		c.Slots = DefaultSlots()
	}
	if c.Name == "" {
		c.Name = hostName()
		if c.App != DefaultApp { // a host may have workers of several, which differ in their names
			c.Name = c.App + "." + c.Name
			c.Name = strings.TrimRight(c.Name[:min(len(c.Name), 180)], ".")
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	for _, d := range []struct {
		v     *time.Duration
		value time.Duration
	}{{&c.Grace, DefaultGrace}, {&c.HeartbeatEvery, 3 * time.Second}, {&c.Lease, 15 * time.Second}} {
		if *d.v == 0 {
			*d.v = d.value
		}
	}
	for _, n := range []struct{ what, name string }{{"tenant", string(c.Tenant)}, {"app", c.App}, {"worker name", c.Name}} {
		if err := kernel.CheckName(n.what, n.name); err != nil {
			return c, err
		}
	}
	switch {
	case len(c.Name) > 180:
		return c, kernel.Invalid("worker name has %d characters, at most 180 are allowed: each start adds a few", len(c.Name))
	case c.Slots < Unlimited:
		return c, kernel.Invalid("invalid slots %d: want the number of runs at the same time, 0 for %d (8 per core), or worker.Unlimited", c.Slots, DefaultSlots())
	case c.Only != "" && !slices.Contains(kernel.WorkSettings(), c.Only):
		return c, kernel.Invalid("invalid Only %.40q: want one of %q, or none for all jobs", c.Only, kernel.WorkSettings())
	case c.HeartbeatEvery < 0 || c.Lease <= c.HeartbeatEvery:
		return c, kernel.Invalid("lease is %v and a heartbeat is sent every %v: the lease must be longer", c.Lease, c.HeartbeatEvery)
	}
	return c, nil
}

// Principal returns the worker's identity on the bus and in the store, with the defaults filled in: the connection
// given to New must be opened as this.
func (c Config) Principal() (bus.Principal, error) {
	c, err := c.complete()
	return c.principal(), err
}

func (c Config) principal() bus.Principal {
	return bus.Principal{Tenant: c.Tenant, Role: bus.Worker, Name: c.Name, App: c.App}
}

// hostName returns the host's name in the characters that names may have.
func hostName() string {
	host, _ := os.Hostname()
	name := strings.Map(func(r rune) rune {
		if r == '.' || kernel.CheckName("", string(r)) == nil {
			return r
		}
		return '-'
	}, host)
	name = strings.Trim(name[:min(len(name), 180)], ".")
	if kernel.CheckName("", name) != nil {
		return "worker"
	}
	return name
}

// Name returns the name under which this start of the worker gets runs: the configured one and a nonce.
func (w *Worker) Name() string { return w.name }

// Run registers the jobs and runs what the leader sends until ctx ends. Then it drains: it accepts nothing more, lets
// running handlers continue for Config.Grace, then ends their contexts with jobs.ErrShutdown and gives those runs back.
// The end takes three seconds more than the grace, or seven seconds more than a grace of 21 s and less. Run returns nil
// after a drain, an [UnreportedError] if outcomes of runs could not be reported, and another error if it could not work.
// A worker runs once.
func (w *Worker) Run(ctx context.Context) error {
	if w.ran.Swap(true) {
		return errors.New("worker: Run was called before; make a new worker for another start")
	}
	defer w.ended.Store(true)
	defer w.episodes.Reset()
	// Two contexts, because leaving takes time: working ends first, and living when the drain has finished.
	working, stop := context.WithCancel(ctx)
	defer stop()
	living, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()

	defer w.finishJobs()
	if err := w.beginJobs(working); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	patient := time.AfterFunc(5*time.Second, func() { w.log.Warn("no control plane answers yet, the jobs wait to be registered") })
	err := w.register(working, true)
	patient.Stop()
	if err != nil {
		return fmt.Errorf("worker: register: %w", err)
	}
	if err := w.checkInfo(); err != nil { // not before: only a connected worker knows the limit of the bus
		return fmt.Errorf("worker: %w", err)
	}
	w.ready.Store(true)
	w.log.Info("worker registered", "app", w.config.App, "jobs", len(w.jobs), "slots", w.config.slots())
	w.pool = pool.New(func(a *attempt) { w.attend(living, a) })
	defer w.pool.Dismiss()
	defer w.hangUp() // after the goodbye: until then pushes are answered, with refusals
	if err := w.subscribe(living); err != nil {
		return fmt.Errorf("worker: listen: %w", err)
	}
	if w.remote != nil {
		w.remote.start()
	}

	// Whichever actor returns first, working ends, which starts the drain, which ends the others.
	var group run.Group
	add := func(actor func() error) { group.Add(actor, func(error) { stop() }) }
	add(func() error {
		<-working.Done()
		w.drain()
		end()
		return nil
	})
	add(func() error { w.keepRegistered(living); return nil })
	add(func() error { return w.heartbeat(living) })
	add(func() error { w.sendLogs(living); return nil })
	err = group.Run()
	w.held.drained(lastWords) // what was left has seen living end: the bus may be closed now
	return errors.Join(err, w.unreported())
}

// subscribe subscribes to the runs that the leader pushes, and to its requests to stop runs.
func (w *Worker) subscribe(living context.Context) error {
	if err := w.listen(living); err != nil {
		return err
	}
	return w.bus.Listen(living, w.config.Tenant, bus.TopicCancel, w.name, func(s bus.Signal) { w.heed(living, s) })
}

// Stats is what a worker is doing, and has done since its start.
type Stats struct {
	Running int // handlers that have not returned
	Free    int // free slots; -1 if there is no limit
	Stuck   int // handlers that have not returned 10 s after they were stopped

	Begun uint64 // attempts that it has accepted
	// Finished counts the attempts that ended, as this worker saw it, by outcome: success, error, fatal (an error
	// without a retry), timeout, handback (the worker drained), snooze.
	Finished map[string]uint64
	Stopped  uint64 // attempts ended elsewhere: cancelled, or taken away
	Refused  uint64 // how often it refused an attempt, because it was full or draining: its run starts elsewhere
}

// Stats returns what the worker is doing.
func (w *Worker) Stats() Stats { return w.held.stats() }
