package cli

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

func (a *asker) explainCommand() *cobra.Command {
	var at string
	c := &cobra.Command{Use: "explain <key or run>", Short: "Explain why a job does not run, or why a run waits", Args: one("the key of a job, or the id of a run"),
		Long: "Explain why a job runs or does not, now or at a time, or why a run is in its state: a summary first, then the details.\n\n" +
			"A time may be past or future: " + momentHelp + ". For a past time, the text is what was recorded of it; facts of the present are marked with now.",
		Example:           lines("carillon explain demo.report", "carillon explain demo.report --at '2026-12-25 09:00'", "carillon explain demo.report --at 'today 02:30'", "carillon explain 0197f5a0-3b1c-7000-8000-000000000001"),
		ValidArgsFunction: a.completeKeys}
	c.RunE = a.does(func(ctx context.Context, args []string) error {
		if _, err := jobs.ParseID(args[0]); err == nil {
			if at != "" {
				return kernel.Invalid("--at is for jobs, not for runs")
			}
			return a.explainRun(ctx, args[0])
		}
		q := url.Values{}
		if at != "" {
			t, _, ok := momentOf(at, a.Now())
			if !ok {
				return kernel.Invalid("invalid --at %.40q: want %s", at, momentHelp)
			}
			q.Set("at", t.UTC().Format(time.RFC3339Nano))
		}
		got, err := a.link.get(ctx, jobPath(args[0])+"/explain", q)
		if err != nil {
			return a.meant(ctx, args[0], err)
		}
		var e api.Explanation
		if err := got.into(&e); err != nil {
			return err
		}
		return a.show(view{raw: got.raw, names: []string{args[0]}, text: func(p *page) {
			for _, text := range e.Text {
				p.line("%s", clean(text))
			}
			if len(e.Missed) == 0 {
				return
			}
			p.line("")
			var rows [][]string
			for _, m := range e.Missed {
				rows = append(rows, []string{m.Reason, strconv.FormatUint(m.Count, 10), p.moment(&m.From), p.moment(&m.To)})
			}
			p.table([]string{"WHY", "DUE TIMES", "FIRST", "LAST"}, rows)
		}})
	})
	c.Flags().StringVar(&at, "at", "", "explain this time instead of now")
	return c
}

func (a *asker) explainRun(ctx context.Context, id string) error {
	got, err := a.link.get(ctx, "/runs/"+url.PathEscape(id)+"/explain", nil)
	if err != nil {
		return err
	}
	var e api.RunExplanation
	if err := got.into(&e); err != nil {
		return err
	}
	return a.show(view{raw: got.raw, names: []string{e.Run.ID}, text: func(p *page) {
		p.line("%s", clean(e.Why))
		p.line("")
		movesTable(p, e.Run.Moves)
	}})
}
