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

// Stats is how many runs finished.
type Stats struct {
	Periods []PeriodCount    `json:"periods" nullable:"false" doc:"Of the last 24 hours (24h), 7 days (7d) and 30 days (30d), the current hour or day included."`
	Total   map[string]int64 `json:"total" doc:"Finished runs of all these days, by state."`
	Days    []DayCount       `json:"days" nullable:"false" doc:"By day (UTC), oldest first; the last one is incomplete."`
	Hours   []HourCount      `json:"hours" nullable:"false" doc:"Of the last two days, by hour and state; hours without finished runs are left out."`
}

// PeriodCount is how many runs finished within a period.
type PeriodCount struct {
	Period string           `json:"period" enum:"24h,7d,30d" doc:"How long it is."`
	From   time.Time        `json:"from" doc:"Its start: of an hour, or of a day (UTC)."`
	Runs   int64            `json:"runs" doc:"Finished runs."`
	States map[string]int64 `json:"states" doc:"Finished runs by state."`
	Failed int64            `json:"failed" doc:"Failed attempts that were followed by another one."`
	Mean   float64          `json:"mean" doc:"Average duration of the last attempts of the runs that succeeded, in seconds; 0 if there are none."`
}

// DayCount is how many runs finished on a day.
type DayCount struct {
	Day  time.Time        `json:"day" doc:"Its start."`
	Runs map[string]int64 `json:"runs" doc:"By state."`
	Mean float64          `json:"mean" doc:"Average duration of the last attempts of the runs that succeeded, in seconds; 0 if there are none."`
}

func (a *API) routeStats() {
	const about = "Runs that were purged count."
	register(a, ops.Viewer, huma.Operation{OperationID: "job-stats", Method: http.MethodGet, Path: "/jobs/{key}/stats", Tags: []string{"jobs"}, Summary: "Count the finished runs of a job", Description: about},
		func(ctx context.Context, in *struct {
			JobPath
			Days int `query:"days" minimum:"1" maximum:"35" default:"7" doc:"Number of days, today included."`
		}) (*struct{ Body Stats }, error) {
			return a.stats(ctx, ops.StatsQuery{Job: jobs.Key(in.Key), Days: in.Days})
		})
	register(a, ops.Viewer, huma.Operation{OperationID: "stats", Method: http.MethodGet, Path: "/stats", Tags: []string{"system"}, Summary: "Count the finished runs of all jobs, or of an app", Description: about},
		func(ctx context.Context, in *struct {
			Days int    `query:"days" minimum:"1" maximum:"35" default:"7" doc:"Number of days, today included."`
			App  string `query:"app" doc:"Only of this app's jobs, deleted ones included."`
		}) (*struct{ Body Stats }, error) {
			return a.stats(ctx, ops.StatsQuery{App: in.App, Days: in.Days})
		})
}

func (a *API) stats(ctx context.Context, q ops.StatsQuery) (*struct{ Body Stats }, error) {
	s, err := a.ops.Stats(ctx, who(ctx), q)
	if err != nil {
		return nil, err
	}
	out := Stats{Total: map[string]int64{}, Days: make([]DayCount, len(s.Days)), Periods: make([]PeriodCount, len(s.Periods)), Hours: hourCounts(s.Hours, jobs.State.Final)}
	for i, d := range s.Days {
		out.Days[i] = DayCount{Day: d.From, Runs: finished(d.Sums), Mean: d.Mean().Seconds()}
		for state, n := range out.Days[i].Runs {
			out.Total[state] += n
		}
	}
	for i, p := range s.Periods {
		out.Periods[i] = PeriodCount{Period: p.Name, From: p.From, Runs: p.Finished(), States: finished(p.Sums), Failed: p.Sums.Runs[jobs.Failed], Mean: p.Mean().Seconds()}
	}
	return &struct{ Body Stats }{out}, nil
}

// finished returns how many runs finished, by state.
func finished(s kernel.Sums) map[string]int64 {
	runs := map[string]int64{}
	for state, n := range s.Runs {
		if state := jobs.State(state); n > 0 && state.Final() {
			runs[state.String()] = n
		}
	}
	return runs
}
