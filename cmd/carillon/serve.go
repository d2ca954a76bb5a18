package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/oklog/run"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/raftstore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/raftlog/hashicorp"
	"github.com/carillon-scheduler/carillon/worker"
)

// process is the common part of dev and server: a scheduler with its network servers.
type process struct {
	cfg         *config
	name        string // of the command
	out         io.Writer
	log         *slog.Logger
	movable     bool                                          // if a port is in use, use the next one
	jobs        []jobs.Job                                    // to run in this process
	app         string                                        // their worker group
	started     func(context.Context, *embed.Scheduler) error // once it leads
	server      *embedded.Server                              // nil = NATS is elsewhere
	natsCluster natsCluster                                   // where the NATS servers of other nodes are
	identity    *raftstore.Identity                           // nil = not in a cluster
	natsAddr    string                                        // where it listens
	route       string                                        // the built-in NATS server's route address, or ""
	invited     invitation                                    // to join with
	secret      string                                        // that peers have in common, or ""
	newAdmin    bool                                          // grant an admin's token at this start
	scheduler   atomic.Pointer[embed.Scheduler]               // nil until the store is open
}

// serve runs the process. Parts start in the order of their dependencies; the page's address is printed once its port
// listens. They stop in this order: /readyz fails; the worker starts nothing more and its handlers end; the control
// plane stops; then the pages, the bus and the store.
func (p *process) serve(ctx context.Context) (err error) {
	go collectLazily(ctx)
	if err := p.probe(ctx); err != nil {
		return err
	}
	database, err := p.cfg.database()
	if err != nil {
		return err
	}
	if database == "" && !p.cfg.Memory { // before anything is written to the directory
		if _, err := raftstore.RowsIn(p.cfg.Data); err != nil {
			return err
		}
	}
	door, err := serverTLS(p.cfg.HTTPTLS)
	if err != nil {
		return err
	}
	flush, err := p.traces(ctx)
	if err != nil {
		return err
	}
	defer flush()
	listener, err := p.listen(p.cfg.HTTP, "--http")
	if err != nil {
		return err
	}
	defer listener.Close() // a second close is harmless
	if err := p.joins(); err != nil {
		return err
	}
	connect, stopNATS, where, err := p.nats()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopNATS()) }()
	listener = newCrowd(listener, p.cfg.Limits, p.log)
	page := "http://" + listener.Addr().String()
	if door != nil {
		door.NextProtos = []string{"h2", "http/1.1"} // many streams of events over one connection
		page = "https://" + listener.Addr().String()
		listener = tls.NewListener(listener, door)
	}
	address := page
	if p.cfg.Public != "" {
		page = p.cfg.Public + " (it listens at " + page + ")"
	}
	p.greet(page, where)

	cfg := embed.Config{
		Dir: p.dir(""), Database: database, LiveTable: p.cfg.Live, Node: p.cfg.Node, Bus: connect, BusAddress: where, Notice: p.notice(), Version: version(), Logger: p.log,
		Worker: worker.Config{App: p.app, Name: p.cfg.Node + "-" + p.name, Grace: graceOf(p.cfg.Grace)},
		Tokens: p.cfg.authenticates(), Secure: p.cfg.secure(), Address: cmp.Or(p.cfg.Public, address), Cluster: p.cluster(), Kept: p.cfg.authenticates(),
		Limits: p.cfg.Limits.Limits, Triggering: embed.Triggering(p.cfg.Triggering), RaftLogs: hashicorp.Kinds(), RaftLog: p.cfg.RaftLog, RetainBytes: p.cfg.RetainBytes, MetricsJobs: p.cfg.MetricsJobs, KeepCounts: p.cfg.KeepCounts,
	}
	cfg.SessionIdle, cfg.SessionLongest = p.cfg.Sessions.Idle, p.cfg.Sessions.Longest
	if cfg.SignIn, err = p.cfg.signIn(); err != nil {
		return err
	}
	if p.cfg.mayStandBy() {
		cfg.Server = p.server
	}
	if p.server != nil {
		cfg.NATS = p.server.State
	}
	if cfg.HTTPJobs, err = p.cfg.httpJobs(); err != nil {
		return err
	}
	if at, ok := listener.Addr().(*net.TCPAddr); ok && at.IP.IsLoopback() && cfg.HTTPJobs != nil {
		cfg.HTTPJobs.FeedbackURL = cmp.Or(cfg.HTTPJobs.FeedbackURL, address) // services on this machine reach it there
	}
	if cfg.TenantHTTPJobs, err = p.cfg.tenantHTTPJobs(cfg.HTTPJobs); err != nil {
		return err
	}
	cfg.Page = strings.TrimSuffix(cmp.Or(p.cfg.Public, page), "/")
	if cfg.Alarms, err = p.cfg.alarms(); err != nil {
		return err
	}
	if cfg.AuditSinks, err = p.cfg.auditSinks(); err != nil {
		return err
	}
	f := newFront(listener, p.cfg.hosts(), p.log)
	defer f.close()
	s, err := embed.Open(ctx, cfg, p.jobs...)
	if ctx.Err() != nil { // stopped before it began
		return nil
	}
	if err != nil {
		return p.advised(err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	p.scheduler.Store(s)
	return p.advised(p.group(ctx, s, f))
}

// graceOf returns the grace as a worker takes it: 0 means none, not the default.
func graceOf(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// errStopped means that a signal stopped the process.
var errStopped = errors.New("stopped by a signal")

// group runs everything until something ends or a signal comes. Interrupts are called in the order of adding, each
// after the one before has returned, so this is also the order of stopping.
func (p *process) group(ctx context.Context, s *embed.Scheduler, f *front) error {
	var g run.Group
	signalled, forget := context.WithCancel(ctx)
	g.Add(func() error { return p.signals(signalled) }, func(error) { forget() })

	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	var failure error // its last one: the group returns only that of the actor which ends first
	g.Add(func() error { defer close(ended); failure = s.Run(running); return failure }, func(error) { stop(); <-ended })

	first, giveUp := context.WithCancel(running)
	g.Add(func() error { return p.begin(first, s, f.begun) }, func(error) { giveUp() })

	remembering, stopRemembering := context.WithCancel(context.WithoutCancel(ctx))
	g.Add(func() error { return p.rememberNodes(remembering) }, func(error) { stopRemembering() })

	profiling, stopProfiling := context.WithCancel(context.WithoutCancel(ctx))
	g.Add(func() error { return p.profile(profiling) }, func(error) { stopProfiling() })

	handler := f.whole(s.Ready, p.strict(s.Handler()))
	if !p.cfg.authenticates() {
		handler = api.Direct(handler)
	}
	g.Add(func() error { return f.serve(handler) }, func(error) { f.close() })
	if err := g.Run(); !errors.Is(err, errStopped) {
		return err
	}
	return failure
}

// strict sends HSTS to browsers, but only if http.url is https: other hosts may serve something without TLS tomorrow.
func (p *process) strict(next http.Handler) http.Handler {
	if !strings.HasPrefix(p.cfg.Public, "https://") {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Strict-Transport-Security", "max-age=31536000")
		next.ServeHTTP(w, r)
	})
}

// signals waits for a signal to stop. A second one ends the process at once.
func (p *process) signals(ctx context.Context) error {
	received := make(chan os.Signal, 2)
	signal.Notify(received, os.Interrupt, syscall.SIGTERM)
	select {
	case <-ctx.Done():
		signal.Stop(received)
		return errStopped
	case s := <-received:
		p.log.Info("stopping", "signal", s.String(), "grace", p.cfg.Grace.String())
	}
	go func() {
		<-received
		fmt.Fprintln(os.Stderr, "carillon: second signal, exiting; running jobs are taken over when their leases expire")
		os.Exit(interrupted)
	}()
	return errStopped
}

// begin runs what needs a leader, and then waits. It closes begun when all is stored that a start stores.
func (p *process) begin(ctx context.Context, s *embed.Scheduler, begun chan<- struct{}) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for s.Ready(ctx) != nil {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
	for _, do := range []func(context.Context, *embed.Scheduler) error{p.firstToken, p.applyConfigured} {
		if err := do(ctx, s); err != nil && ctx.Err() == nil {
			return err
		}
	}
	close(begun)
	if p.cfg.Jobs.From != "" {
		var watching sync.WaitGroup
		watching.Go(func() { p.watchJobs(ctx, s) })
		defer watching.Wait()
	}
	if p.started != nil {
		if err := p.started(ctx, s); err != nil && ctx.Err() == nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// dir returns a path in the data directory, or the directory for "", and "" with memory.
func (p *process) dir(name string) string {
	if p.cfg.Memory {
		return ""
	}
	return filepath.Join(p.cfg.Data, name)
}

// notice returns the notice on every page, or "".
func (p *process) notice() string {
	if p.cfg.Memory {
		return "Rows are kept in memory: nothing survives the end of this process."
	}
	return ""
}

// newLogger logs to w as text or JSON.
func newLogger(c *config, w *os.File) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.LogLevel)) // checked by the table of settings
	options := &slog.HandlerOptions{Level: level}
	if c.LogJSON == "json" || c.LogJSON == "auto" && !isTerminal(w) {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
