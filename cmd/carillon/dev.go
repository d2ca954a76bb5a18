package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/embed"
)

func newDev() *cobra.Command {
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run everything in one process, with jobs to look at",
		Long: "Run everything in one process: the control plane, a durable store, a NATS server that workers can connect to, the page,\n" +
			"and a worker with a few jobs to look at. It listens on this machine only. Ctrl-C lets running jobs end and stops.",
		Example: "  carillon dev\n  carillon dev --memory --http 127.0.0.1:9000",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := loadConfig(c, os.Environ())
			if err != nil {
				return err
			}
			show := &demo{}
			p := &process{cfg: cfg, name: "dev", out: c.OutOrStdout(), log: newLogger(cfg, os.Stderr), movable: true,
				app: "demo", jobs: show.jobs(), prepared: func(s *embed.Scheduler) { show.client = s.Client() }, started: show.start}
			return p.serve(c.Context())
		},
	}
	addFlags(c)
	return c
}

func newServer() *cobra.Command {
	c := &cobra.Command{
		Use:   "server",
		Short: "Run a control plane with its store and its pages",
		Long: "Run a control plane with its store and its pages, and a NATS server for the workers, unless --nats names one. It runs no\n" +
			"jobs itself: workers do. This version listens on this machine only.",
		Example: "  carillon server --data /var/lib/carillon\n  carillon server --nats nats://127.0.0.1:4222",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := loadConfig(c, os.Environ())
			if err != nil {
				return err
			}
			p := &process{cfg: cfg, name: "server", out: c.OutOrStdout(), log: newLogger(cfg, os.Stderr)}
			return p.serve(c.Context())
		},
	}
	addFlags(c)
	return c
}
