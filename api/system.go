package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// Settings are what holds for all jobs.
type Settings struct {
	Recurring    Debug    `json:"recurringDebug" doc:"While it is on, due times become ledger entries and no runs."`
	Triggered    Debug    `json:"triggeredDebug" doc:"While it is on, runs that nobody asked for by hand are held back."`
	MisfireAfter Duration `json:"misfireAfter" doc:"How late a due time may be and still fire by itself."`
	Revision     uint64   `json:"revision"`
	Released     int      `json:"released,omitempty" doc:"Held runs that this change let start."`
	Discarded    int      `json:"discarded,omitempty" doc:"Held runs that this change cancelled."`
}

func settingsOf(g *jobs.Global) Settings {
	return Settings{Recurring: debugOf(g.RecurringDebug), Triggered: debugOf(g.TriggeredDebug), MisfireAfter: Duration(g.Late()), Revision: g.Revision}
}

type configureInput struct {
	Body struct {
		RecurringDebug *bool     `json:"recurringDebug,omitempty"`
		TriggeredDebug *bool     `json:"triggeredDebug,omitempty"`
		Held           string    `json:"held,omitempty" enum:"release,discard" doc:"What becomes of the runs that triggered debug mode holds back when it is switched off."`
		MisfireAfter   *Duration `json:"misfireAfter,omitempty"`
	}
}

// Overview is the first look at everything.
type Overview struct {
	Now            time.Time      `json:"now"`
	Leader         string         `json:"leader,omitempty" doc:"The node that fires and offers."`
	RecurringDebug bool           `json:"recurringDebug"`
	TriggeredDebug bool           `json:"triggeredDebug"`
	Workers        int            `json:"workers"`
	Runs           map[string]int `json:"runs" doc:"Runs that are not over, by state."`
	FailedLastHour int            `json:"failedLastHour" doc:"Runs that ended badly within the last hour; 200 means at least so many."`
	Hours          []HourCount    `json:"hours" nullable:"false" doc:"How many runs entered a state, by hour, of the last 24."`
}

// HourCount says how many runs entered a state within an hour.
type HourCount struct {
	Hour  time.Time `json:"hour"`
	State string    `json:"state"`
	Runs  int64     `json:"runs"`
}

type workerList struct {
	Items []Worker `json:"items" nullable:"false"`
}

type none struct{}

func (a *API) routeSystem() {
	tags := []string{"system"}
	register(a, huma.Operation{OperationID: "get-settings", Method: http.MethodGet, Path: "/settings", Tags: tags, Summary: "Read what holds for all jobs"},
		func(ctx context.Context, _ *none) (*struct{ Body Settings }, error) {
			g, err := a.ops.Settings(ctx, who(ctx))
			if err != nil {
				return nil, err
			}
			return &struct{ Body Settings }{settingsOf(g)}, nil
		})
	register(a, huma.Operation{OperationID: "change-settings", Method: http.MethodPatch, Path: "/settings", Tags: tags, Summary: "Change what holds for all jobs",
		Description: "Switching triggered debug mode off while runs are held back is refused, with their number, until held says what becomes of them."}, a.configure)
	register(a, huma.Operation{OperationID: "list-workers", Method: http.MethodGet, Path: "/workers", Tags: tags, Summary: "List workers"},
		func(ctx context.Context, _ *none) (*struct{ Body workerList }, error) {
			out := workerList{Items: []Worker{}}
			for _, w := range a.ops.Workers(ctx, who(ctx)) {
				out.Items = append(out.Items, workerOf(w))
			}
			return &struct{ Body workerList }{out}, nil
		})
	register(a, huma.Operation{OperationID: "overview", Method: http.MethodGet, Path: "/overview", Tags: tags, Summary: "The first look at everything"}, a.overview)
}

func (a *API) configure(ctx context.Context, in *configureInput) (*struct{ Body Settings }, error) {
	b := &in.Body
	done, err := a.ops.Configure(ctx, who(ctx), jobs.Configure{RecurringDebug: b.RecurringDebug, TriggeredDebug: b.TriggeredDebug,
		MisfireAfter: (*time.Duration)(b.MisfireAfter)}, ops.Held(b.Held))
	if err != nil {
		return nil, err
	}
	out := settingsOf(done.Global)
	out.Released, out.Discarded = done.Released, done.Discarded
	return &struct{ Body Settings }{out}, nil
}

func (a *API) overview(ctx context.Context, _ *none) (*struct{ Body Overview }, error) {
	o, err := a.ops.Overview(ctx, who(ctx))
	if err != nil {
		return nil, err
	}
	out := Overview{Now: o.Now, Leader: o.Leader.Node, RecurringDebug: o.Recurring.On, TriggeredDebug: o.Triggered.On, Workers: o.Workers,
		Runs: map[string]int{}, FailedLastHour: o.Failed, Hours: make([]HourCount, len(o.Hours))}
	for state, n := range o.Live {
		out.Runs[state.String()] = n
	}
	for i, t := range o.Hours {
		out.Hours[i] = HourCount{Hour: time.Unix(0, t.Hour).UTC(), State: t.State.String(), Runs: t.N}
	}
	return &struct{ Body Overview }{out}, nil
}
