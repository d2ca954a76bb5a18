package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// Calendar is a named set of times at which the jobs that use it are not due.
type Calendar struct {
	Name        string     `json:"name"`
	Description string     `json:"description,omitempty"`
	Zone        string     `json:"zone,omitempty" doc:"IANA name; missing = UTC."`
	Rules       []string   `json:"rules" nullable:"false" example:"[\"12-25 # Christmas\",\"SAT,SUN\"]" doc:"One rule each: days, times of day, or both; text after a # is a note."`
	Jobs        []jobs.Key `json:"jobs,omitempty" doc:"Jobs that use it; missing in lists."`
	Next        []Excluded `json:"next,omitempty" doc:"The next due times of these jobs that it excludes."`
	Bundle      string     `json:"bundle,omitempty" doc:"The bundle of files that created it."`
	Revision    uint64     `json:"revision" doc:"Incremented by each change."`
	By          string     `json:"by" doc:"Who changed it last."`
	Changed     time.Time  `json:"changed"`
}

// Excluded is a due time that a calendar excludes.
type Excluded struct {
	Job  jobs.Key  `json:"job"`
	At   time.Time `json:"at"`
	Rule string    `json:"rule"`
}

func calendarOf(c ops.Calendar) Calendar {
	out := Calendar{Name: c.Name, Description: c.Description, Zone: c.Zone, Rules: c.Rules, Jobs: c.Jobs, Bundle: c.Bundle, Revision: c.Revision, By: c.By, Changed: c.Edited}
	if out.Rules == nil {
		out.Rules = []string{}
	}
	for _, e := range c.Next {
		out.Next = append(out.Next, Excluded{Job: e.Key, At: e.At, Rule: e.Rule})
	}
	return out
}

// CalendarPath names a calendar.
type CalendarPath struct {
	Name string `path:"name" minLength:"1" maxLength:"200"`
}

type calendarAnswer struct{ Body Calendar }

func answerCalendar(c ops.Calendar, err error) (*calendarAnswer, error) {
	if err != nil {
		return nil, err
	}
	return &calendarAnswer{calendarOf(c)}, nil
}

type setCalendarInput struct {
	CalendarPath
	Reason string `header:"Carillon-Reason" maxLength:"1024" doc:"Reason; recorded with the change."`
	Body   struct {
		Description string   `json:"description,omitempty" maxLength:"4096"`
		Zone        string   `json:"zone,omitempty" maxLength:"100" doc:"IANA name. Default: UTC."`
		Rules       []string `json:"rules" maxItems:"1000" nullable:"false"`
		Revision    uint64   `json:"revision,omitempty" doc:"The request is refused if the calendar has another revision; left out: any."`
	}
}

type calendarList struct {
	Items []Calendar `json:"items" nullable:"false"`
}

func (a *API) routeCalendars() {
	tags := []string{"calendars"}
	register(a, ops.Viewer, huma.Operation{OperationID: "list-calendars", Method: http.MethodGet, Path: "/calendars", Tags: tags, Summary: "List calendars by name"},
		func(ctx context.Context, _ *none) (*struct{ Body calendarList }, error) {
			list, err := a.ops.Calendars(ctx, who(ctx))
			if err != nil {
				return nil, err
			}
			out := calendarList{Items: make([]Calendar, len(list))}
			for i, c := range list {
				out.Items[i] = calendarOf(ops.Calendar{Calendar: c})
			}
			return &struct{ Body calendarList }{out}, nil
		})
	register(a, ops.Viewer, huma.Operation{OperationID: "get-calendar", Method: http.MethodGet, Path: "/calendars/{name}", Tags: tags, Summary: "Read a calendar",
		Description: "With the jobs that use it, and the next due times that it excludes."},
		func(ctx context.Context, in *CalendarPath) (*calendarAnswer, error) {
			return answerCalendar(a.ops.Calendar(ctx, who(ctx), in.Name))
		})
	register(a, ops.Admin, huma.Operation{OperationID: "set-calendar", Method: http.MethodPut, Path: "/calendars/{name}", Tags: tags, Summary: "Create or replace a calendar",
		Description: "Applies to future due times; due times that were excluded before are not fired."},
		func(ctx context.Context, in *setCalendarInput) (*calendarAnswer, error) {
			if err := a.often(ctx, "calendar/"+in.Name); err != nil {
				return nil, err
			}
			asker := who(ctx)
			asker.Reason = in.Reason
			return answerCalendar(a.ops.SetCalendar(ctx, asker, kernel.SetCalendar{Name: in.Name, Description: in.Body.Description, Zone: in.Body.Zone,
				Rules: in.Body.Rules, IfRevision: in.Body.Revision}))
		})
	register(a, ops.Admin, huma.Operation{OperationID: "delete-calendar", Method: http.MethodDelete, Path: "/calendars/{name}", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Delete a calendar", Description: "Refused while a job uses it."},
		func(ctx context.Context, in *CalendarPath) (*struct{}, error) {
			return nil, a.ops.DropCalendar(ctx, who(ctx), kernel.DropCalendar{Name: in.Name})
		})
}
