package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
)

func (a *asker) forecastCommand() *cobra.Command {
	return &cobra.Command{Use: "forecast", Short: "Show the planned load of the next 24 hours", Args: none,
		Long: "Show how many due times the next 24 hours have: a line for each hour, then the crowded minutes, with the jobs that could\n" +
			"fire at a quieter one. With -o name: only the keys of these jobs.",
		Example: lines("carillon forecast", "carillon forecast -o json"),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			got, err := a.link.get(ctx, "/forecast", nil)
			if err != nil {
				return err
			}
			var f api.Forecast
			if err := got.into(&f); err != nil {
				return err
			}
			for f.Going { // each call plans for about two seconds
				if got, err = a.link.get(ctx, "/forecast", nil); err != nil {
					return err
				}
				f = api.Forecast{}
				if err := got.into(&f); err != nil {
					return err
				}
			}
			v := view{raw: got.raw, text: func(p *page) { forecastPage(p, &f) }}
			for _, c := range f.Crowded {
				for _, j := range c.Jobs {
					if j.Instead != "" {
						v.names = append(v.names, string(j.Job))
					}
				}
			}
			return a.show(v)
		})}
}

func forecastPage(p *page, f *api.Forecast) {
	most, sum := 0, 0
	for _, n := range f.Fires {
		most, sum = max(most, n), sum+n
	}
	p.facts("planned", strconv.Itoa(sum), "jobs", strconv.Itoa(f.Jobs), "usual in a minute", strconv.Itoa(f.Usual), "fullest minute", strconv.Itoa(most),
		"not counted", yes(f.Left > 0, fmt.Sprintf("%d jobs: too expensive to plan", f.Left)))
	p.line("")
	var rows [][]string
	for from := 0; from < len(f.Fires); {
		at := f.From.Add(time.Duration(from) * time.Minute)
		to := min(len(f.Fires), from+60-at.Local().Minute())
		hour, top := 0, 0
		var bar strings.Builder
		for i := from; i < to; i += 2 {
			pair := max(f.Fires[i], f.Fires[min(i+1, to-1)])
			bar.WriteRune(levels[(pair*(len(levels)-1)+most-1)/max(most, 1)])
		}
		for _, n := range f.Fires[from:to] {
			hour, top = hour+n, max(top, n)
		}
		rows = append(rows, []string{at.Local().Format("Mon 15:04"), strconv.Itoa(hour), strconv.Itoa(top), bar.String()})
		from = to
	}
	p.table([]string{"FROM", "FIRES", "FULLEST", "MINUTES"}, rows)
	for _, c := range f.Crowded {
		p.line("")
		p.line("%s: %d fires%s", p.moment(&c.At), c.Fires, yes(c.More > 0, fmt.Sprintf(", of %d jobs more than these", c.More)))
		for _, j := range c.Jobs {
			if j.Instead != "" {
				p.line("  %s  %s -> carillon jobs edit %s --schedule '%s'", j.Job, j.Schedule, j.Job, j.Instead)
			} else {
				p.line("  %s  %s", j.Job, j.Schedule)
			}
		}
	}
	if len(f.Crowded) == 0 {
		p.line("")
		p.line("No minute is crowded.")
	}
}

// levels are the bars of the chart, empty to full.
var levels = []rune(" ▁▂▃▄▅▆▇█")
