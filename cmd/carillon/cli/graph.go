package cli

import (
	"context"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// Jobs that follow each other, and the occasions of those that follow several others.

func (a *asker) jobsGraph() *cobra.Command {
	return &cobra.Command{Use: "graph <key>", Short: "Show the jobs that follow each other", Args: one("the key of a job"),
		Long:              "Show all jobs that are connected with a job because they follow each other (after, onSuccess, onFailure).",
		Example:           lines("carillon jobs graph demo.report"),
		ValidArgsFunction: a.completeKeys,
		RunE: a.does(func(ctx context.Context, args []string) error {
			return a.meant(ctx, args[0], a.graph(ctx, jobPath(args[0])+"/graph"))
		})}
}

func (a *asker) runsGraph() *cobra.Command {
	return &cobra.Command{Use: "graph <run>", Short: "Show the runs of an occasion", Args: one("the ID of a run, or the key of a job"),
		Long:              "Show the jobs that follow each other around a run, with their runs of the same occasion. " + someRunHelp,
		Example:           lines("carillon runs graph demo.report"),
		ValidArgsFunction: a.completeRuns(false),
		RunE: a.does(func(ctx context.Context, args []string) error {
			id, err := a.someRun(ctx, args[0])
			if err != nil {
				return err
			}
			return a.graph(ctx, "/runs/"+url.PathEscape(id)+"/graph")
		})}
}

func (a *asker) graph(ctx context.Context, path string) error {
	got, err := a.link.do(ctx, request{method: "GET", path: path})
	if err != nil {
		return err
	}
	var g api.Graph
	if err := got.into(&g); err != nil {
		return err
	}
	v := view{raw: got.raw, text: func(p *page) { graphTable(p, &g) }}
	for _, n := range g.Nodes {
		v.names = append(v.names, string(n.Job))
	}
	return a.show(v)
}

func graphTable(p *page, g *api.Graph) {
	var rows [][]string
	for _, n := range g.Nodes {
		state := "-"
		if n.State != "" {
			state = p.state(n.State)
		}
		rows = append(rows, []string{string(n.Job), or(n.Kind, "missing"), state, or(n.Run, "-")})
	}
	p.table([]string{"JOB", "KIND", "STATE", "RUN"}, rows)
	if len(g.Edges) > 0 {
		p.line("")
		rows = nil
		for _, e := range g.Edges {
			rows = append(rows, []string{string(e.From), string(e.To), e.When, yes(e.All, "after all"), yes(e.Done, "done")})
		}
		p.table([]string{"FROM", "TO", "WHEN", "SETTING", "DONE"}, rows)
	}
	if g.Cut {
		p.line("%s", p.paint(faint, "there are more jobs"))
	}
}

func (a *asker) jobsOccasions() *cobra.Command {
	var limit int
	c := &cobra.Command{Use: "occasions <key>", Short: "List open occasions of a job", Args: one("the key of a job"),
		Long:              "List the occasions of a job that runs after several others, for which not all of these have ended as wanted.",
		Example:           lines("carillon jobs occasions demo.report", "carillon jobs occasions demo.report -o json"),
		ValidArgsFunction: a.completeKeys,
		RunE: a.does(func(ctx context.Context, args []string) error {
			if limit < 1 || limit > 200 {
				return kernel.Invalid("invalid -n %d: want 1 to 200", limit)
			}
			got, err := a.link.do(ctx, request{method: "GET", path: jobPath(args[0]) + "/occasions", query: url.Values{"limit": {strconv.Itoa(limit)}}})
			if err != nil {
				return a.meant(ctx, args[0], err)
			}
			var list struct{ Items []api.Occasion }
			if err := got.into(&list); err != nil {
				return err
			}
			v := view{raw: got.raw, text: func(p *page) { occasionsTable(p, list.Items) }}
			for _, o := range list.Items {
				v.names = append(v.names, o.Occasion)
			}
			return a.show(v)
		})}
	c.Flags().IntVarP(&limit, "number", "n", 50, "max occasions to show")
	return c
}

func occasionsTable(p *page, list []api.Occasion) {
	if len(list) == 0 {
		p.line("No occasion is open.")
		return
	}
	rows := make([][]string, len(list))
	for i, o := range list {
		rows[i] = []string{o.Occasion, p.moment(&o.Opened), p.moment(&o.Until), strconv.Itoa(len(o.Ended)), lacking(o.Missing)}
		if len(rows[i][4]) > 2 {
			rows[i][4] = rows[i][4][2:]
		}
	}
	p.table([]string{"OCCASION", "OPENED", "UNTIL", "ENDED", "MISSING"}, rows)
}
