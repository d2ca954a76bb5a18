package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

func newNATSConfig() *cobra.Command {
	var tenant string
	var workers, clients []string
	c := &cobra.Command{
		Use:   "nats-config",
		Short: "Print the configuration of an external NATS server",
		Long: "Print an account for the configuration file of a NATS server. It has the user node for Carillon's server, and a user for each\n" +
			"--worker and --client, with the least permissions. Passwords come from the environment of the NATS server; or write bcrypt\n" +
			"hashes in quotes into the file (nats server passwd makes them).\n\n" +
			"--worker billing is one user for all workers of the app billing, which can then impersonate each other. To prevent that, give\n" +
			"each its own user: --worker billing/h1 for the worker with the name h1.\n\n" +
			"An external NATS server ignores Carillon's tokens: to revoke access, remove the user and reload that server.",
		Example: "  carillon nats-config --worker billing --client shop > carillon.conf\n  carillon nats-config --tenant acme --worker billing/h1 --worker billing/h2",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			grants, err := grantsOf(tenant, workers, clients)
			if err != nil {
				return err
			}
			text, err := natsbus.ServerConfig(grants)
			if err != nil {
				return err
			}
			fmt.Fprint(c.OutOrStdout(), text)
			fmt.Fprintf(c.OutOrStdout(), "\n# In the environment of the NATS server, each value beginning with a letter:\n#   %s\n", strings.Join(variables(grants), "\n#   "))
			fmt.Fprint(c.OutOrStdout(), "#\n# Beyond one machine it needs a tls block, too: see https://docs.nats.io/running-a-nats-service/configuration/securing_nats/tls\n"+
				"#\n# The server:   nats.url: tls://...:4222, nats.user: node, nats.password-file: (a file that only its owner may read)\n"+
				"# A worker:     carillon.NewWorker(\"tls://USER:PASSWORD@...:4222\", ...)\n# A client:     carillon.Dial(\"tls://USER:PASSWORD@...:4222\"); its name is the user\n")
			return nil
		},
	}
	c.Flags().StringVar(&tenant, "tenant", string(jobs.DefaultTenant), "tenant of the workers and clients")
	c.Flags().StringArrayVar(&workers, "worker", nil, "user for all workers of an app, or for one: app or app/name; repeatable")
	c.Flags().StringArrayVar(&clients, "client", nil, "user for a client of this name; repeatable")
	return c
}

// grantsOf returns the requested users and the node's.
func grantsOf(tenant string, workers, clients []string) ([]natsbus.Grant, error) {
	if err := kernel.CheckName("tenant", tenant); err != nil {
		return nil, err
	}
	grants := []natsbus.Grant{{User: "node", As: bus.Principal{Tenant: jobs.Tenant(tenant), Role: bus.Node, Name: natsbus.AnyName}}}
	for _, w := range workers {
		app, name, one := strings.Cut(w, "/")
		g := natsbus.Grant{User: "worker-" + app, As: bus.Principal{Tenant: jobs.Tenant(tenant), Role: bus.Worker, Name: natsbus.AnyName}, Apps: []string{app}}
		if err := kernel.CheckName("app of --worker", app); err != nil {
			return nil, err
		}
		if one {
			if err := kernel.CheckName("name of --worker", name); err != nil {
				return nil, err
			}
			g.User, g.As.Name = g.User+"-"+name, name
		}
		grants = append(grants, g)
	}
	for _, name := range clients {
		if err := kernel.CheckName("name of --client", name); err != nil {
			return nil, err
		}
		grants = append(grants, natsbus.Grant{User: name, As: bus.Principal{Tenant: jobs.Tenant(tenant), Role: bus.Client, Name: name}})
	}
	seen := map[string]bool{}
	for _, g := range grants {
		if v := natsbus.PasswordVariable(g.User); seen[v] {
			return nil, kernel.Invalid("two users would have their password in %s: choose another name for one", v)
		} else {
			seen[v] = true
		}
	}
	return grants, nil
}

func variables(grants []natsbus.Grant) []string {
	all := make([]string, len(grants))
	for i, g := range grants {
		all[i] = natsbus.PasswordVariable(g.User)
	}
	return all
}
