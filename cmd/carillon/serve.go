package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/oklog/run"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/jobs"
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
}

// serve lives the life of the process. Things start in the order of who needs whom; the page's address is said as
// soon as its port listens. They stop in this order: /readyz says no; the worker takes nothing more and its handlers
// end; the control plane goes; then the pages, the bus and the store.
func (p *process) serve(ctx context.Context) (err error) {
	go collectLazily(ctx)
	if err := p.checkLoopback(); err != nil {
		return err
	}
	listener, err := p.listen(p.cfg.HTTP, "--http")
	if err != nil {
		return err
	}
	defer listener.Close() // once more does no harm
	connect, stopNATS, where, err := p.nats(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopNATS()) }()
	p.greet("http://"+listener.Addr().String(), where)

	s, err := embed.Open(ctx, embed.Config{
		Dir: p.dir("rows"), Node: p.cfg.Node, Bus: connect, Notice: p.notice(), Logger: p.log,
		Worker: worker.Config{App: p.app, Name: p.cfg.Node + "-" + p.name, Grace: graceOf(p.cfg.Grace)},
	}, p.jobs...)
	if ctx.Err() != nil { // told to stop before it began
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if p.prepared != nil {
		p.prepared(s)
	}
	return p.group(ctx, s, listener)
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

	requests, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	server := api.NewServer(api.LoopbackOnly(s.Handler()), p.log)
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
	if err := p.sayFile(ctx, s); err != nil && ctx.Err() == nil {
		return err
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

// nats connects to the NATS server elsewhere, or starts one here. where says how others reach it.
func (p *process) nats(ctx context.Context) (connect func(context.Context, bus.Principal) (bus.Bus, error), stop func() error, where string, err error) {
	conf := natsbus.Config{Logger: p.log}
	stop, where = func() error { return nil }, p.cfg.URL
	if p.cfg.URL == "" {
		server, err := p.startNATS()
		if err != nil {
			return nil, nil, "", err
		}
		conf.InProcess, stop, where = server, server.Stop, server.URL()
	}
	connect = func(ctx context.Context, as bus.Principal) (bus.Bus, error) {
		mine := conf
		mine.As = as
		return natsbus.Connect(ctx, p.cfg.URL, mine)
	}
	return connect, stop, where, nil
}

func (p *process) startNATS() (*embedded.Server, error) {
	// A listener finds a port that is free; the server then opens it itself.
	free, err := p.listen(p.cfg.NATS, "--nats-addr")
	if err != nil {
		return nil, err
	}
	addr := free.Addr().(*net.TCPAddr)
	if err := free.Close(); err != nil {
		return nil, err
	}
	return embedded.Start(embedded.Config{Name: p.cfg.Node, Host: addr.IP.String(), Port: addr.Port, Dir: p.dir("nats"), Logger: p.log})
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
