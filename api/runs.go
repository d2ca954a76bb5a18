package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// RunSettings are the settings of a new run. Fields that are left out are the job's.
type RunSettings struct {
	Args        *Object    `json:"args,omitempty" doc:"Default: the job's default arguments."`
	Due         *time.Time `json:"due,omitempty" doc:"When it should start; a past time means now. At most 5 years ahead."`
	Delay       *Duration  `json:"delay,omitempty" doc:"Or: delay from now."`
	Unique      string     `json:"unique,omitempty" maxLength:"200" doc:"Unique key: a second request with it returns the unfinished run of the job that has it."`
	UniqueFor   *Duration  `json:"uniqueFor,omitempty" doc:"The key lasts for this duration instead."`
	Priority    *int       `json:"priority,omitempty" minimum:"-100" maximum:"100"`
	Retries     *int       `json:"retries,omitempty" minimum:"0" maximum:"1000"`
	Timeout     *Duration  `json:"timeout,omitempty"`
	StartWithin *Duration  `json:"startWithin,omitempty"`
	Manual      bool       `json:"manual,omitempty" doc:"A person asks for this very run: it starts although a pause or debug mode holds the runs that programs request. No effect for the role client: it is for programs."`
	Batch       string     `json:"batch,omitempty" format:"uuid" doc:"Batch to which the run is added."`
	Pin         string     `json:"pin,omitempty" maxLength:"200" doc:"Name of the worker that runs it, whatever the job's route is."`
}

// NewRun is a new run of a job.
type NewRun struct {
	Job jobs.Key `json:"job" maxLength:"200"`
	RunSettings
}

func itemLocation(i int) string { return fmt.Sprintf("body.items[%d]", i) }

// tooLarge returns the problem of arguments that are too large, or nil.
func tooLarge(args *Object, location string) *Problem {
	if args == nil || len(*args) <= kernel.MaxArgs {
		return nil
	}
	return problem(http.StatusRequestEntityTooLarge, codeTooLarge, "the arguments are too large: send a reference to the data instead",
		Fault{Location: location, Message: fmt.Sprintf("has %d bytes, at most %d are allowed", len(*args), kernel.MaxArgs)})
}

// create converts it to a command.
func (w *RunSettings) create(key jobs.Key, location string) (kernel.Create, error) {
	origin := kernel.FromAPI
	if w.Manual {
		origin = kernel.FromPerson
	}
	c := kernel.Create{Key: key, Origin: origin, Unique: w.Unique, Priority: w.Priority, Retries: w.Retries,
		Timeout: (*time.Duration)(w.Timeout), StartWithin: (*time.Duration)(w.StartWithin), Pin: w.Pin}
	if w.Batch != "" {
		id, err := jobs.ParseID(w.Batch)
		if err != nil {
			return c, err
		}
		c.Batch = id
	}
	if w.Args != nil {
		if p := tooLarge(w.Args, location+".args"); p != nil {
			return c, p
		}
		c.Args = []byte(*w.Args)
	}
	if w.Due != nil && w.Delay != nil {
		return c, kernel.Invalid("both due and delay are given: give one of them")
	}
	if w.Due != nil {
		// A time that rows cannot store is in the past as well.
		if c.Due = kernel.Instant(*w.Due); c.Due.Before(time.Unix(0, 0)) {
			c.Due = time.Unix(0, 0).UTC()
		}
	}
	if w.Delay != nil {
		c.Delay = time.Duration(*w.Delay)
	}
	if w.UniqueFor != nil {
		c.UniqueFor = time.Duration(*w.UniqueFor)
	}
	return c, nil
}

// RunPath names a run in a path.
type RunPath struct {
	ID string `path:"id" format:"uuid"`
}

func (p *RunPath) run() (jobs.ID, error) { return jobs.ParseID(p.ID) }

type triggerInput struct {
	JobPath
	Idempotency string `header:"Idempotency-Key" maxLength:"200" doc:"A repeated key within 24 hours returns the run that it created."`
	Reason      string `header:"Carillon-Reason" maxLength:"1024" doc:"Reason; recorded with the run."`
	Body        *RunSettings
}

type runList struct {
	Items    []Run      `json:"items" nullable:"false"`
	Next     string     `json:"next,omitempty" doc:"Send it as cursor for the next page; missing on the last one."`
	Searched *time.Time `json:"searched,omitempty" doc:"The search was cut short at this time: continue with next."`
}

// stateName is the name of a state in a query.
type stateName string

// Schema describes it to clients. The name is huma's.
func (stateName) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Enum: stateNames()}
}

type listInput struct {
	Job    string    `query:"job" maxLength:"200"`
	State  stateName `query:"state"`
	Worker string    `query:"worker" maxLength:"300"`
	Parent string    `query:"parent" format:"uuid"`
	Batch  string    `query:"batch" format:"uuid" doc:"The batch that they are in."`
	Origin string    `query:"origin" enum:"cron,misfire,code,person,api,retry,parent,backfill"`
	Code   string    `query:"code" maxLength:"64" doc:"Error code of the last attempt."`
	App    string    `query:"app" maxLength:"200" doc:"Runs of this worker group."`
	Tag    string    `query:"tag" maxLength:"200" doc:"Runs whose job has this tag now."`
	Match  string    `query:"match" maxLength:"200" doc:"Runs whose job has a key that matches; * is any text." example:"billing.*"`
	Arg    []string  `query:"arg,explode" maxItems:"10" nullable:"false" doc:"Runs with this argument, which their jobs declare as searchable; each further arg narrows the list." example:"[\"args.customer=c7\"]"`
	From   time.Time `query:"from" doc:"Created at or after."`
	To     time.Time `query:"to" doc:"Created before."`
	Cursor string    `query:"cursor" maxLength:"1000" doc:"The value of next of the previous page."`
	Limit  int       `query:"limit" minimum:"1" maximum:"200" default:"50"`
}

type logInput struct {
	RunPath
	AfterAttempt  uint32 `query:"attempt" doc:"Lines after this attempt and sequence."`
	AfterSequence uint64 `query:"sequence"`
	Limit         int    `query:"limit" minimum:"1" maximum:"1000" default:"200"`
}

type logAnswer struct {
	Body struct {
		Items []LogLine `json:"items" nullable:"false"`
	}
}

type cancelInput struct {
	RunPath
	Body *struct {
		Reason string `json:"reason,omitempty" maxLength:"1024"`
	}
}

type retryInput struct {
	RunPath
	Idempotency string `header:"Idempotency-Key" maxLength:"200"`
	Body        *struct {
		Args *Object `json:"args,omitempty" doc:"Replaces the run's arguments."`
	}
}

type runAnswer struct {
	Location string `header:"Location"`
	Body     Run
}

func (a *API) routeRuns() {
	tags := []string{"runs"}
	register(a, ops.Viewer, huma.Operation{OperationID: "explain-run", Method: http.MethodGet, Path: "/runs/{id}/explain", Tags: tags, Summary: "Explain the state of a run",
		Description: "One sentence for users, and the run with its history."}, a.explainRun)
	register(a, ops.Operator, huma.Operation{OperationID: "trigger-job", Method: http.MethodPost, Path: "/jobs/{key}/trigger", Tags: []string{"jobs"},
		DefaultStatus: http.StatusCreated, Summary: "Start a run of a job"}, a.trigger, ops.ClientRole)
	a.routeBulk()
	a.routeMany()
	register(a, ops.Viewer, huma.Operation{OperationID: "list-runs", Method: http.MethodGet, Path: "/runs", Tags: tags, Summary: "List runs",
		Description: "Live runs first, newest first, then finished ones, latest first."}, a.list)
	register(a, ops.Viewer, huma.Operation{OperationID: "get-run", Method: http.MethodGet, Path: "/runs/{id}", Tags: tags, Summary: "Read a run"},
		func(ctx context.Context, in *RunPath) (*runAnswer, error) {
			id, err := in.run()
			if err != nil {
				return nil, err
			}
			return a.answer(a.ops.Run(ctx, who(ctx), id))
		}, ops.ClientRole)
	register(a, ops.Operator, huma.Operation{OperationID: "cancel-run", Method: http.MethodPost, Path: "/runs/{id}/cancel", Tags: tags, Summary: "Cancel a run"},
		func(ctx context.Context, in *cancelInput) (*runAnswer, error) {
			id, err := in.run()
			if err != nil {
				return nil, err
			}
			asker := who(ctx)
			if in.Body != nil {
				asker.Reason = in.Body.Reason
			}
			return a.answer(a.ops.Cancel(ctx, asker, id))
		})
	register(a, ops.Operator, huma.Operation{OperationID: "retry-run", Method: http.MethodPost, Path: "/runs/{id}/retry", Tags: tags,
		DefaultStatus: http.StatusCreated, Summary: "Run again, as a new run"}, a.retry)
	register(a, ops.Viewer, huma.Operation{OperationID: "run-log", Method: http.MethodGet, Path: "/runs/{id}/log", Tags: tags, Summary: "Read the log of a run"}, a.readLog)
}

func (a *API) answer(run *kernel.Run, err error) (*runAnswer, error) {
	if err != nil {
		return nil, err
	}
	return &runAnswer{Body: whole(run, a.attempt(run))}, nil
}

func (a *API) created(made ops.Created, err error) (*runAnswer, error) {
	out, err := a.answer(made.Run, err)
	if err != nil {
		return nil, err
	}
	out.Location = a.base + Prefix + "/runs/" + made.ID.String()
	out.Body.Duplicate = made.Duplicate
	return out, nil
}

func (a *API) trigger(ctx context.Context, in *triggerInput) (*runAnswer, error) {
	if in.Body == nil {
		in.Body = new(RunSettings)
	}
	request, err := in.Body.create(jobs.Key(in.Key), "body")
	if err != nil {
		return nil, err
	}
	request.Idempotency = in.Idempotency
	asker := who(ctx)
	asker.Reason = in.Reason
	return a.created(a.ops.Trigger(ctx, asker, request))
}

func parseArgs(texts []string) (args []metastore.Arg, err error) {
	for _, text := range texts {
		a, err := metastore.ParseArg(text)
		if err != nil {
			return nil, err
		}
		args = append(args, a)
	}
	return args, nil
}

func (a *API) list(ctx context.Context, in *listInput) (*struct{ Body runList }, error) {
	q := ops.RunFilter{Tag: in.Tag, RunQuery: metastore.RunQuery{Job: jobs.Key(in.Job), Worker: in.Worker, Origin: kernel.Origin(in.Origin), Code: in.Code,
		App: in.App, Match: in.Match, From: kernel.Instant(in.From), To: kernel.Instant(in.To), Limit: in.Limit}}
	var err error
	if q.Args, err = parseArgs(in.Arg); err != nil {
		return nil, err
	}
	if in.State != "" {
		if q.State, err = kernel.ParseState(string(in.State)); err != nil {
			return nil, err
		}
	}
	if in.Batch != "" {
		if q.Batch, err = jobs.ParseID(in.Batch); err != nil {
			return nil, err
		}
	}
	if in.Parent != "" {
		if q.Parent, err = jobs.ParseID(in.Parent); err != nil {
			return nil, err
		}
	}
	if q.Cursor, err = a.unsealed(ctx, &q, in.Cursor); err != nil {
		return nil, err
	}
	page, err := a.ops.FilterRuns(ctx, who(ctx), q)
	if err != nil {
		return nil, err
	}
	out := runList{Items: make([]Run, len(page.Runs)), Searched: when(page.Searched)}
	if out.Next, err = a.sealed(ctx, &q, page.Next); err != nil {
		return nil, err
	}
	for i, row := range page.Runs {
		out.Items[i] = listed(row, a.attempt(row))
	}
	return &struct{ Body runList }{out}, nil
}

func (a *API) retry(ctx context.Context, in *retryInput) (*runAnswer, error) {
	id, err := in.run()
	if err != nil {
		return nil, err
	}
	var args []byte
	if in.Body != nil && in.Body.Args != nil {
		if p := tooLarge(in.Body.Args, "body.args"); p != nil {
			return nil, p
		}
		args = []byte(*in.Body.Args)
	}
	return a.created(a.ops.Again(ctx, who(ctx), id, args, in.Idempotency))
}

func (a *API) readLog(ctx context.Context, in *logInput) (*logAnswer, error) {
	id, err := in.run()
	if err != nil {
		return nil, err
	}
	lines, err := a.ops.Log(ctx, who(ctx), id, metastore.LogPosition{Attempt: in.AfterAttempt, Sequence: in.AfterSequence}, in.Limit)
	if err != nil {
		return nil, err
	}
	out := &logAnswer{}
	out.Body.Items = make([]LogLine, len(lines))
	for i, l := range lines {
		out.Body.Items[i] = logLine(l)
	}
	return out, nil
}
