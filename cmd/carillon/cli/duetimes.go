package cli

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// What a job did and will do, by time: its next due times, those without a run, and its finished runs by day.

func (a *asker) jobsMissed() *cobra.Command {
	var limit int
	var before string
	c := &cobra.Command{Use: "missed <key>", Short: "List due times without a run", Args: one("the key of a job"),
		Long:    "List due times of a recurring job that have no run, as ranges with a reason, newest first. A backfill creates their runs.",
		Example: lines("carillon jobs missed demo.report", "carillon jobs missed demo.report --before 2026-11-01 -n 1000"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			if limit < 1 {
				return kernel.Invalid("invalid -n %d: want at least 1", limit)
			}
			q := url.Values{}
			if before != "" {
				at, err := readAge("--before", before, a.Now())
				if err != nil {
					return err
				}
				q.Set("before", at.UTC().Format(time.RFC3339Nano))
			}
			all, err := a.pages(ctx, jobPath(args[0])+"/missed", q, "before", limit, 1000)
			if err != nil {
				return a.meant(ctx, args[0], err)
			}
			list, err := decoded[api.Missed](all.Items)
			if err != nil {
				return err
			}
			v := view{text: func(p *page) { missedTable(p, list, all) }}
			v.raw, err = json.Marshal(all)
			for _, m := range list {
				v.names = append(v.names, m.From.Format(time.RFC3339))
			}
			return errors.Join(err, a.show(v))
		}), ValidArgsFunction: a.completeKeys}
	c.Flags().IntVarP(&limit, "limit", "n", 100, "max number of ranges")
	c.Flags().StringVar(&before, "before", "", "only ranges that begin before: an age such as 5d, or a time")
	return c
}

// lacking describes the jobs that an occasion lacks.
func lacking(list []api.JobsEnded) string {
	if len(list) == 0 {
		return ""
	}
	text := make([]string, len(list))
	for i, e := range list {
		text[i] = string(e.Job) + " " + or(e.State, "has not ended")
	}
	return ": " + strings.Join(text, ", ")
}

func missedTable(p *page, list []api.Missed, all many) {
	if len(list) == 0 {
		p.line("No due time is without a run.")
		return
	}
	rows := make([][]string, len(list))
	for i, m := range list {
		rows[i] = []string{p.moment(&m.From), p.moment(&m.To), strconv.FormatUint(m.Count, 10), m.Reason + lacking(m.Parents)}
	}
	p.table([]string{"FROM", "TO", "DUE TIMES", "REASON"}, rows)
	if all.next() != "" {
		p.line("%s", p.paint(faint, "there are more: use a larger -n, or --before "+all.next()))
	}
}

func (a *asker) jobsStats() *cobra.Command {
	var days int
	var app string
	c := &cobra.Command{Use: "stats [key]", Short: "Count finished runs", Args: counted("the key of a job, or nothing for all jobs", 0, 1),
		Long:    "Count the finished runs of a job, of an app, or of all jobs: of the last 24 hours, 7 and 30 days, and by day (UTC). Runs that were purged count.",
		Example: lines("carillon jobs stats demo.report", "carillon jobs stats --app billing --days 30"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			path, q := "/stats", url.Values{"days": {strconv.Itoa(days)}}
			switch {
			case len(args) > 0 && app != "":
				return kernel.Invalid("a job and --app are given: want one of them")
			case len(args) > 0:
				path = jobPath(args[0]) + path
			case app != "":
				q.Set("app", app)
			}
			got, err := a.link.get(ctx, path, q)
			if err != nil && len(args) > 0 {
				err = a.meant(ctx, args[0], err)
			}
			if err != nil {
				return err
			}
			var s api.Stats
			if err := got.into(&s); err != nil {
				return err
			}
			return a.show(view{raw: got.raw, text: func(p *page) { statsTable(p, &s) }})
		}), ValidArgsFunction: a.completeKeys}
	c.Flags().IntVar(&days, "days", 7, "number of days, today included, at most 35")
	c.Flags().StringVar(&app, "app", "", "only the jobs of an app")
	return c
}

func statsTable(p *page, s *api.Stats) {
	head, rows := []string{"LAST"}, make([][]string, len(s.Periods))
	for i, d := range s.Periods {
		rows[i] = []string{d.Period, strconv.FormatInt(d.Runs, 10)}
	}
	head = append(head, "RUNS")
	for _, state := range kernel.States() {
		if state.Final() {
			head = append(head, strings.ToUpper(state.String()))
			for i, d := range s.Periods {
				rows[i] = append(rows[i], strconv.FormatInt(d.States[state.String()], 10))
			}
		}
	}
	for i, d := range s.Periods {
		rows[i] = append(rows[i], strconv.FormatInt(d.Failed, 10), average(d.Mean))
	}
	p.table(append(head, "FAILED ATTEMPTS", "AVERAGE"), rows)
	p.line("")
	head, rows = []string{"DAY"}, make([][]string, len(s.Days)+1)
	for i, d := range s.Days {
		rows[i] = []string{d.Day.Format("Mon 2006-01-02")}
	}
	rows[len(s.Days)] = []string{"total"}
	for _, state := range kernel.States() {
		if !state.Final() {
			continue
		}
		name := state.String()
		head = append(head, strings.ToUpper(name))
		for i, d := range s.Days {
			rows[i] = append(rows[i], strconv.FormatInt(d.Runs[name], 10))
		}
		rows[len(s.Days)] = append(rows[len(s.Days)], strconv.FormatInt(s.Total[name], 10))
	}
	p.table(head, rows)
}

// average is how long runs took on average.
func average(seconds float64) string {
	if seconds == 0 {
		return "-"
	}
	return span(time.Duration(seconds * float64(time.Second)))
}

func (a *asker) jobsNext() *cobra.Command {
	var n int
	var expr, zone string
	c := &cobra.Command{Use: "next <key>", Short: "List the next due times", Args: one("the key of a job"),
		Long:    "List the next due times of a job, or of another schedule or time zone for it. Without a server: carillon next.",
		Example: lines("carillon jobs next demo.report -n 3", "carillon jobs next demo.report --schedule '30 2 * * *' --zone Europe/Berlin"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			j, _, err := a.job(ctx, args[0])
			if err != nil {
				return err
			}
			next, got, err := a.ahead(ctx, &j, n, map[string]string{"schedule": expr, "zone": zone})
			if err != nil {
				return err
			}
			v := view{raw: got.raw, text: func(p *page) {
				if len(next.Next) == 0 {
					p.line("%s has no next due time%s", j.Key, yes(j.Kind == "triggered", ": it is triggered"))
					return
				}
				p.line("%s", clean(next.Words))
				for _, w := range next.Warnings {
					p.line("%s", p.paint(yellow, "warning: "+clean(w)))
				}
				if next.Silent != "" {
					p.line("%s", p.paint(yellow, "currently none of these becomes a run: "+next.Silent))
				}
				nextLines(p, &j, next.Next)
			}}
			for _, t := range next.Next {
				v.names = append(v.names, t.Format(time.RFC3339))
			}
			return a.show(v)
		}), ValidArgsFunction: a.completeKeys}
	c.Flags().IntVarP(&n, "count", "n", 10, "number of due times, at most 100")
	c.Flags().StringVar(&expr, "schedule", "", "schedule to use instead of the job's")
	c.Flags().StringVar(&zone, "zone", "", "time zone to use instead of the job's")
	complete(c, "zone", completeZones)
	return c
}

// fires is the API's response with the next due times.
type fires struct {
	Words    string      `json:"words"`
	Next     []time.Time `json:"next"`
	Silent   string      `json:"silent"`
	Warnings []string    `json:"warnings"`
}

// ahead requests the next due times of a job with other terms (fields and values), and sets their schedule and zone
// in j.
func (a *asker) ahead(ctx context.Context, j *api.Job, n int, terms map[string]string) (f fires, got answer, err error) {
	q := url.Values{"n": {strconv.Itoa(n)}}
	for name, text := range terms {
		set(q, name, text)
	}
	if got, err = a.link.get(ctx, jobPath(string(j.Key))+"/next", q); err != nil {
		return f, got, pointed(err, terms["schedule"])
	}
	if expr := terms["schedule"]; expr != "" {
		j.Schedule = &expr
	}
	if zone := terms["zone"]; zone != "" {
		j.Zone = &zone
	}
	return f, got, got.into(&f)
}
