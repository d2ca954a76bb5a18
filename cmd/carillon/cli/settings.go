package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

func (a *asker) settingsCommand() *cobra.Command {
	return group("settings", "Look at what holds for all jobs, and change it", lines("carillon settings show", "carillon settings debug on recurring"),
		a.settingsShow(), a.settingsDebug(), a.settingsSet())
}

func (a *asker) settingsShow() *cobra.Command {
	return &cobra.Command{Use: "show", Short: "Show what holds for all jobs", Args: none, Example: lines("carillon settings show", "carillon settings show -o yaml"),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			got, err := a.link.get(ctx, "/settings", nil)
			if err != nil {
				return err
			}
			return a.saySettings(got)
		})}
}

func (a *asker) saySettings(got answer) error {
	var s api.Settings
	if err := got.into(&s); err != nil {
		return err
	}
	return a.say(view{raw: got.raw, text: func(p *page) {
		after, _ := s.MisfireAfter.MarshalText() // it never fails
		p.facts("debug mode of recurring jobs", debugText(p, s.Recurring, "their due times become no runs"), "debug mode of triggered jobs", debugText(p, s.Triggered, "their runs are held back"),
			"a due time is missed after", string(after), "jobs", fmt.Sprintf("%d, at most %d", s.Jobs, s.MaxJobs),
			"new jobs are", newJobsText(s.NewJobs),
			"limits of apps", cmp.Or(kernel.LimitsText(api.Limits(s.AppLimits)), "none"), "retries of all jobs", budgetText(jobs.Rate(s.RetryBudget)), "revision", strconv.FormatUint(s.Revision, 10))
		if s.Kept != nil {
			p.facts("runs that are over take", keptText(p, s.Kept))
		}
		if s.Released > 0 || s.Discarded > 0 {
			p.line("of the runs that were held back, %d were released and %d discarded", s.Released, s.Discarded)
		}
	}})
}

func newJobsText(how string) string {
	if how == string(kernel.NewDisabled) {
		return how + " until somebody starts them"
	}
	return how
}

func budgetText(r jobs.Rate) string {
	if r.Max == 0 {
		return "as often as like"
	}
	return r.String() + " at most"
}

func debugText(p *page, d api.Debug, means string) string {
	text := "off"
	if d.On {
		text = p.paint(yellow, "on") + ": " + means
	}
	if d.By != "" {
		text += fmt.Sprintf(" (%s, %s)", clean(d.By), p.ago(d.At))
	}
	return text
}

func (a *asker) settingsDebug() *cobra.Command {
	var held string
	c := &cobra.Command{Use: "debug on|off [recurring|triggered|all]", Short: "Switch a debug mode", Args: counted("on or off", 1, 2),
		Long: "Switch a debug mode. While that of recurring jobs is on, their due times are noted and become no runs; while that of\n" +
			"triggered jobs is on, runs that nobody asked for by hand are held back. Who switches the second one off says what\n" +
			"becomes of the runs that it held: --held release, or --held discard.",
		Example: lines("carillon settings debug on", "carillon settings debug on recurring", "carillon settings debug off triggered --held release"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return [][]string{{"on", "off"}, {"recurring", "triggered", "all"}, nil}[min(len(args), 2)], cobra.ShellCompDirectiveNoFileComp
		},
		RunE: a.does(func(ctx context.Context, args []string) error {
			if args[0] != "on" && args[0] != "off" {
				return kernel.Invalid("debug is %.20q, it must be on or off", args[0])
			}
			which := "all"
			if len(args) == 2 {
				which = args[1]
			}
			body := map[string]any{}
			switch which {
			case "recurring":
				body["recurringDebug"] = args[0] == "on"
			case "triggered":
				body["triggeredDebug"] = args[0] == "on"
			case "all":
				body["recurringDebug"], body["triggeredDebug"] = args[0] == "on", args[0] == "on"
			default:
				return kernel.Invalid("there is no debug mode of %.20q: say recurring, triggered or all", which)
			}
			if held != "" {
				body["held"] = held
			}
			return a.configure(ctx, body, held)
		})}
	c.Flags().StringVar(&held, "held", "", "what becomes of the runs that were held back: release or discard")
	complete(c, "held", words("release", "discard"))
	return c
}

// configure changes the settings and shows them.
func (a *asker) configure(ctx context.Context, body map[string]any, held string) error {
	got, err := a.link.do(ctx, request{method: "PATCH", path: "/settings", body: body})
	if held == "" && ExitCode(err) == Conflict {
		return kernel.Refuse(jobs.Conflict, "%v (--held release, or --held discard)", err)
	}
	if err != nil {
		return err
	}
	return a.saySettings(got)
}

func (a *asker) settingsSet() *cobra.Command {
	var after, limits, budget, news string
	var most int
	c := &cobra.Command{Use: "set", Short: "Change what holds for all jobs", Args: none,
		Example: lines("carillon settings set --misfire-after 1m", "carillon settings set --app-limits billing=20:100/s,mail=5", "carillon settings set --retry-budget 50/s", "carillon settings set --new-jobs disabled")}
	c.Flags().StringVar(&after, "misfire-after", "", "how late a due time may be and still fire by itself")
	c.Flags().IntVar(&most, "max-jobs", 0, "how many jobs there may be")
	c.Flags().StringVar(&limits, "app-limits", "", "all limits of apps, such as billing=20:100/s,mail=5: runs under way, and how often they start")
	c.Flags().StringVar(&budget, "retry-budget", "", "how often runs of all jobs may be tried again, such as 100/s; none = as often as like")
	c.Flags().StringVar(&news, "new-jobs", "", "how a job begins that a worker registers for the first time: enabled, or disabled until somebody starts it")
	complete(c, "new-jobs", words(string(kernel.NewEnabled), string(kernel.NewDisabled)))
	c.RunE = a.does(func(ctx context.Context, _ []string) error {
		body := map[string]any{}
		if news != "" {
			if err := (kernel.Configure{NewJobs: (*kernel.NewJobs)(&news)}).Check(); err != nil {
				return err
			}
			body["newJobs"] = news
		}
		if c.Flags().Changed("app-limits") {
			list, err := kernel.ParseLimits(limits)
			if err != nil {
				return err
			}
			body["appLimits"] = api.LimitsOf(list)
		}
		if budget != "" {
			r, err := kernel.ParseRate(budget)
			if err != nil {
				return err
			}
			body["retryBudget"] = api.Rate(r)
		}
		if after != "" {
			d, err := readSpan("--misfire-after", after)
			if err != nil {
				return err
			}
			body["misfireAfter"] = api.Duration(d)
		}
		if c.Flags().Changed("max-jobs") {
			body["maxJobs"] = most
		}
		if len(body) == 0 {
			return kernel.Invalid("nothing is to be changed: say what, as in %s --misfire-after 1m", c.CommandPath())
		}
		return a.configure(ctx, body, "")
	})
	return c
}
