package cli

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Batches: runs that were requested together, and the job that runs when all have ended.

func (a *asker) batchesCommand() *cobra.Command {
	c := group("batches", "Open, close and show batches of runs",
		lines("id=$(carillon batches open demo.report --name monday -o name)", "carillon jobs trigger demo.charge --batch $id", "carillon batches close monday", "carillon batches show monday"),
		a.batchesList(), a.batchesShow(), a.batchesOpen(), a.batchesClose())
	c.Aliases = []string{"batch"}
	return c
}

func (a *asker) batchesList() *cobra.Command {
	var limit int
	c := &cobra.Command{Use: "list", Short: "List batches, the latest first", Args: none, Example: lines("carillon batches list", "carillon batches list -o json"),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			if limit < 1 || limit > 200 {
				return kernel.Invalid("invalid -n %d: want 1 to 200", limit)
			}
			got, err := a.link.get(ctx, "/batches", url.Values{"limit": {strconv.Itoa(limit)}})
			if err != nil {
				return err
			}
			var all struct{ Items []api.Batch }
			if err := got.into(&all); err != nil {
				return err
			}
			v := view{raw: got.raw, text: func(p *page) {
				if len(all.Items) == 0 {
					p.line("There are no batches.")
					return
				}
				var rows [][]string
				for i := range all.Items {
					b := &all.Items[i]
					rows = append(rows, []string{b.ID, or(clean(b.Name), "-"), string(b.Then), batchState(b), strconv.FormatUint(b.Total, 10), strconv.FormatUint(b.Live, 10), strconv.FormatUint(b.Total-b.Live-b.Succeeded, 10), p.ago(&b.Opened)})
				}
				p.table([]string{"BATCH", "NAME", "THEN", "STATE", "RUNS", "LIVE", "NOT SUCCEEDED", "OPENED"}, rows)
			}}
			for i := range all.Items {
				v.names = append(v.names, all.Items[i].ID)
			}
			return a.show(v)
		})}
	c.Flags().IntVarP(&limit, "number", "n", 50, "max batches to show")
	return c
}

func batchState(b *api.Batch) string {
	switch {
	case b.Ended != nil:
		return "ended"
	case b.Closed != nil:
		return "closed"
	}
	return "open"
}

const batchArg = "the ID or the name of a batch"

func (a *asker) batchesShow() *cobra.Command {
	return &cobra.Command{Use: "show <batch>", Short: "Show how far a batch is", Args: one(batchArg), Example: lines("carillon batches show monday"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			id, err := a.someBatch(ctx, args[0])
			if err != nil {
				return err
			}
			got, err := a.link.get(ctx, "/batches/"+id, nil)
			if err != nil {
				return err
			}
			return a.showBatch(got)
		})}
}

func (a *asker) batchesOpen() *cobra.Command {
	var in api.NewBatch
	var args string
	c := &cobra.Command{Use: "open <job>", Short: "Open a batch, at whose end a job runs", Args: one("the key of the job that runs at the end"),
		Long:              "Open a batch. Add runs with `carillon jobs trigger --batch`, and close it: once all of them are final, the job runs with their counts in its argument `batch`.",
		Example:           lines("carillon batches open demo.report --name monday", `carillon batches open demo.report --args '{"to":"ann"}' -o name`),
		ValidArgsFunction: a.completeKeys,
		RunE: a.does(func(ctx context.Context, keys []string) error {
			in.Then = jobs.Key(keys[0])
			if args != "" {
				o := api.Object(args)
				in.Args = &o
			}
			got, err := a.link.do(ctx, request{method: "POST", path: "/batches", body: in})
			if err != nil {
				return a.meant(ctx, keys[0], err)
			}
			return a.showBatch(got)
		})}
	c.Flags().StringVar(&in.Name, "name", "", "name: opening it again returns the same batch")
	c.Flags().StringVar(&args, "args", "", "arguments of the job, as a JSON object (default: the job's)")
	return c
}

func (a *asker) batchesClose() *cobra.Command {
	return &cobra.Command{Use: "close <batch>", Short: "Close a batch: its job runs once all runs are final", Args: one(batchArg), Example: lines("carillon batches close monday"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			id, err := a.someBatch(ctx, args[0])
			if err != nil {
				return err
			}
			got, err := a.link.do(ctx, request{method: "POST", path: "/batches/" + id + "/close"})
			if err != nil {
				return err
			}
			return a.showBatch(got)
		})}
}

// someBatch returns the ID of a batch by its ID or its name.
func (a *asker) someBatch(ctx context.Context, text string) (string, error) {
	if id, err := jobs.ParseID(text); err == nil {
		return id.String(), nil
	}
	got, err := a.link.get(ctx, "/batches", url.Values{"limit": {"200"}})
	if err != nil {
		return "", err
	}
	var all struct{ Items []api.Batch }
	if err := got.into(&all); err != nil {
		return "", err
	}
	for i := range all.Items {
		if all.Items[i].Name == text {
			return all.Items[i].ID, nil
		}
	}
	return "", kernel.Refuse(jobs.NotFound, "none of the latest 200 batches has the name %q: carillon batches list", text)
}

func named(name string) string {
	if name == "" {
		return ""
	}
	return " (" + clean(name) + ")"
}

func (a *asker) showBatch(got answer) error {
	var b api.Batch
	if err := got.into(&b); err != nil {
		return err
	}
	return a.show(view{raw: got.raw, names: []string{b.ID}, text: func(p *page) {
		p.line("batch %s%s: %s, then %s", b.ID, named(b.Name), batchState(&b), b.Then)
		var parts []string
		for _, n := range []struct {
			n    uint64
			word string
		}{{b.Live, "live"}, {b.Succeeded, "Succeeded"}, {b.Terminated, "Terminated"}, {b.Cancelled, "Cancelled"}, {b.Skipped, "Skipped"}} {
			if n.n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", n.n, n.word))
			}
		}
		p.line("%d runs: %s", b.Total, or(strings.Join(parts, ", "), "none yet"))
		if b.Run != "" {
			p.line("its end began run %s", b.Run)
		}
		for _, f := range b.Failures {
			p.line("  %s of %s is %s", f.Run, f.Job, f.State)
		}
	}})
}
