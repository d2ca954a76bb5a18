package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// Stats is how many runs finished, by day and by hour.
type Stats struct {
	Total map[string]int64 `json:"total" doc:"Finished runs of all these days, by state."`
	Days  []DayCount       `json:"days" nullable:"false" doc:"By day (UTC), oldest first; the last one is incomplete."`
	Hours []HourCount      `json:"hours" nullable:"false" doc:"By hour and state; hours without finished runs are left out."`
}

// DayCount is how many runs finished on a day.
type DayCount struct {
	Day  time.Time        `json:"day" doc:"Its start."`
	Runs map[string]int64 `json:"runs" doc:"By state."`
}

func (a *API) routeStats() {
	const about = "Runs that were purged count."
	register(a, ops.Viewer, huma.Operation{OperationID: "job-stats", Method: http.MethodGet, Path: "/jobs/{key}/stats", Tags: []string{"jobs"}, Summary: "Count the finished runs of a job by day", Description: about},
		func(ctx context.Context, in *struct {
			JobPath
			Days int `query:"days" minimum:"1" maximum:"35" default:"7" doc:"Number of days, today included."`
		}) (*struct{ Body Stats }, error) {
			return a.stats(ctx, jobs.Key(in.Key), in.Days)
		})
	register(a, ops.Viewer, huma.Operation{OperationID: "stats", Method: http.MethodGet, Path: "/stats", Tags: []string{"system"}, Summary: "Count the finished runs of all jobs by day", Description: about},
		func(ctx context.Context, in *struct {
			Days int `query:"days" minimum:"1" maximum:"35" default:"7" doc:"Number of days, today included."`
		}) (*struct{ Body Stats }, error) {
			return a.stats(ctx, "", in.Days)
		})
}

func (a *API) stats(ctx context.Context, key jobs.Key, days int) (*struct{ Body Stats }, error) {
	s, err := a.ops.Stats(ctx, who(ctx), key, days)
	if err != nil {
		return nil, err
	}
	out := Stats{Total: map[string]int64{}, Days: make([]DayCount, len(s.Days)), Hours: make([]HourCount, len(s.Hours))}
	for i, d := range s.Days {
		out.Days[i] = DayCount{Day: d.Day, Runs: map[string]int64{}}
		for state, n := range d.Runs {
			out.Days[i].Runs[state.String()] = n
			out.Total[state.String()] += n
		}
	}
	for i, t := range s.Hours {
		out.Hours[i] = HourCount{Hour: time.Unix(0, t.Hour).UTC(), State: t.State.String(), Runs: t.N}
	}
	return &struct{ Body Stats }{out}, nil
}
