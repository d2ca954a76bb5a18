package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

type childrenInput struct {
	RunPath
	Cursor string `query:"cursor" maxLength:"1000" doc:"The value of next of the previous page."`
	Limit  int    `query:"limit" minimum:"1" maximum:"200" default:"50"`
}

type childLogsInput struct {
	RunPath
	Lines int `query:"lines" minimum:"1" maximum:"1000" default:"50" doc:"Number of last lines of each."`
}

// ChildLog is the end of the log of a child run.
type ChildLog struct {
	Run   Run       `json:"run"`
	Lines []LogLine `json:"lines" nullable:"false" doc:"Oldest first."`
	Cut   bool      `json:"cut,omitempty" doc:"Earlier lines were left out."`
}

type childLogList struct {
	Items []ChildLog `json:"items" nullable:"false"`
}

type treeInput struct {
	RunPath
	Limit int `query:"limit" minimum:"1" maximum:"1000" default:"200"`
}

// Relative is a run in a family.
type Relative struct {
	Depth int `json:"depth" doc:"Distance from the root run."`
	Run   Run `json:"run"`
}

// RunTree is the family of a run.
type RunTree struct {
	Items []Relative `json:"items" nullable:"false" doc:"Each followed by its children."`
	Cut   bool       `json:"cut,omitempty" doc:"There are more."`
}

func (a *API) routeFamily() {
	tags := []string{"runs"}
	register(a, ops.Viewer, huma.Operation{OperationID: "run-children", Method: http.MethodGet, Path: "/runs/{id}/children", Tags: tags, Summary: "List the children of a run",
		Description: "Runs started by onSuccess and onFailure, and runs that its handler enqueued."}, a.children)
	register(a, ops.Viewer, huma.Operation{OperationID: "run-children-logs", Method: http.MethodGet, Path: "/runs/{id}/children/logs", Tags: tags, Summary: "Read the logs of a run's children",
		Description: "The newest 50 children, with the last lines of each."}, a.childLogs)
	register(a, ops.Viewer, huma.Operation{OperationID: "run-tree", Method: http.MethodGet, Path: "/runs/{id}/tree", Tags: tags, Summary: "Show the family of a run",
		Description: "From its root run down."}, a.tree)
}

func (a *API) children(ctx context.Context, in *childrenInput) (*struct{ Body runList }, error) {
	id, err := in.run()
	if err != nil {
		return nil, err
	}
	if _, err := a.ops.Run(ctx, who(ctx), id); err != nil {
		return nil, err
	}
	return a.list(ctx, &listInput{Parent: in.ID, Cursor: in.Cursor, Limit: in.Limit})
}

func (a *API) childLogs(ctx context.Context, in *childLogsInput) (*struct{ Body childLogList }, error) {
	id, err := in.run()
	if err != nil {
		return nil, err
	}
	list, err := a.ops.ChildrenLogs(ctx, who(ctx), id, in.Lines)
	if err != nil {
		return nil, err
	}
	out := childLogList{Items: make([]ChildLog, len(list))}
	for i, c := range list {
		out.Items[i] = ChildLog{Run: listed(c.Run, a.attempt(c.Run)), Lines: make([]LogLine, len(c.Lines)), Cut: c.Cut}
		for n, l := range c.Lines {
			out.Items[i].Lines[n] = logLine(l)
		}
	}
	return &struct{ Body childLogList }{out}, nil
}

func (a *API) tree(ctx context.Context, in *treeInput) (*struct{ Body RunTree }, error) {
	id, err := in.run()
	if err != nil {
		return nil, err
	}
	tree, cut, err := a.ops.Tree(ctx, who(ctx), id, in.Limit)
	if err != nil {
		return nil, err
	}
	out := RunTree{Items: make([]Relative, len(tree)), Cut: cut}
	for i, r := range tree {
		out.Items[i] = Relative{Depth: r.Depth, Run: listed(r.Run, a.attempt(r.Run))}
	}
	return &struct{ Body RunTree }{out}, nil
}

func (a *API) deleteFamily(ctx context.Context, asker ops.Who, in *deleteInput, revision uint64) (*struct{ Body DeletedJob }, error) {
	done, err := a.ops.DeleteFamily(ctx, asker, kernel.Delete{Key: jobs.Key(in.Key), IfRevision: revision}, ops.LiveRuns(in.Runs))
	if err != nil {
		return nil, err
	}
	return &struct{ Body DeletedJob }{DeletedJob{Cancelled: done.Cancelled, Jobs: done.Jobs}}, nil
}
