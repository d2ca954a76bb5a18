package ui

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// deleteForm confirms the deletion of a job, and asks about its live runs.
type deleteForm struct {
	visitor
	Key      jobs.Key
	Revision uint64
	Alive    int // unfinished runs
	Fault    string
}

func (u *UI) deleteFormOf(r *http.Request, v visitor) (*deleteForm, error) {
	job, err := u.ops.Job(r.Context(), v.Who, jobs.Key(r.PathValue("key")), 0)
	if err != nil {
		return nil, err
	}
	past, err := u.ops.History(r.Context(), v.Who, job.Definition)
	f := &deleteForm{visitor: v, Key: job.Key, Revision: job.Revision}
	for _, s := range kernel.LiveStates() {
		f.Alive += past.Live[s]
	}
	return f, err
}

func (f *deleteForm) answer(status int) answer {
	return answer{page: "delete", title: "Delete " + string(f.Key), data: f, status: status}
}

func (u *UI) deletePage(r *http.Request, v visitor) (answer, error) {
	f, err := u.deleteFormOf(r, v)
	if err != nil {
		return answer{}, err
	}
	return f.answer(0), nil
}

func (u *UI) delete(r *http.Request, v visitor) (answer, error) {
	f, err := u.deleteFormOf(r, v)
	if err != nil {
		return answer{}, err
	}
	who := v.Who
	who.Reason = r.PostFormValue("reason")
	revision, _ := strconv.ParseUint(r.PostFormValue("revision"), 10, 64) // none: any revision
	_, err = u.ops.Delete(r.Context(), who, kernel.Delete{Key: f.Key, IfRevision: revision}, ops.LiveRuns(r.PostFormValue("runs")))
	if errors.Is(err, jobs.Conflict) || errors.Is(err, jobs.Stale) || errors.Is(err, jobs.BadInput) {
		f.Fault = said(err)
		return f.answer(statusOf(err)), nil
	}
	return goTo("/jobs", "deleted"), err
}
