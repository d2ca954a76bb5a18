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

// Graph is the jobs that follow each other, directly or through others.
type Graph struct {
	Occasion string      `json:"occasion,omitempty" doc:"Of the runs: a due time, or the ID of the run that started all others."`
	Nodes    []GraphNode `json:"nodes" nullable:"false" doc:"By key."`
	Edges    []GraphEdge `json:"edges" nullable:"false"`
	Cut      bool        `json:"cut,omitempty" doc:"There are more jobs."`
}

// GraphNode is a job of a graph.
type GraphNode struct {
	Job     jobs.Key `json:"job"`
	Kind    string   `json:"kind,omitempty" enum:"recurring,triggered"`
	Missing bool     `json:"missing,omitempty" doc:"There is no such job."`
	Run     string   `json:"run,omitempty" doc:"Its run of the occasion."`
	State   string   `json:"state,omitempty" doc:"Of the run."`
	Cause   string   `json:"cause,omitempty"`
}

// GraphEdge leads from a job to one that follows it.
type GraphEdge struct {
	From jobs.Key `json:"from"`
	To   jobs.Key `json:"to"`
	All  bool     `json:"all" doc:"to waits for all such edges (its setting after). Otherwise onSuccess or onFailure of from names it."`
	When string   `json:"when" enum:"succeeded,failed,ended" doc:"The end of from that is wanted."`
	Done bool     `json:"done,omitempty" doc:"from ended so, in this occasion."`
}

// Occasion is an occasion for which not all jobs have ended as wanted.
type Occasion struct {
	Occasion string      `json:"occasion" doc:"A due time, or the ID of the run that started all others."`
	Opened   time.Time   `json:"opened"`
	Until    time.Time   `json:"until" doc:"When it ends with an entry of the ledger."`
	Ended    []JobsEnded `json:"ended" nullable:"false"`
	Missing  []JobsEnded `json:"missing" nullable:"false" doc:"Jobs that have not ended as wanted."`
}

// JobsEnded is how a run of a followed job ended.
type JobsEnded struct {
	Job   jobs.Key `json:"job"`
	Run   string   `json:"run,omitempty"`
	State string   `json:"state,omitempty" doc:"Missing if no run has ended."`
	Cause string   `json:"cause,omitempty"`
}

type occasionsInput struct {
	JobPath
	Limit int `query:"limit" minimum:"1" maximum:"200" default:"50"`
}

type occasionList struct {
	Items []Occasion `json:"items" nullable:"false" doc:"The latest first."`
}

func (a *API) routeGraph() {
	register(a, ops.Viewer, huma.Operation{OperationID: "job-graph", Method: http.MethodGet, Path: "/jobs/{key}/graph", Tags: []string{"jobs"},
		Summary: "Show the jobs that follow each other", Description: "All jobs that are connected with this one by after, onSuccess or onFailure."},
		func(ctx context.Context, in *JobPath) (*struct{ Body Graph }, error) {
			g, err := a.ops.JobGraph(ctx, who(ctx), jobs.Key(in.Key))
			return graphOf(g), err
		})
	register(a, ops.Viewer, huma.Operation{OperationID: "run-graph", Method: http.MethodGet, Path: "/runs/{id}/graph", Tags: []string{"runs"},
		Summary: "Show the runs of an occasion", Description: "The graph of the run's job, with the run of each job for the occasion of this run."},
		func(ctx context.Context, in *RunPath) (*struct{ Body Graph }, error) {
			id, err := in.run()
			if err != nil {
				return nil, err
			}
			g, err := a.ops.RunGraph(ctx, who(ctx), id)
			return graphOf(g), err
		})
	register(a, ops.Viewer, huma.Operation{OperationID: "job-occasions", Method: http.MethodGet, Path: "/jobs/{key}/occasions", Tags: []string{"jobs"},
		Summary: "List open occasions of a job", Description: "Of a job that runs after several others: for which of them not all have ended as wanted."}, a.occasions)
}

func graphOf(g *ops.Graph) *struct{ Body Graph } {
	if g == nil {
		return nil
	}
	out := Graph{Occasion: g.Occasion, Nodes: make([]GraphNode, len(g.Nodes)), Edges: make([]GraphEdge, len(g.Edges)), Cut: g.Cut}
	for i, n := range g.Nodes {
		out.Nodes[i] = GraphNode{Job: n.Job, Missing: n.Missing}
		if !n.Missing {
			out.Nodes[i].Kind = n.Kind.String()
		}
		if n.Run != nil {
			out.Nodes[i].Run, out.Nodes[i].State, out.Nodes[i].Cause = n.Run.ID.String(), n.Run.State.String(), string(n.Run.Cause)
		}
	}
	for i, e := range g.Edges {
		out.Edges[i] = GraphEdge{From: e.From, To: e.To, All: e.After, When: string(e.When), Done: e.Done}
	}
	return &struct{ Body Graph }{out}
}

func (a *API) occasions(ctx context.Context, in *occasionsInput) (*struct{ Body occasionList }, error) {
	list, err := a.ops.Occasions(ctx, who(ctx), jobs.Key(in.Key), in.Limit)
	if err != nil {
		return nil, err
	}
	out := occasionList{Items: make([]Occasion, len(list))}
	for i, o := range list {
		out.Items[i] = Occasion{Occasion: o.Name, Opened: o.Opened, Until: o.Until, Ended: endedOf(o.Ended), Missing: endedOf(o.Missing)}
	}
	return &struct{ Body occasionList }{out}, nil
}

func endedOf(list []kernel.Ended) []JobsEnded {
	out := make([]JobsEnded, len(list))
	for i, e := range list {
		out[i] = JobsEnded{Job: e.Job, Cause: string(e.Cause)}
		if e.State != kernel.New {
			out[i].Run, out[i].State = e.Run.String(), e.State.String()
		}
	}
	return out
}
