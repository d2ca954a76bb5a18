package ui

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// editForm is the options of a job in a form.
type editForm struct {
	visitor
	Key      jobs.Key
	Code     bool   // it has code, which sets what is not edited
	Revision uint64 // that the form is based on
	Groups   []editGroup
	Fault    string // of the whole form
	Stale    bool   // the job was edited concurrently
	Looked   bool   // a preview is shown
	Changes  []difference
	Words    string
	Fires    []fire
	Warnings []string
}

// editGroup is a group of fields.
type editGroup struct {
	Name   string
	Fields []*editField
}

// editField is a setting in the form.
type editField struct {
	setting
	Text   string // the current input
	Was    string // the value when the form was made
	Theirs string // the value of a concurrent edit, or ""
	Edited bool   // a user has edited it
	Code   bool   // the job has code
	Clear  bool   // it should follow the code again
	Fault  string
}

// Only reports whether no default could take the field's place.
func (f *editField) Only() bool {
	return slices.Contains([]string{"schedule", "http", "exec", "handler"}, f.Name)
}

// difference is one change that a save would make.
type difference struct{ Label, From, To string }

// common are the settings that the form shows at once; the others of a group are folded.
var common = []string{"schedule", "zone", "calendars", "maxConcurrency", "overlap", "timeout", "retries", "retryDelay", "route", "needs", "keepFor",
	"name", "tags", "description", "args", "disabled"}

// Common returns the fields of a group that are shown at once.
func (g editGroup) Common() []*editField { return g.are(true) }

// Rare returns the folded fields.
func (g editGroup) Rare() []*editField { return g.are(false) }

func (g editGroup) are(often bool) (list []*editField) {
	for _, f := range g.Fields {
		if slices.Contains(common, f.Name) == often {
			list = append(list, f)
		}
	}
	return list
}

// Open reports whether folded fields must be shown: one of them was edited, changed or refused.
func (f *editForm) Open(list []*editField) bool {
	return slices.ContainsFunc(list, func(e *editField) bool {
		return e.Edited || e.Clear || e.Fault != "" || e.Theirs != "" || normal(e.Text) != normal(e.Was)
	})
}

func (f *editForm) fields(yield func(*editField) bool) {
	for _, g := range f.Groups {
		for _, field := range g.Fields {
			if !yield(field) {
				return
			}
		}
	}
}

// editFormOf returns the form of a job as it is.
func editFormOf(job ops.Job, v visitor) *editForm {
	f := &editForm{visitor: v, Key: job.Key, Code: job.Registered, Revision: job.Revision}
	edited := job.Edits.Given()
	for _, s := range settings {
		if !s.For(job.Kind) {
			continue
		}
		if n := len(f.Groups); n == 0 || f.Groups[n-1].Name != s.Group {
			f.Groups = append(f.Groups, editGroup{Name: s.Group})
		}
		g := &f.Groups[len(f.Groups)-1]
		text := s.text(&job.Definition.Policy)
		g.Fields = append(g.Fields, &editField{setting: s, Text: text, Was: text, Edited: slices.Contains(edited, s.Name), Code: f.Code})
	}
	return f
}

// take applies the submitted values. A concurrent edit of an unchanged field is kept; where both changed a field, the
// submitted value stays, and the other one is shown beside it.
func (f *editForm) take(r *http.Request, now *kernel.Policy) {
	base, _ := strconv.ParseUint(r.PostFormValue("revision"), 10, 64)
	f.Stale = base != f.Revision
	clear := r.PostForm["clear"]
	for field := range f.fields {
		text, was := field.normal(r.PostFormValue(field.Name)), field.normal(r.PostFormValue("was."+field.Name))
		field.Clear = slices.Contains(clear, field.Name)
		current := normal(field.Was)
		if text == was {
			continue // unchanged
		}
		field.Text = text
		if f.Stale && current != was && current != text {
			field.Theirs = field.Words(now)
		}
	}
}

// normal returns a text with the server's line ends: browsers send others.
func normal(text string) string { return strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n")) }

// command returns the edit of the form; errors are set on their fields, and then ok is false.
func (f *editForm) command() (k kernel.Edit, ok bool) {
	k, ok = kernel.Edit{Key: f.Key, IfRevision: f.Revision}, true
	zone := ""
	for field := range f.fields {
		if field.Name == "zone" {
			zone = field.Text
		}
	}
	for field := range f.fields {
		if field.Clear && field.Edited {
			k.Clear = append(k.Clear, field.Name)
			continue
		}
		if normal(field.Text) == normal(field.Was) {
			continue
		}
		var one kernel.Settings
		err := field.read(&one, field.Text, zone)
		if err == nil {
			err = one.Check()
		}
		if err != nil {
			field.Fault, ok = said(err), false
			continue
		}
		k.Set = one.Over(k.Set)
	}
	return k, ok
}

// blame sets a refusal on its field.
func (f *editForm) blame(err error) {
	name, text := "", said(err)
	if at, ok := errors.AsType[*ops.ScheduleError](err); ok && at.At != nil {
		name, text = "schedule", at.At.Error()
		if slices.Contains([]string{"zone", "start", "end", "gap"}, at.At.Field) {
			name = at.At.Field
		}
	}
	for field := range f.fields {
		if field.Name == name {
			field.Fault = text
			return
		}
	}
	f.Fault = text
}

func (u *UI) editPage(r *http.Request, v visitor) (answer, error) {
	job, err := u.ops.Job(r.Context(), v.Who, jobs.Key(r.PathValue("key")), 0)
	if err != nil {
		return answer{}, err
	}
	f := editFormOf(job, v)
	f.look(ops.Job{}, nil)
	q, proposed := r.URL.Query(), false
	for field := range f.fields {
		if q.Has(field.Name) {
			field.Text, proposed = field.normal(q.Get(field.Name)), true
		}
	}
	if !proposed {
		return f.answer(0), nil
	}
	// A link that proposes values shows the preview, as for typed ones.
	k, ok := f.command()
	if !ok {
		return f.answer(http.StatusUnprocessableEntity), nil
	}
	after, err := u.ops.Preview(r.Context(), v.Who, k, pageFires)
	if err != nil {
		f.blame(err)
		return f.answer(http.StatusUnprocessableEntity), nil
	}
	f.Looked = true
	f.look(after, job.Definition)
	return f.answer(0), nil
}

func (f *editForm) answer(status int) answer {
	return answer{page: "edit", title: "Edit " + string(f.Key), data: f, status: status}
}

// edit shows the preview of the form, or saves it.
func (u *UI) edit(r *http.Request, v visitor) (answer, error) {
	ctx := r.Context()
	job, err := u.ops.Job(ctx, v.Who, jobs.Key(r.PathValue("key")), 0)
	if err != nil {
		return answer{}, err
	}
	f := editFormOf(job, v)
	f.take(r, &job.Definition.Policy)
	k, ok := f.command()
	if !ok {
		return f.answer(http.StatusUnprocessableEntity), nil
	}
	after, err := u.ops.Preview(ctx, v.Who, k, pageFires)
	if err != nil {
		f.blame(err)
		return f.answer(statusOf(err)), nil
	}
	f.look(after, job.Definition)
	switch {
	case f.Stale:
		return f.answer(http.StatusConflict), nil
	case r.PostFormValue("do") != "save":
		f.Looked = true
		return f.answer(0), nil
	}
	who := v.Who
	who.Reason = r.PostFormValue("reason")
	saved, err := u.ops.Edit(ctx, who, k)
	if err != nil {
		f.blame(err)
		return f.answer(statusOf(err)), nil
	}
	return edited("saved", job, saved), nil
}

// look fills the preview: the job after the edit, and the differences.
func (f *editForm) look(after ops.Job, before *kernel.Definition) {
	if before == nil {
		return
	}
	f.Words, f.Fires, f.Warnings = after.Words, fires(after.Definition, after.Next), after.Warnings
	for field := range f.fields {
		from, to := field.Words(&before.Policy), field.Words(&after.Definition.Policy)
		if from != to || field.Clear && field.Edited {
			if field.Clear {
				to += map[bool]string{true: " (from the code)", false: " (default)"}[f.Code]
			}
			f.Changes = append(f.Changes, difference{field.Label, from, to})
		}
	}
}
