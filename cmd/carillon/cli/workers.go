package cli

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
)

func (a *asker) workersCommand() *cobra.Command {
	return group("workers", "Manage workers", lines("carillon workers list", "carillon workers drain shop.till-1"),
		a.workersList(), a.workersRest("drain", "Drain a worker: it starts no new runs", "drained: it finishes its runs and starts no new ones"),
		a.workersRest("resume", "Resume a drained worker", "resumed"))
}

func (a *asker) workersList() *cobra.Command {
	var every watch
	c := &cobra.Command{Use: "list", Short: "List the online workers", Args: none,
		Example: lines("carillon workers list", "carillon workers list --watch", "carillon workers list -o json"),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			return a.watched(ctx, every, func(ctx context.Context) (view, error) {
				got, err := a.link.get(ctx, "/workers", nil)
				if err != nil {
					return view{}, err
				}
				var all struct{ Items []api.Worker }
				if err := got.into(&all); err != nil {
					return view{}, err
				}
				v := view{raw: got.raw, text: func(p *page) { workerTable(p, all.Items) }}
				for _, w := range all.Items {
					v.names = append(v.names, w.Name)
				}
				return v, nil
			})
		})}
	every.addFlag(c)
	return c
}

// workersRest is drain or resume.
func (a *asker) workersRest(verb, short, does string) *cobra.Command {
	var reason, app string
	c := &cobra.Command{Use: verb + " <name> | " + verb + " --app <app>", Short: short, Args: func(c *cobra.Command, args []string) error {
		if app != "" {
			return none(c, args)
		}
		return one("the name of a worker, or --app")(c, args)
	},
		Long:    short + ". A configured name means all processes with that name. The worker stays registered.",
		Example: lines("carillon workers "+verb+" shop.till-1 --reason 'new disk'", "carillon workers "+verb+" --app shop"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			path := "/apps/" + url.PathEscape(app)
			if app == "" {
				path = "/workers/" + url.PathEscape(args[0])
			}
			got, err := a.link.do(ctx, request{method: "POST", path: path + "/" + verb, reason: reason})
			if err != nil {
				return err
			}
			var all struct{ Items []api.Worker }
			if err := got.into(&all); err != nil {
				return err
			}
			v := view{raw: got.raw, text: func(p *page) {
				for _, w := range all.Items {
					p.line("%s %s", clean(w.Name), does)
				}
			}}
			for _, w := range all.Items {
				v.names = append(v.names, w.Name)
			}
			return a.show(v)
		})}
	c.Flags().StringVar(&reason, "reason", "", "reason, recorded with the change")
	c.Flags().StringVar(&app, "app", "", "instead of a name: all online workers of this app")
	return c
}

func workerTable(p *page, list []api.Worker) {
	if len(list) == 0 {
		p.line("No worker is online: runs wait for one.")
		return
	}
	var rows [][]string
	for _, w := range list {
		keys := make([]string, 0, len(w.Jobs))
		for key := range w.Jobs {
			keys = append(keys, string(key))
		}
		slices.Sort(keys)
		state, slots := "ready", strconv.Itoa(w.Slots)
		if w.Leaving {
			state = "leaving"
		} else if w.Drained {
			state = "drained"
		}
		if w.Slots == 0 {
			slots = "any"
		}
		rows = append(rows, []string{clean(or(w.Label, w.Name)), w.App, clean(w.Host), p.state(state), fmt.Sprintf("%d/%s", w.Running, slots),
			span(p.now.Sub(w.Started)), p.ago(&w.Seen), short(strings.Join(keys, " "))})
	}
	p.table([]string{"WORKER", "APP", "HOST", "STATE", "RUNNING", "UP", "SEEN", "JOBS"}, rows)
}

func (a *asker) overviewCommand() *cobra.Command {
	var every watch
	c := &cobra.Command{Use: "overview", Aliases: []string{"status"}, Short: "Show the current load and what needs attention", Args: none,
		Example: lines("carillon overview", "carillon overview --watch", "carillon overview -o json"),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			return a.watched(ctx, every, func(ctx context.Context) (view, error) {
				got, err := a.link.get(ctx, "/overview", nil)
				if err != nil {
					return view{}, err
				}
				var o api.Overview
				if err := got.into(&o); err != nil {
					return view{}, err
				}
				return view{raw: got.raw, text: func(p *page) { overviewPage(p, a.link.base, &o) }}, nil
			})
		})}
	every.addFlag(c)
	return c
}

// late formats the start delay of the last minute with started runs.
func late(pulse []api.Minute) string {
	for _, m := range slices.Backward(pulse) {
		if m.Started > 0 {
			return fmt.Sprintf("%s (median), %s (99 of 100)", seconds(m.LateP50), seconds(m.LateP99))
		}
	}
	return ""
}

func seconds(s float64) string { return span(time.Duration(s * float64(time.Second))) }

// firedBy lists the nodes that fire jobs; "" = the leader fires all.
func firedBy(all []api.Share) string {
	var list []string
	for _, f := range all {
		list = append(list, fmt.Sprintf("%s (%d jobs)", clean(f.Node), f.Jobs))
	}
	return strings.Join(list, ", ")
}

func overviewPage(p *page, base string, o *api.Overview) {
	var live []string
	for _, s := range kernel.States() {
		if n := o.Runs[s.String()]; n > 0 {
			live = append(live, fmt.Sprintf("%d %s", n, p.state(s.String())))
		}
	}
	debug := strings.TrimPrefix(yes(o.RecurringDebug, ", recurring jobs do not fire")+yes(o.TriggeredDebug, ", triggered runs are held back"), ", ")
	failed := strconv.Itoa(o.FailedLastHour)
	if o.FailedLastHour > 0 {
		failed = p.paint(red, failed)
	}
	day := map[string]int64{}
	for _, h := range o.Hours {
		day[h.State] += h.Runs
	}
	var ended []string
	for _, s := range kernel.States() {
		if n := day[s.String()]; n > 0 && s.Final() {
			ended = append(ended, fmt.Sprintf("%d %s", n, p.state(s.String())))
		}
	}
	p.facts("server", base, "leader", or(clean(o.Leader), p.paint(red, "no leader")), "fired by", firedBy(o.Shares), "workers", strconv.Itoa(o.Workers), "debug mode", p.paint(yellow, debug),
		"runs now", or(strings.Join(live, ", "), "none"), "last 24 hours", or(strings.Join(ended, ", "), "no run ended"), "failed in the last hour", failed, "starts after due time", late(o.Pulse))
	if len(o.Attention) == 0 {
		return
	}
	p.line("")
	var rows [][]string
	for _, l := range o.Attention {
		rows = append(rows, []string{p.paint(yellow, l.Kind), or(p.ago(l.Since), "-"), clean(l.Text)})
	}
	p.table([]string{"LOOK AT", "SINCE", "WHAT"}, rows)
}
