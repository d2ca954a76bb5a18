package ui

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// calendarsPage lists the calendars.
type calendarsPage struct {
	visitor
	List []*kernel.Calendar
}

// calendarPage is a calendar with what it excludes, and its form.
type calendarPage struct {
	visitor
	Is    ops.Calendar
	New   bool
	Rules string // one a line
	Fault string
}

func (u *UI) calendars(r *http.Request, v visitor) (answer, error) {
	list, err := u.ops.Calendars(r.Context(), v.Who)
	return answer{page: "calendars", title: "Calendars", data: calendarsPage{v, list}}, err
}

func (p calendarPage) answer(status int) answer {
	return answer{page: "calendar", title: "Calendar " + p.Is.Name, data: p, status: status}
}

func (u *UI) newCalendar(_ *http.Request, v visitor) (answer, error) {
	return calendarPage{visitor: v, Is: ops.Calendar{Calendar: &kernel.Calendar{}}, New: true}.answer(0), nil
}

func (u *UI) calendar(r *http.Request, v visitor) (answer, error) {
	c, err := u.ops.Calendar(r.Context(), v.Who, r.PathValue("name"))
	if err != nil {
		return answer{}, err
	}
	return calendarPage{visitor: v, Is: c, Rules: strings.Join(c.Rules, "\n")}.answer(0), nil
}

// setCalendar creates or replaces a calendar, or shows its form again with the error.
func (u *UI) setCalendar(r *http.Request, v visitor) (answer, error) {
	k := kernel.SetCalendar{Name: r.PathValue("name"), Description: normal(r.PostFormValue("description")), Zone: normal(r.PostFormValue("zone"))}
	isNew := k.Name == ""
	if isNew {
		k.Name = normal(r.PostFormValue("name"))
	}
	for line := range strings.Lines(normal(r.PostFormValue("rules"))) {
		if line = strings.TrimSpace(line); line != "" {
			k.Rules = append(k.Rules, line)
		}
	}
	k.IfRevision, _ = strconv.ParseUint(r.PostFormValue("revision"), 10, 64) // none: any revision
	who, ctx := v.Who, r.Context()
	who.Reason = r.PostFormValue("reason")
	var err error
	if isNew {
		if _, found := u.ops.Calendar(ctx, v.Who, k.Name); found == nil {
			err = kernel.Refuse(jobs.Conflict, "calendar %s already exists", k.Name)
		}
	}
	if err == nil {
		_, err = u.ops.SetCalendar(ctx, who, k)
	}
	if errors.Is(err, jobs.BadInput) || errors.Is(err, jobs.Stale) || errors.Is(err, jobs.Conflict) {
		c, found := u.ops.Calendar(ctx, v.Who, k.Name)
		if found != nil || isNew {
			c = ops.Calendar{}
		}
		shown := kernel.Calendar{Name: k.Name, Description: k.Description, Zone: k.Zone}
		if c.Calendar != nil {
			shown.Revision = c.Revision
		}
		c.Calendar = &shown
		return calendarPage{visitor: v, Is: c, New: isNew, Rules: strings.Join(k.Rules, "\n"), Fault: said(err)}.answer(statusOf(err)), nil
	}
	return goTo("/calendars/"+k.Name, "saved"), err
}

func (u *UI) dropCalendar(r *http.Request, v visitor) (answer, error) {
	return goTo("/calendars", "deleted"), u.ops.DropCalendar(r.Context(), v.Who, kernel.DropCalendar{Name: r.PathValue("name")})
}
