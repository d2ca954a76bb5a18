package ui

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// newHTTPForm is the form of a new job of HTTP requests.
type newHTTPForm struct {
	visitor
	Key, App, Description string
	Schedule, Zone        string
	Timeout, Retries      string
	Form                  *requestsForm
	Fault                 string
}

func newHTTPFormOf(r *http.Request, v visitor) *newHTTPForm {
	f := &newHTTPForm{visitor: v, App: "http", Timeout: "60s", Retries: "2", Form: newRequestsForm()}
	if r.Method != http.MethodPost {
		return f
	}
	for name, to := range map[string]*string{"key": &f.Key, "app": &f.App, "description": &f.Description, "schedule": &f.Schedule, "zone": &f.Zone,
		"timeout": &f.Timeout, "retries": &f.Retries} {
		*to = normal(r.PostFormValue(name))
	}
	f.Form = sentRequests(r)
	return f
}

func (f *newHTTPForm) answer(status int) answer {
	return answer{page: "newhttp", title: "New HTTP job", data: f, status: status}
}

func (u *UI) newHTTPPage(r *http.Request, v visitor) (answer, error) {
	return newHTTPFormOf(r, v).answer(0), nil
}

// newHTTP creates the job, and runs it once if requested.
func (u *UI) newHTTP(r *http.Request, v visitor) (answer, error) {
	f := newHTTPFormOf(r, v)
	if f.Form.press(r.PostFormValue("do")) {
		return f.answer(0), nil
	}
	raw, ok := f.Form.spec(nil)
	if !ok {
		return f.answer(http.StatusUnprocessableEntity), nil
	}
	who := v.Who
	who.Reason = r.PostFormValue("reason")
	wanted, err := f.wanted(raw)
	if err == nil {
		_, err = u.ops.Create(r.Context(), who, wanted)
	}
	if at, is := errors.AsType[*ops.WorkError](err); is {
		f.Form.blame(at.Place, said(at.Err))
		return f.answer(http.StatusUnprocessableEntity), nil
	}
	if errors.Is(err, jobs.BadInput) || errors.Is(err, jobs.Conflict) || errors.Is(err, jobs.Exhausted) {
		f.Fault = said(err)
		return f.answer(statusOf(err)), nil
	}
	if err != nil {
		return answer{}, err
	}
	if r.PostFormValue("do") != "try" {
		return goTo("/jobs/"+f.Key, "saved"), nil
	}
	made, err := u.ops.Trigger(r.Context(), who, kernel.Create{Key: jobs.Key(f.Key), Origin: kernel.FromPerson})
	if err != nil {
		return u.untried(r, v, f.Key, err)
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

// wanted returns the job of the form.
func (f *newHTTPForm) wanted(raw json.RawMessage) (ops.Wanted, error) {
	w := ops.Wanted{Key: jobs.Key(f.Key), Kind: kernel.Triggered, App: f.App}
	w.Set.HTTP = &raw
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
