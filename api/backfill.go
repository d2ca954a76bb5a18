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
	Idempotency string `header:"Idempotency-Key" maxLength:"200" doc:"The same words under the same key make nothing twice, and are answered by what was made."`
	Reason      string `header:"Carillon-Reason" maxLength:"1024" doc:"Why; kept with the change."`
	Body        struct {
		From     time.Time  `json:"from" doc:"The first moment that is meant."`
		To       *time.Time `json:"to,omitempty" doc:"The first moment that is not meant any more; left out: now."`
		Parallel int        `json:"parallel,omitempty" minimum:"1" maximum:"1000" default:"1" doc:"So many of the runs may be under way at once; limits of the job hold all the same."`
		Priority *int       `json:"priority,omitempty" minimum:"-100" maximum:"100" doc:"Left out: one below that of the job, so that what is due now goes first."`
		Replay   bool       `json:"replay,omitempty" doc:"Also due times that have a run: once more."`
		DryRun   bool       `json:"dryRun,omitempty" doc:"Only say what would be made."`
	}
}

// Backfill is what a backfill has made, or would make.
type Backfill struct {
	ID       string     `json:"id,omitempty" format:"uuid" doc:"The parent of its runs; missing if there are none."`
	Due      int        `json:"due" doc:"Due times in the stretch."`
	Runs     int        `json:"runs" doc:"Made of them."`
	Had      int        `json:"had" doc:"Left out: they have a run, or had one that is not kept any more."`
	First    *time.Time `json:"first,omitempty" doc:"Due time of the first run."`
	Last     *time.Time `json:"last,omitempty" doc:"Due time of the last run."`
	Parallel int        `json:"parallel"`
	DryRun   bool       `json:"dryRun,omitempty" doc:"Nothing was made."`
}

func (a *API) routeBackfill() {
	register(a, ops.Operator, huma.Operation{OperationID: "backfill-job", Method: http.MethodPost, Path: "/jobs/{key}/backfill", Tags: []string{"jobs"},
		Summary:     "Make the runs of a stretch of time that lies behind",
		Description: "Of a recurring job, at most 10,000 due times at once. Those that have a run are left out unless replay is said. Asking twice makes nothing twice."}, a.backfill)
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
