package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Exit codes. Scripts rely on these; exitCodes describes them.
const (
	OK          = 0
	Failed      = 1
	Usage       = 2
	NotFound    = 3
	Conflict    = 4
	NotAllowed  = 5
	Unavailable = 6
	Unknown     = 7

	RunFailed    = 10
	RunCancelled = 11
	RunSkipped   = 12

	TimedOut    = 124
	Interrupted = 130 // 128 and the number of SIGINT
)

var exitCodes = []struct {
	code  int
	means string
}{
	{OK, "success; with --wait and --follow: the run succeeded"},
	{Failed, "failure without a code of its own"},
	{Usage, "invalid command, input or configuration; nothing was done"},
	{NotFound, "no such job, run or token"},
	{Conflict, "conflict: the current state does not allow it, or it changed meanwhile"},
	{NotAllowed, "authentication failed, or the role does not allow it"},
	{Unavailable, "not done: the scheduler is unavailable; try again"},
	{Unknown, "unknown outcome: check whether it was done"},
	{RunFailed, "with --wait and --follow: the run failed for good (Terminated)"},
	{RunCancelled, "with --wait and --follow: the run was cancelled"},
	{RunSkipped, "with --wait and --follow: the run was skipped"},
	{TimedOut, "--wait-timeout expired; the run continues"},
	{Interrupted, "interrupted (Ctrl-C), also the end of --watch; a run that was waited for continues"},
}

// Exit ends the program with a code. Text is the error message; "" = none, or it has been printed.
type Exit struct {
	Code int
	Text string
}

func (e *Exit) Error() string { return e.Text }

// ExitCode returns the exit code for an error, 0 for nil.
func ExitCode(err error) int {
	if err == nil {
		return OK
	}
	if exit, ok := errors.AsType[*Exit](err); ok {
		return exit.Code
	}
	for _, c := range []struct {
		is   jobs.Code
		exit int
	}{
		{jobs.BadInput, Usage}, {jobs.NotFound, NotFound}, {jobs.Conflict, Conflict}, {jobs.Stale, Conflict},
		{jobs.Forbidden, NotAllowed}, {jobs.Unavailable, Unavailable}, {jobs.Unknown, Unknown},
	} {
		if errors.Is(err, c.is) {
			return c.exit
		}
	}
	return Failed
}

// endOf returns the exit code of a finished run as an error, nil if it succeeded.
func endOf(state string) error {
	switch state {
	case jobs.Terminated.String():
		return &Exit{Code: RunFailed}
	case jobs.Cancelled.String():
		return &Exit{Code: RunCancelled}
	case jobs.Skipped.String():
		return &Exit{Code: RunSkipped}
	}
	return nil
}

// exitCodesTopic is their help page.
func exitCodesTopic() *cobra.Command {
	var b strings.Builder
	b.WriteString("Exit codes:\n\n")
	for _, c := range exitCodes {
		fmt.Fprintf(&b, "  %3d  %s\n", c.code, c.means)
	}
	return &cobra.Command{Use: "exit-codes", Short: "List the exit codes", Long: strings.TrimSuffix(b.String(), "\n"),
		Example: lines("carillon help exit-codes"), Args: none,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
}
