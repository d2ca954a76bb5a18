package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/cmd/carillon/jobfile"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

const fileForm = `A file is YAML with a list of jobs. Each has a key and the fields to set, named as in "carillon jobs show -o yaml";
kind and app are required for a job that no worker has registered yet:

  jobs:
    - key: billing.close-day
      schedule: "0 30 2 * * *"
      zone: Europe/Berlin
      retries: 3
    - key: billing.report
      kind: recurring
      app: billing
      schedule: "@every 1h"

Fields in a file override the code, as an edit does. Other fields keep their values; with --exact they follow the code again.
A file may also have calendars, which are written first:

` + calendarForm

const pruneForm = `A line "bundle: NAME" in a file, or --bundle, names the bundle that the files are. Jobs and calendars that they create belong to it.
With --prune, those that the files no longer name are deleted. A job that a worker has registered is released instead: it stays, and the
fields that the bundle set follow the code. Fields that a job in the files no longer has follow the code, too. Jobs and calendars that
users or other bundles created are never pruned.`

// applying is the options of apply and diff.
type applying struct {
	files                                         []string
	exact, prune, takeOver, dry, sure, allowEmpty bool
	bundle, runs, reason                          string
}

func (f *applying) addFlags(c *cobra.Command) {
	c.Flags().StringArrayVarP(&f.files, "file", "f", nil, "a file, a folder, or - for standard input; repeatable, and the same as an argument")
	c.Flags().BoolVar(&f.exact, "exact", false, "reset edited fields that the files do not name to the code's values")
	c.Flags().BoolVar(&f.prune, "prune", false, "also delete jobs and calendars that the bundle created and the files no longer name")
	c.Flags().StringVar(&f.bundle, "bundle", "", "the bundle that the files are; default: bundle in the files")
	c.Flags().BoolVar(&f.takeOver, "take-over", false, "take over jobs and calendars of other bundles, or that users created")
}

func (a *asker) applyCommand() *cobra.Command {
	var f applying
	c := &cobra.Command{Use: "apply [<file>...]", Short: "Apply job definitions from files",
		Long: "Apply job definitions from files: edit existing jobs, create missing ones. All files are checked before the first change,\n" +
			"and applied in one step (in several, if there are more than 1,000 jobs or 4 MiB). Applying the same files again changes nothing.\n\n" + fileForm + "\n" + pruneForm,
		Example: lines("carillon apply jobs.yaml", "carillon apply -f jobs/ --exact --reason 'release 12'", "carillon apply -f billing.yaml --prune --bundle billing --runs finish",
			"carillon export | carillon apply -f -"),
		RunE: a.does(func(ctx context.Context, files []string) error {
			f.files = append(f.files, files...)
			_, err := a.applyFiles(ctx, &f)
			return err
		})}
	f.addFlags(c)
	c.Flags().StringVar(&f.reason, "reason", "", "reason, recorded with each change")
	c.Flags().StringVar(&f.runs, "runs", "", "with --prune: live runs of deleted jobs: cancel or finish")
	c.Flags().BoolVar(&f.allowEmpty, "allow-empty", false, "with --prune: also if the files have no jobs")
	c.Flags().BoolVar(&f.sure, "yes", false, "with --prune: do not ask for confirmation")
	c.Flags().BoolVar(&f.dry, "dry-run", false, "show what would change; store nothing")
	complete(c, "runs", choices("cancel", "finish"))
	return c
}

func (a *asker) diffCommand() *cobra.Command {
	f := applying{dry: true}
	c := &cobra.Command{Use: "diff [<file>...]", Short: "Show what applying files would change",
		Long: "Show what \"carillon apply\" with the same files and flags would change, with the due times before and after. The exit code is 1 if\n" +
			"there are changes.\n\n" + fileForm + "\n" + pruneForm,
		Example: lines("carillon diff jobs.yaml", "carillon diff -f jobs/ --exact", "carillon diff -f billing.yaml --prune"),
		RunE: a.does(func(ctx context.Context, files []string) error {
			f.files = append(f.files, files...)
			differs, err := a.applyFiles(ctx, &f)
			if err == nil && differs {
				return &Exit{Code: Failed}
			}
			return err
		})}
	f.addFlags(c)
	return c
}

// stated reads the jobs and calendars of files.
func (a *asker) stated(paths []string) (list jobfile.Content, err error) {
	for _, path := range paths {
		names := []string{path}
		if path != jobfile.Piped {
			if names, err = jobfile.Files(path); err != nil {
				return list, err
			}
		}
		for _, name := range names {
			raw, err := jobfile.Read(name, a.in)
			if err != nil {
				return list, err
			}
			if err := list.Add(name, raw, IsField); err != nil {
				return list, err
			}
		}
	}
	return list, jobfile.Distinct(list.Jobs)
}

// IsField returns an error if name is not a field of a job.
func IsField(name string) error {
	f, err := fieldOf(name)
	if err == nil && f.name != name {
		err = kernel.Invalid("the field is called %s", f.name)
	}
	return err
}

var statedPlace = regexp.MustCompile(`^body\.jobs\[(\d+)\]\.?([A-Za-z]*)`)

// placed adds file and line to the errors that a server returned.
func placed(err error, list []jobfile.Stated) error {
	r, ok := errors.AsType[*refused](err)
	if !ok {
		return err
	}
	var texts []string
	for _, f := range r.Errors {
		m := statedPlace.FindStringSubmatch(f.Location)
		if m == nil {
			continue
		}
		n, convErr := strconv.Atoi(m[1])
		if convErr != nil || n >= len(list) {
			continue
		}
		texts = append(texts, list[n].Place(m[2])+": "+clean(list[n].Key)+": "+clean(strings.TrimSpace(m[2]+" "+f.Message)))
	}
	if len(texts) > 0 {
		return kernel.Refuse(r.code, "%s", strings.Join(texts, "\n"))
	}
	for _, s := range list {
		if strings.Contains(r.text, "job "+s.Key+" ") || strings.Contains(r.text, "job "+s.Key+":") {
			return kernel.Refuse(r.code, "%s: %s", s.Place(""), r.text)
		}
	}
	return err
}

// mostWanted is the largest number of jobs in one request.
const mostWanted = 1000

// plan is the server's response to a request to apply files.
type plan struct {
	Items     []api.Planned         `json:"items"`
	Calendars []api.PlannedCalendar `json:"calendars,omitempty"`
}

// part is one request to apply files.
type part struct {
	jobs  []jobfile.Stated
	prune *removal
}

// removal is what a prune names, in the API's form.
type removal struct {
	Jobs      []string `json:"jobs,omitempty"`
	Calendars []string `json:"calendars,omitempty"`
	Runs      string   `json:"runs,omitempty"`
}

// partsOf splits jobs into requests, at least one. Each carries all calendars. The last ones have what is pruned: the
// others may have to change before.
func partsOf(list []jobfile.Stated, calendars []jobfile.Calendar, gone *removal) (parts []part, err error) {
	chunks := chunksOf(gone)
	raw, err := json.Marshal([]any{calendars, chunks[0]})
	if err != nil {
		return nil, err
	}
	room := api.MaxApply - len(raw) - 1<<10 // the rest of the body
	from, size := 0, 0
	for i := range list {
		one, err := json.Marshal(list[i].Body)
		if err != nil {
			return nil, err
		}
		n := len(one) + 1
		if n > room {
			return nil, kernel.Invalid("%s: job %s has %d bytes: the limit is %d", list[i].Place(""), clean(list[i].Key), len(one), max(room-1, 0))
		}
		if i-from == mostWanted || size+n > room {
			parts, from, size = append(parts, part{jobs: list[from:i]}), i, 0
		}
		size += n
	}
	parts = append(parts, part{jobs: list[from:]})
	if gone != nil {
		for i := range parts {
			parts[i].prune = &removal{} // fields only
		}
		parts[len(parts)-1].prune = chunks[0]
		for _, c := range chunks[1:] {
			parts = append(parts, part{prune: c})
		}
	}
	return parts, nil
}

// chunksOf splits a removal into requests, at least one.
func chunksOf(gone *removal) []*removal {
	if gone == nil {
		return []*removal{nil}
	}
	n, m := min(len(gone.Jobs), mostWanted), min(len(gone.Calendars), mostWanted)
	if n < len(gone.Jobs) {
		m = 0 // jobs that are deleted later may use them
	}
	first := &removal{Jobs: gone.Jobs[:n], Calendars: gone.Calendars[:m]}
	if n == len(gone.Jobs) && m == len(gone.Calendars) {
		return []*removal{first}
	}
	return append([]*removal{first}, chunksOf(&removal{Jobs: gone.Jobs[n:], Calendars: gone.Calendars[m:]})...)
}

// countOf is a number of things: "1 job", "2 jobs".
func countOf(n int, thing string) string { return fmt.Sprint(n, " ", thing, yes(n != 1, "s")) }

// someOf lists the first names of a list.
func someOf[T ~string](list []T) string {
	var b strings.Builder
	for i, name := range list[:min(len(list), 5)] {
		b.WriteString(yes(i > 0, ", ") + string(name))
	}
	return b.String() + yes(len(list) > 5, ", …")
}

// obsolete lists the jobs and calendars of a bundle that files do not name.
func (a *asker) obsolete(ctx context.Context, bundle string, in *jobfile.Content) (*removal, error) {
	all, err := a.pages(ctx, "/jobs", url.Values{"bundle": {bundle}}, "after", 0, 1000)
	if err != nil {
		return nil, err
	}
	list, err := decoded[api.Job](all.Items)
	if err != nil {
		return nil, err
	}
	var gone removal
	for _, j := range list {
		if !slices.ContainsFunc(in.Jobs, func(s jobfile.Stated) bool { return s.Key == string(j.Key) }) {
			gone.Jobs = append(gone.Jobs, string(j.Key))
		}
	}
	got, err := a.link.get(ctx, "/calendars", nil)
	if err != nil {
		return nil, err
	}
	var calendars struct{ Items []api.Calendar }
	if err := got.into(&calendars); err != nil {
		return nil, err
	}
	for _, c := range calendars.Items {
		if c.Bundle == bundle && !slices.ContainsFunc(in.Calendars, func(s jobfile.Calendar) bool { return s.Name == c.Name }) {
			gone.Calendars = append(gone.Calendars, c.Name)
		}
	}
	return &gone, nil
}

// read reads the files and checks them with the options.
func (a *asker) read(f *applying) (jobfile.Content, error) {
	if len(f.files) == 0 {
		return jobfile.Content{}, kernel.Invalid("no files: give some, such as jobs.yaml")
	}
	in, err := a.stated(f.files)
	if err != nil {
		return in, err
	}
	if f.bundle != "" && in.Bundle != "" && f.bundle != in.Bundle {
		return in, kernel.Invalid("--bundle %.60s: the files are bundle %s", f.bundle, in.Bundle)
	}
	in.Bundle = or(f.bundle, in.Bundle)
	switch {
	case f.prune && in.Bundle == "":
		return in, kernel.Invalid("--prune needs a bundle: add a line \"bundle: NAME\" to a file, or use --bundle")
	case f.takeOver && in.Bundle == "":
		return in, kernel.Invalid("--take-over needs a bundle: add a line \"bundle: NAME\" to a file, or use --bundle")
	case f.runs != "" && !f.prune:
		return in, kernel.Invalid("--runs decides about runs of pruned jobs: use it with --prune")
	case len(in.Jobs)+len(in.Calendars) == 0 && !f.prune:
		return in, kernel.Invalid("%s: no jobs found: want a list \"jobs:\", each with a key", strings.Join(f.files, ", "))
	case len(in.Calendars) > mostWanted:
		return in, kernel.Invalid("%d calendars in the files: the limit is %d", len(in.Calendars), mostWanted)
	}
	return in, nil
}

// applyFiles applies files, or previews that if dry, and reports whether there are changes.
func (a *asker) applyFiles(ctx context.Context, f *applying) (differs bool, err error) {
	in, err := a.read(f)
	if err != nil {
		return false, err
	}
	var gone *removal
	if f.prune {
		if gone, err = a.obsolete(ctx, in.Bundle, &in); err != nil {
			return false, err
		}
		n, m := len(gone.Jobs), len(gone.Calendars)
		if removes := n > 0 || len(in.Calendars) == 0 && m > 0; len(in.Jobs) == 0 && removes && !f.dry && !f.allowEmpty {
			return false, kernel.Invalid("the files have no jobs, and --prune would remove everything in bundle %s (%s, %s): if that is intended, add --allow-empty", in.Bundle, countOf(n, "job"), countOf(m, "calendar"))
		}
	}
	parts, err := partsOf(in.Jobs, in.Calendars, gone)
	if err != nil {
		return false, err
	}
	// All parts are previewed before the first is applied.
	all, err := a.sendParts(ctx, f, &in, parts, true)
	if err != nil {
		return false, err
	}
	if !f.dry {
		if err := a.confirmPrune(f, &in, &all); err != nil {
			return false, err
		}
		if all, err = a.sendParts(ctx, f, &in, parts, false); err != nil {
			return false, err
		}
	}
	raw, err := json.Marshal(all)
	if err != nil {
		return false, err
	}
	v := view{raw: raw, text: func(p *page) {
		calendarPlanPage(p, all.Calendars, f.dry)
		if len(in.Jobs) > 0 || f.prune {
			planPage(p, all.Items, f)
		}
	}}
	for _, one := range all.Items {
		if one.Does != "nothing" {
			differs, v.names = true, append(v.names, string(one.Key))
		}
	}
	differs = differs || slices.ContainsFunc(all.Calendars, func(c api.PlannedCalendar) bool { return c.Does != "nothing" && c.Does != "keep" })
	return differs, a.show(v)
}

// sendParts sends all requests, or the same as previews.
func (a *asker) sendParts(ctx context.Context, f *applying, in *jobfile.Content, parts []part, preview bool) (plan, error) {
	all := plan{Items: []api.Planned{}}
	for i, part := range parts {
		bodies := make([]map[string]any, len(part.jobs))
		for i, s := range part.jobs {
			bodies[i] = s.Body
		}
		body := map[string]any{"jobs": bodies, "exact": f.exact, "dryRun": preview}
		if in.Bundle != "" {
			body["bundle"], body["takeOver"] = in.Bundle, f.takeOver
		}
		if part.prune != nil {
			body["prune"] = removal{Jobs: part.prune.Jobs, Calendars: part.prune.Calendars, Runs: f.runs}
		}
		declared := len(in.Calendars) > 0 && (preview || i == 0) // the first part writes them
		if declared {
			body["calendars"] = in.Calendars
		}
		got, err := a.link.do(ctx, request{method: "POST", path: "/apply", reason: f.reason, body: body})
		if err != nil {
			return all, placedCalendar(placed(err, part.jobs), in.Calendars)
		}
		var one plan
		if err := got.into(&one); err != nil {
			return all, err
		}
		all.Items = append(all.Items, one.Items...)
		if i > 0 && declared { // the first part lists them
			one.Calendars = one.Calendars[min(len(in.Calendars), len(one.Calendars)):]
		}
		all.Calendars = append(all.Calendars, one.Calendars...)
	}
	return all, nil
}

// confirmPrune asks before jobs or calendars are removed, and what happens to live runs of deleted jobs.
func (a *asker) confirmPrune(f *applying, in *jobfile.Content, all *plan) error {
	removed, runs := map[string][]string{}, 0
	for _, one := range all.Items {
		removed[one.Does] = append(removed[one.Does], string(one.Key))
		runs += one.Runs
	}
	for _, c := range all.Calendars {
		removed["calendar "+c.Does] = append(removed["calendar "+c.Does], c.Name)
	}
	var asks []string
	for _, w := range []struct{ does, one, verb string }{{"delete", "job", "delete"}, {"release", "job", "release"}, {"calendar delete", "calendar", "delete"}} {
		if list := removed[w.does]; len(list) > 0 {
			asks = append(asks, fmt.Sprintf("%s %s (%s)", w.verb, countOf(len(list), w.one), someOf(list)))
		}
	}
	if len(asks) == 0 {
		return nil
	}
	if runs > 0 && f.runs == "" {
		question := fmt.Sprintf("the jobs to delete have %s: cancel or finish", countOf(runs, "live run"))
		if !a.Terminal(a.in) || f.sure {
			return kernel.Refuse(jobs.Conflict, "%s (--runs cancel, or --runs finish)", question)
		}
		var err error
		if f.runs, err = a.ask(question + "?"); err != nil {
			return err
		}
	}
	if f.sure {
		return nil
	}
	text := strings.Join(asks, ", ")
	return a.confirm(strings.ToUpper(text[:1]) + text[1:] + " of bundle " + in.Bundle + "?")
}

// placedCalendar adds file and line to an error about a calendar.
func placedCalendar(err error, list []jobfile.Calendar) error {
	r, ok := errors.AsType[*refused](err)
	if !ok {
		return err
	}
	for _, c := range list {
		if strings.Contains(r.text, "calendar "+c.Name+",") || strings.Contains(r.text, "calendar "+c.Name+":") || strings.Contains(r.text, "calendar "+c.Name+" ") {
			return kernel.Refuse(r.code, "%s: %s", c.Place, r.text)
		}
	}
	return err
}

// calendarPlanPage lists changes of calendars and the due times that they exclude.
func calendarPlanPage(p *page, list []api.PlannedCalendar, dry bool) {
	for _, c := range list {
		switch {
		case c.Does == "nothing":
			continue
		case c.Does == "keep":
			p.line("calendar %s is kept: jobs use it: %s", c.Name, someOf(c.Jobs))
		case dry:
			p.line("%s calendar %s", p.paint(planColours[c.Does], c.Does), c.Name)
		case c.Does == "delete":
			p.line("calendar %s is deleted", c.Name)
		default:
			p.line("calendar %s is written", c.Name)
		}
		differencePage(p, c.Differ)
		for i := range c.Next {
			p.line("  %s", p.paint(faint, fmt.Sprintf("no run of %s %s (%s)", c.Next[i].Job, moments([]time.Time{c.Next[i].At}), clean(c.Next[i].Rule))))
		}
	}
}

// planColours are the colours of changes.
var planColours = map[string]string{"create": green, "edit": yellow, "release": yellow, "delete": red}

func planPage(p *page, plans []api.Planned, f *applying) {
	count := map[string]int{}
	for _, one := range plans {
		count[one.Does]++
		if one.Does == "nothing" {
			continue
		}
		p.line("%s %s%s", p.paint(planColours[one.Does], one.Does), one.Key, yes(one.Runs > 0, " ("+countOf(one.Runs, "live run")+")"))
		if one.Does == "delete" {
			continue
		}
		differencePage(p, one.Differ)
		if !slices.EqualFunc(one.NextBefore, one.NextThen, time.Time.Equal) {
			p.line("  %s", p.paint(faint, "next was  "+moments(one.NextBefore)))
			p.line("  %s", p.paint(faint, "next is   "+moments(one.NextThen)))
		}
	}
	summary, pruned := "created %d, edited %d, unchanged %d", ", deleted %d, released %d"
	if f.dry {
		summary, pruned = "would create %d, edit %d, leave %d unchanged", ", delete %d, release %d"
	}
	counts := []any{count["create"], count["edit"], count["nothing"]}
	if f.prune {
		summary, counts = summary+pruned, append(counts, count["delete"], count["release"])
	}
	p.line(summary, counts...)
}

// differencePage lists fields before and after.
func differencePage(p *page, list []api.Difference) {
	var rows [][]string
	for _, d := range list {
		rows = append(rows, []string{"  " + d.Field, p.paint(red, or(valueText(d.Field, d.Old), "(nothing)")), "->", p.paint(green, or(valueText(d.Field, d.New), "(nothing)"))})
	}
	p.columns(rows, "")
}

// valueText formats a field's value as users write it.
func valueText(field string, v any) string {
	if v == nil {
		return ""
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return fieldText(field, raw)
}

func moments(list []time.Time) string {
	if len(list) == 0 {
		return "never"
	}
	texts := make([]string, len(list))
	for i, t := range list {
		texts[i] = t.Format("2006-01-02 15:04:05Z07:00")
	}
	return strings.Join(texts, ", ")
}
