package ui

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/carillon-scheduler/carillon/httpspec"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// requestsPage is the form of what an existing HTTP job does.
type requestsPage struct {
	visitor
	Key      jobs.Key
	Revision uint64 // that the form is based on
	Stale    bool   // the job was edited concurrently
	Form     *requestsForm
}

func (p *requestsPage) answer(status int) answer {
	return answer{page: "requests", title: "Requests of " + string(p.Key), data: p, status: status}
}

// httpJobOf returns a job of HTTP requests, and what it does.
func (u *UI) httpJobOf(r *http.Request, v visitor) (ops.Job, *httpspec.Job, error) {
	job, err := u.ops.Job(r.Context(), v.Who, jobs.Key(r.PathValue("key")), 0)
	if err != nil {
		return job, nil, err
	}
	raw := job.Definition.Policy.HTTP
	if kernel.NoWork(raw) {
		return job, nil, kernel.Refuse(jobs.Conflict, "job %s has no HTTP requests: its code is in a worker", job.Key)
	}
	plan, err := httpspec.Parse(raw)
	if err != nil {
		return job, nil, err
	}
	return job, &plan.Job, nil
}

func (u *UI) requestsPage(r *http.Request, v visitor) (answer, error) {
	job, stored, err := u.httpJobOf(r, v)
	if err != nil {
		return answer{}, err
	}
	p := &requestsPage{visitor: v, Key: job.Key, Revision: job.Revision, Form: requestsFormOf(stored)}
	return p.answer(0), nil
}

// editRequests saves the form, or changes its rows.
func (u *UI) editRequests(r *http.Request, v visitor) (answer, error) {
	job, stored, err := u.httpJobOf(r, v)
	if err != nil {
		return answer{}, err
	}
	p := &requestsPage{visitor: v, Key: job.Key, Form: sentRequests(r)}
	p.Revision, _ = strconv.ParseUint(r.PostFormValue("revision"), 10, 64)
	if p.Form.press(r.PostFormValue("do")) {
		return p.answer(0), nil
	}
	if p.Stale = p.Revision != job.Revision; p.Stale {
		p.Revision = job.Revision
		return p.answer(http.StatusConflict), nil
	}
	raw, ok := p.Form.spec(stored)
	if !ok {
		return p.answer(http.StatusUnprocessableEntity), nil
	}
	who := v.Who
	who.Reason = r.PostFormValue("reason")
	saved, err := u.ops.Edit(r.Context(), who, kernel.Edit{Key: job.Key, Set: kernel.Settings{HTTP: &raw}, IfRevision: p.Revision})
	if at, is := errors.AsType[*ops.WorkError](err); is {
		p.Form.blame(at.Place, said(at.Err))
		return p.answer(http.StatusUnprocessableEntity), nil
	}
	if errors.Is(err, jobs.BadInput) || errors.Is(err, jobs.Stale) {
		p.Form.Fault = said(err)
		return p.answer(statusOf(err)), nil
	}
	if err != nil {
		return answer{}, err
	}
	return edited("saved", job, saved), nil
}
