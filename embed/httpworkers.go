package embed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker"
)

// httpWorkers serves HTTP workers: each has a bus connection of its own here, under its own name, so that it is
// authorized as every other worker is.
type httpWorkers struct {
	connect  func(context.Context, bus.Principal) (bus.Bus, error)
	refused  func(jobs.Tenant, error)    // gets refusals at a limit
	ready    func(context.Context) error // why this process cannot dispatch runs, or nil
	log      *slog.Logger
	episodes *episode.Log

	life  context.Context // of all of them
	end   context.CancelFunc
	group sync.WaitGroup

	all, perTenant, perToken int // of HTTP workers, at most

	mu      sync.Mutex
	ended   bool
	workers map[httpWorkerKey]*httpWorker
	tenants map[jobs.Tenant]int // HTTP workers of each
	tokens  map[holder]int
}

// holder is the token that registers workers, by its actor.
type holder struct {
	tenant jobs.Tenant
	actor  string
}

type httpWorkerKey struct {
	tenant jobs.Tenant
	worker string
}

// httpWorker is an HTTP worker.
type httpWorker struct {
	by     holder
	app    string
	jobs   []byte // what it registered
	slots  int
	made   chan struct{} // closed when remote or err is known
	err    error
	remote *worker.Remote
}

const (
	// openTime is the timeout of a registration.
	openTime = 20 * time.Second
	// httpWorkerGrace is none: an HTTP worker has no handlers in this process.
	httpWorkerGrace = -1
)

func newHTTPWorkers(cfg Config, refused func(jobs.Tenant, error), ready func(context.Context) error) *httpWorkers {
	p := &httpWorkers{connect: cfg.Bus, refused: refused, ready: ready, log: cfg.Logger, episodes: episode.New(cfg.Logger), workers: map[httpWorkerKey]*httpWorker{}, tenants: map[jobs.Tenant]int{}, tokens: map[holder]int{}}
	p.all, p.perTenant, p.perToken = cfg.Limits.workers(cfg.Tokens || cfg.Who != nil)
	p.life, p.end = context.WithCancel(context.Background())
	return p
}

// close drops all HTTP workers silently: the workers continue, and register again at this node or another.
func (p *httpWorkers) close() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.end()
	p.group.Wait()
}

// declared returns bytes that are equal for equal declarations, in any order.
func declared(list []kernel.Declaration) []byte {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b kernel.Declaration) int { return bytes.Compare([]byte(a.Key), []byte(b.Key)) })
	var all []byte
	for _, d := range list {
		all = fmt.Appendf(all, "%q %v %d %q ", d.Key, d.Kind, d.Version, d.Schema)
		all = kernel.AppendSettings(all, &d.Code)
	}
	return all
}

func tenantOf(who ops.Who) jobs.Tenant {
	if who.Tenant == "" {
		return jobs.DefaultTenant
	}
	return who.Tenant
}

// Register implements ops.Pull.
func (p *httpWorkers) Register(ctx context.Context, who ops.Who, w ops.HTTPWorker) (ops.HTTPAnswer, error) {
	if err := p.ready(ctx); err != nil {
		return ops.HTTPAnswer{}, err
	}
	if err := keeps(who, w.App); err != nil {
		return ops.HTTPAnswer{}, err
	}
	g, err := p.admit(ctx, holder{tenantOf(who), who.Actor}, w)
	if err != nil {
		return ops.HTTPAnswer{}, err
	}
	g.remote.Touch()
	var gone []bus.Stop
	for _, has := range w.Has {
		switch err := g.remote.Has(ctx, has.Run, has.Attempt); {
		case errors.Is(err, jobs.Stale), errors.Is(err, jobs.Forbidden):
			gone = append(gone, bus.Stop{ID: has.Run, Attempt: has.Attempt, Stale: true})
		case err != nil:
			return ops.HTTPAnswer{}, err
		}
	}
	g.remote.Listed()
	answer := g.answer()
	answer.Stop = append(answer.Stop, gone...)
	return answer, nil
}

// keeps returns an error if a token may not act for an app.
func keeps(who ops.Who, app string) error {
	if who.App != "" && app != who.App {
		return kernel.Refuse(jobs.Forbidden, "the token is for workers of app %s, and not of app %.60q", who.App, app)
	}
	return nil
}

// full returns an error if a limit refuses one more worker of a token.
func (p *httpWorkers) full(by holder) error {
	switch {
	case p.tokens[by] >= p.perToken:
		return kernel.Exhausted(kernel.BoundHTTPOfToken, "too many HTTP workers: this token has %d at this node, and limits.http-workers-per-token is %d: register at another node, or raise the limit", p.tokens[by], p.perToken)
	case p.tenants[by.tenant] >= p.perTenant:
		return kernel.Exhausted(kernel.BoundHTTPOfTenant, "too many HTTP workers: tenant %s has %d at this node, and limits.http-workers-per-tenant is %d: register at another node, or raise the limit", by.tenant, p.tenants[by.tenant], p.perTenant)
	case len(p.workers) >= p.all:
		return kernel.Exhausted(kernel.BoundHTTPWorkers, "too many HTTP workers: this node has %d, and limits.http-workers is %d: register at another node, or raise the limit", len(p.workers), p.all)
	}
	return nil
}

// enter and forget keep the HTTP workers and their counts in step.
func (p *httpWorkers) enter(key httpWorkerKey, g *httpWorker) {
	p.workers[key] = g
	p.tenants[key.tenant]++
	p.tokens[g.by]++
}

func (p *httpWorkers) forget(key httpWorkerKey, g *httpWorker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.workers, key)
	if p.tenants[key.tenant]--; p.tenants[key.tenant] == 0 {
		delete(p.tenants, key.tenant)
	}
	if p.tokens[g.by]--; p.tokens[g.by] == 0 {
		delete(p.tokens, g.by)
	}
}

// admit returns an HTTP worker, or makes it and waits until it runs.
func (p *httpWorkers) admit(ctx context.Context, by holder, w ops.HTTPWorker) (*httpWorker, error) {
	list := declared(w.Jobs)
	key := httpWorkerKey{by.tenant, w.Name + "-" + w.Start}
	p.mu.Lock()
	g := p.workers[key]
	switch {
	case p.ended:
		p.mu.Unlock()
		return nil, kernel.Refuse(jobs.Unavailable, "this node is stopping: register at another node, or retry")
	case g == nil:
		if err := p.full(by); err != nil {
			p.mu.Unlock()
			p.refused(by.tenant, err)
			return nil, err
		}
		g = &httpWorker{by: by, app: w.App, jobs: list, slots: w.Slots, made: make(chan struct{})}
		p.enter(key, g)
		p.group.Add(1)
		go p.host(key, g, w)
	case g.app != w.App || g.slots != w.Slots || !bytes.Equal(g.jobs, list):
		p.mu.Unlock()
		return nil, kernel.Refuse(jobs.Conflict, "worker %s is registered with another app, slots or jobs: send a new \"start\" for each start of the program", key.worker)
	}
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	select {
	case <-g.made:
	case <-ctx.Done():
		return nil, kernel.Refuse(jobs.Unavailable, "worker %s was not registered within %v: retry", key.worker, openTime)
	}
	if g.err != nil {
		return nil, g.err
	}
	if err := g.remote.Begun(ctx); err != nil {
		return nil, err
	}
	select {
	case <-g.remote.Ended():
		return nil, kernel.Refuse(jobs.Unavailable, "worker %s has just left: retry", key.worker)
	default:
		return g, nil
	}
}

// host runs an HTTP worker until it has left.
func (p *httpWorkers) host(key httpWorkerKey, g *httpWorker, w ops.HTTPWorker) {
	defer p.group.Done()
	defer p.forget(key, g)
	shut, err := p.open(key.tenant, g, w)
	g.err = err
	close(g.made)
	if err != nil {
		return
	}
	if err := g.remote.Run(p.life); err != nil {
		p.log.Info("cannot run HTTP worker", "worker", key.worker, "err", err)
	}
	if err := shut(); err != nil {
		p.log.Debug("cannot close the bus of an HTTP worker", "worker", key.worker, "err", err)
	}
}

func (p *httpWorkers) open(tenant jobs.Tenant, g *httpWorker, w ops.HTTPWorker) (shut func() error, err error) {
	cfg := worker.Config{Tenant: tenant, App: w.App, Name: w.Name, Slots: w.Slots, Tags: w.Tags, Grace: httpWorkerGrace, Logger: p.log}
	as, err := cfg.Principal()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(p.life, openTime)
	defer cancel()
	b, err := p.connect(ctx, as)
	if err != nil {
		p.episodes.Failed(slog.LevelWarn, "", "cannot open the bus for an HTTP worker", "worker", w.Name, "err", err)
		return nil, kernel.Refuse(jobs.Unavailable, "no bus connection for the worker: retry")
	}
	about := worker.About{Host: w.Host, PID: w.PID, Version: w.Version}
	heeding := busstore.Heed(b, as)
	g.remote, err = worker.NewRemote(cfg, w.Start, about, busstore.New(heeding, as), heeding, w.Jobs...)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b.Close, nil
}

// worker returns the HTTP worker that is registered at this node.
func (p *httpWorkers) worker(ctx context.Context, who ops.Who, name string) (*httpWorker, error) {
	if err := p.ready(ctx); err != nil {
		return nil, err
	}
	p.mu.Lock()
	g := p.workers[httpWorkerKey{tenantOf(who), name}]
	p.mu.Unlock()
	if g == nil {
		return nil, errUnknown(name)
	}
	select {
	case <-g.made:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if g.err != nil {
		return nil, errUnknown(name)
	}
	if err := keeps(who, g.app); err != nil {
		return nil, err
	}
	if err := g.remote.Begun(ctx); err != nil {
		return nil, err
	}
	select {
	case <-g.remote.Ended(): // its worker has just left, or its lease expired
		return nil, errUnknown(name)
	default:
	}
	g.remote.Touch()
	return g, nil
}

func errUnknown(name string) error {
	return kernel.Refuse(jobs.NotFound, "worker %.80q is not registered at this node: register again, with its current runs", name)
}

func (g *httpWorker) answer() ops.HTTPAnswer {
	a := ops.HTTPAnswer{Worker: g.remote.Name(), Stop: g.remote.Stops(), Resting: g.remote.Resting()}
	a.Lease, a.Every = g.remote.Lease()
	return a
}

// Poll implements ops.Pull.
func (p *httpWorkers) Poll(ctx context.Context, who ops.Who, name string, q ops.HTTPPoll) (ops.HTTPWork, error) {
	g, err := p.worker(ctx, who, name)
	if err != nil {
		return ops.HTTPWork{}, err
	}
	batch, list, err := g.remote.Poll(ctx, q.Want, q.Got, q.Wait)
	if err != nil {
		return ops.HTTPWork{}, err
	}
	work := ops.HTTPWork{HTTPAnswer: g.answer(), Batch: batch, Runs: make([]ops.HTTPRun, len(list))}
	for i, one := range list {
		work.Runs[i] = ops.HTTPRun(one)
	}
	return work, nil
}

// Heartbeat implements ops.Pull.
func (p *httpWorkers) Heartbeat(ctx context.Context, who ops.Who, name string, drain bool) (ops.HTTPAnswer, error) {
	g, err := p.worker(ctx, who, name)
	if err != nil {
		return ops.HTTPAnswer{}, err
	}
	if drain {
		g.remote.Drain()
	}
	return g.answer(), nil
}

// Finish implements ops.Pull.
func (p *httpWorkers) Finish(ctx context.Context, who ops.Who, name string, f kernel.Finish) (*kernel.Run, error) {
	g, err := p.worker(ctx, who, name)
	if err != nil {
		return nil, err
	}
	return g.remote.Finish(ctx, f)
}

// Progress implements ops.Pull.
func (p *httpWorkers) Progress(ctx context.Context, who ops.Who, name string, run jobs.ID, attempt uint32, how bus.Progress) error {
	g, err := p.worker(ctx, who, name)
	if err != nil {
		return err
	}
	return g.remote.Progress(ctx, run, attempt, how)
}

// Checkpoint implements ops.Pull.
func (p *httpWorkers) Checkpoint(ctx context.Context, who ops.Who, name string, run jobs.ID, attempt uint32, data []byte) error {
	g, err := p.worker(ctx, who, name)
	if err != nil {
		return err
	}
	return g.remote.Save(ctx, run, attempt, data)
}

// Log implements ops.Pull.
func (p *httpWorkers) Log(ctx context.Context, who ops.Who, name string, run jobs.ID, attempt uint32, l ops.HTTPLog) error {
	g, err := p.worker(ctx, who, name)
	if err != nil {
		return err
	}
	lines := make([]worker.Line, len(l.Lines))
	for i, one := range l.Lines {
		lines[i].Text = one.Text
		if err := lines[i].Level.UnmarshalText([]byte(one.Level)); err != nil {
			return kernel.Invalid("invalid level %.20q of a log line: want DEBUG, INFO, WARN or ERROR", one.Level)
		}
	}
	return g.remote.Log(ctx, run, attempt, l.First, lines)
}

// Leave implements ops.Pull. An unknown worker has left already.
func (p *httpWorkers) Leave(ctx context.Context, who ops.Who, name string) error {
	g, err := p.worker(ctx, who, name)
	if errors.Is(err, jobs.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	return g.remote.Leave(ctx)
}
