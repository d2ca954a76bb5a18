package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// Version is what held for a job for a time.
type Version struct {
	Revision uint64       `json:"revision" doc:"The last one that the job had with it."`
	From     *time.Time   `json:"from,omitempty" doc:"When it began; missing if that is older than what is remembered."`
	Until    *time.Time   `json:"until,omitempty" doc:"When it ended; missing if it holds now."`
	By       string       `json:"by,omitempty" doc:"Who made it."`
	Reason   string       `json:"reason,omitempty"`
	Edited   []string     `json:"edited" nullable:"false" doc:"Fields that people had set; the others followed the code."`
	Changed  []Difference `json:"changed" nullable:"false" doc:"What it changed."`
	Policy   Policy       `json:"policy" doc:"What held, with today's defaults where nobody said anything."`
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
	From uint64 `query:"from" doc:"A revision; left out: what holds now."`
	To   uint64 `query:"to" doc:"A revision; left out: what holds now."`
	N    int    `query:"n" minimum:"0" maximum:"100" default:"5" doc:"How many due times of each."`
}

// Compared is what differs between two versions of a job.
type Compared struct {
	From       Version      `json:"from"`
	To         Version      `json:"to"`
	Differ     []Difference `json:"differ" nullable:"false"`
	NextBefore []time.Time  `json:"nextBefore" nullable:"false" doc:"The next due times with the one."`
	NextThen   []time.Time  `json:"nextThen" nullable:"false" doc:"The next due times with the other."`
}

type rollbackInput struct {
	JobPath
	Match
	Body struct {
		Revision uint64 `json:"revision" minimum:"1" doc:"People's settings become what they were at this revision."`
	}
}

// Owner is who decides what holds for a field.
type Owner struct {
	Kind   string     `json:"kind" enum:"defaults,code,edit"`
	By     string     `json:"by,omitempty" doc:"Who made the edit, if that is remembered."`
	At     *time.Time `json:"at,omitempty"`
	Reason string     `json:"reason,omitempty"`
}

func (a *API) routeVersions() {
	tags := []string{"jobs"}
	register(a, ops.Viewer, huma.Operation{OperationID: "list-versions", Method: http.MethodGet, Path: "/jobs/{key}/versions", Tags: tags, Summary: "What held for a job",
		Description: "Newest first: what holds now, and the newest changes before it, with who made them and why."}, a.listVersions)
	register(a, ops.Viewer, huma.Operation{OperationID: "compare-versions", Method: http.MethodGet, Path: "/jobs/{key}/diff", Tags: tags, Summary: "What differs between two revisions",
		Description: "With the next due times of each."}, a.compareVersions)
	register(a, ops.Viewer, huma.Operation{OperationID: "list-owners", Method: http.MethodGet, Path: "/jobs/{key}/owners", Tags: tags, Summary: "Who decides each field",
		Description: "Fields that are missing have no owner: what is built in holds."}, a.listOwners)
	register(a, ops.Admin, huma.Operation{OperationID: "rollback-job", Method: http.MethodPost, Path: "/jobs/{key}/rollback", Tags: tags, Summary: "Go back to an earlier revision",
		Description: "What people had set then is set again, and what they had not follows the code, as it is now. It is a new revision of its own."}, a.rollback)
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
