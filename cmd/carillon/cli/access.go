package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
)

func (a *asker) tokensCommand() *cobra.Command {
	return group("tokens", "Manage tokens", lines("carillon tokens list", "carillon tokens create ci --role operator --for 90d"),
		a.tokensList(), a.tokensCreate(), a.tokensRevoke())
}

func (a *asker) tokensList() *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List tokens, without their secrets", Args: none, Example: lines("carillon tokens list", "carillon tokens list -o json"),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			got, err := a.link.get(ctx, "/tokens", nil)
			if err != nil {
				return err
			}
			var all struct{ Items []api.Token }
			if err := got.into(&all); err != nil {
				return err
			}
			v := view{raw: got.raw, text: func(p *page) { tokenTable(p, all.Items) }}
			for _, t := range all.Items {
				v.names = append(v.names, t.ID)
			}
			return a.show(v)
		})}
}

func tokenTable(p *page, list []api.Token) {
	if len(list) == 0 {
		p.line("There are no tokens.")
		return
	}
	var rows [][]string
	for i := range list {
		t := &list[i]
		until := or(p.ago(t.Until), "for ever")
		if t.Until != nil && t.Until.Before(p.now) {
			until = p.paint(faint, "expired "+span(p.now.Sub(*t.Until))+" ago")
		}
		rows = append(rows, []string{t.ID, clean(t.Name), t.Role, or(cmp.Or(t.App, scopeText(t.Scope)), "-"), until, p.ago(&t.Created), clean(t.By)})
	}
	p.table([]string{"ID", "NAME", "ROLE", "FOR", "ENDS", "MADE", "BY"}, rows)
}

// scopeText shows the jobs that an operator may act on.
func scopeText(s *api.Scope) string {
	if s == nil {
		return ""
	}
	return clean((&kernel.Scope{Keys: s.Jobs, Apps: s.Apps, Tags: s.Tags}).String())
}

func (a *asker) tokensCreate() *cobra.Command {
	var role, life string
	var apps, keys, tags []string
	c := &cobra.Command{Use: "create <name>", Short: "Create a token", Args: one("a name for the token"),
		Long: "Create a token. Its text is printed once; only a hash is stored. Roles are viewer (reads),\n" +
			"operator (starts, cancels, pauses), admin (edits, deletes, manages tokens), worker (runs the jobs of --app, or of any app)\n" +
			"and client (only starts runs). --jobs, --app and --tag limit an operator or a client to jobs; such a client uses HTTP only, not the bus.",
		Example: lines("carillon tokens create ann --role operator --for 90d", "carillon tokens create oncall --role operator --jobs 'billing.*' --tag money", "carillon tokens create ci --role client --jobs shop.deploy", "carillon tokens create billing-worker --role worker --app billing -q > token"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			body := map[string]any{"name": args[0], "role": role}
			switch scope := (api.Scope{Jobs: keys, Apps: apps, Tags: tags}); {
			case (role == kernel.RoleOperator || role == kernel.RoleClient) && len(keys)+len(apps)+len(tags) > 0:
				body["scope"] = scope
			case len(keys)+len(tags) > 0 || len(apps) > 1:
				return kernel.Invalid("--jobs, --tag and several --app limit an operator or a client: the token is of role %s", role)
			case len(apps) == 1:
				body["app"] = apps[0]
			}
			if life != "" {
				d, err := readSpan("--for", life)
				if err != nil {
					return err
				}
				body["for"] = api.Duration(d)
			}
			got, err := a.link.do(ctx, request{method: "POST", path: "/tokens", body: body})
			if err != nil {
				return err
			}
			var t api.GrantedToken
			if err := got.into(&t); err != nil {
				return err
			}
			return a.showSecret(got, t.Text, "token %s for %s, %s. It is shown this once:", t.ID, t.Name, t.Role)
		})}
	c.Flags().StringVar(&role, "role", "viewer", "viewer, operator, admin, worker or client")
	c.Flags().StringSliceVar(&apps, "app", nil, "app (worker group) of a worker's token, or apps that an operator or a client may act on")
	c.Flags().StringSliceVar(&keys, "jobs", nil, "jobs that an operator or a client may act on: keys or patterns such as 'billing.*' (default: all)")
	c.Flags().StringSliceVar(&tags, "tag", nil, "tags of jobs that an operator or a client may act on")
	c.Flags().StringVar(&life, "for", "", "lifetime, such as 90d (default: no expiry)")
	complete(c, "role", choices("viewer", "operator", "admin", "worker", "client"))
	return c
}

func (a *asker) tokensRevoke() *cobra.Command {
	return &cobra.Command{Use: "revoke <id>", Short: "Revoke a token", Args: one("the ID of a token"),
		Long:    "Revoke a token: requests with it are refused, and its sessions end at once. The last admin token without\nexpiry cannot be revoked.",
		Example: lines("carillon tokens revoke k3x9a2bq"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			got, err := a.link.do(ctx, request{method: "DELETE", path: "/tokens/" + url.PathEscape(args[0])})
			if err != nil {
				return err
			}
			if len(got.raw) == 0 {
				got.raw = []byte("{}")
			}
			return a.show(view{raw: got.raw, names: args, text: func(p *page) { p.line("token %s is revoked", args[0]) }})
		}), ValidArgsFunction: a.completeTokens}
}

func (a *asker) completeTokens(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var all struct{ Items []api.Token }
	if len(args) > 0 || !a.asked(c, "/tokens", nil, &all) {
		return nil, noFiles
	}
	var ids []string
	for _, t := range all.Items {
		ids = append(ids, described(t.ID, t.Name+" "+t.Role))
	}
	return ids, noFiles
}

func (a *asker) auditCommand() *cobra.Command {
	var target, actor string
	var limit int
	c := &cobra.Command{Use: "audit", Short: "List changes, newest first", Args: none, Example: lines("carillon audit", "carillon audit --target 'job demo.chime' -n 100", "carillon audit --actor person:ann -o json"),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			if limit < 1 {
				return kernel.Invalid("invalid -n %d: want at least 1", limit)
			}
			q := url.Values{}
			set(q, "target", target)
			set(q, "actor", actor)
			all, err := a.pages(ctx, "/audit", q, "before", limit, 200)
			if err != nil {
				return err
			}
			list, err := decoded[api.Change](all.Items)
			if err != nil {
				return err
			}
			v := view{text: func(p *page) { auditTable(p, list) }}
			if v.raw, err = json.Marshal(all); err != nil {
				return err
			}
			return a.show(v)
		})}
	c.AddCommand(a.auditHead(), a.auditExport(), a.auditVerify())
	c.Flags().StringVar(&target, "target", "", "only of this target, such as 'job demo.chime' or settings")
	c.Flags().StringVar(&actor, "actor", "", "only by this actor, such as person:ann")
	c.Flags().IntVarP(&limit, "limit", "n", 30, "how many at most")
	return c
}

func auditTable(p *page, list []api.Change) {
	if len(list) == 0 {
		p.line("Nothing has been changed.")
		return
	}
	var rows [][]string
	for i := range list {
		e := &list[i]
		rows = append(rows, []string{e.At.Local().Format("2006-01-02 15:04:05"), clean(e.Actor), e.Verb, clean(e.Target), or(short(e.Reason), "-"), changeText(value(e.Before), value(e.After))})
	}
	p.table([]string{"AT", "WHO", "DID", "TO", "WHY", "WHAT"}, rows)
}

// changeText lists changed fields: "retries 2 -> 5", "name=ann" if it was added, "name was ann" if it was removed.
func changeText(before, after api.Object) string {
	var was, is map[string]json.RawMessage
	if len(before) > 0 && json.Unmarshal(before, &was) != nil || len(after) > 0 && json.Unmarshal(after, &is) != nil {
		return compact(before) + " -> " + compact(after)
	}
	both := maps.Clone(was)
	if both == nil {
		both = map[string]json.RawMessage{}
	}
	maps.Copy(both, is)
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(both)) {
		a, hadIt := was[name]
		b, hasIt := is[name]
		switch {
		case hadIt && hasIt:
			parts = append(parts, fmt.Sprintf("%s %s -> %s", name, or(fieldText(name, a), "(nothing)"), or(fieldText(name, b), "(nothing)")))
		case hasIt && fieldText(name, b) != "":
			parts = append(parts, name+"="+fieldText(name, b))
		case hadIt && fieldText(name, a) != "":
			parts = append(parts, name+" was "+fieldText(name, a))
		}
	}
	return clean(strings.Join(parts, ", "))
}

func (a *asker) whoamiCommand() *cobra.Command {
	return &cobra.Command{Use: "whoami", Short: "Show the current identity", Args: none, Example: lines("carillon whoami"),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			got, err := a.link.get(ctx, "/whoami", nil)
			if err != nil {
				return err
			}
			var me api.Self
			if err := got.into(&me); err != nil {
				return err
			}
			return a.show(view{raw: got.raw, names: []string{me.Actor}, text: func(p *page) {
				p.facts("you are", clean(me.Actor), "role", me.Role, "tenant", me.Tenant, "jobs", or(scopeText(me.Scope), "all"), "server", a.link.base)
			}})
		})}
}
