package cli

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// change of a job, as it was typed: what to set, by the names of JSON, and what follows the code again.
type edit struct {
	set   map[string]json.RawMessage
	clear []string
}

func (a *asker) editCommand() *cobra.Command {
	var pairs, clear []string
	var reason string
	var dry bool
	c := &cobra.Command{Use: "edit <key>", Short: "Change what holds for a job", Args: one("the key of a job"),
		Long: "Change what holds for a job. What is set here wins over the code, until it is cleared: then the field follows the code\n" +
			"again. There is a flag for each field; --set field=value says the same. An edit is made for the job as it was read just\n" +
			"before: if somebody else changes it at the same time, nothing is done and the exit code is 4.",
		Example: lines("carillon jobs edit demo.report --schedule '0 */10 * * * *' --zone Europe/Berlin --dry-run",
			"carillon jobs edit demo.flaky --retries 5 --retry-delay 10s --reason 'the line is bad today'",
			"carillon jobs edit demo.flaky --set priority=10 --set tags=line,night", "carillon jobs edit demo.flaky --clear retries --clear retryDelay"),
		ValidArgsFunction: a.completeKeys}
	typed := map[string]*string{}
	for _, f := range fields {
		typed[f.name] = c.Flags().String(f.flag, "", f.help)
		switch {
		case f.one != nil:
			complete(c, f.flag, words(f.one...))
		case f.name == "zone":
			complete(c, f.flag, completeZones)
		case f.name == "disabled":
			c.Flags().Lookup(f.flag).NoOptDefVal = "true"
		}
	}
	c.Flags().StringArrayVar(&pairs, "set", nil, "field=value; may be given more than once")
	c.Flags().StringArrayVar(&clear, "clear", nil, "a field that follows the code again; may be given more than once")
	c.Flags().StringVar(&reason, "reason", "", "why; kept with the change")
	c.Flags().BoolVar(&dry, "dry-run", false, "show what would change, and store nothing")
	complete(c, "clear", words(kernel.Fields()...))
	complete(c, "set", completeSet)
	c.RunE = a.does(func(ctx context.Context, args []string) error {
		for _, f := range fields {
			if c.Flags().Changed(f.flag) {
				pairs = append(pairs, f.name+"="+*typed[f.name])
			}
		}
		e, err := a.readEdit(pairs, clear)
		if err != nil {
			return err
		}
		if len(e.set) == 0 && len(e.clear) == 0 {
			return kernel.Invalid("nothing is to be changed: say what, as in %s %s --retries 3; see %s --help", c.CommandPath(), args[0], c.CommandPath())
		}
		before, got, err := a.job(ctx, args[0])
		if err != nil {
			return err
		}
		if dry {
			return a.preview(ctx, before, e)
		}
		return a.edit(ctx, before, got.etag, e, reason)
	})
	return c
}

// readEdit reads field=value pairs and names of fields. A field that is named twice is a slip.
func (a *asker) readEdit(pairs, clear []string) (edit, error) {
	e := edit{set: map[string]json.RawMessage{}}
	for _, pair := range pairs {
		name, text, ok := strings.Cut(pair, "=")
		if !ok {
			return e, kernel.Invalid("--set %.40q is not field=value, such as retries=3", pair)
		}
		f, err := fieldOf(name)
		if err != nil {
			return e, err
		}
		if _, twice := e.set[f.name]; twice {
			return e, kernel.Invalid("%s is set twice", f.name)
		}
		if e.set[f.name], err = f.read(text, a.Now()); err != nil {
			return e, err
		}
	}
	for _, names := range clear {
		for _, name := range list(names) {
			f, err := fieldOf(name)
			if err != nil {
				return e, err
			}
			if _, both := e.set[f.name]; both {
				return e, kernel.Invalid("%s is both set and cleared", f.name)
			}
			e.clear = append(e.clear, f.name)
		}
	}
	return e, nil
}

// body is the edit as the API takes it.
func (e edit) body() map[string]any {
	body := map[string]any{}
	for name, v := range e.set {
		body[name] = v
	}
	if len(e.clear) > 0 {
		body["clear"] = e.clear
	}
	return body
}

// edit sends an edit for the job as it was read, and shows what has changed.
func (a *asker) edit(ctx context.Context, before api.Job, etag string, e edit, reason string) error {
	got, err := a.link.do(ctx, request{method: "PATCH", path: jobPath(string(before.Key)), match: etag, reason: reason, body: e.body()})
	if errors.Is(err, jobs.Stale) {
		return kernel.Refuse(jobs.Stale, "somebody changed %s meanwhile (it was revision %d), so nothing was done: look, and do it again if it still makes sense", before.Key, before.Revision)
	}
	if err != nil {
		return pointed(err, textOf(e.set["schedule"]), textOf(e.set["zone"]))
	}
	var after api.Job
	if err := got.into(&after); err != nil {
		return err
	}
	if a.human() && value(after.Schedule) != "" {
		if more, _, err := a.ahead(ctx, &after, 3, nil); err == nil { // the change is made, whatever becomes of this
			after.Next = more.Next
		}
	}
	return a.say(jobView(after, got.raw, func(p *page) {
		from, to := policyOf(before.Policy), policyOf(after.Policy)
		if !differences(p, from, to) {
			p.line("nothing else holds than before")
		}
		if set := e.names(); len(set) > 0 {
			p.line("%s", p.paint(faint, "by hand from now on: "+strings.Join(set, ", ")))
		}
		if len(e.clear) > 0 {
			p.line("%s", p.paint(faint, "as the code says again: "+strings.Join(e.clear, ", ")))
		}
		nextLines(p, &after, after.Next)
	}))
}

func textOf(raw json.RawMessage) (text string) {
	if json.Unmarshal(raw, &text) != nil {
		return ""
	}
	return text
}

func (e edit) names() (names []string) {
	for _, f := range fields {
		if _, set := e.set[f.name]; set {
			names = append(names, f.name)
		}
	}
	return names
}

// timed are the fields that say when a job is due.
var timed = []string{"schedule", "zone", "gap", "twice", "start", "end"}

// preview shows what an edit would change. The schedule is read by the server, which stores nothing.
func (a *asker) preview(ctx context.Context, before api.Job, e edit) error {
	after := before
	terms := map[string]string{}
	for _, name := range timed {
		terms[name] = textOf(e.set[name])
	}
	var next fires
	if value(before.Schedule) != "" || terms["schedule"] != "" {
		var err error
		if next, _, err = a.ahead(ctx, &after, 3, terms); err != nil {
			return err
		}
	}
	raw, err := json.Marshal(map[string]any{"set": e.set, "clear": append([]string{}, e.clear...), "next": append(next.Next[:0:0], next.Next...), "dryRun": true})
	if err != nil {
		return err
	}
	return a.say(jobView(before, raw, func(p *page) {
		from := policyOf(before.Policy)
		to := policyOf(before.Policy)
		for name, v := range e.set {
			to[name] = fieldText(name, v)
		}
		for _, name := range e.clear {
			if slices.Contains(before.Edited, name) {
				to[name] = "(as the code says)"
			}
		}
		if !differences(p, from, to) {
			p.line("nothing else would hold than now")
		}
		for _, w := range next.Warnings {
			p.line("%s", p.paint(yellow, "warning: "+clean(w)))
		}
		if next.Words != "" && terms["schedule"] != "" {
			p.line("%s", clean(next.Words))
		}
		nextLines(p, &after, next.Next)
		for _, name := range timed {
			if slices.Contains(e.clear, name) {
				p.line("%s", p.paint(faint, "what the code says of "+name+" is not known here: these times are as if it stayed"))
			}
		}
		p.line("\nnothing was stored (--dry-run)")
	}))
}

// differences lists the fields whose texts differ, and says whether there are any.
func differences(p *page, from, to map[string]string) bool {
	var rows [][]string
	for _, f := range fields {
		if was, is := from[f.name], to[f.name]; was != is {
			rows = append(rows, []string{f.name, p.paint(red, or(was, "(nothing)")), "->", p.paint(green, or(is, "(nothing)"))})
		}
	}
	p.columns(rows, "")
	return len(rows) > 0
}
