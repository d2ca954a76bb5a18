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
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/webhook"
	"github.com/carillon-scheduler/carillon/worker"
)

// process is what dev and server have in common: a scheduler with a network around it.
type process struct {
	cfg      *config
	name     string // of the command
	out      io.Writer
	log      *slog.Logger
	movable  bool       // a port that is taken may be exchanged for the next one
	jobs     []jobs.Job // to run in this process
	app      string     // their worker group
	prepared func(*embed.Scheduler)
	started  func(context.Context, *embed.Scheduler) error // once it leads
	server   *embedded.Server                              // nil = NATS is elsewhere
	bond     bond                                          // where the NATS servers of other nodes are
	identity *raftstore.Identity                           // nil = this node is none of several
	natsAddr string                                        // where it listens
	route    string                                        // where they reach ours; "" = we have none
	invited  invitation                                    // to join with
	newAdmin bool                                          // grant an admin's token at this start
	ops      atomic.Pointer[ops.Ops]                       // nil until the store is open
}

// serve lives the life of the process. Things start in the order of who needs whom; the page's address is said as
// soon as its port listens. They stop in this order: /readyz says no; the worker takes nothing more and its handlers
// end; the control plane goes; then the pages, the bus and the store.
func (p *process) serve(ctx context.Context) (err error) {
	go collectLazily(ctx)
	if err := p.probe(ctx); err != nil {
		return err
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
	defer listener.Close() // once more does no harm
	if err := p.joins(); err != nil {
		return err
	}
	connect, stopNATS, where, err := p.nats()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopNATS()) }()
	database, err := p.cfg.database()
	if err != nil {
		return err
	}
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
		Dir: p.dir("rows"), Database: database, Node: p.cfg.Node, Bus: connect, BusAddress: where, Notice: p.notice(), Version: version(), Logger: p.log,
		Worker: worker.Config{App: p.app, Name: p.cfg.Node + "-" + p.name, Grace: graceOf(p.cfg.Grace)},
		Tokens: p.cfg.asks(), Secure: p.cfg.secure(), Address: cmp.Or(p.cfg.Public, address), Cluster: p.cluster(), Kept: p.cfg.asks(),
		Limits: p.cfg.Limits.Limits, Triggering: embed.Triggering(p.cfg.Triggering), RetainBytes: p.cfg.RetainBytes, KeepCounts: p.cfg.KeepCounts,
	}
	if p.cfg.standsBy() {
		cfg.Open = p.open
	}
	if p.server != nil {
		cfg.NATS = p.server.State
	}
	if cfg.HTTPJobs, err = p.cfg.httpJobs(); err != nil {
		return err
	}
	if at, ok := listener.Addr().(*net.TCPAddr); ok && at.IP.IsLoopback() && cfg.HTTPJobs != nil {
		cfg.HTTPJobs.FeedbackURL = cmp.Or(cfg.HTTPJobs.FeedbackURL, address) // who is on this machine reaches it there
	}
	if cfg.OnFailure, err = p.onFailure(page); err != nil {
		return err
	}
	s, err := embed.Open(ctx, cfg, p.jobs...)
	if ctx.Err() != nil { // told to stop before it began
		return nil
	}
	if err != nil {
		return p.advised(err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	p.ops.Store(s.Ops())
	if p.prepared != nil {
		p.prepared(s)
	}
	return p.advised(p.group(ctx, s, listener))
}

// onFailure says who is told of runs that end badly. page is where this process serves the pages.
func (p *process) onFailure(page string) (webhook.Config, error) {
	on := p.cfg.OnFailure
	c := webhook.Config{URL: on.URL, Interval: on.Interval, Page: strings.TrimSuffix(cmp.Or(p.cfg.Public, page), "/")}
	if on.SecretFile == "" {
		return c, nil
	}
	if on.URL == "" {
		return c, usage("on-failure.secret-file is given, and no on-failure.url")
	}
	secret, err := secretIn(on.SecretFile)
	switch {
	case err != nil:
		return c, usage("on-failure.secret-file: %w", err)
	case len(secret) < webhook.MinSecret:
		return c, usage("on-failure.secret-file: the secret in %s has %d bytes: want at least %d", on.SecretFile, len(secret), webhook.MinSecret)
	}
	c.Secret = []byte(secret)
	return c, nil
}

// graceOf is the grace as a worker takes it: none is not the default.
func graceOf(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// errStopped is why a process ends that was told to.
var errStopped = errors.New("told to stop")

// group runs everything until something ends or a signal comes. Interrupts are called in the order of adding, each
// after the one before has returned, so this is also the order of stopping.
func (p *process) group(ctx context.Context, s *embed.Scheduler, listener net.Listener) error {
	var g run.Group
	signalled, forget := context.WithCancel(ctx)
	g.Add(func() error { return p.signals(signalled) }, func(error) { forget() })

	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	g.Add(func() error { defer close(ended); return s.Run(running) }, func(error) { stop(); <-ended })

	first, giveUp := context.WithCancel(running)
	g.Add(func() error { return p.begin(first, s) }, func(error) { giveUp() })

	remembering, stopRemembering := context.WithCancel(context.WithoutCancel(ctx))
	g.Add(func() error { return p.rememberNodes(remembering) }, func(error) { stopRemembering() })

	profiling, stopProfiling := context.WithCancel(context.WithoutCancel(ctx))
	g.Add(func() error { return p.profile(profiling) }, func(error) { stopProfiling() })

	requests, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	handler := p.strict(s.Handler())
	if !p.cfg.asks() {
		handler = api.Direct(handler)
	}
	server := api.NewServer(api.Hosts(p.cfg.hosts(), handler), p.log)
	server.BaseContext = func(net.Listener) context.Context { return requests }
	g.Add(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve the pages: %w", err)
		}
		return nil
	}, func(error) {
		hangUp() // streams of events end
		last, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = server.Shutdown(last) // who is still reading after that is cut off
		_ = server.Close()
	})
	if err := g.Run(); !errors.Is(err, errStopped) {
		return err
	}
	return nil
}

// strict tells browsers that came by TLS never to come without. Only under a name that says so itself: a host that is
// reached by TLS today may serve other things without tomorrow.
func (p *process) strict(next http.Handler) http.Handler {
	if !strings.HasPrefix(p.cfg.Public, "https://") {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Strict-Transport-Security", "max-age=31536000")
		next.ServeHTTP(w, r)
	})
}

// signals waits for a signal to stop. The second one ends the process where it stands.
func (p *process) signals(ctx context.Context) error {
	heard := make(chan os.Signal, 2)
	signal.Notify(heard, os.Interrupt, syscall.SIGTERM)
	select {
	case <-ctx.Done():
		signal.Stop(heard)
		return errStopped
	case s := <-heard:
		p.log.Info("stopping", "signal", s.String(), "grace", p.cfg.Grace.String())
	}
	go func() {
		<-heard
		fmt.Fprintln(os.Stderr, "carillon: told twice to stop; what was running is taken up elsewhere when its lease lapses")
		os.Exit(interrupted)
	}()
	return errStopped
}

// begin does what is to be done once the scheduler leads, and then waits.
func (p *process) begin(ctx context.Context, s *embed.Scheduler) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for s.Ready(ctx) != nil {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
	for _, do := range []func(context.Context, *embed.Scheduler) error{p.firstToken, p.sayFile} {
		if err := do(ctx, s); err != nil && ctx.Err() == nil {
			return err
		}
	}
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

// dir is a folder of the data directory, or "" if nothing is kept.
func (p *process) dir(name string) string {
	if p.cfg.Memory {
		return ""
	}
	return filepath.Join(p.cfg.Data, name)
}

// notice is what stands on every page, or "".
func (p *process) notice() string {
	if p.cfg.Memory {
		return "Rows are kept in memory: nothing survives the end of this process."
	}
	return ""
}

// newLogger writes to w as the config says: text for people, JSON for machines.
func newLogger(c *config, w *os.File) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.LogLevel)) // checked by the table of settings
	options := &slog.HandlerOptions{Level: level}
	if c.LogJSON == "json" || c.LogJSON == "auto" && !isTerminal(w) {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
