package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/cmd/carillon/cli"
	"github.com/carillon-scheduler/carillon/internal/plain"
)

func newRoot(out, errs io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           "carillon",
		Short:         "A distributed job scheduler",
		Long:          "Carillon is a distributed job scheduler: nodes decide when jobs run, workers run them.",
		Example:       "  carillon dev                      everything in one process, with demo jobs\n  carillon server --data /var/lib/carillon\n  carillon jobs list                the jobs of a running scheduler\n  carillon help exit-codes          for scripts",
		SilenceErrors: true, // printed once, by main
		SilenceUsage:  true,
		Version:       version(),
	}
	root.SetOut(out)
	root.SetErr(errs)
	root.SetVersionTemplate("carillon {{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage("%v; see %s --help", err, c.CommandPath())
	})
	root.AddGroup(&cobra.Group{ID: "run", Title: "Run a scheduler:"}, &cobra.Group{ID: "ask", Title: "Manage a running server:"})
	for _, c := range []*cobra.Command{newInit(), newDev(), newServer(), newWorker(), newConfig(), newNATSConfig(), newStore(), newRestore()} {
		c.GroupID = "run"
		root.AddCommand(c)
	}
	asking, others := cli.Commands(cli.Config{Terminal: terminal, Version: version(), Stopped: openStopped})
	for _, c := range asking {
		c.GroupID = "ask"
		if c.Name() == "cluster" {
			c.AddCommand(clusterVerbs()...)
		}
		root.AddCommand(c)
	}
	root.AddCommand(append(others, newNext(), newVersion(), newDemoWorker())...)
	for _, c := range root.Commands() {
		c.SilenceUsage = true
	}
	// An unknown command is a usage error, not a failure.
	root.Args = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			known := map[string]string{}
			var within []string // of other commands: jobs trigger for trigger
			for _, c := range root.Commands() {
				known[c.Name()] = ""
				for _, sub := range c.Commands() {
					if sub.Name() == args[0] && c.Name() != "completion" {
						within = append(within, c.Name()+" "+sub.Name())
					}
				}
			}
			if len(within) > 0 {
				return usage("there is no command %q; did you mean %s?", args[0], strings.Join(within, " or "))
			}
			if meant, far := plain.Closest(args[0], known); far <= plain.Slip {
				return usage("there is no command %q; did you mean %s?", args[0], meant)
			}
			return usage("there is no command %q; see carillon --help", args[0])
		}
		return nil
	}
	root.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	return root
}

// noArgs refuses arguments.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%s takes no arguments, but %q is given", c.CommandPath(), args[0])
	}
	return nil
}
