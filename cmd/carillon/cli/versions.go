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
	c := &cobra.Command{Use: "versions <key>", Short: "List what held for a job, and who changed it", Args: one("the key of a job"),
		Long:    "List what held for a job, newest first: what holds now, and the changes before it, with who made them and why.",
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
			return a.say(view{raw: got.raw, text: func(p *page) {
				for _, v := range list.Items {
					when := "before what is remembered"
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
						line += p.paint(green, "  (holds now)")
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
	c := &cobra.Command{Use: "diff <key>", Short: "Show what differs between two revisions of a job", Args: one("the key of a job"),
		Long:    "Show what differs between two revisions of a job, with the next due times of each. Without --to: what holds now. See also: carillon diff, for files.",
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
			return a.say(view{raw: got.raw, text: func(p *page) {
				if len(d.Differ) == 0 {
					p.line("revisions %d and %d say the same", d.From.Revision, d.To.Revision)
					return
				}
				p.line("revision %d -> %d", d.From.Revision, d.To.Revision)
				differencePage(p, d.Differ)
				p.line("%s", p.paint(faint, "next was  "+moments(d.NextBefore)))
				p.line("%s", p.paint(faint, "next is   "+moments(d.NextThen)))
			}})
		}), ValidArgsFunction: a.completeKeys}
	c.Flags().Uint64Var(&from, "from", 0, "a revision; 0 = what holds now")
	c.Flags().Uint64Var(&to, "to", 0, "a revision; 0 = what holds now")
	return c
}

func (a *asker) jobsRollback() *cobra.Command {
	var reason string
	c := &cobra.Command{Use: "rollback <key> <revision>", Short: "Go back to what people had set at an earlier revision", Args: counted("the key of a job and a revision", 2, 2),
		Long: "Go back to what people had set at an earlier revision. Fields that nobody had set then follow the code, as it is now. It is a new\n" +
			"revision of its own, so it can be taken back in the same way. carillon jobs versions <key> lists what there is.",
		Example: lines("carillon jobs rollback demo.report 2 --reason 'the new hours were wrong'"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			to, err := strconv.ParseUint(args[1], 10, 64)
			if err != nil || to == 0 {
				return kernel.Invalid("%.40q is not the number of a revision; carillon jobs versions %s lists them", args[1], args[0])
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
			return a.say(jobView(after, got.raw, func(p *page) {
				if !differences(p, policyOf(before.Policy), policyOf(after.Policy)) {
					p.line("nothing else holds than before")
				}
				nextLines(p, &after, after.Next)
			}))
		}), ValidArgsFunction: a.completeKeys}
	c.Flags().StringVar(&reason, "reason", "", "why; kept with the change")
	return c
}

func (a *asker) jobsCreate() *cobra.Command {
	var kind, app, reason string
	var pairs []string
	c := &cobra.Command{Use: "create <key>", Short: "Make a job that no worker has brought yet", Args: one("a key"),
		Long: "Make a job that no worker has brought yet. Its runs wait for workers of its app that have the key. What is said here wins over\n" +
			"their code. To make many, or to keep them in a file: carillon apply.",
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
				return pointed(err, textOf(e.set["schedule"]), textOf(e.set["zone"]))
			}
			var j api.Job
			if err := got.into(&j); err != nil {
				return err
			}
			return a.say(jobView(j, got.raw, func(p *page) {
				p.line("%s is there; its runs wait for workers of %s that have it", j.Key, clean(strings.TrimSpace(j.App)))
				nextLines(p, &j, j.Next)
			}))
		})}
	c.Flags().StringVar(&kind, "kind", "triggered", "recurring or triggered")
	c.Flags().StringVar(&app, "app", "", "the worker group that is to run it")
	c.Flags().StringVar(&reason, "reason", "", "why; kept with the change")
	c.Flags().StringArrayVar(&pairs, "set", nil, "field=value; may be given more than once")
	complete(c, "kind", words("recurring", "triggered"))
	complete(c, "set", completeSet)
	return c
}
