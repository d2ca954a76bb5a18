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
	Bytes     int64      `json:"bytes" doc:"Approximate size of the finished runs of all tenants, as of checkedAt. This, checkedAt, purgedAt and purged are only for the default tenant."`
	MaxBytes  int64      `json:"maxBytes" doc:"Size limit of finished runs: beyond it, the oldest are purged; 0 = no limit."`
	CountsFor Duration   `json:"countsFor" doc:"How long counts of days are kept."`
	CheckedAt *time.Time `json:"checkedAt,omitempty" doc:"When retention was checked last."`
	PurgedAt  *time.Time `json:"purgedAt,omitempty" doc:"When runs were purged last."`
	Purged    int        `json:"purged" doc:"Runs purged then."`
	Before    *time.Time `json:"before,omitempty" doc:"Runs of all jobs that finished before this time were purged by hand."`
}

func keptOf(c ops.Purging, g *kernel.Global) *Kept {
	return &Kept{Bytes: c.Bytes, MaxBytes: c.Most, CountsFor: Duration(c.Counts), CheckedAt: when(c.Looked), PurgedAt: when(c.At), Purged: c.Runs, Before: when(g.Purged)}
}

// Purge is a request to purge finished runs.
type Purge struct {
	Job    jobs.Key   `json:"job,omitempty" maxLength:"200" doc:"Job whose runs are purged, which may have been deleted. Default: all jobs."`
	Before *time.Time `json:"before,omitempty" doc:"Purge runs that finished before this time. Default: now."`
	Keep   int        `json:"keep,omitempty" minimum:"0" maximum:"10000" doc:"Keep this number of the job's newest runs."`
	DryRun bool       `json:"dryRun,omitempty" doc:"Only report what would be purged."`
}

// Purged is the result of a purge.
type Purged struct {
	Before time.Time `json:"before" doc:"Runs that finished before this time are purged."`
	Runs   int       `json:"runs" doc:"Number of these runs, as far as they were counted."`
	More   bool      `json:"more,omitempty" doc:"There are more than were counted."`
	DryRun bool      `json:"dryRun,omitempty" doc:"Nothing was purged."`
}

type purgeInput struct {
	Reason string `header:"Carillon-Reason" maxLength:"1024" doc:"Reason; recorded with the change."`
	Body   Purge
}

func (a *API) routePurge() {
	register(a, ops.Admin, huma.Operation{OperationID: "purge", Method: http.MethodPost, Path: "/purge", Tags: []string{"system"}, Summary: "Purge finished runs",
		Description: "Their logs and results are purged shortly after. Hourly counts stay. Live runs are not affected."},
		func(ctx context.Context, in *purgeInput) (*struct{ Body Purged }, error) {
			asker := who(ctx)
			asker.Reason = in.Reason
			want := ops.Purge{Key: in.Body.Job, Keep: in.Body.Keep, Dry: in.Body.DryRun}
			if in.Body.Before != nil {
				want.Before = *in.Body.Before
			}
			done, err := a.ops.Purge(ctx, asker, want)
			if err != nil {
				return nil, err
			}
			return &struct{ Body Purged }{Purged{Before: done.Before, Runs: done.Runs, More: done.More, DryRun: in.Body.DryRun}}, nil
		})
}
