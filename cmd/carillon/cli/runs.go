package cli

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

func (a *asker) runsCommand() *cobra.Command {
	c := group("runs", "Manage runs", lines("carillon runs list --state Terminated", "carillon runs follow demo.report"),
		a.runsList(), a.runsShow(), a.runsCancel(), a.runsAgain(), a.runsLog(), a.runsFollow(), a.runsWait(), a.runsTree(), a.runsGraph())
	c.Aliases = []string{"run"}
	return c
}

// states are the names of a run's states.
var states = func() []string {
	var names []string
	for _, s := range kernel.States() {
		names = append(names, s.String())
	}
	return names
}()

// stateOf returns a state's name in the API's case.
func stateOf(text string) (string, error) {
	for _, s := range states {
		if strings.EqualFold(s, text) {
			return s, nil
		}
	}
	if text == "" {
		return "", nil
	}
	return "", kernel.Invalid("invalid --state %.40q: want one of %s", text, strings.Join(states, ", "))
}

func (a *asker) runsList() *cobra.Command {
	var job, app, tag, match, state, worker, origin, code, parent, batch, since, cursor string
	var args []string
	var limit int
	var every watch
	c := &cobra.Command{Use: "list", Short: "List live runs, then finished ones, newest first", Args: none,
		Example: lines("carillon runs list", "carillon runs list --job demo.flaky --state terminated --since 24h", "carillon runs list -o name -n 1000", "carillon runs list --watch"),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			if limit < 1 {
				return kernel.Invalid("invalid -n %d: want at least 1", limit)
			}
			state, err := stateOf(state)
			if err != nil {
				return err
			}
			if batch != "" {
				if batch, err = a.someBatch(ctx, batch); err != nil {
					return err
				}
			}
			q := url.Values{}
			for name, text := range map[string]string{"job": job, "app": app, "tag": tag, "match": match, "state": state, "worker": worker, "origin": origin, "code": code, "parent": parent, "batch": batch, "cursor": cursor} {
				set(q, name, text)
			}
			for _, arg := range args {
				q.Add("arg", arg)
			}
			if since != "" {
				d, err := readSpan("--since", since)
				if err != nil {
					return err
				}
				q.Set("from", a.Now().Add(-d).UTC().Format("2006-01-02T15:04:05Z"))
			}
			return a.watched(ctx, every, func(ctx context.Context) (view, error) {
				mine := url.Values{}
				for name, texts := range q {
					mine[name] = texts
				}
				all, err := a.pages(ctx, "/runs", mine, "cursor", limit, 200)
				if err != nil {
					return view{}, err
				}
				runs, err := decoded[api.Run](all.Items)
				if err != nil {
					return view{}, err
				}
				v := view{text: func(p *page) { runTable(p, runs, all, every.on) }}
				v.raw, err = json.Marshal(all)
				for _, r := range runs {
					v.names = append(v.names, r.ID)
				}
				return v, err
			})
		})}
	f := c.Flags()
	f.StringVar(&job, "job", "", "only runs of this job")
	f.StringVar(&app, "app", "", "only runs of this app (worker group)")
	f.StringVar(&tag, "tag", "", "only runs whose job has this tag now")
	f.StringVar(&match, "match", "", "only runs whose job key matches, such as 'billing.*'")
	f.StringVar(&state, "state", "", "only runs in this state, such as Processing or Terminated")
	f.StringVar(&worker, "worker", "", "only runs on this worker")
	f.StringVar(&code, "code", "", "only runs whose last attempt failed with this code")
	f.StringArrayVar(&args, "arg", nil, "only runs with this argument, such as 'customer=c7'; its job declares it as searchable")
	f.StringVar(&origin, "origin", "", "only runs of this origin: cron, misfire, code, api, person, retry, parent or backfill")
	f.StringVar(&parent, "parent", "", "only children of this run")
	f.StringVar(&batch, "batch", "", "only runs of this batch, by its ID or name")
	f.StringVar(&since, "since", "", "only runs created within this time, such as 24h or 7d")
	f.StringVar(&cursor, "cursor", "", "continue an earlier list")
	f.IntVarP(&limit, "limit", "n", 20, "how many at most")
	complete(c, "job", a.completeKeys)
	complete(c, "state", choices(states...))
	complete(c, "worker", a.completeWorkers)
	complete(c, "origin", choices("cron", "misfire", "code", "person", "api", "retry", "parent", "backfill"))
	every.addFlag(c)
	return c
}

func runTable(p *page, runs []api.Run, all many, watching bool) {
	if len(runs) == 0 {
		p.line("There are no such runs.")
	} else {
		var rows [][]string
		for i := range runs {
			r := &runs[i]
			rows = append(rows, []string{r.ID, string(r.Job), p.state(r.State), attempts(r), or(p.ago(whenOf(r)), "-"), lasted(p, r), r.Origin, or(runRemark(r), "-")})
		}
		p.table([]string{"RUN", "JOB", "STATE", "ATTEMPTS", "WHEN", "TOOK", "ORIGIN", "REMARK"}, rows)
	}
	if watching {
		return
	}
	if all.Searched != nil {
		p.line("%s", p.paint(faint, "searched back to "+p.moment(all.Searched)+"; continue with --cursor "+all.next()))
	} else if all.next() != "" {
		p.line("%s", p.paint(faint, "there are more: use a larger -n, or --cursor "+all.next()))
	}
}

// attempts formats the number of attempts and its maximum.
func attempts(r *api.Run) string {
	if r.Retries == 0 {
		return strconv.Itoa(int(r.Attempt))
	}
	return strconv.Itoa(int(r.Attempt)) + "/" + strconv.Itoa(r.Retries+1)
}

// whenOf returns the time that matters most in a run's state.
func whenOf(r *api.Run) *time.Time {
	switch {
	case r.Ended != nil:
		return r.Ended
	case r.RetryAt != nil:
		return r.RetryAt
	case r.Started != nil && r.State == jobs.Processing.String():
		return r.Started
	case r.Due != nil:
		return r.Due
	}
	return r.Created
}

// lasted returns how long a run has taken so far.
func lasted(p *page, r *api.Run) string {
	if r.Started == nil {
		return "-"
	}
	begun, end := *r.Started, p.now
	for _, m := range r.Moves { // from its first attempt, if that is known
		if m.State == jobs.Processing.String() {
			begun = m.At
			break
		}
	}
	if r.Ended != nil {
		end = *r.Ended
	}
	return span(end.Sub(begun))
}

// runRemark returns the remark of a run in a list.
func runRemark(r *api.Run) string {
	switch {
	case r.Stuck:
		return "stuck: cancelled, but the handler has not returned"
	case r.Unconfirmed:
		return "sent to " + clean(r.Worker) + ", not confirmed"
	case r.Progress != nil:
		return progressText(r.Progress)
	case r.Error != "":
		return short(r.Error)
	case r.Waits != "":
		return "waits for " + waitsFor(r)
	case r.State != jobs.Succeeded.String():
		return r.Cause
	}
	return ""
}

// waitsFor names the full limit that a run waits for: the API has an ID for the limit of a job.
func waitsFor(r *api.Run) string {
	if r.Waits == "" {
		return ""
	}
	return "a slot of " + short(kernel.GateText(r.Waits))
}

func progressText(p *api.Progress) string {
	text := strconv.FormatInt(p.Done, 10)
	if p.Total > 0 {
		text += "/" + strconv.FormatInt(p.Total, 10)
	}
	if p.Text != "" {
		text += " " + short(p.Text)
	}
	return text
}

// runID checks the form of a run's ID, before a request.
func runID(text string) (string, error) {
	id, err := jobs.ParseID(text)
	if err != nil {
		return "", kernel.Invalid("invalid run ID %.60q: see carillon runs list -o name", text)
	}
	return id.String(), nil
}

// someRun returns the ID of a run, given its ID or the key of a job, whose latest run is meant.
func (a *asker) someRun(ctx context.Context, name string) (string, error) {
	if id, err := jobs.ParseID(name); err == nil {
		return id.String(), nil
	}
	key := jobs.Key(name)
	if err := key.Check(); err != nil {
		return "", kernel.Invalid("%.60q is neither the ID of a run nor the key of a job", name)
	}
	got, err := a.link.get(ctx, "/runs", url.Values{"job": {name}, "limit": {"1"}})
	if err != nil {
		return "", err
	}
	var all struct{ Items []api.Run }
	if err := got.into(&all); err != nil {
		return "", err
	}
	if len(all.Items) == 0 {
		if _, _, err := a.job(ctx, name); err != nil { // the error suggests a key
			return "", err
		}
		return "", kernel.Refuse(jobs.NotFound, "%s has no runs", name)
	}
	return all.Items[0].ID, nil
}

const someRunHelp = "The key of a job instead of an ID selects its newest live run, or else the run that finished last."

func (a *asker) run(ctx context.Context, id string) (r api.Run, got answer, err error) {
	if got, err = a.link.get(ctx, "/runs/"+id, nil); err != nil {
		return r, got, err
	}
	return r, got, got.into(&r)
}

func (a *asker) runsShow() *cobra.Command {
	var every watch
	c := &cobra.Command{Use: "show <run>", Short: "Show a run with its history", Args: one("the ID of a run, or the key of a job"),
		Long:              "Show a run with its history. " + someRunHelp,
		Example:           lines("carillon runs show demo.report", "carillon runs show 0193a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b -o json"),
		ValidArgsFunction: a.completeRuns(false),
		RunE: a.does(func(ctx context.Context, args []string) error {
			id, err := a.someRun(ctx, args[0])
			if err != nil {
				return err
			}
			return a.watched(ctx, every, func(ctx context.Context) (view, error) {
				r, got, err := a.run(ctx, id)
				return runView(&r, got.raw, func(p *page) { runPage(p, &r) }), err
			})
		})}
	every.addFlag(c)
	return c
}

func runView(r *api.Run, raw []byte, text func(*page)) view {
	return view{raw: raw, names: []string{r.ID}, text: text}
}

func runPage(p *page, r *api.Run) {
	state := p.state(r.State)
	if r.Cause != "" {
		state += " (" + r.Cause + ")"
	}
	args := ""
	if r.Args != nil {
		args = compact(*r.Args)
	}
	progress := ""
	if r.Progress != nil {
		progress = progressText(r.Progress)
	}
	if r.Unconfirmed {
		state += ", sent to " + clean(r.Worker) + ", not confirmed"
	}
	p.facts("run", r.ID, "job", string(r.Job), "state", state, "stuck", p.paint(red, yes(r.Stuck, "cancelled, but the handler has not returned")),
		"lingering", p.paint(yellow, yes(r.Lingering && !r.Stuck, "final, but the handler has not returned yet")), "origin", strings.TrimSpace(r.Origin+" "+clean(r.Actor)),
		"parent", r.Parent, "batch", r.Batch, "unique", clean(r.Unique), "priority", strconv.Itoa(r.Priority), "attempts", attempts(r), "worker", clean(r.Worker), "waits for", waitsFor(r),
		"due", p.moment(r.Due), "created", p.moment(r.Created), "started", p.moment(r.Started), "ended", p.moment(r.Ended), "retry at", p.moment(r.RetryAt),
		"times out", p.moment(r.Deadline), "took", yes(r.Started != nil, lasted(p, r)), "progress", progress, "args", args, "result", compact(r.Result), "error", p.paint(red, clean(r.Error)))
	if len(r.Moves) == 0 {
		return
	}
	p.line("")
	movesTable(p, r.Moves)
}

func movesTable(p *page, moves []api.Move) {
	var rows [][]string
	for _, m := range moves {
		rows = append(rows, []string{m.At.Local().Format("15:04:05.000"), p.state(m.State), or(m.Cause, "-"), strconv.Itoa(int(m.Attempt)), or(clean(m.By), "-"), or(clean(m.Text), "-")})
	}
	p.table([]string{"AT", "STATE", "CAUSE", "ATTEMPT", "BY", "TEXT"}, rows)
}

func (a *asker) runsCancel() *cobra.Command {
	var reason string
	var m manyFlags
	c := &cobra.Command{Use: "cancel <run>...", Short: "Cancel runs", Args: counted("the ID of a run", 1, 1000),
		Long:    "Cancel runs. A run on a worker becomes Cancelled at once, and the context of its handler ends. If one run cannot be cancelled, the others still are.",
		Example: lines("carillon runs cancel 0193a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b --reason 'wrong customer'", "carillon runs cancel --job demo.relay --state scheduled --dry-run", "carillon runs cancel --app billing --yes"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			if m.given() {
				return a.many(ctx, &m, "runs/cancel", "cancel", "cancelled", reason, map[string]any{})
			}
			for _, id := range args {
				if _, err := runID(id); err != nil {
					return err
				}
			}
			var errs []error
			for _, id := range args {
				body := map[string]string{}
				if reason != "" {
					body["reason"] = reason
				}
				got, err := a.link.do(ctx, request{method: "POST", path: "/runs/" + id + "/cancel", body: body})
				if err == nil {
					var r api.Run
					if err = got.into(&r); err == nil {
						err = a.show(runView(&r, got.raw, func(p *page) {
							p.line("run %s of %s: %s%s", r.ID, r.Job, p.state(r.State), yes(r.Lingering, ", its handler is being stopped"))
						}))
					}
				}
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		}), ValidArgsFunction: a.completeRuns(false)}
	c.Flags().StringVar(&reason, "reason", "", "reason, recorded with the runs")
	m.addFlags(a, c, "live runs", "job", "app", "tag", "match", "state", "worker", "code", "origin", "since")
	return c
}
