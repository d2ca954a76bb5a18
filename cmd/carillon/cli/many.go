package cli

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// A filter in place of names: the change of all the jobs or runs that it selects.

// manyFlags are the flags that select jobs or runs.
type manyFlags struct {
	values map[string]*string // by the names of the filter in the API
	all    bool
	dry    bool
	sure   bool
}

// filterFlags are the flags of a filter, by the names that the API has for them.
var filterFlags = map[string]string{
	"app":    "of this app (worker group)",
	"tag":    "with this tag",
	"match":  "whose job key matches, such as 'billing.*'",
	"kind":   "of this kind: recurring or triggered",
	"job":    "of this job",
	"state":  "in this state",
	"worker": "on this worker",
	"code":   "whose last attempt failed with this code",
	"origin": "of this origin: cron, misfire, code, api, person, retry, parent or backfill",
	"since":  "created within this time, such as 24h or 7d",
}

func (m *manyFlags) addFlags(a *asker, c *cobra.Command, what string, names ...string) {
	m.values = map[string]*string{}
	for _, name := range names {
		m.values[name] = c.Flags().String(name, "", "instead of a name: all "+what+" "+filterFlags[name])
	}
	c.Flags().BoolVar(&m.all, "all", false, "instead of a name: all "+what)
	c.Flags().BoolVar(&m.dry, "dry-run", false, "with a filter: only count")
	if c.Flags().Lookup("yes") == nil {
		c.Flags().BoolVar(&m.sure, "yes", false, "with a filter: do not ask for confirmation")
	}
	c.Use += " | " + c.Name() + " --app <app> | --tag <tag> | --match <pattern>"
	args := c.Args
	c.Args = func(c *cobra.Command, given []string) error {
		switch {
		case !m.given():
			if m.dry {
				return kernel.Invalid("--dry-run counts what a filter selects: give one, such as --app, or --all")
			}
			return args(c, given)
		case len(given) > 0:
			return kernel.Invalid("both a name (%.60q) and a filter are given: give one of them", given[0])
		}
		return nil
	}
	for name, list := range map[string]func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective){
		"kind": choices("recurring", "triggered"), "state": choices(states...), "job": a.completeKeys, "worker": a.completeWorkers} {
		if m.values[name] != nil {
			complete(c, name, list)
		}
	}
}

// given reports whether a filter is given.
func (m *manyFlags) given() bool {
	for _, v := range m.values {
		if *v != "" {
			return true
		}
	}
	return m.all
}

// filter returns the filter in the API's form.
func (m *manyFlags) filter(a *asker) (map[string]any, error) {
	filter := map[string]any{}
	for name, v := range m.values {
		switch {
		case *v == "":
		case name == "state":
			state, err := stateOf(*v)
			if err != nil {
				return nil, err
			}
			filter[name] = state
		case name == "since":
			d, err := readSpan("--since", *v)
			if err != nil {
				return nil, err
			}
			filter["from"] = a.Now().Add(-d).UTC()
		default:
			filter[name] = *v
		}
	}
	if m.all {
		if len(filter) > 0 {
			return nil, kernel.Invalid("both --all and a filter are given: give one of them")
		}
		filter["match"] = "*"
	}
	return filter, nil
}

// many does an action on all that the filter selects: it counts, asks, and continues until all are done. verb and done
// are for the texts: pause and paused.
func (a *asker) many(ctx context.Context, m *manyFlags, path, verb, done, reason string, body map[string]any) error {
	filter, err := m.filter(a)
	if err != nil {
		return err
	}
	what := strings.TrimSuffix(path[:strings.Index(path, "/")], "s") // job or run
	body = maps.Clone(body)
	body["filter"], body["dryRun"] = filter, true
	send := func(key string) (api.Many, answer, error) {
		var part api.Many
		got, err := a.link.repeat(ctx, request{method: "POST", path: "/bulk/" + path, key: key, reason: reason, body: body})
		if err == nil {
			err = got.into(&part)
		}
		return part, got, err
	}
	counted, got, err := send("")
	if err != nil {
		return err
	}
	number := fmt.Sprintf("%d %s", counted.Matched, what+yes(counted.Matched != 1, "s"))
	if counted.Next != "" {
		number = "more than " + number
	}
	if m.dry || counted.Matched == 0 {
		return a.show(view{raw: got.raw, names: counted.Names, text: func(p *page) {
			if counted.Matched == 0 {
				p.line("no %s matches", what)
			} else {
				p.line("would %s %s%s", verb, number, namesText(&counted))
			}
		}})
	}
	if !m.sure {
		if err := a.confirm(fmt.Sprintf("%s%s %s%s?", strings.ToUpper(verb[:1]), verb[1:], number, namesText(&counted))); err != nil {
			return err
		}
	}
	body["dryRun"] = false
	sum, key := api.Many{Names: []string{}}, rand.Text()
	for more := true; more; more = sum.Next != "" {
		part, _, err := send(key)
		if err != nil {
			if sum.Done > 0 {
				err = fmt.Errorf("%d were %s, and then: %w", sum.Done, done, err)
			}
			return err
		}
		sum.Matched, sum.Done, sum.Refused = sum.Matched+part.Matched, sum.Done+part.Done, sum.Refused+part.Refused
		sum.Names, sum.Refusals, sum.Next = append(sum.Names, part.Names...), append(sum.Refusals, part.Refusals...), part.Next
		body["cursor"] = part.Next
		if sum.Next != "" && a.human() {
			a.remark("%d so far", sum.Done)
		}
	}
	raw, err := json.Marshal(sum)
	if err != nil {
		return err
	}
	err = a.show(view{raw: raw, names: sum.Names, text: func(p *page) {
		p.line("%s %d %s", done, sum.Done, what+yes(sum.Done != 1, "s"))
		for _, r := range sum.Refusals {
			p.line("refused: %s: %s", r.Name, clean(r.Message))
		}
	}})
	if err == nil && sum.Refused > 0 {
		err = &Exit{Code: Failed, Text: fmt.Sprintf("%d of %d were refused", sum.Refused, sum.Matched)}
	}
	return err
}

// namesText lists the first of the selected keys. IDs of runs say nothing.
func namesText(m *api.Many) string {
	if len(m.Names) == 0 || kernelID(m.Names[0]) {
		return ""
	}
	text := ": " + strings.Join(m.Names[:min(len(m.Names), 5)], ", ")
	return text + yes(m.Matched > 5, ", …")
}

func kernelID(text string) bool {
	_, err := runID(text)
	return err == nil
}

func (a *asker) appsCommand() *cobra.Command {
	return group("apps", "Show the apps (worker groups)", lines("carillon apps list"), a.appsList())
}

func (a *asker) appsList() *cobra.Command {
	var every watch
	c := &cobra.Command{Use: "list", Short: "List the apps, their jobs and their workers", Args: none,
		Example: lines("carillon apps list", "carillon apps list -o json"),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			return a.watched(ctx, every, func(ctx context.Context) (view, error) {
				got, err := a.link.get(ctx, "/apps", nil)
				if err != nil {
					return view{}, err
				}
				var all struct{ Items []api.App }
				if err := got.into(&all); err != nil {
					return view{}, err
				}
				v := view{raw: got.raw, text: func(p *page) { appTable(p, all.Items) }}
				for _, app := range all.Items {
					v.names = append(v.names, app.Name)
				}
				return v, nil
			})
		})}
	every.addFlag(c)
	return c
}

func appTable(p *page, list []api.App) {
	if len(list) == 0 {
		p.line("There are no jobs and no workers.")
		return
	}
	var rows [][]string
	for _, app := range list {
		jobs := fmt.Sprint(app.Jobs)
		var but []string
		for word, n := range map[string]int{"paused": app.Paused, "disabled": app.Disabled} {
			if n > 0 {
				but = append(but, fmt.Sprintf("%d %s", n, p.paint(yellow, word)))
			}
		}
		if slices.Sort(but); len(but) > 0 {
			jobs += " (" + strings.Join(but, ", ") + ")"
		}
		workers := fmt.Sprint(app.Workers)
		if app.Drained > 0 {
			workers += fmt.Sprintf(" (%d %s)", app.Drained, p.paint(yellow, "drained"))
		}
		slots := fmt.Sprint(app.Slots)
		if app.Slots == 0 {
			slots = "any"
		}
		rows = append(rows, []string{clean(app.Name), jobs, workers, fmt.Sprintf("%d/%s", app.Running, slots)})
	}
	p.table([]string{"APP", "JOBS", "WORKERS", "RUNNING"}, rows)
}
