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

// JobFilter selects jobs. At least one field is required.
type JobFilter struct {
	App    string   `json:"app,omitempty" maxLength:"200" doc:"Jobs of this worker group."`
	Tag    string   `json:"tag,omitempty" maxLength:"200" doc:"Jobs with this tag."`
	Match  string   `json:"match,omitempty" maxLength:"200" doc:"Jobs whose key matches; * is any text." example:"billing.*"`
	Q      string   `json:"q,omitempty" maxLength:"200" doc:"Part of the key, the name, the description or a tag."`
	Kind   string   `json:"kind,omitempty" enum:"recurring,triggered"`
	Paused *bool    `json:"paused,omitempty" doc:"Only paused jobs, or only the others."`
	State  jobState `json:"state,omitempty" doc:"Only jobs in this state."`
}

func (f *JobFilter) query() ops.JobQuery {
	return ops.JobQuery{App: f.App, Tag: f.Tag, Match: f.Match, Text: f.Q, Kind: kindOf(f.Kind), Paused: f.Paused,
		State: ops.Condition(f.State)}
}

// RunFilter selects runs. At least one field is required.
type RunFilter struct {
	Job    string     `json:"job,omitempty" maxLength:"200"`
	App    string     `json:"app,omitempty" maxLength:"200" doc:"Runs of this worker group."`
	Tag    string     `json:"tag,omitempty" maxLength:"200" doc:"Runs whose job has this tag now."`
	Match  string     `json:"match,omitempty" maxLength:"200" doc:"Runs whose job has a key that matches; * is any text." example:"billing.*"`
	State  stateName  `json:"state,omitempty" doc:"Default: every live state to cancel, Terminated to retry."`
	Worker string     `json:"worker,omitempty" maxLength:"300"`
	Origin string     `json:"origin,omitempty" enum:"cron,misfire,code,person,api,retry,parent,backfill"`
	Code   string     `json:"code,omitempty" maxLength:"64" doc:"Error code of the last attempt."`
	Args   []string   `json:"args,omitempty" maxItems:"10" nullable:"false" doc:"Runs with these arguments, which their jobs declare as searchable." example:"[\"args.customer=c7\"]"`
	From   *time.Time `json:"from,omitempty" doc:"Created at or after."`
	To     *time.Time `json:"to,omitempty" doc:"Created before."`
}

func (f *RunFilter) query() (q ops.RunFilter, err error) {
	q.Tag = f.Tag
	q.Job, q.App, q.Match, q.Worker, q.Origin, q.Code = jobs.Key(f.Job), f.App, f.Match, f.Worker, kernel.Origin(f.Origin), f.Code
	for to, from := range map[*time.Time]*time.Time{&q.From: f.From, &q.To: f.To} {
		if from != nil {
			*to = kernel.Instant(*from)
		}
	}
	if q.Args, err = parseArgs(f.Args); err == nil && f.State != "" {
		q.State, err = kernel.ParseState(string(f.State))
	}
	return q, err
}

// Many is the result of a change of all the jobs or runs that a filter selects.
type Many struct {
	Matched  int       `json:"matched" doc:"Selected jobs or runs."`
	Done     int       `json:"done" doc:"Changed ones, or new runs."`
	Refused  int       `json:"refused,omitempty"`
	Names    []string  `json:"names" nullable:"false" doc:"The first 20 selected: keys of jobs, IDs of runs."`
	Refusals []Refusal `json:"refusals,omitempty" doc:"The first 20 refusals."`
	Next     string    `json:"next,omitempty" doc:"More are selected: send it as cursor of the next request."`
	DryRun   bool      `json:"dryRun,omitempty" doc:"Nothing was changed."`
}

// Refusal is why one of many was not changed.
type Refusal struct {
	Name    string `json:"name"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

func manyOf(m ops.Many, dry bool) *Many {
	out := &Many{Matched: m.Matched, Done: m.Done, Refused: m.Refused, Names: m.Names, DryRun: dry}
	if out.Names == nil {
		out.Names = []string{}
	}
	for _, r := range m.Why {
		out.Refusals = append(out.Refusals, Refusal{Name: r.Name, Code: refusals[jobs.CodeOf(r.Err)].code, Message: r.Err.Error()})
	}
	return out
}

type manyJobsInput struct {
	Idempotency string `header:"Idempotency-Key" maxLength:"200" doc:"For trigger: a repeated key within 24 hours creates no second run of a job."`
	Reason      string `header:"Carillon-Reason" maxLength:"1024" doc:"Reason; recorded with each change."`
	Body        struct {
		Filter   JobFilter  `json:"filter"`
		DryRun   bool       `json:"dryRun,omitempty" doc:"Only count."`
		Cursor   string     `json:"cursor,omitempty" maxLength:"1000" doc:"The value of next of the previous request."`
		Until    *time.Time `json:"until,omitempty" doc:"For pause: its end. Default: until resumed."`
		Held     string     `json:"held,omitempty" enum:"release,discard" doc:"For resume: what happens to held runs. Default: release."`
		Missed   string     `json:"missed,omitempty" enum:"skip,once,replay" doc:"For resume: what happens to missed due times. Default: skip."`
		Parallel int        `json:"parallel,omitempty" minimum:"1" maximum:"1000" doc:"For resume: max parallel runs of each job for missed due times. Default: 1."`
		Runs     string     `json:"runs,omitempty" enum:"cancel,finish" doc:"For delete: what happens to live runs. Default: jobs that have some are not deleted."`
		Manual   bool       `json:"manual,omitempty" doc:"For trigger: a person asks for these runs, and they start although a pause or debug mode holds others."`
	}
}

type manyRunsInput struct {
	Idempotency string `header:"Idempotency-Key" maxLength:"200" doc:"For retry: a repeated key within 24 hours creates no second run."`
	Reason      string `header:"Carillon-Reason" maxLength:"1024" doc:"Reason; recorded with each change."`
	Body        struct {
		Filter RunFilter `json:"filter"`
		DryRun bool      `json:"dryRun,omitempty" doc:"Only count, at most 10,000."`
		Cursor string    `json:"cursor,omitempty" maxLength:"1000" doc:"The value of next of the previous request."`
	}
}

type manyAnswer struct{ Body *Many }

func (a *API) routeMany() {
	for _, r := range []struct {
		action  ops.Action
		need    ops.Role
		summary string
	}{
		{ops.PauseJobs, ops.Operator, "Pause many jobs"},
		{ops.ResumeJobs, ops.Operator, "Resume many jobs"},
		{ops.TriggerJobs, ops.Operator, "Start a run of many jobs"},
		{ops.DeleteJobs, ops.Admin, "Delete many jobs"},
	} {
		register(a, r.need, huma.Operation{OperationID: string(r.action) + "-jobs", Method: http.MethodPost, Path: "/bulk/jobs/" + string(r.action), Tags: []string{"jobs"}, Summary: r.summary,
			Description: "All jobs that the filter selects, by key, at most 1,000 in one request. Jobs that are created later are not affected."},
			func(ctx context.Context, in *manyJobsInput) (*manyAnswer, error) {
				return a.manyJobs(ctx, r.action, in)
			})
	}
	for action, summary := range map[ops.Action]string{ops.CancelRuns: "Cancel many runs", ops.RetryRuns: "Run many again, as new runs"} {
		register(a, ops.Operator, huma.Operation{OperationID: string(action) + "-runs", Method: http.MethodPost, Path: "/bulk/runs/" + string(action), Tags: []string{"runs"}, Summary: summary,
			Description: "All runs that the filter selects, at most 10,000 in one request."},
			func(ctx context.Context, in *manyRunsInput) (*manyAnswer, error) { return a.manyRuns(ctx, action, in) })
	}
}

func (a *API) manyJobs(ctx context.Context, action ops.Action, in *manyJobsInput) (*manyAnswer, error) {
	b := &in.Body
	m := ops.ManyJobs{Action: action, Filter: b.Filter.query(), Dry: b.DryRun, Resumption: ops.Resumption{Held: ops.Held(b.Held), Missed: ops.Missed(b.Missed), Parallel: b.Parallel},
		Live: ops.LiveRuns(b.Runs), Origin: kernel.FromAPI, Idempotency: in.Idempotency}
	m.Filter.After = jobs.Key(b.Cursor)
	if b.Until != nil {
		m.Until = kernel.Instant(*b.Until)
	}
	if b.Manual {
		m.Origin = kernel.FromPerson
	}
	asker := who(ctx)
	asker.Reason = in.Reason
	done, err := a.ops.ManyJobs(ctx, asker, m)
	if err != nil {
		return nil, err
	}
	out := manyOf(done, b.DryRun)
	out.Next = done.Cursor
	return &manyAnswer{out}, nil
}

func (a *API) manyRuns(ctx context.Context, action ops.Action, in *manyRunsInput) (*manyAnswer, error) {
	m := ops.ManyRuns{Action: action, Dry: in.Body.DryRun, Idempotency: in.Idempotency}
	var err error
	if m.Filter, err = in.Body.Filter.query(); err != nil {
		return nil, err
	}
	if m.Filter.Cursor, err = a.unsealed(ctx, &m.Filter, in.Body.Cursor); err != nil {
		return nil, err
	}
	asker := who(ctx)
	asker.Reason = in.Reason
	done, err := a.ops.ManyRuns(ctx, asker, m)
	if err != nil {
		return nil, err
	}
	out := manyOf(done, in.Body.DryRun)
	out.Next, err = a.sealed(ctx, &m.Filter, done.Cursor)
	return &manyAnswer{out}, err
}
