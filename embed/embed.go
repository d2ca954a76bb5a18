// Package embed is a whole scheduler inside a program: control plane, worker, store, bus and pages, in one process.
//
//	err := embed.Run(ctx, embed.Config{Dir: "./data"}, jobs.NewRecurring(...), jobs.NewTriggered(...))
//
// Where to start: [Run], or [Start] for a handle with a client and the pages. `carillon dev` and `carillon server`
// are made of [Open], with a network around it.
//
// Sharp edges: without Config.Dir nothing survives the process. A directory belongs to one process at a time. The
// pages ask nobody who they are: mount [Scheduler.Handler] behind what guards your own pages.
package embed

import (
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
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/ui"
	"github.com/carillon-scheduler/carillon/worker"
)

// Config says how a scheduler is embedded. The zero value works: rows in memory, a bus in the process.
type Config struct {
	// Dir is where rows are kept; "" = in memory, until the process ends.
	Dir string
	// Node is this process's name; default "node".
	Node string
	// Worker says how the jobs that are given are run. Its Logger defaults to the one below.
	Worker worker.Config
	// Bus opens one principal's end of a bus that others share; default: a bus inside the process. With one, workers
	// and programs elsewhere reach the store over it.
	Bus func(ctx context.Context, as bus.Principal) (bus.Bus, error)
	// Base is the path under which Handler is mounted, such as "/jobs"; default: the root.
	Base string
	// Notice is a sentence that stands on top of every page, or "".
	Notice string
	// Logger gets what an operator wants to know; default: nowhere.
	Logger *slog.Logger
}

// Scheduler is a scheduler inside a program.
type Scheduler struct {
	log     *slog.Logger
	plane   *controlplane.ControlPlane
	ops     *ops.Ops
	client  *client.Client
	worker  *worker.Worker // nil = no jobs were given
	tenant  jobs.Tenant
	keys    []jobs.Key
	handler http.Handler
	close   []func() error // in the order of opening
	failed  <-chan error   // of the store, after which it does nothing more

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
	shared := cfg.Bus != nil
	if !shared {
		hub := membus.New()
		cfg.Bus = func(_ context.Context, as bus.Principal) (bus.Bus, error) { return hub.As(as), nil }
	}
	rows, err := s.openRows(cfg)
	if err != nil {
		return nil, err
	}
	s.failed = rows.failed
	node, err := s.openBus(ctx, cfg, bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: cfg.Node})
	if err != nil {
		return nil, err
	}
	plane := controlplane.Config{Node: cfg.Node, Store: rows.store, Bus: node, Elector: rows.elector, Logs: rows.logs, Logger: cfg.Logger, Prune: rows.prune}
	if shared {
		plane.Serve = func(ctx context.Context, store metastore.Store) error {
			return busstore.Serve(ctx, node, store, busstore.Config{Logger: cfg.Logger})
		}
	}
	if s.plane, err = controlplane.New(plane); err != nil {
		return nil, err
	}
	s.client = client.New(s.plane.Store(), node, client.Config{})
	s.close = append(s.close, s.client.Close)
	s.ops = ops.New(ops.Config{Store: s.plane.Store(), Logs: rows.logs, Live: live{s.plane, cfg.Node}})
	s.handler = s.pages(cfg)
	return s, s.openWorker(ctx, cfg, js)
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
	if s.worker, err = worker.New(cfg.Worker, s.plane.Store(), b, js...); err != nil {
		return err
	}
	for _, j := range js {
		s.keys = append(s.keys, j.Key())
	}
	return nil
}

// pages are the API and the live page under one handler.
func (s *Scheduler) pages(cfg Config) http.Handler {
	door := api.New(api.Config{Ops: s.ops, Ready: s.Ready, Logger: cfg.Logger})
	mux := http.NewServeMux()
	for _, path := range []string{"/api/", "/livez", "/readyz", "/openapi.json", "/openapi.yaml"} {
		mux.Handle(path, door)
	}
	mux.Handle("/", ui.New(ui.Config{Ops: s.ops, Base: cfg.Base, Notice: cfg.Notice, Logger: cfg.Logger}))
	return api.Guard(cfg.Logger, http.StripPrefix(cfg.Base, mux))
}

// Client starts runs, waits for them and cancels them.
func (s *Scheduler) Client() *client.Client { return s.client }

// Ops are the verbs of people: edit, pause, trigger and so on.
func (s *Scheduler) Ops() *ops.Ops { return s.ops }

// Handler is the live page and the API. It asks nobody who they are.
func (s *Scheduler) Handler() http.Handler { return s.handler }

// Ready says why requests should not come here, or nil: the store answers, and somebody leads.
func (s *Scheduler) Ready(ctx context.Context) error {
	if s.stopping.Load() {
		return jobs.Refuse(jobs.Unavailable, "stopping")
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
	}, func(error) { s.stopping.Store(true); stop() })
	g.Add(func() error {
		defer close(idle)
		if s.worker == nil {
			<-working.Done()
			return nil
		}
		s.settle(working)
		return s.worker.Run(working)
	}, func(error) { stopWork(); <-idle })
	g.Add(func() error { return s.plan(planning) }, func(error) { stopPlan() })
	return g.Run()
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

// plan runs the control plane. One that breaks after it has led begins again: what broke may mend, a bus that went
// away for example. One that never came to lead says why.
func (s *Scheduler) plan(ctx context.Context) error {
	for {
		err := s.plane.Run(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if _, since := s.plane.Leading(); since.IsZero() {
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
	known, err := s.plane.Store().Definitions(ctx, metastore.DefinitionQuery{Tenant: s.tenant, Keys: s.keys})
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
