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
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
)

func (a *asker) jobsCommand() *cobra.Command {
	c := group("jobs", "Look at jobs, start, pause and edit them", lines("carillon jobs list", "carillon jobs trigger demo.greet --args '{\"name\":\"Ann\"}' --wait"),
		a.jobsList(), a.jobsShow(), a.jobsNext(), a.triggerCommand(), a.jobsPause(), a.jobsResume(), a.jobsBackfill(), a.editCommand(), a.jobsCreate(), a.jobsDelete(),
		a.jobsVersions(), a.jobsDiff(), a.jobsRollback())
	c.Aliases = []string{"job"}
	return c
}

// many is a list as the API has it, its items to the byte.
type many struct {
	Items    []json.RawMessage `json:"items"`
	Next     json.RawMessage   `json:"next,omitempty"` // a text or a number; missing at the end
	Searched *time.Time        `json:"searched,omitempty"`
}

// next is what to pass on to read further, or "".
func (m *many) next() string { return or(textOf(m.Next), string(m.Next)) }

// pages reads a list to its end, or until it has so many items; 0 = all. after is the parameter that goes on.
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

// decoded are the items of a list as what they are.
func decoded[T any](items []json.RawMessage) ([]T, error) {
	out := make([]T, len(items))
	for i, raw := range items {
		if err := json.Unmarshal(raw, &out[i]); err != nil {
			return nil, fmt.Errorf("the server's answer is not understood: %w", err)
		}
	}
	return out, nil
}

func (a *asker) jobsList() *cobra.Command {
	var app, text, kind string
	var paused bool
	var every watch
	var c *cobra.Command
	c = &cobra.Command{Use: "list", Short: "List jobs by key", Args: none,
		Example: lines("carillon jobs list", "carillon jobs list --app billing --search charge", "carillon jobs list -o name", "carillon jobs list --watch"),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			return a.watched(ctx, every, func(ctx context.Context) (view, error) {
				q := url.Values{}
				set(q, "app", app)
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
	c.Flags().StringVar(&app, "app", "", "only of this worker group")
	c.Flags().StringVar(&text, "search", "", "part of the key, the name, the description or a tag")
	c.Flags().StringVar(&kind, "kind", "", "only recurring, or only triggered ones")
	c.Flags().BoolVar(&paused, "paused", false, "only those that are paused; --paused=false: only the others")
	complete(c, "kind", words("recurring", "triggered"))
	every.addFlag(c)
	return c
}

func set(q url.Values, name, text string) {
	if text != "" {
		q.Set(name, text)
	}
}

// standing is how a job stands, in a word.
func standing(j *api.Job) string {
	switch {
	case j.Trouble != "":
		return "trouble"
	case value(j.Disabled):
		return "disabled"
	case j.Paused != nil:
		return "paused"
	case j.Stopped != nil:
		return "stopped"
	case j.Silent != "":
		return "silent"
	}
	return "active"
}

func jobTable(p *page, list []api.Job) {
	if len(list) == 0 {
		p.line("There are no jobs. Workers bring theirs: start one, or \"carillon dev\" for some to look at.")
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
		rows = append(rows, []string{string(j.Key), j.Kind, j.App, p.state(standing(j)), or(clean(when), "-"), or(next, "-"), short(value(j.Description))})
	}
	p.table([]string{"KEY", "KIND", "APP", "STATE", "SCHEDULE", "NEXT", "DESCRIPTION"}, rows)
}

// job reads a job. One that is not there is looked for among the others.
func (a *asker) job(ctx context.Context, key string) (j api.Job, got answer, err error) {
	if got, err = a.link.get(ctx, jobPath(key), nil); err != nil {
		return j, got, a.meant(ctx, key, err)
	}
	return j, got, got.into(&j)
}

func jobPath(key string) string { return "/jobs/" + url.PathEscape(key) }

// meant adds to "not found" the key that may have been meant.
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
	if best, far := Closest(key, known); far <= max(slip, len(key)/5) && far < len(key) {
		parts = append([]string{best}, parts...)
	}
	if len(parts) == 0 {
		return kernel.Refuse(jobs.NotFound, "there is no job %q; carillon jobs list shows those that workers have brought", key)
	}
	return kernel.Refuse(jobs.NotFound, "there is no job %q; did you mean %s?", key, parts[0])
}

// jobView shows a job as it has been answered.
func jobView(j api.Job, raw []byte, text func(*page)) view {
	return view{raw: raw, names: []string{string(j.Key)}, text: text}
}

func (a *asker) jobsShow() *cobra.Command {
	var every watch
	c := &cobra.Command{Use: "show <key>", Short: "Show what holds for a job, and when it comes next", Args: one("the key of a job"),
		Long:    "Show what holds for a job, and when it comes next. A * marks what people have set; the rest follows the code.",
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
	state := p.state(standing(j))
	if j.Silent != "" && j.Paused == nil {
		state += ": would not fire now (" + j.Silent + ")"
	}
	if j.Paused != nil {
		state = p.state("paused") + pauseText(p, j.Paused)
	}
	p.facts("key", string(j.Key), "kind", j.Kind, "app", j.App, "state", state, "schedule in words", clean(j.Words), "trouble", p.paint(red, clean(j.Trouble)),
		"warnings", p.paint(yellow, clean(strings.Join(j.Warnings, "; "))), "code version", strconv.Itoa(j.Version), "revision", strconv.FormatUint(j.Revision, 10),
		"created", p.moment(&j.Created), "changed", p.moment(&j.Changed))
	p.line("")
	rows, policy := [][]string{}, policyOf(j.Policy)
	for _, f := range fields {
		if text := policy[f.name]; text != "" {
			mark := " "
			for _, name := range j.Edited {
				if name == f.name {
					mark = "*"
				}
			}
			rows = append(rows, []string{mark + " " + p.paint(faint, f.name), text})
		}
	}
	p.columns(rows, "")
	nextLines(p, j, j.Next)
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

// policyOf is what holds for a job, as text, by field; those that say nothing are left out.
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

// fieldText is a field's JSON as people write it.
func fieldText(name string, raw json.RawMessage) string {
	var text string
	var words []string
	var limits []api.Limit
	var rules []api.RetryRule
	switch {
	case json.Unmarshal(raw, &text) == nil:
		return clean(text)
	case (name == "tags" || name == "needs") && json.Unmarshal(raw, &words) == nil:
		return clean(strings.Join(words, ","))
	case name == "limits" && json.Unmarshal(raw, &limits) == nil:
		return clean(kernel.LimitsText(api.Limits(limits)))
	case name == "retryRules" && json.Unmarshal(raw, &rules) == nil:
		return clean(kernel.RulesText(api.Rules(rules)))
	}
	return compact(raw)
}

func (a *asker) jobsNext() *cobra.Command {
	var n int
	var expr, zone string
	c := &cobra.Command{Use: "next <key>", Short: "List the due times ahead", Args: one("the key of a job"),
		Long:    "List the due times ahead: of the job as it is, or as another schedule or time zone would make it. Without a server, \"carillon next\" tells them of any schedule.",
		Example: lines("carillon jobs next demo.report -n 3", "carillon jobs next demo.report --schedule '30 2 * * *' --zone Europe/Berlin"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			j, _, err := a.job(ctx, args[0])
			if err != nil {
				return err
			}
			next, got, err := a.ahead(ctx, &j, n, map[string]string{"schedule": expr, "zone": zone})
			if err != nil {
				return err
			}
			v := view{raw: got.raw, text: func(p *page) {
				if len(next.Next) == 0 {
					p.line("%s is not due at any time ahead%s", j.Key, yes(j.Kind == "triggered", ": it is triggered, it runs when asked"))
					return
				}
				p.line("%s", clean(next.Words))
				for _, w := range next.Warnings {
					p.line("%s", p.paint(yellow, "warning: "+clean(w)))
				}
				if next.Silent != "" {
					p.line("%s", p.paint(yellow, "as things stand, none of these would become a run: "+next.Silent))
				}
				nextLines(p, &j, next.Next)
			}}
			for _, t := range next.Next {
				v.names = append(v.names, t.Format(time.RFC3339))
			}
			return a.say(v)
		}), ValidArgsFunction: a.completeKeys}
	c.Flags().IntVarP(&n, "count", "n", 10, "how many, at most 100")
	c.Flags().StringVar(&expr, "schedule", "", "as if this were its schedule")
	c.Flags().StringVar(&zone, "zone", "", "as if this were its time zone")
	complete(c, "zone", completeZones)
	return c
}

// fires are due times ahead, as the API answers.
type fires struct {
	Words    string      `json:"words"`
	Next     []time.Time `json:"next"`
	Silent   string      `json:"silent"`
	Warnings []string    `json:"warnings"`
}

// ahead asks for the due times of a job, as other terms (fields and their values) would make it. j then has the
// schedule and the zone among them.
func (a *asker) ahead(ctx context.Context, j *api.Job, n int, terms map[string]string) (f fires, got answer, err error) {
	q := url.Values{"n": {strconv.Itoa(n)}}
	for name, text := range terms {
		set(q, name, text)
	}
	if got, err = a.link.get(ctx, jobPath(string(j.Key))+"/next", q); err != nil {
		return f, got, pointed(err, terms["schedule"], terms["zone"])
	}
	if expr := terms["schedule"]; expr != "" {
		j.Schedule = &expr
	}
	if zone := terms["zone"]; zone != "" {
		j.Zone = &zone
	}
	return f, got, got.into(&f)
}

// pointed shows the place of an error in a schedule, if that is plain enough to be counted in columns, and names the
// time zone that may have been meant.
func pointed(err error, expr, zone string) error {
	r, ok := errors.AsType[*refused](err)
	if !ok {
		return err
	}
	plain := expr != "" && len(expr) <= 100 && !strings.ContainsFunc(expr, func(r rune) bool { return r < ' ' || r > '~' })
	for _, f := range r.Errors {
		if strings.HasSuffix(f.Location, ".zone") && zone != "" {
			known := map[string]string{}
			for _, name := range schedule.Zones() {
				known[name] = ""
			}
			if meant, far := Closest(zone, known); far <= slip {
				return kernel.Refuse(r.code, "%s; did you mean %s?", r.says, meant)
			}
		}
		if plain && strings.HasSuffix(f.Location, ".schedule") && f.Offset != nil && *f.Offset <= len(expr) {
			return kernel.Refuse(r.code, "%s\n  %s\n  %s^", r.says, expr, strings.Repeat(" ", *f.Offset))
		}
	}
	return err
}

func (a *asker) jobsPause() *cobra.Command {
	var reason, until string
	c := &cobra.Command{Use: "pause <key>", Short: "Stop a job from firing by itself", Args: one("the key of a job"),
		Long:    "Stop a job from firing by itself, until it is resumed or until a time. It can still be triggered by hand.\n\nA time is " + momentHelp + ".",
		Example: lines("carillon jobs pause demo.chime --reason 'too loud'", "carillon jobs pause demo.chime --until 'monday 09:00'", "carillon jobs pause demo.chime --until 2h"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			body := map[string]any{}
			if reason != "" {
				body["reason"] = reason
			}
			if until != "" {
				t, err := readMoment("--until", until, a.Now())
				if err != nil {
					return err
				}
				body["until"] = t
			}
			return a.change(ctx, args[0], "pause", body, func(p *page, j *api.ResumedJob) {
				if j.Paused != nil && j.Paused.Until != nil {
					p.line("%s is paused until %s", j.Key, p.moment(j.Paused.Until))
				} else {
					p.line("%s is paused; carillon jobs resume %s ends it", j.Key, j.Key)
				}
			})
		}), ValidArgsFunction: a.completeKeys}
	c.Flags().StringVar(&reason, "reason", "", "why; shown with the job")
	c.Flags().StringVar(&until, "until", "", "when it ends by itself, such as 2h, tomorrow or monday")
	complete(c, "until", words("30m", "2h", "tomorrow", "monday"))
	return c
}

func (a *asker) jobsResume() *cobra.Command {
	var held, missed string
	var parallel int
	c := &cobra.Command{Use: "resume <key>", Short: "End a pause", Args: one("the key of a job"),
		Long:    "End a pause. Due times of a recurring job that passed meanwhile stay without a run, unless --missed says otherwise.",
		Example: lines("carillon jobs resume demo.chime", "carillon jobs resume demo.chime --missed once", "carillon jobs resume demo.greet --held discard"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			body := map[string]any{}
			for name, word := range map[string]string{"held": held, "missed": missed} {
				if word != "" {
					body[name] = word
				}
			}
			if parallel > 0 {
				body["parallel"] = parallel
			}
			return a.change(ctx, args[0], "resume", body, func(p *page, j *api.ResumedJob) {
				p.line("%s is %s", j.Key, p.state(standing(&j.Job)))
				if j.Released > 0 || j.Discarded > 0 {
					p.line("of the runs that waited, %d were released and %d discarded", j.Released, j.Discarded)
				}
				if j.Backfill != nil {
					backfillLines(p, j.Backfill)
				}
				nextLines(p, &j.Job, j.Next)
			})
		}), ValidArgsFunction: a.completeKeys}
	c.Flags().StringVar(&missed, "missed", "", "what becomes of a recurring job's due times that passed: skip (the default), once (the newest gets its run) or replay (each does)")
	c.Flags().IntVar(&parallel, "parallel", 0, "so many of those runs may be under way at once (default 1)")
	complete(c, "missed", words("skip", "once", "replay"))
	c.Flags().StringVar(&held, "held", "", "what becomes of a triggered job's runs that waited: release (the default) or discard")
	complete(c, "held", words("release", "discard"))
	return c
}

// change posts a verb of a job and shows what it became.
func (a *asker) change(ctx context.Context, key, verb string, body any, text func(*page, *api.ResumedJob)) error {
	got, err := a.link.do(ctx, request{method: "POST", path: jobPath(key) + "/" + verb, body: body})
	if err != nil {
		return a.meant(ctx, key, err)
	}
	var j api.ResumedJob
	if err := got.into(&j); err != nil {
		return err
	}
	return a.say(jobView(j.Job, got.raw, func(p *page) { text(p, &j) }))
}

func (a *asker) jobsDelete() *cobra.Command {
	var fate, reason string
	var sure, family bool
	c := &cobra.Command{Use: "delete <key>", Short: "Take a job away", Args: one("the key of a job"),
		Long: "Take a job away. Its runs that are over stay in the history; --runs says what becomes of those that are not: cancel, or\n" +
			"finish as they would have. A worker that still has the job in its code brings it back when it starts.",
		Example: lines("carillon jobs delete billing.old", "carillon jobs delete billing.old --runs finish --yes"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			j, got, err := a.job(ctx, args[0])
			if err != nil {
				return err
			}
			if !sure {
				if err := a.confirm(fmt.Sprintf("Take away %s%s?", j.Key, yes(family, " and all jobs that belong to it"))); err != nil {
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
				word, askErr := a.ask(fmt.Sprintf("%v.\nWhat becomes of them: cancel or finish?", err))
				if askErr != nil {
					return askErr
				}
				q.Set("runs", word)
				got, err = a.link.do(ctx, r)
			}
			if err != nil {
				return err
			}
			var done api.DeletedJob
			if err := got.into(&done); err != nil {
				return err
			}
			return a.say(view{raw: got.raw, names: args, text: func(p *page) {
				gone := string(j.Key) + " is gone"
				if len(done.Jobs) > 1 {
					gone = fmt.Sprintf("%d jobs are gone: %v", len(done.Jobs), done.Jobs)
				}
				p.line("%s%s", gone, yes(done.Cancelled > 0, fmt.Sprintf("; %d of its runs were cancelled", done.Cancelled)))
			}})
		}), ValidArgsFunction: a.completeKeys}
	c.Flags().BoolVar(&family, "family", false, "also all jobs that belong to it (parent), and to those")
	c.Flags().StringVar(&fate, "runs", "", "what becomes of runs that are not over: cancel or finish")
	c.Flags().StringVar(&reason, "reason", "", "why; kept in the audit")
	c.Flags().BoolVar(&sure, "yes", false, "do not ask")
	complete(c, "runs", words("cancel", "finish"))
	return c
}

// ask puts a question to whoever sits at the terminal.
func (a *asker) ask(question string) (string, error) {
	fmt.Fprintf(a.errs, "%s ", question)
	if a.answers == nil {
		a.answers = bufio.NewReader(a.in)
	}
	line, err := a.answers.ReadString('\n')
	if err != nil && line == "" {
		return "", kernel.Invalid("no answer, so nothing was done; where nobody can be asked, say --yes")
	}
	return strings.ToLower(strings.TrimSpace(line)), nil
}

// confirm wants a yes from a terminal; where there is none, it has to be said beforehand.
func (a *asker) confirm(question string) error {
	if !a.Terminal(a.in) {
		return kernel.Invalid("%s Nobody can be asked here, so nothing was done: say --yes", question)
	}
	word, err := a.ask(question + " [y/N]")
	if err == nil && word != "y" && word != "yes" {
		err = &Exit{Code: Failed, Text: "nothing was done"}
	}
	return err
}
