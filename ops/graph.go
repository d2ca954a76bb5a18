package ops

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Graph is the jobs that are connected with a job because they follow each other, directly or through others.
type Graph struct {
	Occasion string // of the runs in it; "" = it has definitions only
	Nodes    []GraphNode
	Edges    []GraphEdge
	Cut      bool // there are more jobs
}

// GraphNode is a job, and its run of the occasion.
type GraphNode struct {
	Job     jobs.Key
	Kind    kernel.Kind
	Missing bool        // there is no such job
	Run     *kernel.Run // nil = it has none, or it was purged
}

// GraphEdge leads from a job to one that follows it.
type GraphEdge struct {
	From, To jobs.Key
	After    bool        // To waits for all such edges (its setting after); false = onSuccess or onFailure of From
	When     kernel.When // the end of From that is wanted
	Done     bool        // From ended as wanted, in the occasion
}

// edgesOf returns the edges that a job's settings describe.
func edgesOf(d *kernel.Definition) (edges []GraphEdge) {
	for _, text := range d.Policy.After {
		key, when := kernel.AfterOf(text)
		edges = append(edges, GraphEdge{From: key, To: d.Key, After: true, When: when})
	}
	for _, key := range d.Policy.OnSuccess {
		edges = append(edges, GraphEdge{From: d.Key, To: jobs.Key(key), When: kernel.WhenSucceeded})
	}
	for _, key := range d.Policy.OnFailure {
		edges = append(edges, GraphEdge{From: d.Key, To: jobs.Key(key), When: kernel.WhenFailed})
	}
	return edges
}

// JobGraph returns the graph of a job's definition, with nodes and edges by key.
func (o *Ops) JobGraph(ctx context.Context, who Who, key jobs.Key) (*Graph, error) {
	g, _, err := o.graph(ctx, who, key)
	return g, err
}

func (o *Ops) graph(ctx context.Context, who Who, key jobs.Key) (*Graph, map[jobs.Key]*kernel.Definition, error) {
	if _, err := o.definition(ctx, who, key); err != nil {
		return nil, nil, err
	}
	defs, edges := map[jobs.Key]*kernel.Definition{}, map[jobs.Key][]GraphEdge{}
	err := metastore.EachDefinition(ctx, o.store, who.tenant(), func(part []*kernel.Definition) error {
		for _, d := range part {
			for _, e := range edgesOf(d) {
				edges[e.From] = append(edges[e.From], e)
				if e.To != e.From {
					edges[e.To] = append(edges[e.To], e)
				}
				defs[d.Key] = d
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	g, seen := &Graph{}, map[jobs.Key]bool{key: true}
	for todo := []jobs.Key{key}; len(todo) > 0; todo = todo[1:] {
		if len(g.Nodes) >= maxFamily {
			g.Cut = true
			break
		}
		at := todo[0]
		n := GraphNode{Job: at}
		if defs[at] == nil {
			if defs[at], err = o.store.Definition(ctx, who.tenant(), at); jobs.CodeOf(err) == jobs.NotFound {
				n.Missing = true
			} else if err != nil {
				return nil, nil, err
			}
		}
		if d := defs[at]; d != nil {
			n.Kind = d.Kind
		}
		g.Nodes = append(g.Nodes, n)
		for _, e := range edges[at] {
			if e.From == at {
				g.Edges = append(g.Edges, e)
			}
			for _, next := range []jobs.Key{e.From, e.To} {
				if !seen[next] {
					seen[next] = true
					todo = append(todo, next)
				}
			}
		}
	}
	if g.Cut { // no edge leads to a job that was left out
		g.Edges = slices.DeleteFunc(g.Edges, func(e GraphEdge) bool { return g.node(e.To) == nil })
	}
	slices.SortFunc(g.Nodes, func(a, b GraphNode) int { return cmp.Compare(a.Job, b.Job) })
	slices.SortFunc(g.Edges, func(a, b GraphEdge) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.When, b.When))
	})
	return g, defs, nil
}

func (g *Graph) node(key jobs.Key) *GraphNode {
	for i := range g.Nodes {
		if g.Nodes[i].Job == key {
			return &g.Nodes[i]
		}
	}
	return nil
}

// RunGraph returns the graph of the jobs around a run, with the runs of its occasion.
func (o *Ops) RunGraph(ctx context.Context, who Who, id jobs.ID) (*Graph, error) {
	run, err := o.Run(ctx, who, id)
	if err != nil {
		return nil, err
	}
	g, defs, err := o.graph(ctx, who, run.Key)
	if err != nil {
		return nil, err
	}
	g.Occasion = run.OccasionName()
	g.node(run.Key).Run = run
	if err := o.findRuns(ctx, who, g, defs, id); err != nil {
		return nil, err
	}
	for i := range g.Edges {
		e := &g.Edges[i]
		if from := g.node(e.From).Run; from != nil && from.State.Final() {
			e.Done = e.When.Wants(from.State)
		}
	}
	return g, nil
}

// findRuns reads the runs of an occasion by their IDs, which derive from it and from each other. The ends that an open
// occasion has counted replace them: a run may have been repeated.
func (o *Ops) findRuns(ctx context.Context, who Who, g *Graph, defs map[jobs.Key]*kernel.Definition, id jobs.ID) error {
	set := func(key jobs.Key, id jobs.ID, replace bool) error {
		n := g.node(key)
		if n == nil || n.Run != nil && !replace {
			return nil
		}
		run, err := o.store.Run(ctx, who.tenant(), id)
		if jobs.CodeOf(err) == jobs.NotFound {
			return nil
		}
		if err == nil && run.Key == key {
			n.Run = run
		}
		return err
	}
	due, timed := time.Parse(time.RFC3339Nano, g.Occasion)
	root, isRun := jobs.ParseID(g.Occasion)
	for _, n := range g.Nodes {
		d := defs[n.Job]
		if d == nil {
			continue
		}
		var err error
		switch {
		case isRun == nil:
			err = set(n.Job, root, false)
		case timed == nil && d.Kind == kernel.Recurring:
			err = set(n.Job, kernel.DueID(d.Tenant, d.UID, due, 0, 0), false)
		}
		if err != nil {
			return err
		}
		if len(d.Policy.After) == 0 {
			continue
		}
		of := kernel.Occasion{Tenant: d.Tenant, Job: d.UID, Name: g.Occasion}
		if err := set(n.Job, of.FollowerID(), false); err != nil {
			return err
		}
		open, err := o.store.Occasions(ctx, d.Tenant, d.UID, metastore.MaxPage)
		if err != nil {
			return err
		}
		for _, row := range open {
			if row.Name != g.Occasion && !slices.ContainsFunc(row.Ended, func(e kernel.Ended) bool { return e.Run == id }) {
				continue
			}
			for _, e := range row.Ended {
				if err := set(e.Job, e.Run, true); err != nil {
					return err
				}
			}
		}
	}
	for range kernel.MaxDepth { // each round finds the followers of those that were found
		before := g.found()
		for _, e := range g.Edges {
			if from := g.node(e.From).Run; !e.After && from != nil && from.State.Final() {
				if err := set(e.To, kernel.ChildID(from, e.To), false); err != nil {
					return err
				}
			}
		}
		if g.found() == before {
			break
		}
	}
	return nil
}

func (g *Graph) found() (n int) {
	for i := range g.Nodes {
		if g.Nodes[i].Run != nil {
			n++
		}
	}
	return n
}

// OpenOccasion is an occasion for which not all jobs have ended as wanted.
type OpenOccasion struct {
	*kernel.Occasion
	Missing []kernel.Ended
}

// Occasions lists open occasions of a job that follows others, the latest first.
func (o *Ops) Occasions(ctx context.Context, who Who, key jobs.Key, limit int) ([]OpenOccasion, error) {
	if limit < 1 || limit > metastore.MaxPage {
		return nil, kernel.Invalid("invalid number of occasions %d: want 1 to %d", limit, metastore.MaxPage)
	}
	d, err := o.definition(ctx, who, key)
	if err != nil {
		return nil, err
	}
	rows, err := o.store.Occasions(ctx, d.Tenant, d.UID, limit)
	if err != nil {
		return nil, err
	}
	list := make([]OpenOccasion, len(rows))
	for i, row := range rows {
		list[i] = OpenOccasion{row, row.Missing(&d.Policy)}
	}
	return list, nil
}
