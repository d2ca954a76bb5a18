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

// Batch is runs that were requested together, and the job that runs when all have ended.
type Batch struct {
	ID         string      `json:"id" format:"uuid"`
	Name       string      `json:"name,omitempty"`
	Then       jobs.Key    `json:"then" doc:"The job that runs at the end."`
	Actor      string      `json:"actor" doc:"Who opened it."`
	Opened     time.Time   `json:"opened"`
	Closed     *time.Time  `json:"closed,omitempty" doc:"Missing: it is open."`
	Abandoned  bool        `json:"abandoned,omitempty" doc:"The scheduler closed it, a day after the last run was added."`
	Ended      *time.Time  `json:"ended,omitempty" doc:"Missing: runs are not final, or it is open."`
	Run        string      `json:"run,omitempty" format:"uuid" doc:"The run that began at its end. Missing after the end: the job was gone."`
	Total      uint64      `json:"total" doc:"Number of runs."`
	Live       uint64      `json:"live" doc:"Runs that are not final."`
	Succeeded  uint64      `json:"succeeded"`
	Terminated uint64      `json:"terminated"`
	Cancelled  uint64      `json:"cancelled"`
	Skipped    uint64      `json:"skipped"`
	Failures   []JobsEnded `json:"failures,omitempty" doc:"The first 20 runs that did not succeed."`
}

// NewBatch opens a batch.
type NewBatch struct {
	Then jobs.Key `json:"then" maxLength:"200" doc:"The triggered job that runs at the end."`
	Name string   `json:"name,omitempty" maxLength:"200" doc:"Opening a batch of the same name again returns it, for a week after its end."`
	Args *Object  `json:"args,omitempty" doc:"Arguments of the run at the end, to which a field batch is added. Default: those of the job."`
}

// BatchPath is the batch in a path.
type BatchPath struct {
	ID string `path:"id" format:"uuid"`
}

type batchesInput struct {
	Limit int `query:"limit" minimum:"1" maximum:"200" default:"50"`
}

type batchList struct {
	Items []Batch `json:"items" nullable:"false" doc:"The latest first."`
}

func (a *API) routeBatches() {
	register(a, ops.Viewer, huma.Operation{OperationID: "list-batches", Method: http.MethodGet, Path: "/batches", Tags: []string{"runs"},
		Summary: "List batches", Description: "Batches can be read for a week after their end."},
		func(ctx context.Context, in *batchesInput) (*struct{ Body batchList }, error) {
			list, err := a.ops.Batches(ctx, who(ctx), in.Limit)
			if err != nil {
				return nil, err
			}
			out := batchList{Items: make([]Batch, len(list))}
			for i, b := range list {
				out.Items[i] = batchOf(b)
			}
			return &struct{ Body batchList }{out}, nil
		})
	register(a, ops.Viewer, huma.Operation{OperationID: "get-batch", Method: http.MethodGet, Path: "/batches/{id}", Tags: []string{"runs"},
		Summary: "Get a batch"},
		func(ctx context.Context, in *BatchPath) (*struct{ Body Batch }, error) {
			id, err := jobs.ParseID(in.ID)
			if err != nil {
				return nil, err
			}
			return batchAnswer(a.ops.Batch(ctx, who(ctx), id))
		})
	register(a, ops.Operator, huma.Operation{OperationID: "open-batch", Method: http.MethodPost, Path: "/batches", Tags: []string{"runs"},
		Summary: "Open a batch", Description: "Then create runs with its ID in their field batch, and close it. When all of them are final, a run of the job `then` begins."},
		func(ctx context.Context, in *struct{ Body NewBatch }) (*struct{ Body Batch }, error) {
			k := kernel.OpenBatch{Name: in.Body.Name, Then: in.Body.Then}
			if in.Body.Args != nil {
				if p := tooLarge(in.Body.Args, "body.args"); p != nil {
					return nil, p
				}
				k.Args = []byte(*in.Body.Args)
			}
			return batchAnswer(a.ops.OpenBatch(ctx, who(ctx), k))
		})
	register(a, ops.Operator, huma.Operation{OperationID: "close-batch", Method: http.MethodPost, Path: "/batches/{id}/close", Tags: []string{"runs"},
		Summary: "Close a batch", Description: "Closing it again changes nothing. A batch that stays open is closed a day after the last run was added."},
		func(ctx context.Context, in *BatchPath) (*struct{ Body Batch }, error) {
			id, err := jobs.ParseID(in.ID)
			if err != nil {
				return nil, err
			}
			return batchAnswer(a.ops.CloseBatch(ctx, who(ctx), id))
		})
}

func batchAnswer(b *kernel.Batch, err error) (*struct{ Body Batch }, error) {
	if err != nil {
		return nil, err
	}
	return &struct{ Body Batch }{batchOf(b)}, nil
}

func batchOf(b *kernel.Batch) Batch {
	return Batch{ID: b.ID.String(), Name: b.Name, Then: b.Then, Actor: b.Actor, Opened: b.Opened, Closed: when(b.Closed), Abandoned: b.Late, Ended: when(b.Ended),
		Total: b.Total, Live: b.Live(), Succeeded: b.Succeeded, Terminated: b.Terminated, Cancelled: b.Cancelled, Skipped: b.Skipped, Failures: endedOf(b.Failures), Run: b.Run.String()}
}
