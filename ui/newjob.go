package ui

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// newJobForm is the form of a job that runs on the code of another one, its handler: a key, a schedule, and arguments by
// the handler's schema.
type newJobForm struct {
	*argsForm
	App                 string
	NewKey, Description string
	Schedule, Zone      string
	Refused             string // the error of the whole form
}

// mayHandle reports whether other jobs may name a job as their handler: workers run its code, with arguments.
func mayHandle(d *kernel.Definition) bool {
	return d.Kind == kernel.Triggered && d.Policy.Work() == "" && d.Policy.Handler == "" && !kernel.SystemKey(d.Key)
}

// MayHandle reports whether other jobs may name this one as their handler.
func (p jobPage) MayHandle() bool { return mayHandle(p.Definition) }

func (u *UI) newJobFormOf(r *http.Request, v visitor) (*newJobForm, error) {
	f, err := u.argsFormOf(r, v)
	if err != nil {
		return nil, err
	}
	handler, err := u.ops.Job(r.Context(), v.Who, f.Key, 0)
	if err != nil {
		return nil, err
	}
	if !mayHandle(handler.Definition) {
		return nil, kernel.Refuse(jobs.Conflict, "job %s cannot be a handler: want a triggered job of workers, without http, exec and a handler", f.Key)
	}
	f.Here = u.base + "/jobs/" + url.PathEscape(string(f.Key)) + "/new"
	n := &newJobForm{argsForm: f, App: handler.App}
	if r.Method == http.MethodPost {
		for name, to := range map[string]*string{"key": &n.NewKey, "description": &n.Description, "schedule": &n.Schedule, "zone": &n.Zone} {
			*to = normal(r.PostFormValue(name))
		}
	}
	return n, nil
}

func (f *newJobForm) answer(status int) answer {
	return answer{page: "newjob", title: "New job with handler " + string(f.Key), data: f, status: status}
}

func (u *UI) newJobPage(r *http.Request, v visitor) (answer, error) {
	f, err := u.newJobFormOf(r, v)
	if err != nil {
		return answer{}, err
	}
	return f.answer(0), nil
}

// newJob creates the job.
func (u *UI) newJob(r *http.Request, v visitor) (answer, error) {
	f, err := u.newJobFormOf(r, v)
	if err != nil {
		return answer{}, err
	}
	args, ok := f.read(r.PostForm)
	if !ok {
		return f.answer(http.StatusUnprocessableEntity), nil
	}
	handler := string(f.Key)
	w := ops.Wanted{Key: jobs.Key(f.NewKey), Kind: kernel.Triggered, App: f.App, Set: kernel.Settings{Handler: &handler}}
	if len(args) > 0 && string(args) != "{}" {
		w.Set.Args = (*json.RawMessage)(&args)
	}
	if f.Schedule != "" {
		w.Kind, w.Set.Schedule = kernel.Recurring, &f.Schedule
		if f.Zone != "" {
			w.Set.Zone = &f.Zone
		}
	}
	if f.Description != "" {
		w.Set.Description = &f.Description
	}
	who := v.Who
	who.Reason = r.PostFormValue("reason")
	_, err = u.ops.Create(r.Context(), who, w)
	if errors.Is(err, jobs.BadInput) || errors.Is(err, jobs.Conflict) || errors.Is(err, jobs.Exhausted) {
		f.Refused = said(err)
		return f.answer(statusOf(err)), nil
	}
	if err != nil {
		return answer{}, err
	}
	return goTo("/jobs/"+f.NewKey, "saved"), nil
}
