package main

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/cmd/carillon/project"
)

func newInit() *cobra.Command {
	var made project.Config
	c := &cobra.Command{
		Use:   "init [directory]",
		Short: "Create a Go program with jobs",
		Long: "Create a Go program in an empty directory (default: the current one): a worker with a recurring and a triggered job, tests, a\n" +
			"server configuration, and files for containers. With --embed, the server is part of the program. Nothing is overwritten\n" +
			"and nothing is downloaded.\n\n" +
			"If this program is no release, go.mod names a checkout of Carillon, whose modules it takes over: --replace, or the one around\n" +
			"the directory or the current directory.",
		Example: "  carillon init billing\n  carillon init billing --module example.com/billing --replace ../carillon\n  carillon init shop --embed",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage("init takes one directory; see carillon init --help")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			made.Dir, made.Version = ".", version()
			if len(args) > 0 {
				made.Dir = args[0]
			}
			names, err := project.Make(made)
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			fmt.Fprintf(out, "created in %s:\n", made.Dir)
			for _, name := range names {
				fmt.Fprintf(out, "  %s\n", name)
			}
			fmt.Fprintln(out, "next:")
			if filepath.Clean(made.Dir) != "." {
				fmt.Fprintf(out, "  cd %s\n", made.Dir)
			}
			if slices.Contains(names, "go.sum") {
				fmt.Fprintln(out, "  go test ./...")
			} else {
				fmt.Fprintln(out, "  go mod tidy && go test ./...")
			}
			if !made.Embedded {
				fmt.Fprintln(out, "  carillon dev      # in another terminal")
			}
			_, err = fmt.Fprintln(out, "  go run .")
			return err
		},
	}
	c.Flags().StringVar(&made.Module, "module", "", "module path (default: example.com/ and the directory's name)")
	c.Flags().BoolVar(&made.Embedded, "embed", false, "make the server part of the program, instead of a worker")
	c.Flags().StringVar(&made.Replace, "replace", "", "checkout of Carillon that go.mod uses instead of a release")
	return c
}
