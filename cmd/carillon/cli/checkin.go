package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/plain"
)

// jobsCheckIn records a run that another scheduler has started, such as cron on a host.
func (a *asker) jobsCheckIn() *cobra.Command {
	var in api.CheckIn
	var took, idempotency string
	c := &cobra.Command{Use: "check-in <key> [-- command ...]", Short: "Record a run that has ended elsewhere, such as by cron on a host", Args: cobra.MinimumNArgs(1),
		Long: "Record a run of a triggered job that no worker runs, because another scheduler does. It counts like any other run: for alarms, jobs that follow and statistics.\n" +
			"With a command, run it first: its exit code decides whether the run Succeeded, and is that of carillon. If the server does not answer, that is only a warning.",
		Example:           lines("carillon jobs create nas.backup --kind triggered --app nas", "carillon jobs check-in nas.backup --took 5m", "carillon jobs check-in nas.backup --failed --error 'no space left'", "carillon jobs check-in nas.backup -- /usr/local/bin/backup.sh --all"),
		ValidArgsFunction: a.completeKeys,
		RunE: a.does(func(ctx context.Context, args []string) error {
			if took != "" {
				d, err := readSpan("--took", took)
				if err != nil {
					return err
				}
				of := api.Duration(d)
				in.Took = &of
			}
			if len(args) > 1 {
				return a.checkInAfter(ctx, args[0], args[1:], idempotency, in)
			}
			return a.checkIn(ctx, args[0], idempotency, in)
		})}
	f := c.Flags()
	f.BoolVar(&in.Failed, "failed", false, "it failed")
	f.StringVar(&in.Error, "error", "", "why it failed")
	f.StringVar(&took, "took", "", "how long it ran")
	f.StringVar(&idempotency, "idempotency-key", "", "key that makes the request idempotent for 24 hours (default: a new one)")
	return c
}

func (a *asker) checkIn(ctx context.Context, key, idempotency string, in api.CheckIn) error {
	if idempotency == "" {
		idempotency = rand.Text()
	}
	got, err := a.link.repeat(ctx, request{method: "POST", path: jobPath(key) + "/check-in", key: idempotency, body: in})
	if err != nil {
		return a.meant(ctx, key, err)
	}
	var run api.Run
	if err := got.into(&run); err != nil {
		return err
	}
	return a.show(view{raw: got.raw, names: []string{run.ID}, text: func(p *page) { p.line("run %s of %s is %s", run.ID, run.Job, run.State) }})
}

// checkInAfter runs a command and records how it ended.
func (a *asker) checkInAfter(ctx context.Context, key string, command []string, idempotency string, in api.CheckIn) error {
	start := time.Now()
	run := exec.CommandContext(ctx, command[0], command[1:]...)
	run.Cancel, run.WaitDelay = func() error { return run.Process.Signal(syscall.SIGTERM) }, time.Minute // it may clean up
	run.Stdin, run.Stdout, run.Stderr = os.Stdin, a.out, a.errs
	failed := run.Run()
	took := api.Duration(time.Since(start).Round(time.Millisecond))
	in.Took = &took
	code := 0
	if failed != nil {
		in.Failed, in.Error, code = true, plain.Short(fmt.Sprintf("%s: %v", command[0], failed), 1000), 1
		if exit, is := errors.AsType[*exec.ExitError](failed); is && exit.ExitCode() > 0 {
			code = exit.ExitCode()
		}
	}
	a.quiet = true
	ctx = context.WithoutCancel(ctx) // also after an interrupt
	if err := a.checkIn(ctx, key, idempotency, in); err != nil {
		fmt.Fprintf(a.errs, "carillon: the run of %s could not be recorded: %v\n", key, err)
	}
	if code != 0 {
		return &Exit{Code: code}
	}
	return nil
}
