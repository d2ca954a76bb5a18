package ui

import (
	"context"
	"html/template"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/ui/chart"
)

// graphRuns is the most runs of a family that are read for a graph.
const graphRuns = 100

// jobGraph draws the jobs that follow a job, and that it follows; "" = there are none.
func (u *UI) jobGraph(ctx context.Context, who ops.Who, key jobs.Key) (template.HTML, error) {
	g, err := u.ops.JobGraph(ctx, who, key)
	if err != nil || len(g.Edges) == 0 {
		return "", err
	}
	d := u.drawing(g, key)
	d.Title = "Jobs that follow each other"
	return d.HTML(), nil
}

// runGraph draws the runs of a run's occasion, and its family; "" = there are no others.
func (u *UI) runGraph(ctx context.Context, who ops.Who, run *kernel.Run, family bool) (template.HTML, error) {
	g, err := u.ops.RunGraph(ctx, who, run.ID)
	switch {
	case jobs.CodeOf(err) == jobs.NotFound: // its job was deleted
		g = &ops.Graph{Nodes: []ops.GraphNode{{Job: run.Key, Run: run}}}
	case err != nil:
		return "", err
	}
	d := u.drawing(g, run.Key)
	d.Title = "Runs that follow each other"
	if family {
		tree, cut, err := u.ops.Tree(ctx, who, run.ID, graphRuns)
		if err != nil {
			return "", err
		}
		u.addFamily(&d, tree)
		d.Cut = d.Cut || cut
	}
	for i := range d.Nodes {
		d.Nodes[i].Here = d.Nodes[i].ID == run.ID.String()
	}
	if len(d.Edges) == 0 {
		return "", nil
	}
	return d.HTML(), nil
}

// drawing converts a graph. The ID of a node is its run, or its job if it has none.
func (u *UI) drawing(g *ops.Graph, here jobs.Key) chart.Graph {
	d := chart.Graph{Cut: g.Cut}
	ids := map[jobs.Key]string{}
	for _, n := range g.Nodes {
		node := chart.Node{ID: "job " + string(n.Job), Name: string(n.Job), Text: n.Kind.String(), Href: u.base + "/jobs/" + string(n.Job), Here: n.Job == here}
		switch {
		case n.Run != nil:
			node = u.runNode(n.Run)
		case n.Missing:
			node.Text, node.Class, node.Href = "no such job", "warn", ""
		case g.Occasion != "":
			node.Text = "no run"
		}
		ids[n.Job] = node.ID
		d.Nodes = append(d.Nodes, node)
	}
	at := map[[2]string]int{}
	for _, e := range g.Edges {
		edge := chart.Edge{From: ids[e.From], To: ids[e.To], Text: "after success", Kind: chart.EdgeSuccess, Done: e.Done}
		switch e.When {
		case kernel.WhenFailed:
			edge.Text, edge.Kind = "after failure", chart.EdgeFailure
		case kernel.WhenEnded:
			edge.Text, edge.Kind = "after any end", chart.EdgeEnd
		}
		pair := [2]string{edge.From, edge.To}
		if i, known := at[pair]; known { // one arrow for both conditions
			if known := &d.Edges[i]; known.Kind != edge.Kind {
				known.Text, known.Kind, known.Done = "after any end", chart.EdgeEnd, known.Done || edge.Done
			}
			continue
		}
		at[pair] = len(d.Edges)
		d.Edges = append(d.Edges, edge)
	}
	return d
}

func (u *UI) runNode(run *kernel.Run) chart.Node {
	b := badgeOf(run.State)
	return chart.Node{ID: run.ID.String(), Name: string(run.Key), Text: b.State, Class: b.Class, Href: u.base + "/runs/" + run.ID.String()}
}

// addFamily adds the runs of a family, and arrows from each to those that it started.
func (u *UI) addFamily(d *chart.Graph, tree []ops.Relative) {
	known, linked := map[string]bool{}, map[[2]string]bool{}
	for _, n := range d.Nodes {
		known[n.ID] = true
	}
	for _, e := range d.Edges {
		linked[[2]string{e.From, e.To}] = true
	}
	for _, one := range tree {
		n := u.runNode(one.Run)
		if !known[n.ID] {
			known[n.ID] = true
			d.Nodes = append(d.Nodes, n)
		}
		parent := one.Parent.String()
		if !one.Parent.IsZero() && known[parent] && !linked[[2]string{parent, n.ID}] {
			d.Edges = append(d.Edges, chart.Edge{From: parent, To: n.ID, Text: "started by the run", Kind: chart.EdgeChild, Done: true})
		}
	}
}
