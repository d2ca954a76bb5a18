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

// Kept is the retention of finished runs, as the answering process knows it.
type Kept struct {
	Bytes     int64      `json:"bytes" doc:"Approximate size of finished runs, as of checkedAt."`
	MaxBytes  int64      `json:"maxBytes" doc:"Size limit of finished runs: beyond it, the oldest are purged; 0 = no limit."`
	CountsFor Duration   `json:"countsFor" doc:"How long hourly counts are kept."`
	CheckedAt *time.Time `json:"checkedAt,omitempty" doc:"When retention was checked last."`
	CleanedAt *time.Time `json:"cleanedAt,omitempty" doc:"When runs were purged last."`
	Cleaned   int        `json:"cleaned" doc:"Runs purged then."`
	Before    *time.Time `json:"before,omitempty" doc:"Runs of all jobs that finished before this time were purged by hand."`
}

func keptOf(c ops.Cleaning, g *kernel.Global) *Kept {
	return &Kept{Bytes: c.Bytes, MaxBytes: c.Most, CountsFor: Duration(c.Counts), CheckedAt: when(c.Looked), CleanedAt: when(c.At), Cleaned: c.Runs, Before: when(g.Cleaned)}
}

// Clean is a request to purge finished runs.
type Clean struct {
	Job    jobs.Key   `json:"job,omitempty" maxLength:"200" doc:"Job whose runs are purged, which may have been deleted. Default: all jobs."`
	Before *time.Time `json:"before,omitempty" doc:"Purge runs that finished before this time. Default: now."`
	Keep   int        `json:"keep,omitempty" minimum:"0" maximum:"10000" doc:"Keep this number of the job's newest runs."`
	DryRun bool       `json:"dryRun,omitempty" doc:"Only report what would be purged."`
}

// Cleaned is the result of a purge.
type Cleaned struct {
	Before time.Time `json:"before" doc:"Runs that finished before this time are purged."`
	Runs   int       `json:"runs" doc:"Number of these runs, as far as they were counted."`
	More   bool      `json:"more,omitempty" doc:"There are more than were counted."`
	DryRun bool      `json:"dryRun,omitempty" doc:"Nothing was purged."`
}

type cleanInput struct {
	Reason string `header:"Carillon-Reason" maxLength:"1024" doc:"Reason; recorded with the change."`
	Body   Clean
}

func (a *API) routeClean() {
	register(a, ops.Admin, huma.Operation{OperationID: "clean", Method: http.MethodPost, Path: "/clean", Tags: []string{"system"}, Summary: "Purge finished runs",
		Description: "Their logs and results are purged shortly after. Hourly counts stay. Live runs are not affected."},
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
