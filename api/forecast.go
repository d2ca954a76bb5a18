package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// Forecast is how many runs the schedules plan, minute by minute, for a day ahead.
type Forecast struct {
	From    time.Time `json:"from" doc:"The beginning of the first minute."`
	Fires   []int     `json:"fires" nullable:"false" doc:"Planned in each minute from then on, for 24 hours."`
	Usual   int       `json:"usual" doc:"Of the minute in the middle, if all are put in order."`
	Jobs    int       `json:"jobs" doc:"That plan any."`
	Left    int       `json:"left,omitempty" doc:"Jobs that are not counted: not yet, if it is going, else because that would take too long."`
	Going   bool      `json:"going,omitempty" doc:"It is not whole yet: ask again, and it goes on from there."`
	Crowded []Crowd   `json:"crowded" nullable:"false" doc:"The minutes that are much fuller than most, fullest first, up to 12."`
}

// Crowd is a minute that is much fuller than most.
type Crowd struct {
	At    time.Time `json:"at"`
	Fires int       `json:"fires"`
	Jobs  []Firing  `json:"jobs" nullable:"false" doc:"That fire then, up to 10; those that could fire at another minute first."`
	More  int       `json:"more,omitempty" doc:"Jobs that are not named."`
}

// Firing is a job that fires in a crowded minute, and when it would be out of the way.
type Firing struct {
	Job      jobs.Key `json:"job"`
	Fires    int      `json:"fires" doc:"In that minute."`
	Schedule string   `json:"schedule"`
	Instead  string   `json:"instead,omitempty" doc:"The same schedule at the quietest minute of the hour, as far as there is a better one."`
	Spread   string   `json:"spread,omitempty" doc:"The same at a minute that the job's key chooses."`
	Then     int      `json:"then,omitempty" doc:"The most fires of a minute in which it would fire instead, its own counted."`
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
	register(a, ops.Viewer, huma.Operation{OperationID: "forecast", Method: http.MethodGet, Path: "/forecast", Tags: []string{"system"}, Summary: "Planned fires of the next 24 hours, by minute",
		Description: "With the crowded minutes, and quieter ones for jobs that fire there. Debug mode is left out of account. An answer takes two seconds at most: in a large house it may be a minute old, or not whole yet."},
		func(ctx context.Context, _ *none) (*struct{ Body Forecast }, error) {
			f, err := a.ops.Forecast(ctx, who(ctx))
			if err != nil {
				return nil, err
			}
			return &struct{ Body Forecast }{forecastOf(f)}, nil
		})
}
