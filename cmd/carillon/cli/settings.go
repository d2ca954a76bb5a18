package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

func (a *asker) settingsCommand() *cobra.Command {
	return group("settings", "Manage the scheduler's settings", lines("carillon settings show", "carillon settings debug on recurring"),
		a.settingsShow(), a.settingsDebug(), a.settingsSet(), a.settingsReset())
}

func (a *asker) settingsShow() *cobra.Command {
	return &cobra.Command{Use: "show", Short: "Show the settings for all jobs", Args: none, Example: lines("carillon settings show", "carillon settings show -o yaml"),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			got, err := a.link.get(ctx, "/settings", nil)
			if err != nil {
				return err
			}
			return a.showSettings(got)
		})}
}

func (a *asker) showSettings(got answer) error {
	var s api.Settings
	if err := got.into(&s); err != nil {
		return err
	}
	return a.show(view{raw: got.raw, text: func(p *page) {
		after, _ := s.MisfireAfter.MarshalText() // it never fails
		p.facts("debug mode of recurring jobs", debugText(p, s.Recurring, "due times create no runs"), "debug mode of triggered jobs", debugText(p, s.Triggered, "runs are held"),
			"a due time is missed after", string(after), "jobs", fmt.Sprintf("%d, at most %d", s.Jobs, s.MaxJobs),
			"new jobs are", newJobsText(s.NewJobs),
			"limits of apps", cmp.Or(kernel.LimitsText(api.Limits(s.AppLimits)), "none"), "retries of all jobs", budgetText(jobs.Rate(s.RetryBudget)), "revision", strconv.FormatUint(s.Revision, 10))
		showSources(p, s.Sources, s.Kept != nil)
		if s.Kept != nil {
			p.facts("finished runs take", keptText(p, s.Kept))
		}
		if s.Released > 0 || s.Discarded > 0 {
			p.line("held runs: %d released, %d discarded", s.Released, s.Discarded)
		}
	}})
}

// showSources shows where each setting comes from; without all, only those that are not built in.
func showSources(p *page, sources []api.Source, all bool) {
	var rows [][]string
	overrules := false
	for _, s := range sources {
		if !all && s.From == ops.OwnerBuiltIn {
			continue
		}
		value := plainValue(s.Value)
		if s.Triggered != nil {
			value += ", triggered " + plainValue(s.Triggered)
		}
		from, file := s.From, ""
		switch s.From {
		case ops.OwnerFile:
			from = "configuration file (" + clean(s.By) + ")"
		case ops.OwnerTenant, ops.OwnerApp:
			from = fmt.Sprintf("edited by %s, %s", clean(s.By), p.ago(s.At))
		}
		if s.File != nil {
			file, overrules = plainValue(s.File), true
		}
		rows = append(rows, []string{s.Name, clean(s.App), value, from, file})
	}
	if len(rows) == 0 {
		return
	}
	p.line("")
	p.table([]string{"SETTING", "APP", "VALUE", "FROM", "IN THE FILE"}, rows)
	if overrules {
		p.line("edited settings overrule the configuration file; to undo that: carillon settings reset NAME")
	}
}

// plainValue formats a value of JSON.
func plainValue(v any) string {
	switch v := v.(type) {
	case nil:
		return "none"
	case []any:
		raw, _ := json.Marshal(v) // it was JSON
		return clean(unescaped(raw))
	}
	return clean(or(fmt.Sprint(v), "none"))
}

func newJobsText(how string) string {
	if how == string(kernel.NewDisabled) {
		return how + " until they are enabled"
	}
	return how
}

func budgetText(r jobs.Rate) string {
	if r.Max == 0 {
		return "no rate limit"
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
	c := &cobra.Command{Use: "debug on|off [recurring|triggered|all]", Short: "Turn a debug mode on or off", Args: counted("on or off", 1, 2),
		Long: "Turn a debug mode on or off. In that of recurring jobs, due times are recorded but create no runs. In that of triggered jobs,\n" +
			"only runs triggered by hand start, the others are held. Turning it off needs --held release or --held discard if runs\n" +
			"are held.",
		Example: lines("carillon settings debug on", "carillon settings debug on recurring", "carillon settings debug off triggered --held release"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return [][]string{{"on", "off"}, {"recurring", "triggered", "all"}, nil}[min(len(args), 2)], cobra.ShellCompDirectiveNoFileComp
		},
		RunE: a.does(func(ctx context.Context, args []string) error {
			if args[0] != "on" && args[0] != "off" {
				return kernel.Invalid("invalid debug %.20q: want on or off", args[0])
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
				return kernel.Invalid("invalid debug mode %.20q: want recurring, triggered or all", which)
			}
			if held != "" {
				body["held"] = held
			}
			return a.configure(ctx, body, held)
		})}
	c.Flags().StringVar(&held, "held", "", "held runs: release or discard")
	complete(c, "held", choices("release", "discard"))
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
	return a.showSettings(got)
}

func (a *asker) settingsSet() *cobra.Command {
	var after, limits, budget, news, app string
	var most int
	var defaults []string
	c := &cobra.Command{Use: "set", Short: "Change the settings for all jobs", Args: none,
		Example: lines("carillon settings set --misfire-after 1m", "carillon settings set --app-limits billing=20:100/s,mail=5", "carillon settings set --retry-budget 50/s", "carillon settings set --new-jobs disabled",
			"carillon settings set --default zone=Europe/Berlin --default retries=3", "carillon settings set --default zone=Asia/Tokyo --app billing")}
	c.Flags().StringVar(&after, "misfire-after", "", "lateness after which a due time counts as missed")
	c.Flags().IntVar(&most, "max-jobs", 0, "max jobs")
	c.Flags().StringVar(&limits, "app-limits", "", "limits of all apps, such as billing=20:100/s,mail=5: concurrency and start rate")
	c.Flags().StringVar(&budget, "retry-budget", "", "rate limit of retries of all jobs, such as 100/s; none = no rate limit")
	c.Flags().StringVar(&news, "new-jobs", "", "state of newly registered jobs: enabled or disabled")
	c.Flags().StringArrayVar(&defaults, "default", nil, "default of the jobs' settings, such as retries=3; repeatable")
	c.Flags().StringVar(&app, "app", "", "the defaults are those of the jobs of this app")
	complete(c, "new-jobs", choices(string(kernel.NewEnabled), string(kernel.NewDisabled)))
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
		if len(defaults) > 0 {
			set, err := a.readDefaults(defaults)
			if err != nil {
				return err
			}
			body["defaults"] = set
		}
		if app != "" {
			body["app"] = app
		}
		if c.Flags().Changed("max-jobs") {
			body["maxJobs"] = most
		}
		if len(body) == 0 {
			return kernel.Invalid("nothing to change: give a setting, such as %s --misfire-after 1m", c.CommandPath())
		}
		return a.configure(ctx, body, "")
	})
	return c
}

// readDefaults reads name=value pairs.
func (a *asker) readDefaults(pairs []string) (map[string]json.RawMessage, error) {
	set := map[string]json.RawMessage{}
	for _, pair := range pairs {
		name, text, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, kernel.Invalid("invalid --default %.60q: want name=value, such as retries=3", pair)
		}
		f, err := fieldOf(name)
		if err != nil {
			return nil, err
		}
		if set[f.name], err = f.read(text, a.Now()); err != nil {
			return nil, err
		}
	}
	return set, nil
}

func (a *asker) settingsReset() *cobra.Command {
	var app, held string
	c := &cobra.Command{Use: "reset NAME ...", Short: "Reset settings to the configuration file", Args: counted("the name of a setting", 1, 100),
		Long: "Reset settings that were edited: the configuration file applies again, or else the built-in value. The names are those of\n" +
			"carillon settings show.",
		Example: lines("carillon settings reset recurringDebug", "carillon settings reset defaults.retries defaults.zone", "carillon settings reset defaults.zone --app billing"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return kernel.GlobalFields(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: a.does(func(ctx context.Context, args []string) error {
			body := map[string]any{"reset": args}
			if app != "" {
				body["app"] = app
			}
			if held != "" {
				body["held"] = held
			}
			return a.configure(ctx, body, held)
		})}
	c.Flags().StringVar(&app, "app", "", "reset the defaults of the jobs of this app")
	c.Flags().StringVar(&held, "held", "", "held runs, if this switches a debug mode off: release or discard")
	complete(c, "held", choices("release", "discard"))
	return c
}
