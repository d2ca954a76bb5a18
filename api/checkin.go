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

// CheckIn is a run that has ended elsewhere.
type CheckIn struct {
	Failed bool      `json:"failed,omitempty"`
	Error  string    `json:"error,omitempty" maxLength:"1024" doc:"Why it failed."`
	Result *Object   `json:"result,omitempty"`
	Took   *Duration `json:"took,omitempty" doc:"How long it ran until now."`
}

type checkInInput struct {
	JobPath
	Idempotency string `header:"Idempotency-Key" maxLength:"200" doc:"A repeated key within 24 hours returns the run that it recorded."`
	Body        CheckIn
}

func (a *API) routeCheckIn() {
	register(a, ops.Operator, huma.Operation{OperationID: "check-in", Method: http.MethodPost, Path: "/jobs/{key}/check-in", Tags: []string{"jobs"}, DefaultStatus: http.StatusCreated,
		Summary:     "Record a run that has ended elsewhere",
		Description: "For jobs that another scheduler starts, such as cron on a host: a triggered job that no worker runs. The run counts like any other, for alarms, jobs that follow and statistics."},
		func(ctx context.Context, in *checkInInput) (*runAnswer, error) {
			k := kernel.CheckIn{Key: jobs.Key(in.Key), Failed: in.Body.Failed, Error: in.Body.Error, Idempotency: in.Idempotency}
			if in.Body.Took != nil {
				k.Took = time.Duration(*in.Body.Took)
			}
			if in.Body.Result != nil {
				k.Result = []byte(*in.Body.Result)
			}
			return a.created(a.ops.CheckIn(ctx, who(ctx), k))
		})
}
