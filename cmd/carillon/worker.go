package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"

	"github.com/oklog/run"
	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
	"github.com/carillon-scheduler/carillon/worker"
	"github.com/carillon-scheduler/carillon/worker/execjob"
	"github.com/carillon-scheduler/carillon/worker/httpjob"
)

// workerFlags are the settings of the table that a worker has flags for.
var workerFlags = []string{"nats", "nats-user", "nats-password-file", "nats-token-file", "nats-creds-file", "nats-tls-ca", "nats-plain", "debug-addr", "log-level", "log-format", "grace",
	"http-jobs-allow", "http-jobs-ports", "http-jobs-services", "http-jobs-variables", "http-jobs-secrets",
	"http-jobs-feedback-url", "http-jobs-inner-feedback-url", "http-jobs-call-timeout", "http-jobs-breaker-after", "http-jobs-breaker-pause"}

func newWorker() *cobra.Command {
	h := workerProcess{}
	c := &cobra.Command{
		Use:   "worker",
		Short: "Run HTTP jobs, or commands, in a separate process",
		Long: "Run HTTP jobs, which call URLs, or with --exec jobs that are commands. It connects to the bus of a server, like every worker, and\n" +
			"needs a worker token if the server requires authentication. Start any number of these workers; if one fails, another takes over\n" +
			"its runs. The settings http-jobs.* of the worker, not of the server, define which addresses jobs may call, and their variables,\n" +
			"services and secrets; its --exec flags define which commands may run, and as whom.",
		Example: "  carillon worker\n  carillon worker --nats tls://bus.example:4222 --nats-token-file /run/token\n" +
			"  carillon worker --http-jobs-allow 10.1.0.0/16 --http-jobs-services billing=http://10.1.0.7:8080 --http-jobs-secrets BILLING@10.1.0.7=/etc/carillon/billing\n" +
			"  carillon worker --exec --exec-allow '/opt/jobs/*' --tags db",
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := loadChecked(c, os.Environ(), (*config).checkWorker)
			if err != nil {
				return err
			}
			h.cfg, h.out, h.log = cfg, c.OutOrStdout(), newLogger(cfg, os.Stderr)
			if err := h.checkExec(c); err != nil {
				return err
			}
			err = h.work(c.Context())
			if h.runner != nil { // its commands end with the worker
				err = errors.Join(err, h.runner.Close())
			}
			return err
		},
	}
	addFlags(c, flagsBut(workerFlags)...)
	c.Flags().StringVar(&h.app, "app", "", "app (worker group) of its jobs (default: "+httpjob.App+", or "+execjob.App+" with --exec)")
	c.Flags().StringVar(&h.name, "name", "", "name of this worker (default: the host's)")
	c.Flags().IntVar(&h.slots, "slots", 256, "max parallel runs")
	c.Flags().StringSliceVar(&h.tags, "tags", nil, "tags of this worker, for the setting needs of jobs, comma-separated: db,region=eu")
	h.addExecFlags(c)
	return c
}

// flagsBut returns the flags of the table except some.
func flagsBut(some []string) (others []string) {
	keep := map[string]bool{}
	for _, name := range some {
		keep[name] = true
	}
	for _, s := range settings {
		if !keep[s.flag] {
			others = append(others, s.flag)
		}
	}
	return others
}

// checkWorker is check for a worker: only settings of the bus matter.
func (c *config) checkWorker() {
	c.HTTPJobs.On, c.NATSTLS = true, keyPair{}
	if c.URL == "" {
		c.URL = "nats://127.0.0.1:4222"
	}
	c.checkAddresses()
	c.checkOutside()
}

// workerProcess is a process that only runs HTTP jobs, or only commands.
type workerProcess struct {
	cfg       *config
	app, name string
	slots     int
	tags      []string
	exec      bool
	commands  execjob.Config
	runner    *execjob.Runner // nil without exec
	// definitions reads jobs; set when the worker is connected.
	definitions execjob.Source
	out         io.Writer
	log         *slog.Logger
}

// work connects, and works until a signal comes or ctx ends.
func (h *workerProcess) work(ctx context.Context) error {
	go collectLazily(ctx)
	jobsConfig, err := h.cfg.httpJobs()
	if err != nil {
		return err
	}
	if h.app == "" {
		h.app = httpjob.App
		if h.exec {
			h.app = execjob.App
		}
	}
	jobsConfig.App = h.app
	if h.slots < 1 {
		return usage("invalid --slots %d: want at least 1", h.slots)
	}
	conf := natsbus.Config{Logger: h.log}
	if err := h.cfg.Login.into(&conf); err != nil {
		return err
	}
	cfg := worker.Config{Tenant: tenantOf(conf.Token, h.cfg.URL), App: h.app, Name: h.name, Slots: h.slots, Tags: h.tags, Grace: graceOf(h.cfg.Grace), Logger: h.log}
	as, err := cfg.Principal()
	if err != nil {
		return err
	}
	conf.As = as
	b, err := natsbus.Connect(ctx, h.cfg.URL, conf)
	if err != nil {
		return outside(withoutUsers(h.cfg.URL), err)
	}
	defer b.Close()
	w, err := h.worker(cfg, *jobsConfig, as, b)
	if err != nil {
		return err
	}
	runs := "http   jobs " + h.cfg.httpJobsLine()
	if h.exec {
		runs = "exec   " + h.commandsLine()
	}
	fmt.Fprintf(h.out, "\n  Carillon worker\n\n  bus    %s\n  app    %s\n  %s\n\n", withoutUsers(h.cfg.URL), as.App, runs)

	var g run.Group
	p := &process{cfg: h.cfg, log: h.log, out: h.out}
	signalled, forget := context.WithCancel(ctx)
	g.Add(func() error { return p.signals(signalled) }, func(error) { forget() })
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	var failure error // its last one: the group returns only that of the actor which ends first
	g.Add(func() error { defer close(ended); failure = w.Run(working); return failure }, func(error) { stop(); <-ended })
	profiling, stopProfiling := context.WithCancel(context.WithoutCancel(ctx))
	g.Add(func() error { return p.profile(profiling) }, func(error) { stopProfiling() })
	if err := g.Run(); !errors.Is(err, errStopped) {
		return err
	}
	if missing, is := errors.AsType[*worker.UnreportedError](failure); is {
		return missing
	}
	return nil
}

// tenantOf returns the tenant of a token, or of the one before the @ of an address; "" = there is none.
func tenantOf(token, address string) jobs.Tenant {
	if u, err := url.Parse(address); err == nil && token == "" {
		token = u.User.Username()
	}
	tenant, _, _, ok := kernel.CutToken(token)
	if !ok {
		return ""
	}
	return tenant
}

// worker assembles the worker.
func (h *workerProcess) worker(cfg worker.Config, jobsConfig httpjob.Config, as bus.Principal, b bus.Bus) (*worker.Worker, error) {
	heeding := busstore.Heed(b, as)
	store := busstore.New(heeding, as)
	if h.exec {
		h.definitions = commandsOf(store)
		cfg.Others, cfg.Only = h.runner.Run, kernel.WorkExec
		return worker.New(cfg, store, heeding)
	}
	runner, err := httpjob.New(store, jobsConfig)
	if err != nil {
		return nil, err
	}
	cfg.Others, cfg.Only = runner.Run, kernel.WorkHTTP
	return worker.New(cfg, store, heeding, runner.Jobs()...)
}
