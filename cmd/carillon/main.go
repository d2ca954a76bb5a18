// Command carillon is the scheduler as a program.
//
//	carillon dev      everything in one process, with jobs to look at
//	carillon server   a control plane, its store and its pages
//	carillon next     when a schedule is due, without a server
//
// What it does is in the packages it is wired from; here are flags, the config file, and the order in which things
// start and stop. config.go says where a setting comes from, serve.go is the life of the process.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/carillon-scheduler/carillon/jobs"
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
	fmt.Fprintf(errs, "carillon: %v\n", err)
	return exitCode(err)
}

// usageError is a mistake in how the program was called or configured.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitCodes are what scripts can rely on: 0 done, 1 failed, 2 usage or config, and these.
var exitCodes = map[jobs.Code]int{
	jobs.BadInput: 2, jobs.NotFound: 3, jobs.Conflict: 4, jobs.Stale: 4, jobs.Forbidden: 5, jobs.Unavailable: 6, jobs.Unknown: 7,
}

// interrupted is the exit code of a program that was told twice to stop: 128 and the number of SIGINT.
const interrupted = 130

func exitCode(err error) int {
	if _, ok := errors.AsType[usageError](err); ok {
		return 2
	}
	if refusal, ok := errors.AsType[*jobs.Refusal](err); ok {
		if code, known := exitCodes[refusal.Code]; known {
			return code
		}
	}
	return 1
}
