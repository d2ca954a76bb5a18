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

func (a *asker) jobsVersions() *cobra.Command {
	c := &cobra.Command{Use: "versions <key>", Short: "List a job's revisions", Args: one("the key of a job"),
		Long:    "List a job's revisions, newest first, with their actors and reasons.",
		Example: lines("carillon jobs versions demo.report", "carillon jobs versions demo.report -o json"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			got, err := a.link.get(ctx, jobPath(args[0])+"/versions", nil)
			if err != nil {
				return a.meant(ctx, args[0], err)
			}
			var list struct {
				Items []api.Version `json:"items"`
			}
			if err := got.into(&list); err != nil {
				return err
			}
			return a.show(view{raw: got.raw, text: func(p *page) {
				for _, v := range list.Items {
					when := "before the recorded history"
					if v.From != nil {
						when = p.moment(v.From)
					}
					line := "revision " + strconv.FormatUint(v.Revision, 10) + "  " + when
					if v.By != "" {
						line += "  by " + clean(v.By)
					}
					if v.Reason != "" {
						line += ": " + clean(v.Reason)
					}
					if v.Until == nil {
						line += p.paint(green, "  (current)")
					}
					p.line("%s", line)
					differencePage(p, v.Changed)
				}
			}})
		}), ValidArgsFunction: a.completeKeys}
	return c
}

func (a *asker) jobsDiff() *cobra.Command {
	var from, to uint64
	c := &cobra.Command{Use: "diff <key>", Short: "Compare two revisions of a job", Args: one("the key of a job"),
		Long:    "Compare two revisions of a job, with the next due times of each. Default of --to: the current one. For files: carillon diff.",
		Example: lines("carillon jobs diff demo.report --from 2", "carillon jobs diff demo.report --from 2 --to 3"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			q := url.Values{}
			if from > 0 {
				q.Set("from", strconv.FormatUint(from, 10))
			}
			if to > 0 {
				q.Set("to", strconv.FormatUint(to, 10))
			}
			got, err := a.link.get(ctx, jobPath(args[0])+"/diff", q)
			if err != nil {
				return a.meant(ctx, args[0], err)
			}
			var d api.Compared
			if err := got.into(&d); err != nil {
				return err
			}
			return a.show(view{raw: got.raw, text: func(p *page) {
				if len(d.Differ) == 0 {
					p.line("revisions %d and %d are equal", d.From.Revision, d.To.Revision)
					return
				}
				p.line("revision %d -> %d", d.From.Revision, d.To.Revision)
				differencePage(p, d.Differ)
				p.line("%s", p.paint(faint, "next was  "+moments(d.NextBefore)))
				p.line("%s", p.paint(faint, "next is   "+moments(d.NextThen)))
			}})
		}), ValidArgsFunction: a.completeKeys}
	c.Flags().Uint64Var(&from, "from", 0, "a revision; 0 = the current one")
	c.Flags().Uint64Var(&to, "to", 0, "a revision; 0 = the current one")
	return c
}

func (a *asker) jobsRollback() *cobra.Command {
	var reason string
	c := &cobra.Command{Use: "rollback <key> <revision>", Short: "Restore the edited fields of an earlier revision", Args: counted("the key of a job and a revision", 2, 2),
		Long: "Restore the edited fields of an earlier revision. Fields that were not edited then follow the current code. This creates\n" +
			"a new revision, which can be rolled back in the same way. List the revisions with carillon jobs versions <key>.",
		Example: lines("carillon jobs rollback demo.report 2 --reason 'the new hours were wrong'"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			to, err := strconv.ParseUint(args[1], 10, 64)
			if err != nil || to == 0 {
				return kernel.Invalid("invalid revision %.40q: see carillon jobs versions %s", args[1], args[0])
			}
			before, got, err := a.job(ctx, args[0])
			if err != nil {
				return err
			}
			got, err = a.link.do(ctx, request{method: "POST", path: jobPath(args[0]) + "/rollback", match: got.etag, reason: reason, body: map[string]any{"revision": to}})
			if err != nil {
				return err
			}
			var after api.Job
			if err := got.into(&after); err != nil {
				return err
			}
			return a.show(jobView(after, got.raw, func(p *page) {
				if !differences(p, policyOf(before.Policy), policyOf(after.Policy)) {
					p.line("no effective change")
				}
				nextLines(p, &after, after.Next)
			}))
		}), ValidArgsFunction: a.completeKeys}
	c.Flags().StringVar(&reason, "reason", "", "reason, recorded with the change")
	return c
}

func (a *asker) jobsCreate() *cobra.Command {
	var kind, app, reason string
	var pairs []string
	c := &cobra.Command{Use: "create <key>", Short: "Create a job that no worker has registered yet", Args: one("a key"),
		Long: "Create a job that no worker has registered yet. Its runs wait for workers of its app that serve the key. Fields set here\n" +
			"override the workers' code. For many jobs, or definitions in files: carillon apply.",
		Example: lines("carillon jobs create billing.report --kind recurring --app billing --set schedule='@every 1h' --set retries=3"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			e, err := a.readEdit(pairs, nil)
			if err != nil {
				return err
			}
			body := e.body()
			body["key"], body["kind"], body["app"] = args[0], kind, app
			got, err := a.link.do(ctx, request{method: "POST", path: "/jobs", reason: reason, body: body})
			if err != nil {
				return pointed(err, textOf(e.set["schedule"]))
			}
			var j api.Job
			if err := got.into(&j); err != nil {
				return err
			}
			return a.show(jobView(j, got.raw, func(p *page) {
				p.line("%s is created; its runs wait for workers of %s that serve it", j.Key, clean(strings.TrimSpace(j.App)))
				nextLines(p, &j, j.Next)
			}))
		})}
	c.Flags().StringVar(&kind, "kind", "triggered", "recurring or triggered")
	c.Flags().StringVar(&app, "app", "", "app (worker group) of the job")
	c.Flags().StringVar(&reason, "reason", "", "reason, recorded with the change")
	c.Flags().StringArrayVar(&pairs, "set", nil, "field=value; repeatable")
	complete(c, "kind", choices("recurring", "triggered"))
	complete(c, "set", completeSet)
	return c
}
