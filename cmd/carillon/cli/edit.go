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

// edit is a change of a job: fields to set, by their JSON names, and fields to clear.
type edit struct {
	set   map[string]json.RawMessage
	clear []string
}

func (a *asker) editCommand() *cobra.Command {
	var pairs, clear []string
	var reason string
	var dry bool
	c := &cobra.Command{Use: "edit <key>", Short: "Edit a job's settings", Args: one("the key of a job"),
		Long: "Edit a job's settings. An edited field overrides the code until it is cleared. Each field has a flag; --set field=value is\n" +
			"the same. If the job changes between the read and the edit, nothing is changed and the exit code is 4.",
		Example: lines("carillon jobs edit demo.report --schedule '0 */10 * * * *' --zone Europe/Berlin --dry-run",
			"carillon jobs edit demo.flaky --retries 5 --retry-delay 10s --reason 'the line is bad today'",
			"carillon jobs edit demo.flaky --set priority=10 --set tags=line,night", "carillon jobs edit demo.flaky --clear retries --clear retryDelay"),
		ValidArgsFunction: a.completeKeys}
	typed := map[string]*string{}
	for _, f := range fields {
		typed[f.name] = c.Flags().String(f.flag, "", f.help)
		switch {
		case f.one != nil:
			complete(c, f.flag, choices(f.one...))
		case f.name == "zone":
			complete(c, f.flag, completeZones)
		case f.name == "disabled":
			c.Flags().Lookup(f.flag).NoOptDefVal = "true"
		}
	}
	c.Flags().StringArrayVar(&pairs, "set", nil, "field=value; repeatable")
	c.Flags().StringArrayVar(&clear, "clear", nil, "field to reset to the code's value; repeatable")
	c.Flags().StringVar(&reason, "reason", "", "reason, recorded with the change")
	c.Flags().BoolVar(&dry, "dry-run", false, "show what would change; store nothing")
	complete(c, "clear", choices(kernel.Fields()...))
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
			return kernel.Invalid("nothing to change: give a field, such as %s %s --retries 3; see %s --help", c.CommandPath(), args[0], c.CommandPath())
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

// readEdit parses field=value pairs and names of fields. A field must not be named twice.
func (a *asker) readEdit(pairs, clear []string) (edit, error) {
	e := edit{set: map[string]json.RawMessage{}}
	for _, pair := range pairs {
		name, text, ok := strings.Cut(pair, "=")
		if !ok {
			return e, kernel.Invalid("invalid --set %.40q: want field=value, such as retries=3", pair)
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

// body returns the edit as a request body.
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

// edit sends an edit for the job as it was read, and prints the changes.
func (a *asker) edit(ctx context.Context, before api.Job, etag string, e edit, reason string) error {
	got, err := a.link.do(ctx, request{method: "PATCH", path: jobPath(string(before.Key)), match: etag, reason: reason, body: e.body()})
	if errors.Is(err, jobs.Stale) {
		return kernel.Refuse(jobs.Stale, "%s changed since revision %d was read, so nothing was done: check the job, then edit again", before.Key, before.Revision)
	}
	if err != nil {
		return pointed(err, textOf(e.set["schedule"]))
	}
	var after api.Job
	if err := got.into(&after); err != nil {
		return err
	}
	if a.human() && value(after.Schedule) != "" {
		if more, _, err := a.ahead(ctx, &after, 3, nil); err == nil { // errors are ignored: the edit is stored
			after.Next = more.Next
		}
	}
	return a.show(jobView(after, got.raw, func(p *page) {
		from, to := policyOf(before.Policy), policyOf(after.Policy)
		if !differences(p, from, to) {
			p.line("no effective change")
		}
		if set := e.names(); len(set) > 0 {
			p.line("%s", p.paint(faint, "edited: "+strings.Join(set, ", ")))
		}
		if len(e.clear) > 0 {
			p.line("%s", p.paint(faint, "follows the code again: "+strings.Join(e.clear, ", ")))
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

// timed are the fields that decide when a job is due.
var timed = kernel.ScheduleFields()

// preview shows what an edit would change. The server parses the schedule and stores nothing.
func (a *asker) preview(ctx context.Context, before api.Job, e edit) error {
	after := before
	terms := map[string]string{}
	for _, name := range timed {
		if v, set := e.set[name]; set {
			terms[name] = fieldText(name, v)
		}
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
	return a.show(jobView(before, raw, func(p *page) {
		from := policyOf(before.Policy)
		to := policyOf(before.Policy)
		for name, v := range e.set {
			to[name] = fieldText(name, v)
		}
		for _, name := range e.clear {
			if slices.Contains(before.Edited, name) {
				to[name] = "(from the code)"
			}
		}
		if !differences(p, from, to) {
			p.line("no effective change")
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
				p.line("%s", p.paint(faint, "the code's "+name+" is not known here: these times assume the current value"))
			}
		}
		p.line("\nnothing was stored (--dry-run)")
	}))
}

// differences lists the fields whose texts differ, and reports whether there are any.
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
