package cli

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
)

func (a *asker) outboxCommand() *cobra.Command {
	return group("outbox", "Manage refused requests from transactions", lines("carillon outbox list", "carillon outbox retry 12 13 --reason 'the job is back'"),
		a.outboxList(), a.outboxChange("retry", "Deliver refused requests again", "is delivered again", "are delivered again",
			"A request is refused again if its cause has not changed. It can be retried a minute after it was refused."),
		a.outboxChange("discard", "Discard refused requests", "is discarded", "are discarded", "Their runs never start."))
}

func (a *asker) outboxList() *cobra.Command {
	var limit int
	c := &cobra.Command{Use: "list", Short: "List refused requests, newest first", Args: none,
		Long: "List requests for runs that programs wrote in their own database transactions, and that the scheduler refused after\n" +
			"the commit.",
		Example: lines("carillon outbox list", "carillon outbox list -n 200 -o json"),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			got, err := a.link.get(ctx, "/outbox/refused", url.Values{"limit": {strconv.Itoa(limit)}})
			if err != nil {
				return err
			}
			var all struct{ Items []api.RefusedRequest }
			if err := got.into(&all); err != nil {
				return err
			}
			v := view{raw: got.raw, text: func(p *page) {
				if len(all.Items) == 0 {
					p.line("No requests from transactions were refused.")
					return
				}
				var rows [][]string
				for i := range all.Items {
					r := &all.Items[i]
					rows = append(rows, []string{strconv.FormatInt(r.Number, 10), or(p.ago(&r.At), "-"), or(string(r.Job), "-"), or(r.Run, "-"), or(clean(r.Actor), "-"), short(clean(r.Reason))})
				}
				p.table([]string{"NUMBER", "REFUSED", "JOB", "RUN", "BY", "REASON"}, rows)
			}}
			for _, r := range all.Items {
				v.names = append(v.names, strconv.FormatInt(r.Number, 10))
			}
			return a.show(v)
		})}
	c.Flags().IntVarP(&limit, "limit", "n", 50, "how many at most, up to 200")
	return c
}

func (a *asker) outboxChange(verb, summary, did, didMany, about string) *cobra.Command {
	var reason string
	c := &cobra.Command{Use: verb + " <number>...", Short: summary, Args: counted("the numbers of refused requests", 1, 1_000),
		Long:    summary + ". " + about,
		Example: lines("carillon outbox "+verb+" 12 13", "carillon outbox list -o name | xargs carillon outbox "+verb),
		RunE: a.does(func(ctx context.Context, args []string) error {
			numbers := make([]int64, len(args))
			for i, text := range args {
				n, err := strconv.ParseInt(text, 10, 64)
				if err != nil || n < 1 {
					return kernel.Invalid("invalid number %.40q of a request: want one of carillon outbox list", text)
				}
				numbers[i] = n
			}
			body := map[string]any{"numbers": numbers}
			if reason != "" {
				body["reason"] = reason
			}
			got, err := a.link.do(ctx, request{method: "POST", path: "/outbox/refused/" + verb, body: body})
			if err != nil {
				return err
			}
			var done api.ChangedRequests
			if err := got.into(&done); err != nil {
				return err
			}
			return a.show(view{raw: got.raw, text: func(p *page) {
				text := "1 request " + did
				if done.Requests != 1 {
					text = fmt.Sprintf("%d requests %s", done.Requests, didMany)
				}
				p.line("%s", text)
			}})
		}), ValidArgsFunction: a.completeRefused}
	c.Flags().StringVar(&reason, "reason", "", "reason, recorded in the log")
	return c
}

func (a *asker) completeRefused(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	var all struct{ Items []api.RefusedRequest }
	if !a.asked(c, "/outbox/refused", nil, &all) {
		return nil, noFiles
	}
	var numbers []string
	for _, r := range all.Items {
		numbers = append(numbers, described(strconv.FormatInt(r.Number, 10), or(string(r.Job), "unreadable")+" "+clean(r.Reason)))
	}
	return numbers, noFiles
}
