package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// Version is the settings of a job during a period.
type Version struct {
	Revision uint64       `json:"revision" doc:"The job's last revision with these settings."`
	From     *time.Time   `json:"from,omitempty" doc:"When it took effect; missing if that is too old to be known."`
	Until    *time.Time   `json:"until,omitempty" doc:"When it was replaced; missing for the current one."`
	By       string       `json:"by,omitempty" doc:"Who made the change."`
	Reason   string       `json:"reason,omitempty"`
	Edited   []string     `json:"edited" nullable:"false" doc:"Fields that users had edited; the others followed the code."`
	Changed  []Difference `json:"changed" nullable:"false" doc:"What it changed."`
	Policy   Policy       `json:"policy" doc:"Effective settings, with today's defaults for fields that were not set."`
}

func versionOf(v ops.Version) Version {
	return Version{Revision: v.Revision, From: when(v.From), Until: when(v.Until), By: v.By, Reason: v.Reason, Edited: append([]string{}, v.Edited...),
		Changed: differencesOf(v.Changed), Policy: policy(&v.Policy)}
}

type versionList struct {
	Items []Version `json:"items" nullable:"false"`
}

type compareInput struct {
	JobPath
	From uint64 `query:"from" doc:"A revision. Default: the current one."`
	To   uint64 `query:"to" doc:"A revision. Default: the current one."`
	N    int    `query:"n" minimum:"0" maximum:"100" default:"5" doc:"Number of due times of each."`
}

// Compared is the difference between two versions of a job.
type Compared struct {
	From       Version      `json:"from"`
	To         Version      `json:"to"`
	Differ     []Difference `json:"differ" nullable:"false"`
	NextBefore []time.Time  `json:"nextBefore" nullable:"false" doc:"Next due times of the first."`
	NextThen   []time.Time  `json:"nextThen" nullable:"false" doc:"Next due times of the second."`
}

type rollbackInput struct {
	JobPath
	Match
	Body struct {
		Revision uint64 `json:"revision" minimum:"1" doc:"The revision whose edits are restored."`
	}
}

// Owner is the source of a field's value.
type Owner struct {
	Kind   string     `json:"kind" enum:"file,tenant,app,code,edit" doc:"file: the configuration file of a server; tenant, app: the defaults of all jobs, of an app's jobs."`
	By     string     `json:"by,omitempty" doc:"Who set it, if known."`
	At     *time.Time `json:"at,omitempty"`
	Reason string     `json:"reason,omitempty"`
}

func (a *API) routeVersions() {
	tags := []string{"jobs"}
	register(a, ops.Viewer, huma.Operation{OperationID: "list-versions", Method: http.MethodGet, Path: "/jobs/{key}/versions", Tags: tags, Summary: "List the versions of a job",
		Description: "Newest first: the current version, and the changes before it, with actor and reason."}, a.listVersions)
	register(a, ops.Viewer, huma.Operation{OperationID: "compare-versions", Method: http.MethodGet, Path: "/jobs/{key}/diff", Tags: tags, Summary: "Compare two revisions",
		Description: "With the next due times of each."}, a.compareVersions)
	register(a, ops.Viewer, huma.Operation{OperationID: "list-owners", Method: http.MethodGet, Path: "/jobs/{key}/owners", Tags: tags, Summary: "List the owners of fields",
		Description: "Missing fields have no owner: they have built-in defaults."}, a.listOwners)
	register(a, ops.Admin, huma.Operation{OperationID: "rollback-job", Method: http.MethodPost, Path: "/jobs/{key}/rollback", Tags: tags, Summary: "Roll back to an earlier revision",
		Description: "Restores the edits of that revision; other fields follow the current code. Creates a new revision."}, a.rollback)
}

func (a *API) listVersions(ctx context.Context, in *JobPath) (*struct{ Body versionList }, error) {
	list, err := a.ops.Versions(ctx, who(ctx), jobs.Key(in.Key))
	if err != nil {
		return nil, err
	}
	out := versionList{Items: make([]Version, len(list))}
	for i, v := range list {
		out.Items[i] = versionOf(v)
	}
	return &struct{ Body versionList }{out}, nil
}

func (a *API) compareVersions(ctx context.Context, in *compareInput) (*struct{ Body Compared }, error) {
	c, err := a.ops.Compare(ctx, who(ctx), jobs.Key(in.Key), in.From, in.To, in.N)
	if err != nil {
		return nil, err
	}
	return &struct{ Body Compared }{Compared{From: versionOf(c.Old), To: versionOf(c.New), Differ: differencesOf(c.Differ),
		NextBefore: times(c.NextBefore), NextThen: times(c.NextThen)}}, nil
}

func (a *API) listOwners(ctx context.Context, in *JobPath) (*struct{ Body map[string]Owner }, error) {
	owners, err := a.ops.Owners(ctx, who(ctx), jobs.Key(in.Key))
	if err != nil {
		return nil, err
	}
	out := map[string]Owner{}
	for name, o := range owners {
		out[name] = Owner{Kind: o.Kind, By: o.By, At: when(o.At), Reason: o.Reason}
	}
	return &struct{ Body map[string]Owner }{out}, nil
}

func (a *API) rollback(ctx context.Context, in *rollbackInput) (*jobAnswer, error) {
	revision, err := in.revision()
	if err != nil {
		return nil, err
	}
	if err := a.often(ctx, in.Key); err != nil {
		return nil, err
	}
	asker := who(ctx)
	asker.Reason = in.Reason
	return answerJob(a.ops.Rollback(ctx, asker, jobs.Key(in.Key), in.Body.Revision, revision))
}
