package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

func (a *asker) jobsCommand() *cobra.Command {
	c := group("jobs", "Manage jobs", lines("carillon jobs list", "carillon jobs trigger demo.greet --args '{\"name\":\"Ann\"}' --wait"),
		a.jobsList(), a.jobsShow(), a.jobsNext(), a.jobsStats(), a.triggerCommand(), a.jobsPause(), a.jobsResume(), a.jobsBackfill(), a.editCommand(), a.jobsCreate(), a.jobsDelete(),
		a.jobsMissed(), a.jobsCheckIn(), a.jobsOccasions(), a.jobsGraph(), a.jobsVersions(), a.jobsDiff(), a.jobsRollback())
	c.Aliases = []string{"job"}
	return c
}

// many is a list response; its items are the API's bytes.
type many struct {
	Items    []json.RawMessage `json:"items"`
	Next     json.RawMessage   `json:"next,omitempty"` // a text or a number; missing at the end
	Searched *time.Time        `json:"searched,omitempty"`
}

// next returns the cursor of the next page, or "".
func (m *many) next() string { return or(textOf(m.Next), string(m.Next)) }

// pages reads a list to its end, or up to limit items (0 = all). after is the name of the cursor parameter.
func (a *asker) pages(ctx context.Context, path string, q url.Values, after string, limit, size int) (all many, err error) {
	all.Items = []json.RawMessage{}
	for {
		n := size
		if limit > 0 {
			n = min(size, limit-len(all.Items))
		}
		q.Set("limit", strconv.Itoa(n))
		got, err := a.link.get(ctx, path, q)
		if err != nil {
			return all, err
		}
		var one many
		if err := got.into(&one); err != nil {
			return all, err
		}
		all.Items = append(all.Items, one.Items...)
		all.Next, all.Searched = one.Next, one.Searched
		if one.next() == "" || limit > 0 && len(all.Items) >= limit {
			return all, nil
		}
		q.Set(after, one.next())
	}
}

// decoded decodes the items of a list.
func decoded[T any](items []json.RawMessage) ([]T, error) {
	out := make([]T, len(items))
	for i, raw := range items {
		if err := decode(raw, &out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (a *asker) jobsList() *cobra.Command {
	var app, tag, bundle, match, text, kind, state string
	var paused bool
	var every watch
	var c *cobra.Command
	c = &cobra.Command{Use: "list", Short: "List jobs by key", Args: none,
		Example: lines("carillon jobs list", "carillon jobs list --app billing --search charge", "carillon jobs list --state stopped", "carillon jobs list -o name", "carillon jobs list --watch"),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			return a.watched(ctx, every, func(ctx context.Context) (view, error) {
				q := url.Values{}
				for name, text := range map[string]string{"app": app, "tag": tag, "bundle": bundle, "match": match, "state": state} {
					set(q, name, text)
				}
				set(q, "q", text)
				set(q, "kind", kind)
				if c.Flags().Changed("paused") {
					q.Set("paused", strconv.FormatBool(paused))
				}
				all, err := a.pages(ctx, "/jobs", q, "after", 0, 1000)
				if err != nil {
					return view{}, err
				}
				list, err := decoded[api.Job](all.Items)
				if err != nil {
					return view{}, err
				}
				v := view{text: func(p *page) { jobTable(p, list) }}
				v.raw, err = json.Marshal(all)
				for _, j := range list {
					v.names = append(v.names, string(j.Key))
				}
				return v, err
			})
		})}
	c.Flags().StringVar(&app, "app", "", "only jobs of this app (worker group)")
	c.Flags().StringVar(&tag, "tag", "", "only jobs with this tag")
	c.Flags().StringVar(&bundle, "bundle", "", "only jobs of this bundle (see carillon apply)")
	c.Flags().StringVar(&match, "match", "", "only jobs whose key matches, such as 'billing.*'")
	c.Flags().StringVar(&text, "search", "", "part of the key, the name, the description or a tag")
	c.Flags().StringVar(&kind, "kind", "", "only recurring or only triggered jobs")
	c.Flags().BoolVar(&paused, "paused", false, "only paused jobs; --paused=false: only the others")
	c.Flags().StringVar(&state, "state", "", "only jobs in this state: "+strings.Join(jobStates, ", "))
	complete(c, "kind", choices("recurring", "triggered"))
	complete(c, "state", choices(jobStates...))
	every.addFlag(c)
	return c
}

// jobStates are the names of a job's states.
var jobStates = func() (names []string) {
	for _, c := range ops.Conditions() {
		names = append(names, string(c))
	}
	return names
}()

func set(q url.Values, name, text string) {
	if text != "" {
		q.Set(name, text)
	}
}

func jobTable(p *page, list []api.Job) {
	if len(list) == 0 {
		p.line("There are no jobs. Workers register theirs: start a worker, or \"carillon dev\" for demo jobs.")
		return
	}
	var rows [][]string
	for i := range list {
		j := &list[i]
		when := ""
		if value(j.Schedule) != "" {
			when = value(j.Schedule)
			if zone := value(j.Zone); zone != "" && zone != "UTC" {
				when += " " + zone
			}
		}
		next := ""
		if len(j.Next) > 0 && (j.Silent == "" || j.Paused != nil && j.Paused.Until != nil) {
			next = p.ago(&j.Next[0])
		}
		rows = append(rows, []string{string(j.Key), j.Kind, j.App, p.state(j.State), or(clean(when), "-"), or(next, "-"), short(value(j.Description))})
	}
	p.table([]string{"KEY", "KIND", "APP", "STATE", "SCHEDULE", "NEXT", "DESCRIPTION"}, rows)
}

// job reads a job. A "not found" error suggests the nearest key.
func (a *asker) job(ctx context.Context, key string) (j api.Job, got answer, err error) {
	if got, err = a.link.get(ctx, jobPath(key), nil); err != nil {
		return j, got, a.meant(ctx, key, err)
	}
	return j, got, got.into(&j)
}

func jobPath(key string) string { return "/jobs/" + url.PathEscape(key) }

// meant adds the nearest key to a "not found" error.
func (a *asker) meant(ctx context.Context, key string, err error) error {
	if !errors.Is(err, jobs.NotFound) {
		return err
	}
	all, listErr := a.pages(ctx, "/jobs", url.Values{}, "after", 0, 1000)
	if listErr != nil {
		return err
	}
	list, listErr := decoded[struct{ Key string }](all.Items)
	if listErr != nil || len(list) == 0 {
		return err
	}
	known, parts := map[string]string{}, []string{}
	for _, j := range list {
		known[j.Key] = ""
		if strings.Contains(strings.ToLower(j.Key), strings.ToLower(key)) {
			parts = append(parts, j.Key)
		}
	}
	if best, far := plain.Closest(key, known); far <= max(plain.Slip, len(key)/5) && far < len(key) {
		parts = append([]string{best}, parts...)
	}
	if len(parts) == 0 {
		return kernel.Refuse(jobs.NotFound, "there is no job %q; see carillon jobs list", key)
	}
	return kernel.Refuse(jobs.NotFound, "there is no job %q; did you mean %s?", key, parts[0])
}

// jobView shows a job with the API's JSON.
func jobView(j api.Job, raw []byte, text func(*page)) view {
	return view{raw: raw, names: []string{string(j.Key)}, text: text}
}

func (a *asker) jobsShow() *cobra.Command {
	var every watch
	c := &cobra.Command{Use: "show <key>", Short: "Show a job's effective settings and next run", Args: one("the key of a job"),
		Long: "Show a job's effective settings and next run, with where each setting comes from: edited by a user, the code, the\n" +
			"defaults of the app, of all jobs, or of the configuration file. Unmarked settings have the built-in value.",
		Example: lines("carillon jobs show demo.report", "carillon jobs show demo.report -o yaml"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			return a.watched(ctx, every, func(ctx context.Context) (view, error) {
				j, got, err := a.job(ctx, args[0])
				return jobView(j, got.raw, func(p *page) { jobPage(p, &j) }), err
			})
		}), ValidArgsFunction: a.completeKeys}
	every.addFlag(c)
	return c
}

func jobPage(p *page, j *api.Job) {
	state := p.state(or(strings.Join(j.States, ", "), j.State))
	if j.Silent != "" && j.Paused == nil {
		state += ": does not fire (" + j.Silent + ")"
	}
	if j.Paused != nil {
		state = p.state("paused") + pauseText(p, j.Paused)
	}
	p.facts("key", string(j.Key), "kind", j.Kind, "app", j.App, "bundle", j.Bundle, "state", state, "schedule means", clean(j.Words), "trouble", p.paint(red, clean(j.Trouble)),
		"warnings", p.paint(yellow, clean(strings.Join(j.Warnings, "; "))), "code version", strconv.Itoa(j.Version), "revision", strconv.FormatUint(j.Revision, 10),
		"created", p.moment(&j.Created), "changed", p.moment(&j.Changed))
	p.line("")
	rows, policy := [][]string{}, policyOf(j.Policy)
	for _, f := range fields {
		if text := policy[f.name]; text != "" {
			rows = append(rows, []string{p.paint(faint, f.name), text, p.paint(faint, ownerText(j.Owners[f.name]))})
		}
	}
	p.columns(rows, "")
	nextLines(p, j, j.Next)
}

// ownerText names where a setting comes from; "" if it is built in.
func ownerText(kind string) string {
	switch kind {
	case ops.OwnerEdit:
		return "edited"
	case ops.OwnerApp:
		return "default of the app"
	case ops.OwnerTenant:
		return "default of all jobs"
	case ops.OwnerFile:
		return "configuration file"
	}
	return kind
}

// nextLines lists due times in the job's time zone.
func nextLines(p *page, j *api.Job, next []time.Time) {
	if len(next) == 0 {
		return
	}
	p.line("")
	for i := range next {
		p.line("next  %s   %s", in(next[i], j), p.paint(faint, p.ago(&next[i])))
	}
}

func pauseText(p *page, x *api.Pause) string {
	text := " by " + clean(x.By) + ", " + p.ago(&x.At)
	if x.Reason != "" {
		text += ": " + clean(x.Reason)
	}
	if x.Until != nil {
		return text + "; until " + p.moment(x.Until)
	}
	return text + "; until it is resumed"
}

// policyOf returns a job's effective settings as texts by field, without unset ones.
func policyOf(p api.Policy) map[string]string {
	raw, err := json.Marshal(p)
	must(err) // texts and numbers can always be written
	var parts map[string]json.RawMessage
	must(json.Unmarshal(raw, &parts))
	texts := map[string]string{}
	for name, part := range parts {
		texts[name] = fieldText(name, part)
	}
	return texts
}

// fieldText formats a field's JSON as its flag takes it.
func fieldText(name string, raw json.RawMessage) string {
	var text string
	var list []string
	var limits []api.Limit
	var rules []api.RetryRule
	switch {
	case json.Unmarshal(raw, &text) == nil:
		return clean(text)
	case json.Unmarshal(raw, &list) == nil:
		return clean(strings.Join(list, ","))
	case name == "limits" && json.Unmarshal(raw, &limits) == nil:
		return clean(kernel.LimitsText(api.Limits(limits)))
	case name == "retryRules" && json.Unmarshal(raw, &rules) == nil:
		return clean(kernel.RulesText(api.Rules(rules)))
	}
	return compact(raw)
}

// pointed marks the position of an error in a schedule, if it is ASCII, so that columns match.
func pointed(err error, expr string) error {
	r, ok := errors.AsType[*refused](err)
	if !ok {
		return err
	}
	ascii := expr != "" && len(expr) <= 100 && !strings.ContainsFunc(expr, func(r rune) bool { return r < ' ' || r > '~' })
	for _, f := range r.Errors {
		if ascii && strings.HasSuffix(f.Location, ".schedule") && f.Offset != nil && *f.Offset <= len(expr) {
			return kernel.Refuse(r.code, "%s\n  %s\n  %s^", r.text, expr, strings.Repeat(" ", *f.Offset))
		}
	}
	return err
}

func (a *asker) jobsPause() *cobra.Command {
	var reason, until string
	var m manyFlags
	c := &cobra.Command{Use: "pause <key>", Short: "Pause a job", Args: one("the key of a job"),
		Long:    "Pause a job until it is resumed, or until a time: its due times get no run, and runs that programs request wait. Runs that\nusers request start.\n\nA time is " + momentHelp + ".",
		Example: lines("carillon jobs pause demo.chime --reason 'too loud'", "carillon jobs pause demo.chime --until 'monday 09:00'", "carillon jobs pause demo.chime --until 2h", "carillon jobs pause --app billing --dry-run"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			body := map[string]any{}
			if reason != "" {
				body["reason"] = reason
			}
			if until != "" {
				t, err := a.futureMoment("--until", until)
				if err != nil {
					return err
				}
				body["until"] = t
			}
			if m.given() {
				delete(body, "reason")
				return a.many(ctx, &m, "jobs/pause", "pause", "paused", reason, body)
			}
			return a.change(ctx, args[0], "pause", body, func(p *page, j *api.ResumedJob) {
				if j.Paused != nil && j.Paused.Until != nil {
					p.line("%s is paused until %s", j.Key, p.moment(j.Paused.Until))
				} else {
					p.line("%s is paused; resume with carillon jobs resume %s", j.Key, j.Key)
				}
			})
		}), ValidArgsFunction: a.completeKeys}
	c.Flags().StringVar(&reason, "reason", "", "reason, shown with the job")
	c.Flags().StringVar(&until, "until", "", "end of the pause, such as 2h, tomorrow or monday")
	complete(c, "until", choices("30m", "2h", "tomorrow", "monday"))
	m.addFlags(a, c, "jobs", "app", "tag", "match", "kind")
	return c
}

func (a *asker) jobsResume() *cobra.Command {
	var held, missed string
	var parallel int
	var m manyFlags
	c := &cobra.Command{Use: "resume <key>", Short: "Resume a paused job", Args: one("the key of a job"),
		Long:    "Resume a paused job. Due times of a recurring job that passed during the pause get no run, unless --missed is given.",
		Example: lines("carillon jobs resume demo.chime", "carillon jobs resume demo.chime --missed once", "carillon jobs resume demo.greet --held discard", "carillon jobs resume --tag billing --yes"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			body := map[string]any{}
			for name, choice := range map[string]string{"held": held, "missed": missed} {
				if choice != "" {
					body[name] = choice
				}
			}
			if parallel > 0 {
				body["parallel"] = parallel
			}
			if m.given() {
				return a.many(ctx, &m, "jobs/resume", "resume", "resumed", "", body)
			}
			return a.change(ctx, args[0], "resume", body, func(p *page, j *api.ResumedJob) {
				p.line("%s is %s", j.Key, p.state(j.State))
				if j.Released > 0 || j.Discarded > 0 {
					p.line("waiting runs: %d released, %d discarded", j.Released, j.Discarded)
				}
				if j.Backfill != nil {
					backfillLines(p, j.Backfill)
				}
				nextLines(p, &j.Job, j.Next)
			})
		}), ValidArgsFunction: a.completeKeys}
	c.Flags().StringVar(&missed, "missed", "", "past due times of a recurring job: skip (the default), once (run the newest) or replay (run each)")
	c.Flags().IntVar(&parallel, "parallel", 0, "max parallel runs of --missed (default 1)")
	complete(c, "missed", choices("skip", "once", "replay"))
	c.Flags().StringVar(&held, "held", "", "requested runs that wait: release (the default) or discard")
	complete(c, "held", choices("release", "discard"))
	m.addFlags(a, c, "jobs", "app", "tag", "match", "kind")
	return c
}

// change posts a verb of a job and shows the result.
func (a *asker) change(ctx context.Context, key, verb string, body any, text func(*page, *api.ResumedJob)) error {
	got, err := a.link.do(ctx, request{method: "POST", path: jobPath(key) + "/" + verb, body: body})
	if err != nil {
		return a.meant(ctx, key, err)
	}
	var j api.ResumedJob
	if err := got.into(&j); err != nil {
		return err
	}
	return a.show(jobView(j.Job, got.raw, func(p *page) { text(p, &j) }))
}

func (a *asker) jobsDelete() *cobra.Command {
	var fate, reason string
	var sure, family bool
	var m manyFlags
	c := &cobra.Command{Use: "delete <key>", Short: "Delete a job", Args: one("the key of a job"),
		Long: "Delete a job. Its finished runs stay in the history; --runs decides about live ones: cancel them, or let them finish.\n" +
			"A worker that still has the job in its code registers it again when it starts.",
		Example: lines("carillon jobs delete billing.old", "carillon jobs delete billing.old --runs finish --yes", "carillon jobs delete --match 'old.*' --runs cancel"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			if m.given() {
				if family {
					return kernel.Invalid("--family needs the key of a job")
				}
				m.sure = sure
				body := map[string]any{}
				if fate != "" {
					body["runs"] = fate
				}
				return a.many(ctx, &m, "jobs/delete", "delete", "deleted", reason, body)
			}
			j, got, err := a.job(ctx, args[0])
			if err != nil {
				return err
			}
			if !sure {
				if err := a.confirm(fmt.Sprintf("Delete %s%s?", j.Key, yes(family, " and all its descendants"))); err != nil {
					return err
				}
			}
			q := url.Values{}
			set(q, "runs", fate)
			if family {
				q.Set("family", "true")
			}
			r := request{method: "DELETE", path: jobPath(args[0]), match: got.etag, query: q, reason: reason}
			got, err = a.link.do(ctx, r)
			if fate == "" && errors.Is(err, jobs.Conflict) {
				if !a.Terminal(a.in) || sure {
					return kernel.Refuse(jobs.Conflict, "%v (--runs cancel, or --runs finish)", err)
				}
				fate, askErr := a.ask(fmt.Sprintf("%v.\nLive runs: cancel or finish?", err))
				if askErr != nil {
					return askErr
				}
				q.Set("runs", fate)
				got, err = a.link.do(ctx, r)
			}
			if err != nil {
				return err
			}
			var done api.DeletedJob
			if err := got.into(&done); err != nil {
				return err
			}
			return a.show(view{raw: got.raw, names: args, text: func(p *page) {
				gone := string(j.Key) + " is deleted"
				if len(done.Jobs) > 1 {
					gone = fmt.Sprintf("%d jobs are deleted: %v", len(done.Jobs), done.Jobs)
				}
				p.line("%s%s", gone, yes(done.Cancelled > 0, fmt.Sprintf("; %d runs cancelled", done.Cancelled)))
			}})
		}), ValidArgsFunction: a.completeKeys}
	c.Flags().BoolVar(&family, "family", false, "also all descendants (jobs whose parent it is, and theirs)")
	c.Flags().StringVar(&fate, "runs", "", "live runs: cancel or finish")
	c.Flags().StringVar(&reason, "reason", "", "reason, recorded in the audit log")
	c.Flags().BoolVar(&sure, "yes", false, "do not ask for confirmation")
	complete(c, "runs", choices("cancel", "finish"))
	m.addFlags(a, c, "jobs", "app", "tag", "match", "kind")
	return c
}

// ask asks a question on the terminal.
func (a *asker) ask(question string) (string, error) {
	fmt.Fprintf(a.errs, "%s ", question)
	if a.answers == nil {
		a.answers = bufio.NewReader(a.in)
	}
	line, err := a.answers.ReadString('\n')
	if err != nil && line == "" {
		return "", kernel.Invalid("no answer, so nothing was done; in scripts use --yes")
	}
	return strings.ToLower(strings.TrimSpace(line)), nil
}

// confirm asks for a yes on the terminal; without a terminal it fails.
func (a *asker) confirm(question string) error {
	if !a.Terminal(a.in) {
		return kernel.Invalid("%s no terminal to ask on, so nothing was done: use --yes", question)
	}
	reply, err := a.ask(question + " [y/N]")
	if err == nil && reply != "y" && reply != "yes" {
		err = &Exit{Code: Failed, Text: "nothing was done"}
	}
	return err
}
