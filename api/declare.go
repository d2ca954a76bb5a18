package api

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// Wanted is the desired state of a job.
type Wanted struct {
	Key  jobs.Key `json:"key" maxLength:"200"`
	Kind string   `json:"kind,omitempty" enum:"recurring,triggered" doc:"Required for a new job."`
	App  string   `json:"app,omitempty" maxLength:"200" doc:"The worker group that runs it. Required for a new job."`
	Policy
}

// Wanted converts it for ops. It checks what a request's schema would, for callers that read it from elsewhere.
func (w *Wanted) Wanted() (ops.Wanted, error) {
	kind := kindOf(w.Kind)
	if kind == 0 && w.Kind != "" {
		return ops.Wanted{}, kernel.Invalid("invalid kind %.20q: want recurring or triggered", w.Kind)
	}
	return ops.Wanted{Key: w.Key, Kind: kind, App: w.App, Set: w.settings()}, nil
}

func kindOf(text string) kernel.Kind {
	switch text {
	case kernel.Recurring.String():
		return kernel.Recurring
	case kernel.Triggered.String():
		return kernel.Triggered
	}
	return 0
}

// Difference is a field before and after a change.
type Difference struct {
	Field string `json:"field"`
	Old   any    `json:"old,omitempty"`
	New   any    `json:"new,omitempty"`
}

func differencesOf(list []ops.Difference) []Difference {
	out := make([]Difference, len(list))
	for i, d := range list {
		out[i] = Difference{d.Field, inAPI(d.Old), inAPI(d.New)}
	}
	return out
}

// inAPI converts a value whose JSON would differ from that of Policy.
func inAPI(v any) any {
	if rules, ok := v.([]jobs.RetryRule); ok {
		return RulesOf(rules)
	}
	return v
}

// Planned is the planned change of a job.
type Planned struct {
	Key        jobs.Key     `json:"key"`
	Does       string       `json:"does" enum:"create,edit,nothing,delete,release" doc:"release: the job stays, and the fields that the bundle set follow the code."`
	Differ     []Difference `json:"differ" nullable:"false" doc:"Effective settings before and after."`
	NextBefore []time.Time  `json:"nextBefore" nullable:"false" doc:"Next due times before the change."`
	NextThen   []time.Time  `json:"nextThen" nullable:"false" doc:"Next due times after the change."`
	Runs       int          `json:"runs,omitempty" doc:"Live runs of a job that is deleted."`
}

type applyInput struct {
	Reason string `header:"Carillon-Reason" maxLength:"1024" doc:"Reason; recorded with the change."`
	Body   struct {
		Jobs      []Wanted         `json:"jobs" maxItems:"1000" nullable:"false"`
		Calendars []WantedCalendar `json:"calendars,omitempty" maxItems:"1000" nullable:"false" doc:"Written first, each as a whole: jobs may name them."`
		Exact     bool             `json:"exact,omitempty" doc:"Fields that users have edited and that are not given here follow the code again."`
		Bundle    string           `json:"bundle,omitempty" maxLength:"200" doc:"Jobs and calendars that this request creates belong to this bundle, which can prune them later. Those of another bundle are refused (409)."`
		TakeOver  bool             `json:"takeOver,omitempty" doc:"The bundle takes over jobs and calendars that belong to another bundle, or that users created."`
		Prune     *pruneBody       `json:"prune,omitempty" doc:"Remove what the bundle no longer declares: the fields that it set and that the jobs here no longer give, and the jobs and calendars named here."`
		DryRun    bool             `json:"dryRun,omitempty" doc:"Only report the changes."`
	}
}

// pruneBody names what a bundle no longer declares.
type pruneBody struct {
	Jobs      []jobs.Key `json:"jobs,omitempty" maxItems:"1000" nullable:"false" doc:"Deleted if the bundle created them; released if a worker has registered them. Jobs that are not in the bundle stay."`
	Calendars []string   `json:"calendars,omitempty" maxItems:"1000" nullable:"false" doc:"Deleted if they are in the bundle and no job uses them."`
	Runs      string     `json:"runs,omitempty" enum:"cancel,finish" doc:"What happens to live runs of deleted jobs. Without it, the request is refused while there are any."`
}

type applied struct {
	Items     []Planned         `json:"items" nullable:"false"`
	Calendars []PlannedCalendar `json:"calendars,omitempty" nullable:"false"`
}

// WantedCalendar is the desired state of a calendar.
type WantedCalendar struct {
	Name        string   `json:"name" minLength:"1" maxLength:"200"`
	Description string   `json:"description,omitempty" maxLength:"4096"`
	Zone        string   `json:"zone,omitempty" maxLength:"100" doc:"IANA name. Default: UTC."`
	Rules       []string `json:"rules" maxItems:"1000" nullable:"false"`
}

// PlannedCalendar is the planned change of a calendar.
type PlannedCalendar struct {
	Name   string       `json:"name"`
	Does   string       `json:"does" enum:"create,edit,nothing,delete,keep" doc:"keep: it would be deleted, but jobs use it."`
	Differ []Difference `json:"differ" nullable:"false" doc:"Its fields before and after."`
	Next   []Excluded   `json:"next,omitempty" doc:"The next due times that it would exclude, of the jobs that use it now."`
	Jobs   []jobs.Key   `json:"jobs,omitempty" doc:"The jobs that use a calendar that is kept."`
}

type makeJobInput struct {
	Reason string `header:"Carillon-Reason" maxLength:"1024" doc:"Reason; recorded with the change."`
	Body   Wanted
}

func (a *API) routeDeclare() {
	tags := []string{"jobs"}
	register(a, ops.Admin, huma.Operation{OperationID: "create-job", Method: http.MethodPost, Path: "/jobs", Tags: tags, Summary: "Create a job", DefaultStatus: http.StatusCreated,
		Description: "Workers of its app that have the key run it. The fields sent here override the code, like an edit. An existing job is refused (409)."}, a.createJob)
	register(a, ops.Admin, huma.Operation{OperationID: "apply-jobs", Method: http.MethodPost, Path: "/apply", Tags: tags, Summary: "Apply job definitions",
		Description: "Creates or edits jobs and calendars. All are checked first, then applied in one commit; deletions follow it. A repeated request changes nothing."}, a.applyJobs)
}

func (a *API) createJob(ctx context.Context, in *makeJobInput) (*jobAnswer, error) {
	if p := tooLarge(in.Body.Args, "body.args"); p != nil {
		return nil, p
	}
	if err := a.often(ctx, string(in.Body.Key)); err != nil {
		return nil, err
	}
	asker := who(ctx)
	asker.Reason = in.Reason
	wanted, err := in.Body.Wanted()
	if err != nil {
		return nil, err
	}
	return answerJob(a.ops.Create(ctx, asker, wanted))
}

func (a *API) applyJobs(ctx context.Context, in *applyInput) (*struct{ Body applied }, error) {
	wanted := make([]ops.Wanted, len(in.Body.Jobs))
	for i := range in.Body.Jobs {
		if p := tooLarge(in.Body.Jobs[i].Args, "body.jobs["+strconv.Itoa(i)+"].args"); p != nil {
			return nil, p
		}
		var err error
		if wanted[i], err = in.Body.Jobs[i].Wanted(); err != nil {
			return nil, err
		}
	}
	if err := a.often(ctx, ""); err != nil {
		return nil, err
	}
	asker := who(ctx)
	asker.Reason = in.Reason
	calendars := make([]kernel.SetCalendar, len(in.Body.Calendars))
	for i, c := range in.Body.Calendars {
		calendars[i] = kernel.SetCalendar{Name: c.Name, Description: c.Description, Zone: c.Zone, Rules: c.Rules}
	}
	how := ops.How{Exact: in.Body.Exact, Dry: in.Body.DryRun, Bundle: in.Body.Bundle, TakeOver: in.Body.TakeOver}
	if p := in.Body.Prune; p != nil {
		how.Prune = &ops.Prune{Jobs: p.Jobs, Calendars: p.Calendars, Live: ops.LiveRuns(p.Runs)}
	}
	if len(wanted)+len(calendars) == 0 && how.Prune == nil {
		return nil, kernel.Invalid("the request has no jobs and no calendars: give at least one")
	}
	written, plans, err := a.ops.DeclareAll(ctx, asker, calendars, wanted, how)
	if err != nil {
		return nil, err
	}
	out := applied{Items: make([]Planned, len(plans))}
	for _, c := range written {
		p := PlannedCalendar{Name: c.Name, Does: c.Does, Differ: differencesOf(c.Differ), Jobs: c.Jobs}
		for _, e := range c.Next {
			p.Next = append(p.Next, Excluded{Job: e.Key, At: e.At, Rule: e.Rule})
		}
		out.Calendars = append(out.Calendars, p)
	}
	for i, p := range plans {
		out.Items[i] = Planned{Key: p.Job.Key, Does: p.Does, Differ: differencesOf(p.Differ), NextBefore: times(p.NextBefore), NextThen: times(p.NextThen), Runs: p.Runs}
	}
	return &struct{ Body applied }{out}, nil
}

// times returns a list that is never null.
func times(list []time.Time) []time.Time { return append([]time.Time{}, list...) }
