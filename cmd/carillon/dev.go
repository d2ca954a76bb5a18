package main

import (
	"os"

	"github.com/spf13/cobra"
)

func newDev() *cobra.Command {
	var nodes int
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run everything in one process, with demo jobs",
		Long: "Run everything in one process: the control plane, a durable store, a NATS server for workers, the dashboard, and\n" +
			"a worker with demo jobs. HTTP jobs run here, too, and may call this machine. It listens on loopback only. Ctrl-C waits for\n" +
			"running jobs, at most --grace, and stops.",
		Example: "  carillon dev\n  carillon dev --memory --http 127.0.0.1:9000\n  carillon dev --nodes 3      a cluster; each node and each worker is a process",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := loadConfig(c, os.Environ())
			if err != nil {
				return err
			}
			if c.Flags().Changed("nodes") {
				all := &cast{cfg: cfg, nodes: nodes, out: c.OutOrStdout()}
				if err := all.check(); err != nil {
					return err
				}
				return all.run(c.Context())
			}
			cfg.tryHTTPJobs()
			p := &process{cfg: cfg, name: "dev", out: c.OutOrStdout(), log: newLogger(cfg, os.Stderr), movable: true,
				app: "demo", jobs: demo{}.jobs(), started: demo{}.start}
			return p.serve(c.Context())
		},
	}
	addFlags(c)
	c.Flags().IntVar(&nodes, "nodes", 1, "start this many nodes and two workers, each as its own process, in "+castData)
	return c
}

func newServer() *cobra.Command {
	var newAdmin bool
	c := &cobra.Command{
		Use:   "server",
		Short: "Run a control plane with its store and the dashboard",
		Long: "Run a control plane with its store and the dashboard, and a NATS server for the workers, unless --nats names one. Workers\n" +
			"run the jobs; with --http-jobs, the server runs HTTP jobs itself. Loopback needs no authentication. Any other address requires TLS and\n" +
			"tokens: the first start writes an admin token to the data directory. See docs/install.md.",
		Example: "  carillon server --data /var/lib/carillon\n  carillon server --nats nats://127.0.0.1:4222\n" +
			"  carillon server --http 0.0.0.0:8443 --http-tls-cert host.pem --http-tls-key host.key --nats-addr 0.0.0.0:4222 --nats-tls-cert host.pem --nats-tls-key host.key",
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := loadConfig(c, os.Environ())
			if err != nil {
				return err
			}
			if newAdmin && !cfg.authenticates() {
				return usage("--new-admin-token: authentication is off here; set auth: on to require tokens")
			}
			p := &process{cfg: cfg, name: "server", out: c.OutOrStdout(), log: newLogger(cfg, os.Stderr), newAdmin: newAdmin}
			return p.serve(c.Context())
		},
	}
	addFlags(c)
	c.Flags().BoolVar(&newAdmin, "new-admin-token", false, "create another admin token and write it to the data directory, if all are lost")
	return c
}
