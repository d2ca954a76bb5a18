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

// Kept says what is kept of runs that are over, as the process knows it that answers.
type Kept struct {
	Bytes     int64      `json:"bytes" doc:"What runs that are over take, about; as of checkedAt."`
	MaxBytes  int64      `json:"maxBytes" doc:"What they may take: beyond, the oldest go; 0 = any number."`
	CountsFor Duration   `json:"countsFor" doc:"How long counts by the hour are kept."`
	CheckedAt *time.Time `json:"checkedAt,omitempty" doc:"When it was last looked for runs that need not be kept."`
	CleanedAt *time.Time `json:"cleanedAt,omitempty" doc:"When runs were cleared away last."`
	Cleaned   int        `json:"cleaned" doc:"So many, then."`
	Before    *time.Time `json:"before,omitempty" doc:"Up to when runs of all jobs were cleared away by hand."`
}

func keptOf(c ops.Cleaning, g *kernel.Global) *Kept {
	return &Kept{Bytes: c.Bytes, MaxBytes: c.Most, CountsFor: Duration(c.Counts), CheckedAt: when(c.Looked), CleanedAt: when(c.At), Cleaned: c.Runs, Before: when(g.Cleaned)}
}

// Clean is a wish to clear runs away.
type Clean struct {
	Job    jobs.Key   `json:"job,omitempty" maxLength:"200" doc:"Of this job, which may have been deleted; of all jobs if there is none."`
	Before *time.Time `json:"before,omitempty" doc:"Those that ended before; default: now."`
	Keep   int        `json:"keep,omitempty" minimum:"0" maximum:"10000" doc:"But so many of the job, the newest."`
	DryRun bool       `json:"dryRun,omitempty" doc:"Only say what would go."`
}

// Cleaned says what it comes to.
type Cleaned struct {
	Before time.Time `json:"before" doc:"What ended before goes."`
	Runs   int       `json:"runs" doc:"So many runs, as far as they were counted."`
	More   bool      `json:"more,omitempty" doc:"There are more than were counted."`
	DryRun bool      `json:"dryRun,omitempty" doc:"Nothing was done."`
}

type cleanInput struct {
	Reason string `header:"Carillon-Reason" maxLength:"1024" doc:"Why; kept with the change."`
	Body   Clean
}

func (a *API) routeClean() {
	register(a, ops.Admin, huma.Operation{OperationID: "clean", Method: http.MethodPost, Path: "/clean", Tags: []string{"system"}, Summary: "Clear runs away that are over",
		Description: "With their logs and results, a moment later. Counts by the hour stay. Live runs are not concerned."},
		func(ctx context.Context, in *cleanInput) (*struct{ Body Cleaned }, error) {
			asker := who(ctx)
			asker.Reason = in.Reason
			want := ops.Clean{Key: in.Body.Job, Keep: in.Body.Keep, Dry: in.Body.DryRun}
			if in.Body.Before != nil {
				want.Before = *in.Body.Before
			}
			done, err := a.ops.Clean(ctx, asker, want)
			if err != nil {
				return nil, err
			}
			return &struct{ Body Cleaned }{Cleaned{Before: done.Before, Runs: done.Runs, More: done.More, DryRun: in.Body.DryRun}}, nil
		})
}
