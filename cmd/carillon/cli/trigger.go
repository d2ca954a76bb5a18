package cli

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// wish is how a run should be, as it was typed.
type wish struct {
	args, argsFile             string
	in, at                     string
	unique, uniqueFor          string
	priority, retries          int
	timeout, startWithin       string
	reason, idempotency, pin   string
	wait                       waiting
	priorityGiven, retriesSaid bool
}

func (a *asker) triggerCommand() *cobra.Command {
	var w wish
	c := &cobra.Command{Use: "trigger <key>", Short: "Start a run of a job", Args: one("the key of a job"),
		Long: "Start a run of a job, now or later. The run is made once, however often the request has to be sent: it has a key of its\n" +
			"own, which --idempotency-key replaces. With --wait or --follow the exit code is that of the run: 0 succeeded, 10 failed,\n" +
			"11 cancelled, 12 skipped, 124 --wait-timeout is over.\n\nA time for --at is " + momentHelp + ".",
		Example: lines("carillon jobs trigger demo.greet --args '{\"name\":\"Ann\"}' --follow", "carillon jobs trigger demo.greet --args-file greeting.json --in 30m",
			"echo '{\"name\":\"Ann\"}' | carillon jobs trigger demo.greet --args - --wait -o json", "carillon jobs trigger demo.greet --at 2026-11-30T09:00:00+01:00 --unique ann"),
		ValidArgsFunction: a.completeKeys}
	f := c.Flags()
	f.StringVar(&w.args, "args", "", "arguments, a JSON object; - reads them from the input")
	f.StringVar(&w.argsFile, "args-file", "", "file with the arguments")
	f.StringVar(&w.in, "in", "", "how long from now, such as 30m")
	f.StringVar(&w.at, "at", "", "when, such as 18:00 or 2026-11-30T09:00:00+01:00")
	f.StringVar(&w.unique, "unique", "", "a key that at most one run of the job holds that is not over; a second is answered by the first")
	f.StringVar(&w.uniqueFor, "unique-for", "", "how long the key holds instead, such as 24h")
	f.IntVar(&w.priority, "priority", 0, "-100 to 100; higher goes first")
	f.IntVar(&w.retries, "retries", 0, "attempts after the first")
	f.StringVar(&w.timeout, "timeout", "", "of one attempt, such as 5m")
	f.StringVar(&w.startWithin, "start-within", "", "skipped if it has not started by then")
	f.StringVar(&w.pin, "pin", "", "the worker that is to run it, whatever the job's route is")
	f.StringVar(&w.reason, "reason", "", "why; kept with the run")
	f.StringVar(&w.idempotency, "idempotency-key", "", "the same key within 24 hours is answered by the run that it made (default: a new one)")
	w.wait.addFlags(c)
	c.RunE = a.does(func(ctx context.Context, args []string) error {
		w.priorityGiven, w.retriesSaid = c.Flags().Changed("priority"), c.Flags().Changed("retries")
		if err := w.wait.check(); err != nil {
			return err
		}
		body, err := a.wishOf(w, c.Flags().Changed("args"))
		if err != nil {
			return err
		}
		if w.idempotency == "" {
			w.idempotency = rand.Text()
		}
		got, err := a.link.repeat(ctx, request{method: "POST", path: jobPath(args[0]) + "/trigger", key: w.idempotency, reason: w.reason, body: body})
		if err != nil {
			return a.meant(ctx, args[0], err)
		}
		return a.made(ctx, got, w.wait)
	})
	return c
}

// wishOf makes of what was typed what the API takes.
func (a *asker) wishOf(w wish, argsGiven bool) (map[string]any, error) {
	body := map[string]any{}
	text, from := []byte(w.args), "--args"
	var err error
	switch {
	case w.in != "" && w.at != "":
		return nil, kernel.Invalid("both --in and --at are given: say one of them")
	case argsGiven && w.argsFile != "":
		return nil, kernel.Invalid("both --args and --args-file are given: say one of them")
	case w.args == "-":
		text, err = io.ReadAll(io.LimitReader(a.in, 1<<20))
		from = "the input"
	case w.argsFile == "-":
		text, err = io.ReadAll(io.LimitReader(a.in, 1<<20))
		from, argsGiven = "the input", true
	case w.argsFile != "":
		text, err = os.ReadFile(w.argsFile)
		from, argsGiven = w.argsFile, true
	}
	if err != nil {
		return nil, kernel.Invalid("read the arguments: %v", err)
	}
	if argsGiven {
		if body["args"], err = readObject(from, text); err != nil {
			return nil, err
		}
	}
	if w.at != "" {
		t, err := readMoment("--at", w.at, a.Now())
		if err != nil {
			return nil, err
		}
		body["due"] = t
	}
	for name, text := range map[string]string{"delay": w.in, "uniqueFor": w.uniqueFor, "timeout": w.timeout, "startWithin": w.startWithin} {
		if text == "" {
			continue
		}
		flag := kebab(name)
		if name == "delay" {
			flag = "in"
		}
		d, err := readSpan("--"+flag, text)
		if err != nil {
			return nil, err
		}
		body[name] = api.Duration(d)
	}
	if w.pin != "" {
		body["pin"] = w.pin
	}
	if w.unique != "" {
		body["unique"] = w.unique
	}
	if w.priorityGiven {
		body["priority"] = w.priority
	}
	if w.retriesSaid {
		body["retries"] = w.retries
	}
	return body, nil
}

// made shows a run that was asked for, and waits for it if that is wanted.
func (a *asker) made(ctx context.Context, got answer, w waiting) error {
	var run api.Run
	if err := got.into(&run); err != nil {
		return err
	}
	if run.Duplicate {
		a.remark("it was there before: its key led to it")
	}
	if w.wanted() {
		if a.human() {
			a.remark("run %s of %s", run.ID, run.Job)
		}
		return a.await(ctx, run.ID, w)
	}
	return a.say(view{raw: got.raw, names: []string{run.ID}, text: func(p *page) {
		when := p.state(run.State)
		if run.State == jobs.Scheduled.String() {
			when += " for " + p.moment(run.Due)
		}
		p.line("run %s of %s: %s", run.ID, run.Job, when)
		p.line("%s", p.paint(faint, "carillon runs follow "+run.ID))
	}})
}

func (a *asker) runsAgain() *cobra.Command {
	var args, idempotency string
	var w waiting
	c := &cobra.Command{Use: "again <run>", Short: "Run once more, as a new run", Args: one("the ID of a run that is over"),
		Example:           lines("carillon runs again 0193a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b --wait", "carillon runs again 0193a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b --args '{\"name\":\"Bob\"}'"),
		ValidArgsFunction: a.completeRuns(true)}
	c.Flags().StringVar(&args, "args", "", "other arguments than it had, a JSON object")
	c.Flags().StringVar(&idempotency, "idempotency-key", "", "the same key within 24 hours is answered by the run that it made (default: a new one)")
	w.addFlags(c)
	c.RunE = a.does(func(ctx context.Context, words []string) error {
		if err := w.check(); err != nil {
			return err
		}
		id, err := runID(words[0])
		if err != nil {
			return err
		}
		body := map[string]json.RawMessage{}
		if c.Flags().Changed("args") {
			if body["args"], err = readObject("--args", []byte(args)); err != nil {
				return err
			}
		}
		if idempotency == "" {
			idempotency = rand.Text()
		}
		got, err := a.link.repeat(ctx, request{method: "POST", path: "/runs/" + id + "/retry", key: idempotency, body: body})
		if err != nil {
			return err
		}
		return a.made(ctx, got, w)
	})
	return c
}

// waiting says whether to wait for a run, and how long.
type waiting struct {
	wait, follow bool
	most         string
	limit        time.Duration // 0 = as long as it takes
}

func (w *waiting) addFlags(c *cobra.Command) {
	c.Flags().BoolVar(&w.wait, "wait", false, "wait until it is over; the exit code tells how it ended")
	c.Flags().BoolVar(&w.follow, "follow", false, "wait, and print its log lines as they come")
	w.addLimit(c)
}

func (w *waiting) addLimit(c *cobra.Command) {
	c.Flags().StringVar(&w.most, "wait-timeout", "", "how long to wait at most, such as 5m (default: as long as it takes)")
}

func (w *waiting) wanted() bool { return w.wait || w.follow }

func (w *waiting) check() (err error) {
	if w.most == "" {
		return nil
	}
	if !w.wanted() {
		return kernel.Invalid("--wait-timeout without --wait or --follow waits for nothing")
	}
	if w.limit, err = readSpan("--wait-timeout", w.most); err == nil && w.limit == 0 {
		err = kernel.Invalid("--wait-timeout is 0: leave it out to wait as long as it takes")
	}
	return err
}
