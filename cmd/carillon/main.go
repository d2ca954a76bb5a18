// Command carillon is the scheduler as a program.
//
//	carillon dev      everything in one process, with jobs to look at
//	carillon server   a control plane, its store and its pages
//	carillon worker   runs HTTP jobs, as a process of its own
//	carillon next     when a schedule is due, without a server
//	carillon nats-config  what a NATS server of one's own needs in its configuration
//	carillon jobs     and runs, workers, settings ...: what people say to a server (package remote)
//
// What it does is in the packages it is wired from; here are flags, the config file, and the order in which things
// start and stop. config.go says where a setting comes from, expose.go what must hold where others can come, auth.go who
// is let in first, and serve.go is the life of the process.
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

// execute runs the program and answers with its exit code.
func execute(ctx context.Context, args []string, out, errs io.Writer) int {
	root := newRoot(out, errs)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if text := err.Error(); text != "" { // all may have been said
		fmt.Fprintf(errs, "carillon: %s\n", text)
	}
	return exitCode(err)
}

// usageError is a mistake in how the program was called or configured.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// interrupted is the exit code of a program that was told twice to stop: 128 and the number of SIGINT.
const interrupted = cli.Interrupted

func exitCode(err error) int {
	if _, ok := errors.AsType[usageError](err); ok {
		return 2
	}
	return cli.ExitCode(err)
}
