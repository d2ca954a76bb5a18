package cli

import (
	"context"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
)

func (a *asker) runsTree() *cobra.Command {
	var limit int
	c := &cobra.Command{Use: "tree <run>", Short: "Show the ancestors and children of a run", Args: one("the ID of a run, or the key of a job"),
		Long:              "Show the ancestors and children of a run as a tree. " + someRunHelp,
		Example:           lines("carillon runs tree demo.report"),
		ValidArgsFunction: a.completeRuns(false),
		RunE: a.does(func(ctx context.Context, args []string) error {
			if limit < 1 || limit > 1000 {
				return kernel.Invalid("invalid -n %d: want 1 to 1000", limit)
			}
			id, err := a.someRun(ctx, args[0])
			if err != nil {
				return err
			}
			got, err := a.link.do(ctx, request{method: "GET", path: "/runs/" + url.PathEscape(id) + "/tree", query: url.Values{"limit": {strconv.Itoa(limit)}}})
			if err != nil {
				return err
			}
			var tree api.RunTree
			if err := got.into(&tree); err != nil {
				return err
			}
			v := view{raw: got.raw, text: func(p *page) { treeTable(p, &tree, id) }}
			for _, r := range tree.Items {
				v.names = append(v.names, r.Run.ID)
			}
			return a.show(v)
		})}
	c.Flags().IntVarP(&limit, "number", "n", 200, "max runs to show")
	return c
}

func treeTable(p *page, tree *api.RunTree, id string) {
	var rows [][]string
	for i := range tree.Items {
		r := &tree.Items[i].Run
		mark := strings.Repeat("  ", tree.Items[i].Depth)
		rows = append(rows, []string{mark + string(r.Job) + yes(r.ID == id, " *"), r.ID, p.state(r.State), or(p.ago(whenOf(r)), "-"), lasted(p, r), r.Origin, or(runRemark(r), "-")})
	}
	p.table([]string{"JOB", "RUN", "STATE", "WHEN", "TOOK", "ORIGIN", "REMARK"}, rows)
	if tree.Cut {
		p.line("%s", p.paint(faint, "there are more: use a larger -n, or carillon runs list --parent"))
	}
}
