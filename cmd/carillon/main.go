// Command carillon is the scheduler as a program.
//
//	carillon dev      everything in one process, with demo jobs
//	carillon server   a control plane, its store and the dashboard
//	carillon worker   HTTP jobs, as a process of its own
//	carillon next     due times of a schedule, without a server
//	carillon nats-config  configuration for an external NATS server
//	carillon jobs     and runs, workers, settings ...: clients of a running server (package cli)
//
// This package has flags, the config file, and the order of start and shutdown; the rest is in the packages that it
// wires. Where to start: config.go (sources of settings), expose.go (rules for exposed addresses), auth.go (the first
// token), serve.go (the life of the process).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/carillon-scheduler/carillon/cmd/carillon/cli"
)

func main() {
	os.Exit(execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs the program and returns its exit code.
func execute(ctx context.Context, args []string, out, errs io.Writer) int {
	root := newRoot(out, errs)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if text := err.Error(); text != "" { // the error may have been printed
		fmt.Fprintf(errs, "carillon: %s\n", text)
	}
	return exitCode(err)
}

// usageError is a mistake in how the program was called or configured.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// interrupted is the exit code after a second signal: 128 and the number of SIGINT.
const interrupted = cli.Interrupted

func exitCode(err error) int {
	if _, ok := errors.AsType[usageError](err); ok {
		return 2
	}
	return cli.ExitCode(err)
}
