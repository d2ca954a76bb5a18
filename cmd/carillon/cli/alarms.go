package cli

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/cmd/carillon/jobfile"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

func (a *asker) alarmsCommand() *cobra.Command {
	c := group("alarms", "Show alarms, and manage who is notified",
		lines("carillon alarms list --open", "carillon alarms targets set chat --kind slack --url-file slack.url --rules", "carillon alarms rules set nightly --kind expected --at 06:00 --zone Europe/Berlin --job 'billing.*' --target chat"),
		a.alarmsList(), a.alarmsShow(), a.alarmsEnd(), a.alarmTargets(), a.alarmRules())
	c.Aliases = []string{"alarm"}
	return c
}

func (a *asker) alarmsList() *cobra.Command {
	var open bool
	c := &cobra.Command{Use: "list", Short: "List alarms, newest first", Args: none, Example: lines("carillon alarms list --open", "carillon alarms list -o json"),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			q := url.Values{}
			if open {
				q.Set("state", "open")
			}
			got, err := a.link.get(ctx, "/alarms", q)
			if err != nil {
				return err
			}
			var all struct{ Items []api.Alarm }
			if err := got.into(&all); err != nil {
				return err
			}
			v := view{raw: got.raw, text: func(p *page) {
				if len(all.Items) == 0 {
					p.line("There are no alarms.")
					return
				}
				var rows [][]string
				for i := range all.Items {
					m := &all.Items[i]
					rows = append(rows, []string{strconv.FormatUint(m.Number, 10), clean(m.Title), m.Rule, p.ago(&m.Since), p.ago(m.Ended), notified(m)})
				}
				p.table([]string{"ALARM", "WHAT", "RULE", "SINCE", "ENDED", "NOTIFIED"}, rows)
			}}
			for i := range all.Items {
				v.names = append(v.names, strconv.FormatUint(all.Items[i].Number, 10))
			}
			return a.show(v)
		})}
	c.Flags().BoolVar(&open, "open", false, "only those that have not ended")
	return c
}

// notified names the targets that took a message, and those that did not.
func notified(m *api.Alarm) string {
	var list []string
	for _, s := range m.To {
		switch {
		case s.Tries > 0 && !s.Closed:
			list = append(list, s.Target+" (fails)")
		case s.Tries > 0:
			list = append(list, s.Target+" (given up)")
		case s.Notified:
			list = append(list, s.Target)
		}
	}
	return or(strings.Join(list, " "), "none")
}

func (a *asker) alarmsShow() *cobra.Command {
	return &cobra.Command{Use: "show <number>", Short: "Show an alarm, and what was sent", Args: one("the number of an alarm"), Example: lines("carillon alarms show 7"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			got, err := a.link.get(ctx, "/alarms/"+url.PathEscape(args[0]), nil)
			if err != nil {
				return err
			}
			var m api.Alarm
			if err := got.into(&m); err != nil {
				return err
			}
			return a.show(view{raw: got.raw, names: args, text: func(p *page) {
				p.facts("alarm", strconv.FormatUint(m.Number, 10), "what", clean(m.Title), "text", clean(m.Text), "rule", m.Rule, "run", m.Run, "times", strconv.FormatUint(m.Count, 10),
					"since", p.moment(&m.Since), "last", p.moment(&m.Last), "ended", p.moment(m.Ended), "because", clean(m.Why))
				if len(m.Sent) == 0 {
					return
				}
				p.line("")
				var rows [][]string
				for i := range m.Sent {
					s := &m.Sent[i]
					status := ""
					if s.Status > 0 {
						status = strconv.Itoa(s.Status)
					}
					rows = append(rows, []string{p.moment(&s.At), s.Target, string(s.What), yes(s.OK, "delivered") + yes(!s.OK, "failed"), status, short(clean(s.Answer))})
				}
				p.table([]string{"SENT", "TARGET", "MESSAGE", "RESULT", "STATUS", "ANSWER"}, rows)
			}})
		})}
}

func (a *asker) alarmsEnd() *cobra.Command {
	var reason string
	c := &cobra.Command{Use: "end <number>", Short: "End an alarm", Args: one("the number of an alarm"), Example: lines("carillon alarms end 7 --reason 'the disk was replaced'"),
		Long: "End an alarm: its targets are notified that it is resolved. A condition that still holds raises another one.",
		RunE: a.does(func(ctx context.Context, args []string) error {
			got, err := a.link.do(ctx, request{method: "POST", path: "/alarms/" + url.PathEscape(args[0]) + "/end", reason: reason})
			if err != nil {
				return err
			}
			return a.show(view{raw: empty(got.raw), names: args, text: func(p *page) { p.line("alarm %s has ended", args[0]) }})
		})}
	c.Flags().StringVar(&reason, "reason", "", "reason, recorded with the change")
	return c
}

func (a *asker) alarmTargets() *cobra.Command {
	return group("targets", "Manage the targets of alarms", lines("carillon alarms targets list", "carillon alarms targets set oncall --kind email --to ops@example.com --rules", "carillon alarms targets test oncall"),
		a.alarmTargetsList(), a.alarmTargetsSet(), a.alarmTargetsTest(), a.alarmPartDelete("target", "/alarm-targets/", "Delete a target that no rule names"))
}

func (a *asker) alarmTargetsList() *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List targets, without their secrets", Args: none, Example: lines("carillon alarms targets list"),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			got, err := a.link.get(ctx, "/alarm-targets", nil)
			if err != nil {
				return err
			}
			var all struct{ Items []api.AlarmTarget }
			if err := got.into(&all); err != nil {
				return err
			}
			v := view{raw: got.raw, text: func(p *page) {
				if len(all.Items) == 0 {
					p.line("There are no targets; create one with carillon alarms targets set.")
					return
				}
				var rows [][]string
				for i := range all.Items {
					t := &all.Items[i]
					rows = append(rows, []string{t.Name, t.Kind, or(t.URL, short(strings.Join(t.To, " "))), clean(t.By), p.ago(&t.Changed)})
				}
				p.table([]string{"TARGET", "KIND", "TO", "BY", "CHANGED"}, rows)
			}}
			for i := range all.Items {
				v.names = append(v.names, all.Items[i].Name)
			}
			return a.show(v)
		})}
}

func (a *asker) alarmTargetsSet() *cobra.Command {
	var kind, to, urlFile, secretFile, reason string
	var addresses []string
	var rules bool
	c := &cobra.Command{Use: "set <name>", Short: "Create or replace a target", Args: one("a name for the target"),
		Long: "Create a target, or replace the one of that name. URLs of chat services are secrets: --url-file reads one from a file, or with -\n" +
			"from standard input. A missing URL or secret stays as it is.",
		Example: lines("carillon alarms targets set chat --kind slack --url-file slack.url --rules", "carillon alarms targets set oncall --kind email --to ops@example.com",
			"carillon alarms targets set mine --kind webhook --url https://alerts.example.com/carillon --secret-file webhook.secret"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			body := map[string]any{"kind": kind, "rules": rules}
			if len(addresses) > 0 {
				body["to"] = addresses
			}
			if to != "" && urlFile != "" {
				return kernel.Invalid("give either --url or --url-file")
			}
			for field, file := range map[string]string{"url": urlFile, "secret": secretFile} {
				if file == "" {
					continue
				}
				raw, err := jobfile.Read(file, a.in)
				if err != nil {
					return err
				}
				body[field] = strings.TrimSpace(string(raw))
			}
			if to != "" {
				body["url"] = to
			}
			got, err := a.link.do(ctx, request{method: "PUT", path: "/alarm-targets/" + url.PathEscape(args[0]), reason: reason, body: body})
			if err != nil {
				return err
			}
			return a.show(view{raw: empty(got.raw), names: args, text: func(p *page) {
				p.line("target %s is set; try it with: carillon alarms targets test %s", args[0], args[0])
			}})
		})}
	c.Flags().StringVar(&kind, "kind", "webhook", "webhook, email, slack, teams, pagerduty, dingtalk, wecom or feishu")
	c.Flags().StringVar(&to, "url", "", "URL; other users of this machine can see it")
	c.Flags().StringVar(&urlFile, "url-file", "", "a file with the URL, or - for standard input")
	c.Flags().StringVar(&secretFile, "secret-file", "", "a file with the secret that signs, or with PagerDuty's integration key")
	c.Flags().StringSliceVar(&addresses, "to", nil, "addresses of e-mail; repeatable")
	c.Flags().BoolVar(&rules, "rules", false, "if there are no rules, create the usual ones: failed, missed, paused, no-worker")
	c.Flags().StringVar(&reason, "reason", "", "reason, recorded with the change")
	return c
}

func (a *asker) alarmTargetsTest() *cobra.Command {
	return &cobra.Command{Use: "test <name>", Short: "Send a test message to a target", Args: one("the name of a target"), Example: lines("carillon alarms targets test chat"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			got, err := a.link.do(ctx, request{method: "POST", path: "/alarm-targets/" + url.PathEscape(args[0]) + "/test"})
			if err != nil {
				return err
			}
			var t api.AlarmTest
			if err := got.into(&t); err != nil {
				return err
			}
			status := yes(t.Status > 0, fmt.Sprintf(" with status %d", t.Status))
			if !t.OK {
				return kernel.Refuse(jobs.Unavailable, "target %s did not take the message%s: %s", args[0], status, clean(t.Answer))
			}
			return a.show(view{raw: got.raw, names: args, text: func(p *page) { p.line("target %s took the message%s: %s", args[0], status, clean(t.Answer)) }})
		})}
}

func (a *asker) alarmPartDelete(what, path, short string) *cobra.Command {
	return &cobra.Command{Use: "delete <name>", Short: short, Args: one("the name of a " + what), Example: lines("carillon alarms " + what + "s delete old"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			got, err := a.link.do(ctx, request{method: "DELETE", path: path + url.PathEscape(args[0])})
			if err != nil {
				return err
			}
			return a.show(view{raw: empty(got.raw), names: args, text: func(p *page) { p.line("%s %s is deleted", what, args[0]) }})
		})}
}

func (a *asker) alarmRules() *cobra.Command {
	return group("rules", "Manage the rules of alarms", lines("carillon alarms rules list", "carillon alarms rules set thrice --kind failed --in-row 3 --tag money --target oncall --quiet 22:00-07:00 --zone Europe/Berlin"),
		a.alarmRulesList(), a.alarmRulesSet(), a.alarmPartDelete("rule", "/alarm-rules/", "Delete a rule; its open alarms end"))
}

func (a *asker) alarmRulesList() *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List rules by name", Args: none, Example: lines("carillon alarms rules list"),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			got, err := a.link.get(ctx, "/alarm-rules", nil)
			if err != nil {
				return err
			}
			var all struct{ Items []api.AlarmRule }
			if err := got.into(&all); err != nil {
				return err
			}
			v := view{raw: got.raw, text: func(p *page) {
				if len(all.Items) == 0 {
					p.line("There are no rules; create one with carillon alarms rules set.")
					return
				}
				var rows [][]string
				for i := range all.Items {
					r := &all.Items[i]
					scope := kernel.Scope{Keys: r.Jobs, Apps: r.Apps, Tags: r.Tags}
					rows = append(rows, []string{r.Name, string(r.Kind), or(scope.String(), "all"), short(strings.Join(r.Targets, " ")), strconv.Itoa(r.Open), yes(r.Off, "off") + yes(!r.Off, "on")})
				}
				p.table([]string{"RULE", "KIND", "OF", "TARGETS", "OPEN", "STATE"}, rows)
			}}
			for i := range all.Items {
				v.names = append(v.names, all.Items[i].Name)
			}
			return a.show(v)
		})}
}

func (a *asker) alarmRulesSet() *cobra.Command {
	var r api.AlarmRuleFields
	var kind, after, every, quiet, reason string
	c := &cobra.Command{Use: "set <name>", Short: "Create or replace a rule", Args: one("a name for the rule"),
		Long: "Create a rule, or replace the one of that name. Without --job, --app and --tag it is about all jobs. The kinds:\n\n" +
			"  failed     runs failed for good: --in-row of them without a success between\n" +
			"  missed     due times were missed\n" +
			"  gap        the ledger of a job has a due time with neither a run nor a reason\n" +
			"  paused     a job has paused itself\n" +
			"  expected   a job has not succeeded in the 24 hours before --at, or for --after\n" +
			"  slow       a run takes --factor times as long as on average, and at least --after\n" +
			"  backlog    runs of an app have been ready for --after\n" +
			"  no_worker  the same, and the app has no worker",
		Example: lines("carillon alarms rules set thrice --kind failed --in-row 3 --tag money --target oncall",
			"carillon alarms rules set nightly --kind expected --at 06:00 --zone Europe/Berlin --job billing.close-day --target oncall --urgent",
			"carillon alarms rules set silent --kind expected --after 25h --job 'nas.*' --target oncall"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			r.Kind = kernel.AlarmKind(kind)
			for _, d := range []struct {
				flag, text string
				to         *api.Duration
			}{{"--after", after, &r.After}, {"--every", every, &r.Every}} {
				if d.text == "" {
					continue
				}
				span, err := readSpan(d.flag, d.text)
				if err != nil {
					return err
				}
				*d.to = api.Duration(span)
			}
			if quiet != "" {
				var ok bool
				if r.QuietFrom, r.QuietTo, ok = strings.Cut(quiet, "-"); !ok {
					return kernel.Invalid("invalid --quiet %.40q: want hours such as 22:00-07:00", quiet)
				}
			}
			got, err := a.link.do(ctx, request{method: "PUT", path: "/alarm-rules/" + url.PathEscape(args[0]), reason: reason, body: r})
			if err != nil {
				return err
			}
			return a.show(view{raw: empty(got.raw), names: args, text: func(p *page) { p.line("rule %s is set", args[0]) }})
		})}
	f := c.Flags()
	f.StringVar(&kind, "kind", "failed", "failed, missed, gap, paused, expected, slow, backlog or no_worker")
	f.StringSliceVar(&r.Jobs, "job", nil, "key of a job, or a pattern such as 'billing.*'; repeatable")
	f.StringSliceVar(&r.Apps, "app", nil, "an app; repeatable")
	f.StringSliceVar(&r.Tags, "tag", nil, "a tag; repeatable")
	f.IntVar(&r.InRow, "in-row", 0, "failed: that many failures (default 1)")
	f.StringVar(&r.At, "at", "", "expected: a time of day, such as 06:00")
	f.StringVar(&r.Zone, "zone", "", "IANA time zone of --at and --quiet (default UTC)")
	f.Float64Var(&r.Factor, "factor", 0, "slow: how many times as long as on average")
	f.StringVar(&after, "after", "", "expected, slow, backlog, no_worker: a duration below which nothing is wrong")
	f.StringSliceVar(&r.Targets, "target", nil, "a target to notify; repeatable")
	f.BoolVar(&r.Urgent, "urgent", false, "send in quiet hours, too")
	f.StringVar(&quiet, "quiet", "", "hours in which nothing is sent, such as 22:00-07:00")
	f.StringVar(&every, "every", "", "minimum interval between two messages about one alarm (default 5m)")
	f.BoolVar(&r.Off, "off", false, "keep the rule, but raise nothing")
	f.StringVar(&reason, "reason", "", "reason, recorded with the change")
	complete(c, "zone", completeZones)
	return c
}
