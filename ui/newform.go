package ui

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// newForm is what the forms of new HTTP jobs and commands have in common.
type newForm struct {
	visitor
	Key, App, Description string
	Schedule, Zone        string
	Timeout, Retries      string
	Fault                 string
}

// newWork is one of these forms.
type newWork interface {
	common() *newForm
	wanted() (ops.Wanted, error)  // the job of the form
	blame(at *ops.WorkError) bool // shows an error at its field, if there is one
	answer(status int) answer
}

func (f *newForm) common() *newForm { return f }

func (f *newForm) blame(*ops.WorkError) bool { return false }

// read reads a sent form, with the fields that are its own.
func (f *newForm) read(r *http.Request, own map[string]*string) {
	if r.Method != http.MethodPost {
		return
	}
	for _, fields := range []map[string]*string{own, {"key": &f.Key, "app": &f.App, "description": &f.Description, "schedule": &f.Schedule, "zone": &f.Zone,
		"timeout": &f.Timeout, "retries": &f.Retries}} {
		for name, to := range fields {
			*to = normal(r.PostFormValue(name))
		}
	}
}

// wanted returns the job, without what it does.
func (f *newForm) wanted() (ops.Wanted, error) {
	w := ops.Wanted{Key: jobs.Key(f.Key), Kind: kernel.Triggered, App: f.App}
	if f.Schedule != "" {
		w.Kind, w.Set.Schedule = kernel.Recurring, &f.Schedule
		if f.Zone != "" {
			w.Set.Zone = &f.Zone
		}
	}
	if f.Description != "" {
		w.Set.Description = &f.Description
	}
	timeout, err := parseSpan(f.Timeout)
	if err != nil {
		return w, err
	}
	retries, err := strconv.Atoi(f.Retries)
	if err != nil {
		return w, kernel.Invalid("invalid retries %.20q: want a whole number", f.Retries)
	}
	w.Set.Timeout, w.Set.Retries = &timeout, &retries
	return w, nil
}

// create creates the job, and runs it once if requested.
func (u *UI) create(r *http.Request, v visitor, f newWork) (answer, error) {
	c := f.common()
	who := v.Who
	who.Reason = r.PostFormValue("reason")
	wanted, err := f.wanted()
	if err == nil {
		_, err = u.ops.Create(r.Context(), who, wanted)
	}
	if at, is := errors.AsType[*ops.WorkError](err); is && f.blame(at) {
		return f.answer(http.StatusUnprocessableEntity), nil
	}
	if errors.Is(err, jobs.BadInput) || errors.Is(err, jobs.Conflict) || errors.Is(err, jobs.Exhausted) {
		c.Fault = said(err)
		return f.answer(statusOf(err)), nil
	}
	if err != nil {
		return answer{}, err
	}
	if r.PostFormValue("do") != "try" {
		return goTo("/jobs/"+c.Key, "saved"), nil
	}
	made, err := u.ops.Trigger(r.Context(), who, kernel.Create{Key: jobs.Key(c.Key), Origin: kernel.FromPerson})
	if err != nil {
		return u.untried(r, v, c.Key, err)
	}
	return goTo("/runs/"+made.ID.String(), "started"), nil
}

// untried shows the form to run a job that was created but not run. The form of the job would be refused by now.
func (u *UI) untried(r *http.Request, v visitor, key string, err error) (answer, error) {
	u.log.WarnContext(r.Context(), "cannot run a new job", "key", key, "err", err)
	r.SetPathValue("key", key)
	f, unread := u.argsFormOf(r, v)
	refusal, ok := errors.AsType[*kernel.Refusal](err)
	if unread != nil || !ok || refusal.Code == jobs.Unknown {
		return answer{}, kernel.Refuse(jobs.Unknown, "job %s was created; whether its run started is unknown", key)
	}
	f.Fault = "The job was created, but not run: " + refusal.Text
	return f.answer(statusOf(err)), nil
}
