package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
	"github.com/carillon-scheduler/carillon/ops"
)

// JobPath names a job in a path. Its rule is that of jobs.Key, checked by ops.
type JobPath struct {
	Key string `path:"key" maxLength:"200" doc:"The job's key." example:"billing.close-day"`
}

type jobAnswer struct {
	ETag string `header:"ETag"`
	Body Job
}

func answerJob(j ops.Job, err error) (*jobAnswer, error) {
	if err != nil {
		return nil, err
	}
	return &jobAnswer{ETag: etag(j.Revision), Body: jobOf(j)}, nil
}

func etag(revision uint64) string { return strconv.Quote(strconv.FormatUint(revision, 10)) }

type listJobsInput struct {
	App    string `query:"app" maxLength:"200" doc:"Only of this worker group."`
	Q      string `query:"q" maxLength:"200" doc:"Part of the key, the name, the description or a tag, as it stands."`
	Kind   string `query:"kind" enum:"recurring,triggered"`
	Paused string `query:"paused" enum:"true,false" doc:"Only those that are paused now, or only the others."`
	After  string `query:"after" maxLength:"200" doc:"Go on after this key."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

type jobList struct {
	Items []Job  `json:"items" nullable:"false"`
	Next  string `json:"next,omitempty" doc:"Pass it as after to go on; missing at the end."`
}

type nextInput struct {
	JobPath
	N        int       `query:"n" minimum:"1" maximum:"100" default:"10" doc:"How many."`
	Schedule string    `query:"schedule" maxLength:"256" doc:"As if this were its schedule."`
	Zone     string    `query:"zone" maxLength:"100" doc:"As if this were its time zone."`
	Gap      string    `query:"gap" enum:"after,before,skip" doc:"As if this were its rule for a time of day that clocks skip."`
	Twice    string    `query:"twice" enum:"first,second,both" doc:"As if this were its rule for a time of day that comes twice."`
	Start    time.Time `query:"start" doc:"As if no run were due before."`
	End      time.Time `query:"end" doc:"As if no run were due after."`
}

type nextFires struct {
	Words    string      `json:"words,omitempty"`
	Next     []time.Time `json:"next" nullable:"false"`
	Silent   string      `json:"silent,omitempty"`
	Warnings []string    `json:"warnings,omitempty"`
}

// Match is which revision of a job a change is meant for, and why.
type Match struct {
	IfMatch string `header:"If-Match" maxLength:"40" doc:"The ETag that the change was made for; without it, it is refused (428). * means whatever the job is like by now."`
	Reason  string `header:"Carillon-Reason" maxLength:"1024" doc:"Why; kept with the change."`
}

// revision is the one that must be current, or 0 for any.
func (m *Match) revision() (uint64, error) {
	switch m.IfMatch {
	case "":
		return 0, problem(http.StatusPreconditionRequired, codeNoMatch, "send If-Match with the ETag of the job as you saw it, so that no change of another is overwritten",
			Fault{Location: "header.If-Match", Message: "is missing"})
	case "*":
		return 0, nil
	}
	revision, err := strconv.ParseUint(strings.Trim(m.IfMatch, `"`), 10, 64)
	if err != nil || revision == 0 {
		return 0, problem(http.StatusPreconditionFailed, refusals[jobs.Stale].code, "If-Match is not an ETag of this job",
			Fault{Location: "header.If-Match", Message: "send the ETag as it was answered"})
	}
	return revision, nil
}

type editInput struct {
	JobPath
	Match
	Body struct {
		Policy
		Clear []string `json:"clear,omitempty" maxItems:"40" nullable:"false" doc:"Fields that follow the code again."`
	}
}

type pauseInput struct {
	JobPath
	Body *struct {
		Reason string     `json:"reason,omitempty" maxLength:"1024"`
		Until  *time.Time `json:"until,omitempty" doc:"Left out: until resumed."`
	}
}

func (a *API) routeJobs() {
	tags := []string{"jobs"}
	register(a, ops.Viewer, huma.Operation{OperationID: "list-jobs", Method: http.MethodGet, Path: "/jobs", Tags: tags, Summary: "List jobs by key"}, a.listJobs)
	register(a, ops.Viewer, huma.Operation{OperationID: "get-job", Method: http.MethodGet, Path: "/jobs/{key}", Tags: tags, Summary: "Read a job"},
		func(ctx context.Context, in *JobPath) (*jobAnswer, error) {
			return answerJob(a.ops.Job(ctx, who(ctx), jobs.Key(in.Key), 5))
		})
	register(a, ops.Admin, huma.Operation{OperationID: "edit-job", Method: http.MethodPatch, Path: "/jobs/{key}", Tags: tags, Summary: "Edit a job",
		Description: "Fields that are sent win over the code from now on; fields named in clear follow the code again."}, a.editJob)
	register(a, ops.Admin, huma.Operation{OperationID: "delete-job", Method: http.MethodDelete, Path: "/jobs/{key}", Tags: tags, Summary: "Delete a job",
		Description: "While runs of it are live, it is refused with their number, until runs says what becomes of them. A worker that still has the job makes it known again when it starts."}, a.deleteJob)
	register(a, ops.Viewer, huma.Operation{OperationID: "next-fires", Method: http.MethodGet, Path: "/jobs/{key}/next", Tags: tags, Summary: "Due times ahead",
		Description: "Of the job as it is, or as another schedule or time zone would make it."}, a.nextFires)
	register(a, ops.Viewer, huma.Operation{OperationID: "explain-job", Method: http.MethodGet, Path: "/jobs/{key}/explain", Tags: tags, Summary: "Why it runs or does not",
		Description: "Sentences for people, what holds it back first."}, a.explain)
	register(a, ops.Operator, huma.Operation{OperationID: "pause-job", Method: http.MethodPost, Path: "/jobs/{key}/pause", Tags: tags, Summary: "Stop a job from firing by itself"},
		func(ctx context.Context, in *pauseInput) (*jobAnswer, error) {
			if err := a.often(ctx, in.Key); err != nil {
				return nil, err
			}
			pause := kernel.Pause{Key: jobs.Key(in.Key)}
			if in.Body != nil {
				pause.Reason = in.Body.Reason
				if in.Body.Until != nil {
					pause.Until = kernel.Instant(*in.Body.Until)
				}
			}
			return answerJob(a.ops.Pause(ctx, who(ctx), pause))
		})
	register(a, ops.Operator, huma.Operation{OperationID: "resume-job", Method: http.MethodPost, Path: "/jobs/{key}/resume", Tags: tags, Summary: "End a pause",
		Description: "A triggered job's runs that were held back start, oldest first, unless held says to discard them. Due times of a recurring job that passed stay without a run, unless missed says otherwise."}, a.resumeJob)
}

// Explanation says why a job runs or does not.
type Explanation struct {
	Says    []string       `json:"says" nullable:"false"`
	Missed  []Missed       `json:"missed" nullable:"false" doc:"The latest due times that have no run, newest first."`
	Runs    map[string]int `json:"runs" doc:"Its runs that are not over, by state."`
	Workers int            `json:"workers" doc:"That have the job."`
}

// Missed is a stretch of due times that have no run.
type Missed struct {
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	Count  uint64    `json:"count"`
	Reason string    `json:"reason" enum:"missed,paused,disabled,debug,edited,calendar"`
}

type explainInput struct {
	JobPath
	At time.Time `query:"at" doc:"Also why it ran or did not run at this due time, in the first sentence."`
}

func (a *API) explain(ctx context.Context, in *explainInput) (*struct{ Body Explanation }, error) {
	e, err := a.ops.Explain(ctx, who(ctx), jobs.Key(in.Key))
	if err != nil {
		return nil, err
	}
	if !in.At.IsZero() {
		at, err := a.ops.ExplainAt(ctx, who(ctx), jobs.Key(in.Key), kernel.Instant(in.At))
		if err != nil {
			return nil, err
		}
		e.Says = append([]string{at}, e.Says...)
	}
	out := Explanation{Says: e.Says, Missed: make([]Missed, len(e.Missed)), Runs: map[string]int{}, Workers: e.Workers}
	for i, m := range e.Missed {
		out.Missed[i] = Missed{From: m.From, To: m.To, Count: m.Count, Reason: string(m.Reason)}
	}
	for state, n := range e.Live {
		out.Runs[state.String()] = n
	}
	return &struct{ Body Explanation }{out}, nil
}

// RunExplanation says why a run stands where it does.
type RunExplanation struct {
	Why string `json:"why" doc:"One sentence for people."`
	Run Run    `json:"run" doc:"The run, with all of its history."`
}

func (a *API) explainRun(ctx context.Context, in *RunPath) (*struct{ Body RunExplanation }, error) {
	id, err := in.run()
	if err != nil {
		return nil, err
	}
	e, err := a.ops.ExplainRun(ctx, who(ctx), id)
	if err != nil {
		return nil, err
	}
	return &struct{ Body RunExplanation }{RunExplanation{Why: e.Why, Run: whole(e.Run, a.attempt(e.Run))}}, nil
}

type deleteInput struct {
	JobPath
	Match
	Runs   string `query:"runs" enum:"cancel,finish" doc:"What becomes of its live runs: they are cancelled, or end as they would have."`
	Family bool   `query:"family" doc:"Also all jobs that belong to it (parent), and to those."`
}

// DeletedJob says what a deletion did.
type DeletedJob struct {
	Cancelled int        `json:"cancelled" doc:"Live runs that were cancelled."`
	Jobs      []jobs.Key `json:"jobs,omitempty" doc:"Of a family: the jobs that are gone."`
}

func (a *API) deleteJob(ctx context.Context, in *deleteInput) (*struct{ Body DeletedJob }, error) {
	revision, err := in.revision()
	if err != nil {
		return nil, err
	}
	if err := a.often(ctx, in.Key); err != nil {
		return nil, err
	}
	asker := who(ctx)
	asker.Reason = in.Reason
	if in.Family {
		return a.deleteFamily(ctx, asker, in, revision)
	}
	done, err := a.ops.Delete(ctx, asker, kernel.Delete{Key: jobs.Key(in.Key), IfRevision: revision}, ops.Fate(in.Runs))
	if err != nil {
		return nil, err
	}
	return &struct{ Body DeletedJob }{DeletedJob{Cancelled: done.Cancelled}}, nil
}

type resumeInput struct {
	JobPath
	Body *struct {
		Held     string `json:"held,omitempty" enum:"release,discard" doc:"What becomes of the runs that the pause held back; left out: release."`
		Missed   string `json:"missed,omitempty" enum:"skip,once,replay" doc:"What becomes of the due times of a recurring job that passed: nothing, the newest gets its run, or each of them; left out: skip."`
		Parallel int    `json:"parallel,omitempty" minimum:"1" maximum:"1000" doc:"So many of those runs may be under way at once; left out: 1."`
	}
}

// ResumedJob is a job whose pause has ended.
type ResumedJob struct {
	Job
	Released  int       `json:"released,omitempty" doc:"Runs that were held back and start now."`
	Discarded int       `json:"discarded,omitempty" doc:"Runs that were held back and are cancelled."`
	Backfill  *Backfill `json:"backfill,omitempty" doc:"What became of due times that passed, if missed said that they get runs."`
}

type resumeAnswer struct {
	ETag string `header:"ETag"`
	Body ResumedJob
}

func (a *API) resumeJob(ctx context.Context, in *resumeInput) (*resumeAnswer, error) {
	if err := a.often(ctx, in.Key); err != nil {
		return nil, err
	}
	var r ops.Resumption
	if in.Body != nil {
		r = ops.Resumption{Held: ops.Held(in.Body.Held), Missed: ops.Missed(in.Body.Missed), Parallel: in.Body.Parallel}
	}
	job, let, err := a.ops.Resume(ctx, who(ctx), jobs.Key(in.Key), r)
	if err != nil {
		return nil, err
	}
	out := ResumedJob{Job: jobOf(job), Released: let.Released, Discarded: let.Discarded}
	if r.Missed == ops.MissedOnce || r.Missed == ops.MissedReplay {
		out.Backfill = new(backfillOf(let.Backfilled))
	}
	return &resumeAnswer{ETag: etag(job.Revision), Body: out}, nil
}

func (a *API) listJobs(ctx context.Context, in *listJobsInput) (*struct{ Body jobList }, error) {
	q := ops.JobQuery{App: in.App, Text: in.Q, After: jobs.Key(in.After), Limit: in.Limit, Next: 1}
	q.Kind = kindOf(in.Kind)
	if in.Paused != "" {
		q.Paused = new(in.Paused == "true")
	}
	list, more, err := a.ops.Jobs(ctx, who(ctx), q)
	if err != nil {
		return nil, err
	}
	out := jobList{Items: make([]Job, len(list))}
	for i, j := range list {
		out.Items[i] = jobOf(j)
	}
	if more {
		out.Next = string(list[len(list)-1].Key)
	}
	return &struct{ Body jobList }{out}, nil
}

// often refuses changes of one job that come faster than anybody could mean them.
func (a *API) often(ctx context.Context, key string) error {
	if wait := a.edits.take(string(who(ctx).Tenant) + "/" + key); wait > 0 {
		return &TooMany{After: wait}
	}
	return nil
}

func (a *API) editJob(ctx context.Context, in *editInput) (*jobAnswer, error) {
	edit := kernel.Edit{Key: jobs.Key(in.Key), Set: in.Body.settings(), Clear: in.Body.Clear}
	if p := tooLarge(in.Body.Args, "body.args"); p != nil {
		return nil, p
	}
	var err error
	if edit.IfRevision, err = in.revision(); err != nil {
		return nil, err
	}
	if err := a.often(ctx, in.Key); err != nil {
		return nil, err
	}
	asker := who(ctx)
	asker.Reason = in.Reason
	return answerJob(a.ops.Edit(ctx, asker, edit))
}

func (a *API) nextFires(ctx context.Context, in *nextInput) (*struct{ Body nextFires }, error) {
	edit := kernel.Edit{Key: jobs.Key(in.Key)}
	if in.Schedule != "" {
		edit.Set.Schedule = &in.Schedule
	}
	if in.Zone != "" {
		edit.Set.Zone = &in.Zone
	}
	if in.Gap != "" {
		edit.Set.Gap = (*jobs.Gap)(&in.Gap)
	}
	if in.Twice != "" {
		edit.Set.Twice = (*jobs.Twice)(&in.Twice)
	}
	if !in.Start.IsZero() {
		edit.Set.Start = new(kernel.Instant(in.Start))
	}
	if !in.End.IsZero() {
		edit.Set.End = new(kernel.Instant(in.End))
	}
	job, err := a.ops.Preview(ctx, who(ctx), edit, in.N)
	if at, ok := errors.AsType[*schedule.Error](err); ok {
		return nil, badSchedule("query", err, at)
	}
	if err != nil {
		return nil, err
	}
	j := jobOf(job)
	return &struct{ Body nextFires }{nextFires{Words: j.Words, Next: j.Next, Silent: j.Silent, Warnings: j.Warnings}}, nil
}
