package ui

import (
	"net/http"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// backfillForm is the form of a backfill, with the preview of its runs.
type backfillForm struct {
	visitor
	Key      jobs.Key
	Zones    []string
	From, To string // as clocks in the zone show them
	Zone     string
	Parallel string
	Replay   bool
	Asked    bool // the preview below is of these values
	Would    ops.Backfilled
	Fault    string
}

// backfillFormOf reads the form. Its default is the last day.
func (u *UI) backfillFormOf(r *http.Request, v visitor) (*backfillForm, ops.Backfill, error) {
	f := &backfillForm{visitor: v, Key: jobs.Key(r.PathValue("key")), From: r.FormValue("from"), To: r.FormValue("to"), Zone: r.FormValue("zone"),
		Parallel: r.FormValue("parallel"), Replay: r.FormValue("replay") != "", Asked: r.FormValue("from") != ""}
	request := ops.Backfill{Key: f.Key, Replay: f.Replay}
	job, err := u.ops.Job(r.Context(), v.Who, f.Key, 0)
	if err != nil {
		return nil, request, err
	}
	f.Zones = zones(job.Definition.Policy.Zone)
	if f.Zone == "" {
		f.Zone = f.Zones[0]
	}
	if !f.Asked {
		now := u.ops.Now().In(location(f.Zone))
		f.From, f.To, f.Parallel = now.AddDate(0, 0, -1).Format(wallMinute), now.Format(wallMinute), "1"
	}
	if f.Fault = f.read(&request); f.Fault == "" && f.Asked {
		f.Would, err = u.ops.PreviewBackfill(r.Context(), v.Who, request)
		f.Fault, err = faultOf(err)
	}
	return f, request, err
}

// wallMinute is how a browser writes a time of its datetime-local field.
const wallMinute = "2006-01-02T15:04"

// read converts the fields, and returns the error of one of them.
func (f *backfillForm) read(request *ops.Backfill) string {
	if err := checkZone(f.Zone); err != nil {
		return said(err)
	}
	for _, field := range []struct {
		text string
		to   *time.Time
	}{{f.From, &request.From}, {f.To, &request.To}} {
		if field.text == "" {
			continue
		}
		t, err := parseWall(field.text, f.Zone)
		if err != nil {
			return said(err)
		}
		*field.to = t
	}
	if f.Parallel == "" {
		return ""
	}
	n, err := strconv.Atoi(f.Parallel)
	if err != nil || n < 1 {
		return said(kernel.Invalid("invalid parallel %.20q: want 1 to %d", f.Parallel, kernel.MaxParallel))
	}
	request.Parallel = n
	return ""
}

// faultOf returns the text of an error in a form; other errors are returned.
func faultOf(err error) (string, error) {
	switch jobs.CodeOf(err) {
	case jobs.BadInput, jobs.Conflict, jobs.Stale:
		return said(err), nil
	}
	return "", err
}

func (f *backfillForm) answer() answer {
	a := answer{page: "backfill", title: "Backfill " + string(f.Key), data: f}
	if f.Fault != "" {
		a.status = http.StatusUnprocessableEntity
	}
	return a
}

func (u *UI) backfillPage(r *http.Request, v visitor) (answer, error) {
	f, _, err := u.backfillFormOf(r, v)
	if err != nil {
		return answer{}, err
	}
	return f.answer(), nil
}

func (u *UI) backfill(r *http.Request, v visitor) (answer, error) {
	f, request, err := u.backfillFormOf(r, v)
	if err != nil {
		return answer{}, err
	}
	if f.Fault != "" {
		return f.answer(), nil
	}
	who := v.Who
	who.Reason = r.PostFormValue("reason")
	_, err = u.ops.Backfill(r.Context(), who, request)
	if f.Fault, err = faultOf(err); f.Fault != "" {
		return f.answer(), nil
	}
	return goTo("/runs?job="+string(f.Key)+"&origin="+string(kernel.FromBackfill), "backfilled"), err
}
