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

// triggerFlags are the flags of trigger.
type triggerFlags struct {
	args, argsFile              string
	in, at                      string
	unique, uniqueFor           string
	priority, retries           int
	timeout, startWithin        string
	reason, idempotency         string
	pin, batch                  string
	wait                        waiting
	priorityGiven, retriesGiven bool
}

func (a *asker) triggerCommand() *cobra.Command {
	var w triggerFlags
	var m manyFlags
	c := &cobra.Command{Use: "trigger <key>", Short: "Start a run of a job", Args: one("the key of a job"),
		Long: "Start a run of a job, now or later. The request is idempotent: it has a random key, or the one of --idempotency-key. With\n" +
			"--wait or --follow the exit code is that of the run: 0 succeeded, 10 failed, 11 cancelled, 12 skipped,\n" +
			"124 --wait-timeout expired.\n\nA time for --at is " + momentHelp + ".",
		Example: lines("carillon jobs trigger demo.greet --args '{\"name\":\"Ann\"}' --follow", "carillon jobs trigger demo.greet --args-file greeting.json --in 30m",
			"echo '{\"name\":\"Ann\"}' | carillon jobs trigger demo.greet --args - --wait -o json", "carillon jobs trigger demo.greet --at 2026-11-30T09:00:00+01:00 --unique ann", "carillon jobs trigger --tag nightly --dry-run"),
		ValidArgsFunction: a.completeKeys}
	f := c.Flags()
	f.StringVar(&w.args, "args", "", "arguments, a JSON object; - reads standard input")
	f.StringVar(&w.argsFile, "args-file", "", "file with the arguments")
	f.StringVar(&w.in, "in", "", "delay, such as 30m")
	f.StringVar(&w.at, "at", "", "due time, such as 18:00 or 2026-11-30T09:00:00+01:00")
	f.StringVar(&w.unique, "unique", "", "unique key: at most one live run of the job has it; a second request returns the first run")
	f.StringVar(&w.uniqueFor, "unique-for", "", "hold the unique key for this long instead, such as 24h")
	f.IntVar(&w.priority, "priority", 0, "-100 to 100; higher runs first")
	f.IntVar(&w.retries, "retries", 0, "attempts after the first")
	f.StringVar(&w.timeout, "timeout", "", "timeout of one attempt, such as 5m")
	f.StringVar(&w.startWithin, "start-within", "", "skip the run if it has not started within this time")
	f.StringVar(&w.batch, "batch", "", "ID or name of the batch to which the run is added")
	f.StringVar(&w.pin, "pin", "", "worker that must run it, regardless of the job's route")
	f.StringVar(&w.reason, "reason", "", "reason, recorded with the run")
	f.StringVar(&w.idempotency, "idempotency-key", "", "key that makes the request idempotent for 24 hours (default: a new one)")
	w.wait.addFlags(c)
	m.addFlags(a, c, "jobs", "app", "tag", "match", "kind")
	c.RunE = a.does(func(ctx context.Context, args []string) error {
		w.priorityGiven, w.retriesGiven = c.Flags().Changed("priority"), c.Flags().Changed("retries")
		if err := w.wait.check(); err != nil {
			return err
		}
		if m.given() {
			if names := w.ofOne(c); len(names) > 0 {
				return kernel.Invalid("--%s needs the key of a job: with a filter, each job runs with its own settings", names[0])
			}
			return a.many(ctx, &m, "jobs/trigger", "trigger", "triggered", w.reason, map[string]any{"manual": true})
		}
		body, err := a.triggerBody(w, c.Flags().Changed("args"))
		if err != nil {
			return err
		}
		if w.batch != "" {
			if body["batch"], err = a.someBatch(ctx, w.batch); err != nil {
				return err
			}
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

// ofOne lists the given flags that a filter excludes.
func (w *triggerFlags) ofOne(c *cobra.Command) (names []string) {
	for _, name := range []string{"args", "args-file", "in", "at", "unique", "unique-for", "priority", "retries", "timeout", "start-within", "batch", "pin", "idempotency-key", "wait", "follow"} {
		if c.Flags().Changed(name) {
			names = append(names, name)
		}
	}
	return names
}

// triggerBody returns the request body for the flags.
func (a *asker) triggerBody(w triggerFlags, argsGiven bool) (map[string]any, error) {
	body := map[string]any{"manual": true}
	text, from := []byte(w.args), "--args"
	var err error
	switch {
	case w.in != "" && w.at != "":
		return nil, kernel.Invalid("both --in and --at are given: use one of them")
	case argsGiven && w.argsFile != "":
		return nil, kernel.Invalid("both --args and --args-file are given: use one of them")
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
		t, err := a.futureMoment("--at", w.at)
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
	if w.retriesGiven {
		body["retries"] = w.retries
	}
	return body, nil
}

// made shows a created run, and waits for it with --wait or --follow.
func (a *asker) made(ctx context.Context, got answer, w waiting) error {
	var run api.Run
	if err := got.into(&run); err != nil {
		return err
	}
	if run.Duplicate {
		a.remark("an earlier request with this key created the run")
	}
	if w.wanted() {
		if a.human() {
			a.remark("run %s of %s", run.ID, run.Job)
		}
		return a.await(ctx, run.ID, w)
	}
	return a.show(view{raw: got.raw, names: []string{run.ID}, text: func(p *page) {
		when := p.state(run.State)
		if run.State == jobs.Scheduled.String() {
			when += " for " + p.moment(run.Due)
		}
		p.line("run %s of %s: %s", run.ID, run.Job, when)
		p.line("%s", p.paint(faint, "carillon runs follow "+run.ID))
	}})
}

func (a *asker) runsAgain() *cobra.Command {
	var args, idempotency, reason string
	var w waiting
	var m manyFlags
	c := &cobra.Command{Use: "again <run>", Short: "Run a finished run again, as a new run", Args: one("the ID of a finished run"),
		Example: lines("carillon runs again 0193a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b --wait", "carillon runs again 0193a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b --args '{\"name\":\"Bob\"}'",
			"carillon runs again --app billing --code timeout --since 24h --dry-run"),
		ValidArgsFunction: a.completeRuns(true)}
	c.Flags().StringVar(&args, "args", "", "new arguments, a JSON object")
	c.Flags().StringVar(&idempotency, "idempotency-key", "", "key that makes the request idempotent for 24 hours (default: a new one)")
	c.Flags().StringVar(&reason, "reason", "", "with a filter: reason, recorded with the runs")
	w.addFlags(c)
	m.addFlags(a, c, "Terminated runs, or those in --state,", "job", "app", "tag", "match", "state", "worker", "code", "origin", "since")
	c.RunE = a.does(func(ctx context.Context, names []string) error {
		if err := w.check(); err != nil {
			return err
		}
		if m.given() {
			for _, name := range []string{"args", "idempotency-key", "wait", "follow"} {
				if c.Flags().Changed(name) {
					return kernel.Invalid("--%s needs the ID of a run", name)
				}
			}
			return a.many(ctx, &m, "runs/retry", "rerun", "reran", reason, map[string]any{})
		}
		id, err := runID(names[0])
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

// waiting are the flags about waiting for a run.
type waiting struct {
	wait, follow bool
	most         string
	limit        time.Duration // 0 = as long as it takes
}

func (w *waiting) addFlags(c *cobra.Command) {
	c.Flags().BoolVar(&w.wait, "wait", false, "wait until the run is final; the exit code is that of the run")
	c.Flags().BoolVar(&w.follow, "follow", false, "wait, and print the run's log")
	w.addLimit(c)
}

func (w *waiting) addLimit(c *cobra.Command) {
	c.Flags().StringVar(&w.most, "wait-timeout", "", "max time to wait, such as 5m (default: no limit)")
}

func (w *waiting) wanted() bool { return w.wait || w.follow }

func (w *waiting) check() (err error) {
	if w.most == "" {
		return nil
	}
	if !w.wanted() {
		return kernel.Invalid("--wait-timeout needs --wait or --follow")
	}
	if w.limit, err = readSpan("--wait-timeout", w.most); err == nil && w.limit == 0 {
		err = kernel.Invalid("--wait-timeout is 0: omit it to wait without a limit")
	}
	return err
}
