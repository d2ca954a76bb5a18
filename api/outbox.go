package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// RefusedRequest is a request for a run that a program wrote in its own transaction, and that was refused after the
// commit.
type RefusedRequest struct {
	Number     int64     `json:"number" doc:"Identifies the request in the outbox."`
	At         time.Time `json:"at" doc:"When it was refused."`
	Job        jobs.Key  `json:"job,omitempty"`
	Run        string    `json:"run,omitempty" format:"uuid" doc:"ID of the run that it requests."`
	Actor      string    `json:"actor,omitempty" doc:"The program that requests the run."`
	Reason     string    `json:"reason" doc:"Why it was refused."`
	Unreadable bool      `json:"unreadable,omitempty" doc:"The leader cannot read it, and delivers it once a leader can. Then job, run and actor may be missing."`
}

func refusedRequestOf(r metastore.RefusedRequest) RefusedRequest {
	out := RefusedRequest{Number: r.Number, At: r.At, Job: r.Key, Actor: r.Actor, Reason: r.Reason, Unreadable: r.Unreadable}
	if !r.Run.IsZero() {
		out.Run = r.Run.String()
	}
	return out
}

// ChangedRequests is the result of a change of refused requests.
type ChangedRequests struct {
	Requests int `json:"requests" doc:"Number of changed requests: the numbers of those that are not refused any more are ignored."`
}

type refusedInput struct {
	Limit int `query:"limit" minimum:"1" maximum:"200" default:"50"`
}

type refusedList struct {
	Items []RefusedRequest `json:"items" nullable:"false"`
}

type changeRefusedInput struct {
	Body struct {
		Numbers []int64 `json:"numbers" minItems:"1" maxItems:"1000" nullable:"false" doc:"Numbers of refused requests."`
		Reason  string  `json:"reason,omitempty" maxLength:"1024" doc:"Reason; recorded in the log."`
	}
}

type changeRefusedAnswer struct{ Body ChangedRequests }

func (a *API) routeOutbox() {
	tags := []string{"outbox"}
	register(a, ops.Viewer, huma.Operation{OperationID: "list-refused-requests", Method: http.MethodGet, Path: "/outbox/refused", Tags: tags, Summary: "List refused requests from transactions",
		Description: "Requests for runs that programs wrote in their own database transactions, and that were refused after the commit; newest first. Only a scheduler with its rows in a database has any."},
		func(ctx context.Context, in *refusedInput) (*struct{ Body refusedList }, error) {
			list, err := a.ops.RefusedRequests(ctx, who(ctx), in.Limit)
			if err != nil {
				return nil, err
			}
			out := refusedList{Items: make([]RefusedRequest, len(list))}
			for i, r := range list {
				out.Items[i] = refusedRequestOf(r)
			}
			return &struct{ Body refusedList }{out}, nil
		})
	for _, r := range []struct {
		path, id, summary, description string
		change                         func(context.Context, ops.Who, []int64) (int, error)
	}{
		{"/outbox/refused/retry", "retry-refused-requests", "Deliver refused requests again", "A request is refused again if its cause has not changed. Refused as a conflict within a minute after a request was refused.", a.ops.RetryRefused},
		{"/outbox/refused/discard", "discard-refused-requests", "Discard refused requests", "They are deleted, and their runs never start.", a.ops.DiscardRefused},
	} {
		register(a, ops.Operator, huma.Operation{OperationID: r.id, Method: http.MethodPost, Path: r.path, Tags: tags, Summary: r.summary, Description: r.description},
			func(ctx context.Context, in *changeRefusedInput) (*changeRefusedAnswer, error) {
				asker := who(ctx)
				asker.Reason = in.Body.Reason
				n, err := r.change(ctx, asker, in.Body.Numbers)
				if err != nil {
					return nil, err
				}
				return &changeRefusedAnswer{ChangedRequests{n}}, nil
			})
	}
}
