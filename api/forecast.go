package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// Forecast is the number of planned fires in each minute of the next 24 hours.
type Forecast struct {
	From    time.Time `json:"from" doc:"Start of the first minute."`
	Fires   []int     `json:"fires" nullable:"false" doc:"Planned fires in each minute from then on, for 24 hours."`
	Usual   int       `json:"usual" doc:"Median of the minutes."`
	Jobs    int       `json:"jobs" doc:"Jobs with planned fires."`
	Left    int       `json:"left,omitempty" doc:"Jobs not counted: not yet while going is set, else because counting would take too long."`
	Going   bool      `json:"going,omitempty" doc:"Incomplete: repeat the request to continue."`
	Crowded []Crowd   `json:"crowded" nullable:"false" doc:"Minutes with far more fires than most, highest first, up to 12."`
}

// Crowd is a minute with far more fires than most.
type Crowd struct {
	At    time.Time `json:"at"`
	Fires int       `json:"fires"`
	Jobs  []Firing  `json:"jobs" nullable:"false" doc:"Jobs that fire then, up to 10; first those that could fire at another minute."`
	More  int       `json:"more,omitempty" doc:"Jobs that are not listed."`
}

// Firing is a job that fires in a crowded minute, with a quieter alternative.
type Firing struct {
	Job      jobs.Key `json:"job"`
	Fires    int      `json:"fires" doc:"Its fires in that minute."`
	Schedule string   `json:"schedule"`
	Instead  string   `json:"instead,omitempty" doc:"The same schedule at the quietest minute of the hour, if there is a better one."`
	Spread   string   `json:"spread,omitempty" doc:"The same at a minute that is chosen by the job's key."`
	Then     int      `json:"then,omitempty" doc:"Max fires, with its own, of a minute in which it would fire instead."`
}

func forecastOf(f ops.Forecast) Forecast {
	out := Forecast{From: f.From, Fires: f.Fires, Usual: f.Usual, Jobs: f.Jobs, Left: f.Left, Going: f.Going, Crowded: make([]Crowd, len(f.Crowded))}
	for i, c := range f.Crowded {
		out.Crowded[i] = Crowd{At: c.At, Fires: c.Fires, More: c.More, Jobs: make([]Firing, len(c.Jobs))}
		for j, d := range c.Jobs {
			out.Crowded[i].Jobs[j] = Firing{Job: d.Key, Fires: d.Fires, Schedule: d.Schedule, Instead: d.Instead, Spread: d.Spread, Then: d.Then}
		}
	}
	return out
}

func (a *API) routeForecast() {
	register(a, ops.Viewer, huma.Operation{OperationID: "forecast", Method: http.MethodGet, Path: "/forecast", Tags: []string{"system"}, Summary: "Forecast fires of the next 24 hours, by minute",
		Description: "With the crowded minutes, and quieter ones for jobs that fire there. Debug mode is ignored. A response takes at most two seconds: with many jobs it may be a minute old, or incomplete."},
		func(ctx context.Context, _ *none) (*struct{ Body Forecast }, error) {
			f, err := a.ops.Forecast(ctx, who(ctx))
			if err != nil {
				return nil, err
			}
			return &struct{ Body Forecast }{forecastOf(f)}, nil
		})
}
