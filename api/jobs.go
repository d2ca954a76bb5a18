package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

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
	return &jobAnswer{ETag: strconv.Quote(strconv.FormatUint(j.Revision, 10)), Body: jobOf(j)}, nil
}

type listJobsInput struct {
	App   string `query:"app" maxLength:"200" doc:"Only of this worker group."`
	Q     string `query:"q" maxLength:"200" doc:"Part of the key, the name, the description or a tag."`
	After string `query:"after" maxLength:"200" doc:"Go on after this key."`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

type jobList struct {
	Items []Job  `json:"items" nullable:"false"`
	Next  string `json:"next,omitempty" doc:"Pass it as after to go on; missing at the end."`
}

type nextInput struct {
	JobPath
	N        int    `query:"n" minimum:"1" maximum:"100" default:"10" doc:"How many."`
	Schedule string `query:"schedule" maxLength:"256" doc:"As if this were its schedule."`
	Zone     string `query:"zone" maxLength:"100" doc:"As if this were its time zone."`
}

type nextFires struct {
	Words    string      `json:"words,omitempty"`
	Next     []time.Time `json:"next" nullable:"false"`
	Silent   string      `json:"silent,omitempty"`
	Warnings []string    `json:"warnings,omitempty"`
}

type editInput struct {
	JobPath
	IfMatch string `header:"If-Match" maxLength:"40" doc:"The ETag that the edit was made for."`
	Reason  string `header:"Carillon-Reason" maxLength:"1024" doc:"Why; kept with the change."`
	Body    struct {
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
	register(a, huma.Operation{OperationID: "list-jobs", Method: http.MethodGet, Path: "/jobs", Tags: tags, Summary: "List jobs by key"}, a.listJobs)
	register(a, huma.Operation{OperationID: "get-job", Method: http.MethodGet, Path: "/jobs/{key}", Tags: tags, Summary: "Read a job"},
		func(ctx context.Context, in *JobPath) (*jobAnswer, error) {
			return answerJob(a.ops.Job(ctx, who(ctx), jobs.Key(in.Key), 5))
		})
	register(a, huma.Operation{OperationID: "edit-job", Method: http.MethodPatch, Path: "/jobs/{key}", Tags: tags, Summary: "Edit a job",
		Description: "Fields that are sent win over the code from now on; fields named in clear follow the code again."}, a.editJob)
	register(a, huma.Operation{OperationID: "next-fires", Method: http.MethodGet, Path: "/jobs/{key}/next", Tags: tags, Summary: "Due times ahead",
		Description: "Of the job as it is, or as another schedule or time zone would make it."}, a.nextFires)
	register(a, huma.Operation{OperationID: "pause-job", Method: http.MethodPost, Path: "/jobs/{key}/pause", Tags: tags, Summary: "Stop a job from firing by itself"},
		func(ctx context.Context, in *pauseInput) (*jobAnswer, error) {
			pause := jobs.Pause{Key: jobs.Key(in.Key)}
			if in.Body != nil {
				pause.Reason = in.Body.Reason
				if in.Body.Until != nil {
					pause.Until = jobs.Instant(*in.Body.Until)
				}
			}
			return answerJob(a.ops.Pause(ctx, who(ctx), pause))
		})
	register(a, huma.Operation{OperationID: "resume-job", Method: http.MethodPost, Path: "/jobs/{key}/resume", Tags: tags, Summary: "End a pause"},
		func(ctx context.Context, in *JobPath) (*jobAnswer, error) {
			return answerJob(a.ops.Resume(ctx, who(ctx), jobs.Key(in.Key)))
		})
}

func (a *API) listJobs(ctx context.Context, in *listJobsInput) (*struct{ Body jobList }, error) {
	list, more, err := a.ops.Jobs(ctx, who(ctx), ops.JobQuery{App: in.App, Text: in.Q, After: jobs.Key(in.After), Limit: in.Limit, Next: 1})
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

func (a *API) editJob(ctx context.Context, in *editInput) (*jobAnswer, error) {
	edit := jobs.Edit{Key: jobs.Key(in.Key), Set: in.Body.settings(), Clear: in.Body.Clear}
	if p := tooLarge(in.Body.Args, "body.args"); p != nil {
		return nil, p
	}
	if in.IfMatch != "" {
		revision, err := strconv.ParseUint(strings.Trim(in.IfMatch, `"`), 10, 64)
		if err != nil || revision == 0 {
			return nil, problem(http.StatusPreconditionFailed, refusals[jobs.Stale].code, "If-Match is not an ETag of this job",
				Fault{Location: "header.If-Match", Message: "send the ETag as it was answered"})
		}
		edit.IfRevision = revision
	}
	asker := who(ctx)
	asker.Reason = in.Reason
	return answerJob(a.ops.Edit(ctx, asker, edit))
}

func (a *API) nextFires(ctx context.Context, in *nextInput) (*struct{ Body nextFires }, error) {
	edit := jobs.Edit{Key: jobs.Key(in.Key)}
	if in.Schedule != "" {
		edit.Set.Schedule = &in.Schedule
	}
	if in.Zone != "" {
		edit.Set.Zone = &in.Zone
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
