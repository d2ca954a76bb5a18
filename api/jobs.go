package api

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
	"github.com/carillon-scheduler/carillon/ops"
)

// JobPath names a job in a path. The rule of jobs.Key is checked by ops.
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
	out := jobOf(j)
	out.Owners = j.Owners()
	return &jobAnswer{ETag: etag(j.Revision), Body: out}, nil
}

func etag(revision uint64) string { return strconv.Quote(strconv.FormatUint(revision, 10)) }

type listJobsInput struct {
	App    string   `query:"app" maxLength:"200" doc:"Only jobs of this worker group."`
	Tag    string   `query:"tag" maxLength:"200" doc:"Only jobs with this tag."`
	Bundle string   `query:"bundle" maxLength:"200" doc:"Only jobs of this bundle."`
	Match  string   `query:"match" maxLength:"200" doc:"Only jobs whose key matches; * is any text." example:"billing.*"`
	Q      string   `query:"q" maxLength:"200" doc:"Part of the key, the name, the description or a tag."`
	Kind   string   `query:"kind" enum:"recurring,triggered"`
	Paused string   `query:"paused" enum:"true,false" doc:"Only paused jobs, or only the others."`
	State  jobState `query:"state" doc:"Only jobs in this state; of those that a job is in, also if it is not the first."`
	After  string   `query:"after" maxLength:"200" doc:"Keys after this one."`
	Limit  int      `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

// jobState is a state of jobs in a query.
type jobState string

// Schema describes it to clients. The name is huma's.
func (jobState) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Enum: jobStates()}
}

// jobStates returns the states of jobs for a schema.
func jobStates() (names []any) {
	for _, c := range ops.Conditions() {
		names = append(names, string(c))
	}
	return names
}

type jobList struct {
	Items []Job  `json:"items" nullable:"false"`
	Next  string `json:"next,omitempty" doc:"Send it as after for the next page; missing on the last one."`
}

type nextInput struct {
	JobPath
	N        int        `query:"n" minimum:"1" maximum:"100" default:"10" doc:"Number of due times."`
	Schedule string     `query:"schedule" maxLength:"256" doc:"Preview with this schedule."`
	Zone     string     `query:"zone" maxLength:"100" doc:"Preview with this time zone."`
	Gap      string     `query:"gap" enum:"after,before,skip" doc:"Preview with this rule for a time of day that clocks skip."`
	Twice    string     `query:"twice" enum:"first,second,both" doc:"Preview with this rule for a time of day that occurs twice."`
	Start    momentText `query:"start" doc:"Preview with this start."`
	End      momentText `query:"end" doc:"Preview with this end."`
	First    momentText `query:"first" doc:"Preview with this first due time."`
	TTL      spanText   `query:"ttl" doc:"Preview with this life of the schedule."`

	Calendars []string `query:"calendars" maxItems:"8" nullable:"false" doc:"Preview with these calendars."`
}

// spanText is a Duration in a query: huma reads only its text.
type spanText string

// Schema describes it to clients. The name is huma's.
func (spanText) Schema(r huma.Registry) *huma.Schema { return Duration(0).Schema(r) }

// momentText is a Moment in a query.
type momentText string

// Schema describes it to clients. The name is huma's.
func (momentText) Schema(r huma.Registry) *huma.Schema { return Moment{}.Schema(r) }

// nextFields are the fields of nextInput by the names of their settings.
var nextFields = func() map[string]int {
	fields := map[string]int{}
	for _, name := range kernel.ScheduleFields() {
		for f := range reflect.TypeFor[nextInput]().Fields() {
			if f.Tag.Get("query") == name {
				fields[name] = f.Index[0]
			}
		}
		if fields[name] == 0 {
			panic("add a query parameter to nextInput in api/jobs.go: " + name)
		}
	}
	return fields
}()

type nextFires struct {
	Words    string      `json:"words,omitempty"`
	Next     []time.Time `json:"next" nullable:"false"`
	Silent   string      `json:"silent,omitempty"`
	Warnings []string    `json:"warnings,omitempty"`
}

// Match is the revision of a job that a change is meant for, and the reason.
type Match struct {
	IfMatch string `header:"If-Match" maxLength:"40" doc:"ETag that the change is based on; required (428). * = any revision."`
	Reason  string `header:"Carillon-Reason" maxLength:"1024" doc:"Reason; recorded with the change."`
}

// revision returns the required revision, or 0 for any.
func (m *Match) revision() (uint64, error) {
	switch m.IfMatch {
	case "":
		return 0, problem(http.StatusPreconditionRequired, codeNoMatch, "If-Match is required: send the ETag of the job as you read it, so that no other change is overwritten",
			Fault{Location: "header.If-Match", Message: "is missing"})
	case "*":
		return 0, nil
	}
	revision, err := strconv.ParseUint(strings.Trim(m.IfMatch, `"`), 10, 64)
	if err != nil || revision == 0 {
		return 0, problem(http.StatusPreconditionFailed, refusals[jobs.Stale].code, "If-Match is not an ETag of this job",
			Fault{Location: "header.If-Match", Message: "send the ETag unchanged"})
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
		Until  *time.Time `json:"until,omitempty" doc:"Default: until resumed."`
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
		Description: "Fields in the request override the code; fields named in clear follow the code again."}, a.editJob)
	register(a, ops.Admin, huma.Operation{OperationID: "delete-job", Method: http.MethodDelete, Path: "/jobs/{key}", Tags: tags, Summary: "Delete a job",
		Description: "Refused while runs of it are live, unless runs is given. A worker that still has the job registers it again when it starts."}, a.deleteJob)
	register(a, ops.Viewer, huma.Operation{OperationID: "next-fires", Method: http.MethodGet, Path: "/jobs/{key}/next", Tags: tags, Summary: "List next due times",
		Description: "Of the job as it is, or as a preview with another schedule or time zone."}, a.nextFires)
	register(a, ops.Viewer, huma.Operation{OperationID: "missed", Method: http.MethodGet, Path: "/jobs/{key}/missed", Tags: tags, Summary: "List due times without a run",
		Description: "The ledger of the job: ranges of due times with a reason, newest first."}, a.missed)
	register(a, ops.Viewer, huma.Operation{OperationID: "explain-job", Method: http.MethodGet, Path: "/jobs/{key}/explain", Tags: tags, Summary: "Explain why a job runs or not",
		Description: "Sentences for users, obstacles first."}, a.explain)
	register(a, ops.Operator, huma.Operation{OperationID: "pause-job", Method: http.MethodPost, Path: "/jobs/{key}/pause", Tags: tags, Summary: "Pause a job"},
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
	register(a, ops.Operator, huma.Operation{OperationID: "resume-job", Method: http.MethodPost, Path: "/jobs/{key}/resume", Tags: tags, Summary: "Resume a job",
		Description: "Runs that a triggered job held back start, oldest first, unless held is discard. Missed due times of a recurring job are skipped, unless missed is once or replay."}, a.resumeJob)
}

// Explanation explains why a job runs or does not.
type Explanation struct {
	Text    []string       `json:"text" nullable:"false"`
	Missed  []Missed       `json:"missed" nullable:"false" doc:"The latest due times without a run, newest first. For a past time: the range that has it."`
	Runs    map[string]int `json:"runs" doc:"Its unfinished runs now, by state."`
	Workers int            `json:"workers" doc:"Workers that have the job now."`
}

// Missed is a range of due times that have no run.
type Missed struct {
	From    time.Time   `json:"from"`
	To      time.Time   `json:"to"`
	Count   uint64      `json:"count"`
	Reason  string      `json:"reason" enum:"missed,paused,disabled,debug,edited,calendar,suspended,parents"`
	Parents []JobsEnded `json:"parents,omitempty" doc:"With the reason parents: the jobs that had no wanted run for this occasion."`
}

type missedInput struct {
	JobPath
	Before time.Time `query:"before" doc:"Only ranges that begin before this time."`
	Limit  int       `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

type missedList struct {
	Items []Missed   `json:"items" nullable:"false"`
	Next  *time.Time `json:"next,omitempty" doc:"Send it as before for the next page; missing on the last one."`
}

func (a *API) missed(ctx context.Context, in *missedInput) (*struct{ Body missedList }, error) {
	list, more, err := a.ops.Missed(ctx, who(ctx), jobs.Key(in.Key), in.Before, in.Limit)
	if err != nil {
		return nil, err
	}
	out := missedList{Items: make([]Missed, len(list))}
	for i, m := range list {
		out.Items[i] = missedOf(m)
	}
	if more {
		out.Next = &out.Items[len(list)-1].From
	}
	return &struct{ Body missedList }{out}, nil
}

func missedOf(m *kernel.Missed) Missed {
	out := Missed{From: m.From, To: m.To, Count: m.Count, Reason: string(m.Reason)}
	if len(m.Parents) > 0 {
		out.Parents = endedOf(m.Parents)
	}
	return out
}

type explainInput struct {
	JobPath
	At time.Time `query:"at" doc:"Explain this time instead of now: first why it ran or did not run. For a past time, text has what was recorded of it; present facts are marked with now."`
}

func (a *API) explain(ctx context.Context, in *explainInput) (*struct{ Body Explanation }, error) {
	explain := a.ops.Explain
	if !in.At.IsZero() {
		explain = func(ctx context.Context, asker ops.Who, key jobs.Key) (ops.Explanation, error) {
			return a.ops.ExplainAt(ctx, asker, key, kernel.Instant(in.At))
		}
	}
	e, err := explain(ctx, who(ctx), jobs.Key(in.Key))
	if err != nil {
		return nil, err
	}
	out := Explanation{Text: e.Text, Missed: make([]Missed, len(e.Missed)), Runs: map[string]int{}, Workers: e.Workers}
	for i, m := range e.Missed {
		out.Missed[i] = missedOf(m)
	}
	for state, n := range e.Live {
		out.Runs[state.String()] = n
	}
	return &struct{ Body Explanation }{out}, nil
}

// RunExplanation explains the state of a run.
type RunExplanation struct {
	Why string `json:"why" doc:"One sentence for users."`
	Run Run    `json:"run" doc:"The run with its whole history."`
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
	Runs   string `query:"runs" enum:"cancel,finish" doc:"For its live runs: cancel them, or let them finish."`
	Family bool   `query:"family" doc:"Also delete the jobs that name it as parent, and their own."`
}

// DeletedJob is the result of a deletion.
type DeletedJob struct {
	Cancelled int        `json:"cancelled" doc:"Live runs that were cancelled."`
	Jobs      []jobs.Key `json:"jobs,omitempty" doc:"Of a family: the deleted jobs."`
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
	done, err := a.ops.Delete(ctx, asker, kernel.Delete{Key: jobs.Key(in.Key), IfRevision: revision}, ops.LiveRuns(in.Runs))
	if err != nil {
		return nil, err
	}
	return &struct{ Body DeletedJob }{DeletedJob{Cancelled: done.Cancelled}}, nil
}

type resumeInput struct {
	JobPath
	Body *struct {
		Held     string `json:"held,omitempty" enum:"release,discard" doc:"For requested runs that the pause held back: start or cancel them. Default: release."`
		Missed   string `json:"missed,omitempty" enum:"skip,once,replay" doc:"For missed due times of a recurring job, and its runs that the pause held back: no run, one for the newest, or one for each. Default: skip."`
		Parallel int    `json:"parallel,omitempty" minimum:"1" maximum:"1000" doc:"Max parallel runs of these. Default: 1."`
	}
}

// ResumedJob is the result of resuming a job.
type ResumedJob struct {
	Job
	Released  int       `json:"released,omitempty" doc:"Held runs that start now."`
	Discarded int       `json:"discarded,omitempty" doc:"Held runs that were cancelled or skipped."`
	Backfill  *Backfill `json:"backfill,omitempty" doc:"The backfill of missed due times, if missed asked for one."`
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
	q := ops.JobQuery{App: in.App, Tag: in.Tag, Bundle: in.Bundle, Match: in.Match, Text: in.Q, State: ops.Condition(in.State),
		After: jobs.Key(in.After), Limit: in.Limit, Next: 1}
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

// often refuses changes of one job that come faster than a person could make them.
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
	from := reflect.ValueOf(in).Elem()
	for _, name := range kernel.ScheduleFields() {
		switch v := from.Field(nextFields[name]); t := v.Interface().(type) {
		case spanText:
			var d Duration
			if t == "" {
				continue
			}
			if err := d.UnmarshalText([]byte(t)); err != nil {
				return nil, err
			}
			edit.Set.Set(name, d)
		case momentText:
			var m Moment
			if t == "" {
				continue
			}
			if err := m.UnmarshalText([]byte(t)); err != nil {
				return nil, err
			}
			edit.Set.Set(name, m.instant(name))
		default:
			if !v.IsZero() {
				edit.Set.Set(name, t)
			}
		}
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
