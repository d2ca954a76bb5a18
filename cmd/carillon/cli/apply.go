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

func (a *asker) applyCommand() *cobra.Command {
	var files []string
	var reason string
	var exact, dry bool
	c := &cobra.Command{Use: "apply", Short: "Apply job definitions from files", Args: none,
		Long: "Apply job definitions from files: edit existing jobs, create missing ones. All files are checked before the first change,\n" +
			"and applied in one step (in several, if there are more than 1,000 jobs or 4 MiB). Applying the same files again changes nothing.\n\n" + fileForm,
		Example: lines("carillon apply -f jobs.yaml", "carillon apply -f jobs/ --exact --reason 'release 12'", "carillon export | carillon apply -f -"),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			_, err := a.applyFiles(ctx, files, exact, dry, reason)
			return err
		})}
	c.Flags().StringArrayVarP(&files, "file", "f", nil, "a file, a folder, or - for standard input; repeatable")
	c.Flags().StringVar(&reason, "reason", "", "reason, recorded with each change")
	c.Flags().BoolVar(&exact, "exact", false, "reset edited fields that the files do not name to the code's values")
	c.Flags().BoolVar(&dry, "dry-run", false, "show what would change; store nothing")
	return c
}

func (a *asker) diffCommand() *cobra.Command {
	var files []string
	var exact bool
	c := &cobra.Command{Use: "diff", Short: "Show what applying files would change", Args: none,
		Long:    "Show what \"carillon apply\" with the same files would change, with the due times before and after. The exit code is 1 if there are changes.\n\n" + fileForm,
		Example: lines("carillon diff -f jobs.yaml", "carillon diff -f jobs/ --exact"),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			differs, err := a.applyFiles(ctx, files, exact, true, "")
			if err == nil && differs {
				return &Exit{Code: Failed}
			}
			return err
		})}
	c.Flags().StringArrayVarP(&files, "file", "f", nil, "a file, a folder, or - for standard input; repeatable")
	c.Flags().BoolVar(&exact, "exact", false, "compare with apply --exact")
	return c
}

// stated reads the jobs and calendars of files.
func (a *asker) stated(paths []string) (list []jobfile.Stated, calendars []jobfile.Calendar, err error) {
	for _, path := range paths {
		names := []string{path}
		if path != jobfile.Piped {
			if names, err = jobfile.Files(path); err != nil {
				return nil, nil, err
			}
		}
		for _, name := range names {
			raw, err := jobfile.Read(name, a.in)
			if err != nil {
				return nil, nil, err
			}
			one, err := jobfile.Parse(name, raw, IsField)
			if err != nil {
				return nil, nil, err
			}
			list = append(list, one...)
			also, err := jobfile.Calendars(name, raw)
			if err != nil {
				return nil, nil, err
			}
			calendars = append(calendars, also...)
		}
	}
	if len(list) == 0 && len(calendars) == 0 {
		return nil, nil, kernel.Invalid("%s: no jobs found: want a list \"jobs:\", each with a key", strings.Join(paths, ", "))
	}
	return list, calendars, nil
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

// partsOf splits jobs into requests, at least one. Each carries all calendars.
func partsOf(list []jobfile.Stated, calendars []jobfile.Calendar) (parts [][]jobfile.Stated, err error) {
	raw, err := json.Marshal(calendars)
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
			parts, from, size = append(parts, list[from:i]), i, 0
		}
		size += n
	}
	return append(parts, list[from:]), nil
}

// applyFiles applies files, or previews that if dry, and reports whether there are changes.
func (a *asker) applyFiles(ctx context.Context, files []string, exact, dry bool, reason string) (differs bool, err error) {
	if len(files) == 0 {
		return false, kernel.Invalid("no files: give them with -f, such as -f jobs.yaml")
	}
	list, calendars, err := a.stated(files)
	if err != nil {
		return false, err
	}
	if err := jobfile.Distinct(list); err != nil {
		return false, err
	}
	if len(calendars) > mostWanted {
		return false, kernel.Invalid("%d calendars in the files: the limit is %d", len(calendars), mostWanted)
	}
	parts, err := partsOf(list, calendars)
	if err != nil {
		return false, err
	}
	var all plan
	// All parts are previewed before the first is applied.
	for _, look := range []bool{true, dry} {
		all = plan{Items: []api.Planned{}}
		for i, part := range parts {
			bodies := make([]map[string]any, len(part))
			for i, s := range part {
				bodies[i] = s.Body
			}
			body := map[string]any{"jobs": bodies, "exact": exact, "dryRun": look}
			if len(calendars) > 0 && (look || i == 0) { // the first part writes them
				body["calendars"] = calendars
			}
			got, err := a.link.do(ctx, request{method: "POST", path: "/apply", reason: reason, body: body})
			if err != nil {
				return false, placedCalendar(placed(err, part), calendars)
			}
			var one plan
			if err := got.into(&one); err != nil {
				return false, err
			}
			all.Items = append(all.Items, one.Items...)
			if i == 0 {
				all.Calendars = one.Calendars
			}
		}
		if dry {
			break
		}
	}
	raw, err := json.Marshal(all)
	if err != nil {
		return false, err
	}
	v := view{raw: raw, text: func(p *page) {
		calendarPlanPage(p, all.Calendars, dry)
		if len(list) > 0 {
			planPage(p, all.Items, dry)
		}
	}}
	for _, one := range all.Items {
		if one.Does != "nothing" {
			differs, v.names = true, append(v.names, string(one.Key))
		}
	}
	differs = differs || slices.ContainsFunc(all.Calendars, func(c api.PlannedCalendar) bool { return c.Does != "nothing" })
	return differs, a.show(v)
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
		case dry:
			p.line("%s calendar %s", p.paint(map[string]string{"create": green, "edit": yellow}[c.Does], c.Does), c.Name)
		default:
			p.line("calendar %s is written", c.Name)
		}
		differencePage(p, c.Differ)
		for i := range c.Next {
			p.line("  %s", p.paint(faint, fmt.Sprintf("no run of %s %s (%s)", c.Next[i].Job, moments([]time.Time{c.Next[i].At}), clean(c.Next[i].Rule))))
		}
	}
}

func planPage(p *page, plans []api.Planned, dry bool) {
	count := map[string]int{}
	for _, one := range plans {
		count[one.Does]++
		if one.Does == "nothing" {
			continue
		}
		p.line("%s %s", p.paint(map[string]string{"create": green, "edit": yellow}[one.Does], one.Does), one.Key)
		differencePage(p, one.Differ)
		if !slices.EqualFunc(one.NextBefore, one.NextThen, time.Time.Equal) {
			p.line("  %s", p.paint(faint, "next was  "+moments(one.NextBefore)))
			p.line("  %s", p.paint(faint, "next is   "+moments(one.NextThen)))
		}
	}
	summary := "created %d, edited %d, unchanged %d"
	if dry {
		summary = "would create %d, edit %d, leave %d unchanged"
	}
	p.line(summary, count["create"], count["edit"], count["nothing"])
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

func (a *asker) exportCommand() *cobra.Command {
	var app string
	var whole bool
	c := &cobra.Command{Use: "export [key ...]", Short: "Export edited fields as a file for apply",
		Long:    "Export the edited fields of jobs as YAML for \"carillon apply\"; with --all, all effective settings.",
		Example: lines("carillon export > jobs.yaml", "carillon export billing.close-day --all", "carillon export --app billing"),
		RunE: a.does(func(ctx context.Context, keys []string) error {
			list, err := a.exported(ctx, keys, app)
			if err != nil {
				return err
			}
			var items, names []string
			for _, j := range list {
				if whole || len(j.Edited) > 0 || len(keys) > 0 {
					item, err := statement(j, whole)
					if err != nil {
						return err
					}
					items, names = append(items, item), append(names, string(j.Key))
				}
			}
			raw := []byte(`{"jobs":[` + strings.Join(items, ",") + `]}`)
			if a.format == "" {
				a.format = "yaml"
			}
			return a.show(view{raw: raw, names: names})
		}), ValidArgsFunction: a.completeKeys}
	c.Flags().StringVar(&app, "app", "", "only jobs of this app (worker group)")
	c.Flags().BoolVar(&whole, "all", false, "all effective settings, not only edited fields")
	return c
}

// statement is a job as a file has it: the edited fields, or all, in the order of the help.
func statement(j api.Job, whole bool) (string, error) {
	raw, err := json.Marshal(j.Policy)
	if err != nil {
		return "", err
	}
	policy := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &policy); err != nil {
		return "", err
	}
	parts := []string{fmt.Sprintf(`"key":%q,"kind":%q,"app":%q`, j.Key, j.Kind, j.App)}
	for _, f := range fields {
		if v, ok := policy[f.name]; ok && (whole || slices.Contains(j.Edited, f.name)) {
			parts = append(parts, fmt.Sprintf("%q:%s", f.name, v))
		}
	}
	return "{" + strings.Join(parts, ",") + "}", nil
}

// exported returns the named jobs, or all.
func (a *asker) exported(ctx context.Context, keys []string, app string) ([]api.Job, error) {
	if len(keys) > 0 {
		list := make([]api.Job, len(keys))
		for i, key := range keys {
			j, _, err := a.job(ctx, key)
			if err != nil {
				return nil, err
			}
			list[i] = j
		}
		return list, nil
	}
	q := url.Values{}
	set(q, "app", app)
	all, err := a.pages(ctx, "/jobs", q, "after", 0, 1000)
	if err != nil {
		return nil, err
	}
	return decoded[api.Job](all.Items)
}
