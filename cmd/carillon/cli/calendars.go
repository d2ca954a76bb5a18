package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/cmd/carillon/jobfile"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

func (a *asker) calendarsCommand() *cobra.Command {
	c := group("calendars", "Manage calendars", lines("carillon calendars list", "carillon calendars set holidays --rule '12-25 # Christmas' --rule SAT,SUN --zone Europe/Berlin"),
		a.calendarsList(), a.calendarsShow(), a.calendarsSet(), a.calendarsDelete())
	c.Aliases = []string{"calendar"}
	return c
}

func calendarPath(name string) string { return "/calendars/" + url.PathEscape(name) }

func (a *asker) calendarsList() *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List calendars by name", Args: none, Example: lines("carillon calendars list", "carillon calendars list -o yaml"),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			got, err := a.link.get(ctx, "/calendars", nil)
			if err != nil {
				return err
			}
			var all struct{ Items []api.Calendar }
			if err := got.into(&all); err != nil {
				return err
			}
			v := view{raw: got.raw, text: func(p *page) {
				if len(all.Items) == 0 {
					p.line("There are no calendars; create one with carillon calendars set.")
					return
				}
				var rows [][]string
				for _, c := range all.Items {
					rows = append(rows, []string{c.Name, or(c.Zone, "UTC"), short(strings.Join(c.Rules, "; ")), clean(c.By), p.ago(&c.Changed)})
				}
				p.table([]string{"CALENDAR", "ZONE", "EXCLUDES", "BY", "CHANGED"}, rows)
			}}
			for _, c := range all.Items {
				v.names = append(v.names, c.Name)
			}
			return a.show(v)
		})}
}

func (a *asker) calendarsShow() *cobra.Command {
	return &cobra.Command{Use: "show <name>", Short: "Show a calendar's rules and the jobs that use it", Args: one("the name of a calendar"), Example: lines("carillon calendars show holidays"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			got, err := a.link.get(ctx, calendarPath(args[0]), nil)
			if err != nil {
				return err
			}
			return a.showCalendar(got)
		})}
}

func (a *asker) showCalendar(got answer) error {
	var c api.Calendar
	if err := got.into(&c); err != nil {
		return err
	}
	return a.show(view{raw: got.raw, names: []string{c.Name}, text: func(p *page) {
		keys := make([]string, len(c.Jobs))
		for i, k := range c.Jobs {
			keys[i] = string(k)
		}
		p.facts("calendar", c.Name, "description", clean(c.Description), "zone", or(c.Zone, "UTC"), "bundle", c.Bundle, "used by", or(strings.Join(keys, " "), "no job"),
			"revision", strconv.FormatUint(c.Revision, 10), "changed", p.moment(&c.Changed)+" by "+clean(c.By))
		p.line("")
		for _, r := range c.Rules {
			p.line("  %s", clean(r))
		}
		for i := range c.Next {
			if i == 0 {
				p.line("")
			}
			e := &c.Next[i]
			p.line("no run of %s  %s   %s", e.Job, p.moment(&e.At), clean(e.Rule))
		}
	}})
}

func (a *asker) calendarsSet() *cobra.Command {
	var rules []string
	var zone, description, reason, file string
	c := &cobra.Command{Use: "set [<name>]", Short: "Create or replace a calendar", Args: counted("the name of a calendar", 0, 1),
		Long: "Create a calendar, or replace the one of that name. With -f: the calendars of a file, under \"calendars:\":\n\n" + calendarForm,
		Example: lines("carillon calendars set holidays --rule '12-25 # Christmas' --rule easter-2 --rule SAT,SUN --zone Europe/Berlin",
			"carillon calendars set -f calendars.yaml --reason 'the year 2027'")}
	c.Flags().StringArrayVar(&rules, "rule", nil, "days, times of day, or both, such as SAT,SUN; repeatable")
	c.Flags().StringVar(&zone, "zone", "", "IANA time zone (default UTC)")
	c.Flags().StringVar(&description, "description", "", "description of the calendar")
	c.Flags().StringVar(&reason, "reason", "", "reason, recorded with the change")
	c.Flags().StringVarP(&file, "file", "f", "", "a file with calendars, or - for standard input")
	complete(c, "zone", completeZones)
	c.RunE = a.does(func(ctx context.Context, args []string) error {
		switch {
		case file != "" && (len(args) > 0 || len(rules) > 0):
			return kernel.Invalid("give either a name with rules, or a file")
		case file != "":
			return a.setCalendarsOf(ctx, file, reason)
		case len(args) == 0:
			return kernel.Invalid("%s needs the name of a calendar, or a file; see %s --help", c.CommandPath(), c.CommandPath())
		}
		got, err := a.setCalendar(ctx, jobfile.Calendar{Name: args[0], Description: description, Zone: zone, Rules: rules}, reason)
		if err != nil {
			return err
		}
		return a.showCalendar(got)
	})
	return c
}

func (a *asker) setCalendar(ctx context.Context, c jobfile.Calendar, reason string) (answer, error) {
	if c.Rules == nil {
		c.Rules = []string{}
	}
	return a.link.do(ctx, request{method: "PUT", path: calendarPath(c.Name), reason: reason, body: map[string]any{"description": c.Description, "zone": c.Zone, "rules": c.Rules}})
}

// setCalendarsOf writes the calendars of a file and reports which changed.
func (a *asker) setCalendarsOf(ctx context.Context, file, reason string) error {
	raw, err := jobfile.Read(file, a.in)
	if err != nil {
		return err
	}
	list, err := jobfile.Calendars(file, raw)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return kernel.Invalid("%s: no calendars found: want a list \"calendars:\", each with a name", file)
	}
	set, err := a.writeCalendars(ctx, list, reason)
	if err != nil {
		return err
	}
	out, err := json.Marshal(map[string]any{"written": append([]string{}, set...)})
	if err != nil {
		return err
	}
	return a.show(view{raw: out, names: set, text: func(p *page) {
		for _, c := range list {
			p.line("calendar %s %s", c.Name, yes(slices.Contains(set, c.Name), "is written")+yes(!slices.Contains(set, c.Name), "is unchanged"))
		}
	}})
}

// writeCalendars writes calendars that differ from the stored ones and returns their names.
func (a *asker) writeCalendars(ctx context.Context, list []jobfile.Calendar, reason string) (set []string, err error) {
	for _, c := range list {
		if same, err := a.sameCalendar(ctx, c); err != nil || same {
			if err != nil {
				return set, err
			}
			continue
		}
		if _, err := a.setCalendar(ctx, c, reason); err != nil {
			return set, fmt.Errorf("%s: %w", c.Place, err)
		}
		set = append(set, c.Name)
	}
	return set, nil
}

// sameCalendar reports whether a stored calendar equals c.
func (a *asker) sameCalendar(ctx context.Context, c jobfile.Calendar) (bool, error) {
	got, err := a.link.get(ctx, calendarPath(c.Name), nil)
	if jobs.CodeOf(err) == jobs.NotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var is api.Calendar
	if err := got.into(&is); err != nil {
		return false, err
	}
	return is.Description == c.Description && is.Zone == c.Zone && slices.Equal(is.Rules, c.Rules), nil
}

func (a *asker) calendarsDelete() *cobra.Command {
	return &cobra.Command{Use: "delete <name>", Short: "Delete an unused calendar", Args: one("the name of a calendar"), Example: lines("carillon calendars delete holidays"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			got, err := a.link.do(ctx, request{method: "DELETE", path: calendarPath(args[0])})
			if err != nil {
				return err
			}
			return a.show(view{raw: empty(got.raw), names: args, text: func(p *page) { p.line("calendar %s is deleted", args[0]) }})
		})}
}

const calendarForm = `  calendars:
    - name: holidays
      zone: Europe/Berlin
      rules: ["12-25 # Christmas", "easter-2", "SAT,SUN"]`
