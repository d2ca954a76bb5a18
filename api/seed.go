package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/httpspec"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// The routes of seed 002, for clients of a scheduler with that interface: the same paths below /seed, documents with
// the same fields, and responses with resp_code and resp_msg. They only call what the other routes call.

// seedAnswer is the outcome of a request: resp_code is 200, or the HTTP status of the error, which the response has,
// too.
type seedAnswer struct {
	Status int
	Body   SeedAnswer
}

// SeedAnswer is a response of seed 002.
type SeedAnswer struct {
	Code    int     `json:"resp_code" doc:"200 on success, else the HTTP status of the error."`
	Message *string `json:"resp_msg" doc:"The error."`
	Data    any     `json:"data,omitempty"`
}

// SeedJobPath names a job in a path.
type SeedJobPath struct {
	JobID string `path:"jobId" maxLength:"200"`
}

type seedDocumentInput struct {
	SeedJobPath
	Body Object
}

type seedActiveInput struct {
	SeedJobPath
	Active int `query:"active" minimum:"0" maximum:"1" required:"true" doc:"1: active; 0: paused."`
}

type seedTriggerInput struct {
	SeedJobPath
	Body *Object
}

type seedExecutionsInput struct {
	JobID string `query:"jobId" required:"true" maxLength:"200"`
}

// SeedExecution is a run as seed 002 represents it.
type SeedExecution struct {
	ExecutionID   string    `json:"executionId"`
	JobID         jobs.Key  `json:"jobId"`
	ExecuteNumber uint32    `json:"executeNumber" doc:"The number of the run among the runs of its job, from 1."`
	Status        string    `json:"status" doc:"failed, succeed, or empty while it is unfinished."`
	State         string    `json:"state"`
	Error         string    `json:"error,omitempty"`
	Datetime      time.Time `json:"datetime"`
}

// seedRoute registers a route whose refusals are in the seed's form, too.
func seedRoute[I any](a *API, need ops.Role, op huma.Operation, do func(context.Context, ops.Who, *I) (any, error)) {
	op.Tags, op.Path = []string{"seed"}, "/seed"+op.Path
	register(a, need, op, func(ctx context.Context, in *I) (*seedAnswer, error) {
		data, err := do(ctx, who(ctx), in)
		if err == nil {
			return &seedAnswer{Status: http.StatusOK, Body: SeedAnswer{Code: http.StatusOK, Data: data}}, nil
		}
		p := problemOf(ctx, a.episodes, err)
		return &seedAnswer{Status: p.Status, Body: SeedAnswer{Code: p.Status, Message: &p.Detail}}, nil
	})
}

func (a *API) routeSeed() {
	a.routeSeedFamilies()
	seedRoute(a, ops.Admin, huma.Operation{OperationID: "seed-create-job", Method: http.MethodPost, Path: "/jobs/{jobId}", Summary: "Create a job from a seed document"},
		func(ctx context.Context, asker ops.Who, in *seedDocumentInput) (any, error) {
			return nil, a.seedDeclare(ctx, asker, in, ops.How{Fresh: true})
		})
	seedRoute(a, ops.Admin, huma.Operation{OperationID: "seed-update-job", Method: http.MethodPost, Path: "/jobs/{jobId}/update", Summary: "Update a job and execute it", Description: "The timer begins anew: a job without one runs once, now."},
		func(ctx context.Context, asker ops.Who, in *seedDocumentInput) (any, error) {
			if _, err := a.ops.Job(ctx, asker, jobs.Key(in.JobID), 0); err != nil {
				return nil, err
			}
			return nil, a.seedDeclare(ctx, asker, in, ops.How{Restart: true})
		})
	seedRoute(a, ops.Viewer, huma.Operation{OperationID: "seed-get-job", Method: http.MethodGet, Path: "/jobs/{jobId}", Summary: "Read a job as a seed document"},
		func(ctx context.Context, asker ops.Who, in *SeedJobPath) (any, error) {
			job, err := a.ops.Job(ctx, asker, jobs.Key(in.JobID), 0)
			if err != nil {
				return nil, err
			}
			return httpspec.DocumentOf(job.Definition, job.Paused == nil && !job.Policy.Disabled)
		})
	seedRoute(a, ops.Operator, huma.Operation{OperationID: "seed-activate-job", Method: http.MethodPut, Path: "/jobs/{jobId}", Summary: "Pause or resume a job"},
		func(ctx context.Context, asker ops.Who, in *seedActiveInput) (any, error) {
			return nil, a.seedActivate(ctx, asker, jobs.Key(in.JobID), in.Active)
		})
	for _, path := range []string{"/jobs/{jobId}", "/job/{jobId}"} { // the seed has both
		seedRoute(a, ops.Admin, huma.Operation{OperationID: "seed-delete" + map[bool]string{true: "-jobs", false: "-job"}[path == "/jobs/{jobId}"], Method: http.MethodDelete, Path: path,
			Summary: "Delete a job and cancel its live executions"},
			func(ctx context.Context, asker ops.Who, in *SeedJobPath) (any, error) {
				_, err := a.ops.Delete(ctx, asker, kernel.Delete{Key: jobs.Key(in.JobID)}, ops.CancelLiveRuns)
				return nil, err
			})
	}
	seedRoute(a, ops.Operator, huma.Operation{OperationID: "seed-trigger-job", Method: http.MethodPost, Path: "/jobs/{jobId}/trigger", Summary: "Run a job once, with parameters"},
		func(ctx context.Context, asker ops.Who, in *seedTriggerInput) (any, error) {
			request := kernel.Create{Key: jobs.Key(in.JobID), Origin: kernel.FromPerson}
			if in.Body != nil {
				request.Args = *in.Body
			}
			made, err := a.ops.Trigger(ctx, asker, request)
			if err != nil {
				return nil, err
			}
			return executionOf(made.Run), nil
		})
	seedRoute(a, ops.Viewer, huma.Operation{OperationID: "seed-list-executions", Method: http.MethodGet, Path: "/main/execution", Summary: "List the latest executions of a job"},
		func(ctx context.Context, asker ops.Who, in *seedExecutionsInput) (any, error) {
			page, err := a.ops.Runs(ctx, asker, metastore.RunQuery{Job: jobs.Key(in.JobID), Limit: metastore.MaxPage})
			if err != nil {
				return nil, err
			}
			list := make([]SeedExecution, len(page.Runs))
			for i, run := range page.Runs {
				list[i] = executionOf(run)
			}
			return list, nil
		})
}

// SeedChildLog is the end of the log of a child execution.
type SeedChildLog struct {
	SeedExecution
	Logs []LogLine `json:"logs" nullable:"false" doc:"The last lines, oldest first."`
}

type seedChildrenInput struct {
	ParentJobID string `query:"parentJobId" required:"true" maxLength:"200"`
	Execution   uint32 `query:"execution" required:"true" doc:"The executeNumber of the parent's run."`
}

type seedChildrenByIDInput struct {
	ExecutionID string `query:"executionId" required:"true" maxLength:"100"`
}

type seedFamilyInput struct {
	ParentJobID string `query:"parentJobId" required:"true" maxLength:"200"`
}

type seedPurgeInput struct {
	CleanDestroyJob      bool `query:"cleanDestroyJob" default:"true" doc:"Also purge all executions of deleted jobs."`
	RetainExecutionCount int  `query:"retainExecutionCount" minimum:"0" maximum:"200" default:"10" doc:"Number of newest executions to keep of each job."`
}

// seedLines is the number of lines returned of each child.
const seedLines = 200

func (a *API) routeSeedFamilies() {
	seedRoute(a, ops.Viewer, huma.Operation{OperationID: "seed-child-logs", Method: http.MethodGet, Path: "/main/getChildJobLogs", Summary: "Read the logs of the children of an execution"},
		func(ctx context.Context, asker ops.Who, in *seedChildrenInput) (any, error) {
			run, err := a.ops.Execution(ctx, asker, jobs.Key(in.ParentJobID), in.Execution)
			if err != nil {
				return nil, err
			}
			return a.seedChildren(ctx, asker, run)
		})
	seedRoute(a, ops.Viewer, huma.Operation{OperationID: "seed-child-logs-by-id", Method: http.MethodGet, Path: "/main/getChildJobLogsByExecutionId", Summary: "Read the logs of the children of an execution, by its ID"},
		func(ctx context.Context, asker ops.Who, in *seedChildrenByIDInput) (any, error) {
			id, err := jobs.ParseID(in.ExecutionID)
			if err != nil {
				return nil, err
			}
			run, err := a.ops.Run(ctx, asker, id)
			if err != nil {
				return nil, err
			}
			return a.seedChildren(ctx, asker, run)
		})
	seedRoute(a, ops.Admin, huma.Operation{OperationID: "seed-destroy-family", Method: http.MethodDelete, Path: "/main/destroyByParentJob", Summary: "Delete a job with its family"},
		func(ctx context.Context, asker ops.Who, in *seedFamilyInput) (any, error) {
			done, err := a.ops.DeleteFamily(ctx, asker, kernel.Delete{Key: jobs.Key(in.ParentJobID)}, ops.CancelLiveRuns)
			if err != nil {
				return nil, err
			}
			return done.Jobs, nil
		})
	seedRoute(a, ops.Admin, huma.Operation{OperationID: "seed-clean", Method: http.MethodDelete, Path: "/main/schedule/clean", Summary: "Purge finished executions",
		Description: "Of jobs of this interface, and others of their worker group. Notifications are purged with their executions."},
		func(ctx context.Context, asker ops.Who, in *seedPurgeInput) (any, error) {
			return a.ops.PurgeApp(ctx, asker, seedApp, in.RetainExecutionCount, in.CleanDestroyJob, kernel.NotifyKey(seedApp))
		})
}

func (a *API) seedChildren(ctx context.Context, asker ops.Who, run *kernel.Run) (any, error) {
	list, err := a.ops.SeedChildren(ctx, asker, run, seedLines)
	if err != nil {
		return nil, err
	}
	out := make([]SeedChildLog, len(list))
	for i, c := range list {
		out[i] = SeedChildLog{SeedExecution: executionOf(c.Run), Logs: make([]LogLine, len(c.Lines))}
		for n, l := range c.Lines {
			out[i].Logs[n] = logLine(l)
		}
	}
	return out, nil
}

func executionOf(run *kernel.Run) SeedExecution {
	e := SeedExecution{ExecutionID: run.ID.String(), JobID: run.Key, ExecuteNumber: run.Execution, State: run.State.String(), Error: run.Problem(), Datetime: run.Created}
	switch {
	case run.State == jobs.Succeeded:
		e.Status = "succeed"
	case run.State.Final():
		e.Status = "failed"
	}
	return e
}

// seedApp is the worker group of jobs from seed documents.
const seedApp = "http"

func (a *API) seedDeclare(ctx context.Context, asker ops.Who, in *seedDocumentInput, how ops.How) error {
	d, err := httpspec.ParseDocument(in.Body)
	if err != nil {
		return err
	}
	if d.JobID != "" && d.JobID != in.JobID {
		return kernel.Invalid("the document names job %.60q, and the path %.60q: want the same", d.JobID, in.JobID)
	}
	key := jobs.Key(in.JobID)
	zone, err := a.ops.Zone(ctx, asker, key, seedApp)
	if err != nil {
		return err
	}
	s, err := d.Settings(a.ops.Now(), zone)
	if err != nil {
		return err
	}
	if err := a.often(ctx, in.JobID); err != nil {
		return err
	}
	want := ops.Wanted{Key: key, Kind: kernel.Recurring, App: seedApp, Set: s}
	if d.Active != nil { // in the same commit: no due time comes in between
		if want.Resume = *d.Active != 0; !want.Resume {
			want.Pause = seedPause
		}
	}
	_, err = a.ops.Declare(ctx, asker, []ops.Wanted{want}, how)
	return err
}

// seedPause is the reason of a pause by active.
const seedPause = "active is 0"

func (a *API) seedActivate(ctx context.Context, asker ops.Who, key jobs.Key, active int) error {
	if active == 0 {
		_, err := a.ops.Pause(ctx, asker, kernel.Pause{Key: key, Reason: seedPause})
		return err
	}
	_, _, err := a.ops.Resume(ctx, asker, key, ops.Resumption{})
	return err
}
