package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newRoot(out, errs io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           "carillon",
		Short:         "One keyboard, many bells: a distributed job scheduler",
		Long:          "Carillon decides when, workers ring, a bus carries the strokes, a store remembers.",
		Example:       "  carillon dev                      everything in one process, with jobs to look at\n  carillon server --data /var/lib/carillon",
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
	root.AddCommand(newDev(), newServer(), newNext(), newConfig(), newVersion())
	for _, c := range root.Commands() {
		c.SilenceUsage = true
	}
	// A word that is no command is a mistake in usage, not a failure.
	root.Args = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usage("there is no command %q; see carillon --help", args[0])
		}
		return nil
	}
	root.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	return root
}

// noArgs refuses words after a command.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%s takes no arguments, but %q is given", c.CommandPath(), args[0])
	}
	return nil
}

func newVersion() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "version",
		Short:   "Say which version this is",
		Example: "  carillon version\n  carillon version --json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !asJSON {
				fmt.Fprintf(c.OutOrStdout(), "carillon %s, %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
				return nil
			}
			return json.NewEncoder(c.OutOrStdout()).Encode(map[string]string{
				"version": version(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}

// version is what the build was made from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}
