package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

type backfillInput struct {
	JobPath
	Idempotency string `header:"Idempotency-Key" maxLength:"200" doc:"The same request under the same key creates nothing twice: it returns the first result."`
	Reason      string `header:"Carillon-Reason" maxLength:"1024" doc:"Reason; recorded with the change."`
	Body        struct {
		From     time.Time  `json:"from" doc:"Start of the period (inclusive)."`
		To       *time.Time `json:"to,omitempty" doc:"End of the period (exclusive). Default: now."`
		Parallel int        `json:"parallel,omitempty" minimum:"1" maximum:"1000" default:"1" doc:"Max parallel runs; job limits still apply."`
		Priority *int       `json:"priority,omitempty" minimum:"-100" maximum:"100" doc:"Default: the job's priority less one, so that current due times run first."`
		Replay   bool       `json:"replay,omitempty" doc:"Run due times again that already have a run."`
		DryRun   bool       `json:"dryRun,omitempty" doc:"Only report what would be created."`
	}
}

// Backfill is the result of a backfill, or of its preview.
type Backfill struct {
	ID       string     `json:"id,omitempty" format:"uuid" doc:"The parent of its runs; missing if there are none."`
	Due      int        `json:"due" doc:"Due times in the period."`
	Runs     int        `json:"runs" doc:"Runs created."`
	Had      int        `json:"had" doc:"Due times skipped because they have, or had, a run."`
	First    *time.Time `json:"first,omitempty" doc:"Due time of the first run."`
	Last     *time.Time `json:"last,omitempty" doc:"Due time of the last run."`
	Parallel int        `json:"parallel"`
	DryRun   bool       `json:"dryRun,omitempty" doc:"Nothing was created."`
}

func (a *API) routeBackfill() {
	register(a, ops.Operator, huma.Operation{OperationID: "backfill-job", Method: http.MethodPost, Path: "/jobs/{key}/backfill", Tags: []string{"jobs"},
		Summary:     "Create runs for past due times",
		Description: "Of a recurring job, at most 10,000 due times at once. Due times that have a run are skipped unless replay is set. A repeated request creates nothing twice."}, a.backfill)
}

func (a *API) backfill(ctx context.Context, in *backfillInput) (*struct{ Body Backfill }, error) {
	if err := a.often(ctx, in.Key); err != nil {
		return nil, err
	}
	b := ops.Backfill{Key: jobs.Key(in.Key), From: in.Body.From, Parallel: in.Body.Parallel, Priority: in.Body.Priority, Replay: in.Body.Replay, Request: in.Idempotency}
	if in.Body.To != nil {
		b.To = *in.Body.To
	}
	asker, do := who(ctx), a.ops.Backfill
	asker.Reason = in.Reason
	if in.Body.DryRun {
		do = a.ops.PreviewBackfill
	}
	done, err := do(ctx, asker, b)
	if err != nil {
		return nil, err
	}
	out := backfillOf(done)
	out.DryRun = in.Body.DryRun
	return &struct{ Body Backfill }{out}, nil
}

func backfillOf(b ops.Backfilled) Backfill {
	return Backfill{ID: b.ID.String(), Due: b.Due, Runs: b.Runs, Had: b.Had, First: when(b.First), Last: when(b.Last), Parallel: b.Parallel}
}
