// Package embed is a whole scheduler inside a program: control plane, worker, store, bus and pages, in one process.
//
//	err := embed.Run(ctx, embed.Config{Dir: "./data"}, jobs.NewRecurring(...), jobs.NewTriggered(...))
//
// Where to start: [Run], or [Start] for a handle with a client and the pages. `carillon dev` and `carillon server`
// are made of [Open], with a network around it.
//
// Sharp edges: without Config.Dir nothing survives the process. A directory belongs to one process at a time. Without
// Config.Who or Config.Tokens the pages ask nobody who they are: mount [Scheduler.Handler] behind what guards your own
// pages.
package embed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/oklog/run"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/membus"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore"
	"github.com/carillon-scheduler/carillon/metrics"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/trace"
	"github.com/carillon-scheduler/carillon/ui"
	"github.com/carillon-scheduler/carillon/webhook"
	"github.com/carillon-scheduler/carillon/worker"
	"github.com/carillon-scheduler/carillon/worker/httpjob"
)

// Config says how a scheduler is embedded. The zero value works: rows in memory, a bus in the process.
type Config struct {
	// Dir is where rows are kept; "" = in memory, until the process ends.
	Dir string
	// Database is where rows are kept instead: postgres://user:password@host/database, or mariadb://....
	Database string
	// Triggering says who fires what is due: ByLeader (default), the process that leads, or Spread, with a Database: each
	// process that has it fires a share of the jobs.
	Triggering Triggering
	// Node is this process's name; default "node". Processes that share a Database need names of their own.
	Node string
	// Worker says how the jobs that are given are run. Its Logger defaults to the one below.
	Worker worker.Config
	// HTTPJobs has HTTP jobs run in this process, and says what they may do; nil = others run them.
	HTTPJobs *httpjob.Config
	// Bus opens one principal's end of a bus that others share; default: a bus inside the process. With one, workers
	// and programs elsewhere reach the store over it.
	Bus func(ctx context.Context, as bus.Principal) (bus.Bus, error)
	// Kept says that a worker on that bus speaks for its own app only: for one that makes sure who is who. Default: it may
	// speak for all apps.
	Kept bool

	// Who says who sends a request to Handler, for a program that knows its users: their tenant, name ("person:ann") and
	// role. An error of jobs.Forbidden turns them away. About requests that wait or stream it is asked again twice a
	// second. Default: nobody is asked, and everybody may do everything.
	Who func(*http.Request) (ops.Who, error)
	// Tokens asks for a token, or a session begun with one, instead: those that Ops().Grant gives out. Not with Who.
	Tokens bool
	// Secure says that browsers come by https although this process does not speak it: a proxy in front does.
	Secure bool

	// Cluster says how this is one of several nodes, each with a copy of the rows, in Dir. They share a Bus. Default: it is
	// alone. With a Database, nodes that share it and a Bus need nothing more.
	Cluster *Cluster

	// Open is for several processes on one Database of which each has a bus of its own, and only that of the one that
	// leads is open to others: it is called before this process does what a leader does, and what it answers with when
	// it leads no more. Such a process does not hear the others: what it is asked for while it does not lead it writes
	// to the database itself, and the leader finds it there. Default: all share a Bus.
	Open func() (shut func(), err error)

	// OnFailure says who is told of runs that end badly; without a URL nobody is.
	OnFailure webhook.Config

	// RetainBytes is how much runs that are over may take on disk: beyond, the oldest go. Default 8 GiB; below 0: any
	// number. What a job keeps is said by its settings.
	RetainBytes int64
	// KeepCounts is how long counts by the hour, missed due times and what is left of deleted jobs are kept. Default, and
	// least: 35 days.
	KeepCounts time.Duration

	// Limits bounds what requests may take.
	Limits Limits

	// Address is where the pages are, as people who see this process from another one of the cluster know it; default:
	// nothing is said.
	Address string
	// BusAddress is where workers and clients reach the bus, for the code that the pages show; default: the default port.
	BusAddress string
	// NATS says in a few words how this process's end of the bus is, for the page of the cluster; default: nothing is said.
	NATS func() string
	// Base is the path under which Handler is mounted, such as "/jobs"; default: the root.
	Base string
	// Notice is a sentence that stands on top of every page, or "".
	Notice string
	// Version is the program's, for its metrics; default "unknown".
	Version string
	// Logger gets what an operator wants to know; default: nowhere.
	Logger *slog.Logger
}

// Triggering selects the nodes that fire due times.
type Triggering string

// Which nodes fire due times: the leader, or each node its share of the jobs.
const (
	ByLeader    Triggering = "leader"
	Distributed Triggering = "distributed"
)

// check refuses what cannot be.
func (by Triggering) check(cfg Config) error {
	switch {
	case by == "", by == ByLeader, by == Distributed && cfg.Database != "":
		return nil
	case by == Distributed:
		return kernel.Invalid("embed: triggering distributed needs Database: without one, the leader fires all jobs")
	}
	return kernel.Invalid("embed: triggering %.40q is neither %s nor %s", string(by), ByLeader, Distributed)
}

// Scheduler is a scheduler inside a program.
type Scheduler struct {
	log        *slog.Logger
	live       *live
	cluster    *cluster // nil = it is alone
	store      *led
	database   *sqlstore.Store // nil = rows are in another store
	plane      *controlplane.ControlPlane
	ops        *ops.Ops
	client     *client.Client
	worker     *worker.Worker  // nil = no jobs were given
	pull       *pull           // for workers that come over HTTP
	httpWorker *worker.Worker  // of HTTP jobs; nil = others run them
	runner     *httpjob.Runner // what it runs them by
	poster     *webhook.Poster // nil = nobody is told of failures
	tenant     jobs.Tenant
	keys       []jobs.Key
	handler    http.Handler
	close      []func() error       // in the order of opening
	elector    controlplane.Elector // nil = it always leads
	failed     <-chan error         // of the store, after which it does nothing more
	deliver    func(context.Context, metastore.Applier) error

	stopping atomic.Bool
	cancel   context.CancelFunc // of a scheduler that Start has started
	done     chan struct{}
	err      error
}

// Open makes a scheduler without starting it: Run does that. Close it in any case.
func Open(ctx context.Context, cfg Config, js ...jobs.Job) (_ *Scheduler, err error) {
	if cfg.Node == "" {
		cfg.Node = "node"
	}
	if cfg.Version == "" {
		cfg.Version = "unknown"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Worker.Logger == nil {
		cfg.Worker.Logger = cfg.Logger
	}
	s := &Scheduler{log: cfg.Logger}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if cfg.Tokens && cfg.Who != nil {
		return nil, kernel.Invalid("embed: both Who and Tokens are given: either the program knows who asks, or tokens say so")
	}
	if err := cfg.Triggering.check(cfg); err != nil {
		return nil, err
	}
	shared := cfg.Bus != nil
	if cfg.Cluster != nil && (cfg.Dir == "" || cfg.Database != "" || !shared) {
		return nil, kernel.Invalid("embed: a Cluster keeps its rows in a Dir and shares a Bus")
	}
	if !shared {
		hub := membus.New()
		cfg.Bus = func(_ context.Context, as bus.Principal) (bus.Bus, error) { return hub.As(as), nil }
	}
	rows, err := s.openRows(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Open != nil {
		if !rows.shared {
			return nil, kernel.Invalid("embed: Open is for processes with a Database in common")
		}
		rows.elector = doorkeeper{rows.elector, cfg.Open}
	}
	s.failed, s.deliver, s.elector = rows.failed, rows.deliver, rows.elector
	as := bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: cfg.Node}
	node, err := s.openBus(ctx, cfg, as)
	if err != nil {
		return nil, err
	}
	plane := controlplane.Config{Node: cfg.Node, Address: cfg.Address, Version: cfg.Version, NATS: cfg.NATS, Kept: cfg.Kept, Store: rows.store, Clock: rows.clock, Bus: node, Elector: rows.elector, Logs: rows.logs, Logger: cfg.Logger, Retain: rows.retain, RetainBytes: cfg.RetainBytes, KeepCounts: cfg.KeepCounts, Copy: rows.copies != nil, Beside: rows.beside, Membership: rows.members}
	if cfg.Cluster != nil {
		plane.Route = cfg.Cluster.Route
	}
	heeding := busstore.Heed(node, as)
	quota := metastore.NewQuota(cfg.Limits.quotas())
	plane.Serve = func(ctx context.Context, term uint64, store metastore.Store) error {
		calls := bus.InTerm(node, term)
		return errors.Join(busstore.Serve(ctx, calls, quota.Bound(store), busstore.Config{Kept: cfg.Kept, Current: s.store.current, Logger: cfg.Logger}), s.live.serve(ctx, calls), s.serveCluster(ctx, calls))
	}
	if cfg.OnFailure.URL != "" {
		if cfg.OnFailure.Logger == nil {
			cfg.OnFailure.Logger = cfg.Logger
		}
		if s.poster, err = webhook.New(cfg.OnFailure); err != nil {
			return nil, err
		}
		plane.Ended, plane.Missed, plane.Paused = s.poster.Ended, s.poster.Missed, s.poster.Paused
	}
	if s.plane, err = controlplane.New(plane); err != nil {
		return nil, err
	}
	s.live = &live{plane: s.plane, calls: heeding}
	if cfg.Open != nil {
		s.live.alone = rows.store
	}
	s.store = newLed(s.plane, quota, busstore.New(heeding, as), rows.copies, rows.shared, cfg.Open != nil)
	s.client = client.New(s.store, node, client.Config{})
	s.close = append(s.close, s.client.Close)
	s.pull = newPull(cfg, func(ctx context.Context) error {
		if cfg.Open == nil {
			return nil // whoever leads is reached by the bus
		}
		return s.store.ready(ctx)
	})
	s.close = append(s.close, func() error { s.pull.close(); return nil })
	conf := ops.Config{Backup: rows.backup, Cleaning: func() ops.Cleaning { return ops.Cleaning(s.plane.Cleaning()) }, Store: s.store, Logs: rows.logs, Live: s.live, Pull: s.pull, CheckHTTP: cfg.HTTPJobs.Check}
	if shared && (rows.shared && cfg.Open == nil || cfg.Cluster != nil) {
		s.cluster = &cluster{store: rows.copies, live: s.live, calls: heeding}
		if cfg.Cluster != nil {
			s.cluster.invite, s.cluster.part = cfg.Cluster.Invite, cfg.Cluster.Part
		}
		conf.Cluster = s.cluster
	}
	s.ops = ops.New(conf)
	s.handler = s.pages(cfg, rows)
	if err := s.openWorker(ctx, cfg, js); err != nil {
		return s, err
	}
	return s, s.openHTTPWorker(ctx, cfg)
}

// serveCluster does what other nodes ask of the leader.
func (s *Scheduler) serveCluster(ctx context.Context, calls bus.Calls) error {
	if s.cluster == nil {
		return nil
	}
	return s.cluster.serve(ctx, calls)
}

func (s *Scheduler) openBus(ctx context.Context, cfg Config, as bus.Principal) (bus.Bus, error) {
	b, err := cfg.Bus(ctx, as)
	if err != nil {
		return nil, fmt.Errorf("open the bus as %s: %w", as.Actor(), err)
	}
	s.close = append(s.close, b.Close)
	return b, nil
}

func (s *Scheduler) openWorker(ctx context.Context, cfg Config, js []jobs.Job) error {
	if len(js) == 0 {
		return nil
	}
	as, err := cfg.Worker.Principal()
	if err != nil {
		return err
	}
	s.tenant = as.Tenant
	b, err := s.openBus(ctx, cfg, as)
	if err != nil {
		return err
	}
	cfg.Worker.Middleware = append([]func(worker.Handler) worker.Handler{client.Wrap[worker.Handler](client.New(s.store, b, client.Config{Tenant: as.Tenant, Actor: as.Actor()}))}, cfg.Worker.Middleware...)
	if s.worker, err = worker.New(cfg.Worker, s.store, busstore.Heed(b, as), js...); err != nil {
		return err
	}
	for _, j := range js {
		s.keys = append(s.keys, j.Key())
	}
	return nil
}

// pages are the API, the live page and the metrics under one handler.
func (s *Scheduler) pages(cfg Config, rows rows) http.Handler {
	var signIn ui.Access // nil = nobody can
	if cfg.Tokens {
		access := api.NewAccess(s.ops, cfg.Secure)
		cfg.Who, signIn = access.Who, access
	}
	door := api.New(api.Config{Ops: s.ops, Who: cfg.Who, Base: cfg.Base, Ready: s.Ready, Logger: cfg.Logger,
		Memory: cfg.Limits.RequestMemory, MemoryPerToken: cfg.Limits.RequestMemoryPerToken})
	about := ui.About{Node: cfg.Node, Store: rows.where, Version: cmp.Or(cfg.Version, worker.LibraryVersion())}
	page := ui.New(ui.Config{Ops: s.ops, Who: cfg.Who, Admit: door.Admit, Access: signIn, Base: cfg.Base, Notice: cfg.Notice, Bus: cfg.BusAddress, About: about, Logger: cfg.Logger})
	mux := http.NewServeMux()
	meter := s.metrics(cfg, rows, func(r *http.Request) string {
		switch _, pattern := mux.Handler(r); pattern {
		case "/":
			return page.Route(r)
		case "GET /metrics":
			return pattern
		}
		return door.Route(r)
	})
	for _, path := range api.Paths() {
		mux.Handle(path, door)
	}
	mux.Handle("GET /metrics", door.Guarded(ops.Viewer, meter.Handler()))
	mux.Handle("/", door.Counted(page))
	return api.Guard(cfg.Logger, http.StripPrefix(cfg.Base, meter.Requests(aged(traced(mux)))))
}

// posted is what has become of the events of failures.
func (s *Scheduler) posted(add func(metrics.Value)) {
	var n webhook.Stats
	if s.poster != nil {
		n = s.poster.Stats()
	}
	add(metrics.Value{Name: "webhook_sent_total", Help: "Events of failures that were taken.", Value: float64(n.Sent)})
	add(metrics.Value{Name: "webhook_failed_total", Help: "Events of failures that were not taken, however often they were sent.", Value: float64(n.Failed)})
	add(metrics.Value{Name: "webhook_dropped_total", Help: "Events of failures that were dropped, because too many waited.", Value: float64(n.Dropped)})
	add(metrics.Value{Name: "webhook_waiting", Help: "Events of failures that wait to be sent.", Value: float64(n.Waiting)})
}

// traced lets what a request starts belong to the trace that its traceparent names.
func traced(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if parent := r.Header.Get("Traceparent"); parent != "" {
			r = r.WithContext(trace.Extract(r.Context(), parent))
		}
		next.ServeHTTP(w, r)
	})
}

// metrics are what Prometheus reads of this process.
func (s *Scheduler) metrics(cfg Config, rows rows, route func(*http.Request) string) *metrics.Metrics {
	measured, _ := rows.store.(metastore.Measured)
	return metrics.New(metrics.Config{Version: cfg.Version, Plane: s.plane, Rows: rows.store, Store: measured, Ready: s.Ready, Route: route, Logger: cfg.Logger,
		Extra: s.extra})
}

// Client starts runs, waits for them and cancels them.
func (s *Scheduler) Client() *client.Client { return s.client }

// Ops are the verbs of people: edit, pause, trigger and so on.
func (s *Scheduler) Ops() *ops.Ops { return s.ops }

// Handler is the live page, the API and the metrics. Who may come in is the Config's to say.
func (s *Scheduler) Handler() http.Handler { return s.handler }

// Ready says why requests should not come here, or nil: the store answers, and somebody leads, here or at another node.
func (s *Scheduler) Ready(ctx context.Context) error {
	if s.stopping.Load() {
		return kernel.Refuse(jobs.Unavailable, "stopping")
	}
	if err := s.store.ready(ctx); err != nil {
		return err
	}
	return s.ops.Ready(ctx)
}

// restartPause is how long a control plane that broke waits before it begins again.
const restartPause = time.Second

// Run works until ctx ends, then stops in order: the worker takes nothing more and lets its handlers end within
// their grace; then the control plane goes. It does not Close.
func (s *Scheduler) Run(ctx context.Context) error {
	working, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	planning, stopPlan := context.WithCancel(context.WithoutCancel(ctx))
	stopped, stop := context.WithCancel(ctx)
	defer func() { stopWork(); stopPlan(); stop() }()
	idle := make(chan struct{}) // closed when the worker has ended

	// Interrupts are called in this order, each after the one before has returned.
	var g run.Group
	g.Add(func() error {
		select {
		case <-stopped.Done():
			return nil
		case err := <-s.failed: // a disk, mostly: nothing can be promised any more
			return err
		}
	}, func(error) { s.stopping.Store(true); s.handOver(); stop() })
	g.Add(func() error {
		defer close(idle)
		if s.worker == nil {
			<-working.Done()
			return nil
		}
		s.settle(working)
		return s.worker.Run(working)
	}, func(error) { stopWork(); <-idle })
	if s.httpWorker != nil {
		idle := make(chan struct{})
		g.Add(func() error {
			defer close(idle)
			s.settle(working)
			return s.httpWorker.Run(working)
		}, func(error) { stopWork(); <-idle })
	}
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	g.Add(func() error { <-serving.Done(); return nil }, func(error) { s.pull.close(); stopServing() })
	g.Add(func() error { return s.plan(planning) }, func(error) { stopPlan() })
	if s.poster != nil { // it ends last, and tells what happened until then
		posting, stopPosting := context.WithCancel(context.WithoutCancel(ctx))
		g.Add(func() error { s.poster.Run(posting); return nil }, func(error) { stopPosting() })
	}
	if s.deliver != nil {
		delivering, stopDelivery := context.WithCancel(context.WithoutCancel(ctx))
		g.Add(func() error { return s.deliver(delivering, s.store.wishes()) }, func(error) { stopDelivery() })
	}
	return g.Run()
}

// handOver has another node lead, if there is one, so that nobody waits until this one is gone.
func (s *Scheduler) handOver() {
	if y, can := s.elector.(controlplane.Yielder); can && s.store.leads() && s.accompanied() {
		s.plane.Because("it was stopped")
		if err := y.Yield(); err != nil {
			s.log.Info("leadership is not handed over", "err", err)
		}
	}
}

// accompanied says that there is another node to which leadership can be handed.
func (s *Scheduler) accompanied() bool {
	return slices.ContainsFunc(s.plane.Nodes(), func(n controlplane.Node) bool { return n.Online && !n.Here })
}

// settled is how long a worker waits for somebody to lead before it begins all the same.
const settled = 2 * time.Second

// settle waits until somebody leads, so that a worker that starts together with its control plane does not begin by
// complaining that none answers.
func (s *Scheduler) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settled)
	defer cancel()
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for !s.ops.Live().Leader().Known() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// plan runs the control plane. One that breaks after it has led, or has heard of another node that did, begins again: what
// broke may mend, a bus that went away for example. One of which nobody ever came to lead says why, and so does one that
// has a name that another one has.
func (s *Scheduler) plan(ctx context.Context) error {
	for {
		err := s.plane.Run(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if _, since := s.plane.Leading(); since.IsZero() && !s.plane.Followed() || errors.Is(err, controlplane.ErrTwin) {
			return err
		}
		s.log.Error("control plane broke, beginning again", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(restartPause):
		}
	}
}

// Run embeds a scheduler and works until ctx ends.
func Run(ctx context.Context, cfg Config, js ...jobs.Job) error {
	s, err := Open(ctx, cfg, js...)
	if err != nil {
		return err
	}
	return errors.Join(s.Run(ctx), s.Close())
}

// Start embeds a scheduler and returns once it leads and the jobs are known. Stop it.
func Start(ctx context.Context, cfg Config, js ...jobs.Job) (*Scheduler, error) {
	s, err := Open(ctx, cfg, js...)
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel, s.done = cancel, make(chan struct{})
	go func() {
		defer close(s.done)
		s.err = s.Run(running)
	}()
	if err := s.await(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// Done is closed when a scheduler that Start has started has ended: by Stop, or by itself, and then Stop says why.
func (s *Scheduler) Done() <-chan struct{} { return s.done }

// Stop ends what Start has started, in order, and closes it.
func (s *Scheduler) Stop() error {
	s.cancel()
	<-s.done
	return errors.Join(s.err, s.Close())
}

// lookAgain is how often at least is looked for what a signal may have missed.
const lookAgain = 10 * time.Millisecond

// await waits until somebody leads and the jobs are known.
func (s *Scheduler) await(ctx context.Context) error {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		if s.Ready(ctx) == nil && s.registered(ctx) {
			return nil
		}
		select {
		case <-s.done:
			return errors.New("the scheduler ended before it was ready")
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// registered says that all jobs are known to the store.
func (s *Scheduler) registered(ctx context.Context) bool {
	if len(s.keys) == 0 {
		return true
	}
	known, err := s.store.Definitions(ctx, metastore.DefinitionQuery{Tenant: s.tenant, Keys: s.keys})
	return err == nil && len(known) == len(s.keys)
}

// Close lets go of what was opened, last first. Run must have returned.
func (s *Scheduler) Close() error {
	var errs []error
	for _, end := range slices.Backward(s.close) {
		errs = append(errs, end())
	}
	s.close = nil
	return errors.Join(errs...)
}
