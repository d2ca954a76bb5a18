package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
)

func (a *asker) tenantsCommand() *cobra.Command {
	c := group("tenants", "Manage tenants: separate jobs, runs, settings and tokens on one server", lines("carillon tenants list",
		"carillon tenants create acme --title 'Acme Ltd' --zone Europe/Berlin --starts 100/s -q > acme-admin.token"),
		a.tenantsList(), a.tenantsShow(), a.tenantsCreate(), a.tenantsLimit(), a.tenantsDo("suspend", "Suspend a tenant: its runs wait, and no run is created"),
		a.tenantsDo("resume", "Resume a suspended tenant"), a.tenantsToken(), a.tenantsExport(), a.tenantsDelete())
	c.Long = "Manage tenants. Each has jobs, runs, settings, calendars, tokens and an audit of its own, and sees nothing of the others.\n" +
		"All of this is for administrators of the server: admins of the default tenant."
	c.Aliases = []string{"tenant"}
	return c
}

func tenantPath(name string) string { return "/tenants/" + url.PathEscape(name) }

func (a *asker) tenantsList() *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List tenants by name", Args: none, Example: lines("carillon tenants list", "carillon tenants list -o json"),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			got, err := a.link.get(ctx, "/tenants", nil)
			if err != nil {
				return err
			}
			var all struct{ Items []api.Tenant }
			if err := got.into(&all); err != nil {
				return err
			}
			v := view{raw: got.raw, text: func(p *page) {
				if len(all.Items) == 0 {
					p.line("There is only the default tenant; create others with carillon tenants create.")
					return
				}
				var rows [][]string
				for i := range all.Items {
					t := &all.Items[i]
					rows = append(rows, []string{t.Name, or(clean(t.Title), "-"), tenantState(t), strconv.Itoa(t.Jobs), strconv.Itoa(unfinished(t)), strconv.Itoa(t.Workers), p.ago(&t.Created)})
				}
				p.table([]string{"TENANT", "TITLE", "STATE", "JOBS", "RUNS", "WORKERS", "CREATED"}, rows)
			}}
			for _, t := range all.Items {
				v.names = append(v.names, t.Name)
			}
			return a.show(v)
		})}
}

func tenantState(t *api.Tenant) string {
	switch {
	case t.Deleted != nil:
		return "being deleted"
	case t.Suspended != nil:
		return "suspended"
	}
	return "active"
}

func unfinished(t *api.Tenant) (n int) {
	for _, count := range t.Runs {
		n += count
	}
	return n
}

// showTenant prints a tenant as a response has it.
func (a *asker) showTenant(got answer) error {
	var t api.Tenant
	if err := got.into(&t); err != nil {
		return err
	}
	return a.show(view{raw: got.raw, names: []string{t.Name}, text: func(p *page) {
		state := tenantState(&t)
		for _, c := range []*api.TenantChange{t.Suspended, t.Deleted} {
			if c != nil {
				state += ", " + p.ago(&c.At) + " by " + clean(c.By)
			}
		}
		l := &t.Limits
		limit := func(n int64, text string) string {
			if n == 0 {
				return "the server's"
			}
			return text
		}
		starts := "none"
		if l.Starts.Max > 0 {
			raw, _ := l.Starts.MarshalText()
			starts = string(raw)
		}
		p.facts("tenant", t.Name, "title", or(clean(t.Title), "-"), "state", state, "created", p.ago(&t.Created)+" by "+clean(t.By), "zone", t.Zone,
			"jobs", fmt.Sprintf("%d, limit %s", t.Jobs, limit(int64(l.Jobs), strconv.Itoa(l.Jobs))),
			"unfinished runs", strconv.Itoa(unfinished(&t)), "waiting runs, limit", limit(int64(l.Waiting), strconv.Itoa(l.Waiting)),
			"workers", fmt.Sprintf("%d, limit %s", t.Workers, limit(int64(l.Workers), strconv.Itoa(l.Workers))),
			"starts, limit", starts, "bytes, limit", limit(l.Bytes, bytesText(l.Bytes)))
	}})
}

func (a *asker) tenantsShow() *cobra.Command {
	return &cobra.Command{Use: "show <name>", Short: "Show a tenant with its limits", Args: one("the name of a tenant"), Example: lines("carillon tenants show acme"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			got, err := a.link.get(ctx, tenantPath(args[0]), nil)
			if err != nil {
				return err
			}
			return a.showTenant(got)
		}), ValidArgsFunction: a.completeTenants}
}

func (a *asker) completeTenants(c *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	var all struct{ Items []api.Tenant }
	if len(args) > 0 || !a.asked(c, "/tenants", nil, &all) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, t := range all.Items {
		names = append(names, t.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// limitFlags are the flags of a tenant's limits.
type limitFlags struct {
	jobs, waiting, workers int
	starts                 string
	bytes                  int64
}

func (l *limitFlags) add(c *cobra.Command) {
	f := c.Flags()
	f.IntVar(&l.jobs, "jobs", 0, "limit of jobs; here and below 0 = only the server's limits apply")
	f.IntVar(&l.waiting, "waiting", 0, "limit of runs that have not started")
	f.IntVar(&l.workers, "workers", 0, "limit of connected workers")
	f.StringVar(&l.starts, "starts", "", "rate of attempts that start, such as 100/s or 5000/m; more wait; none = no limit")
	f.Int64Var(&l.bytes, "bytes", 0, "limit of bytes of arguments, results and checkpoints of unfinished runs")
}

// body returns the limits whose flags were given.
func (l *limitFlags) body(c *cobra.Command) map[string]any {
	all := map[string]any{"jobs": l.jobs, "waiting": l.waiting, "workers": l.workers, "starts": l.starts, "bytes": l.bytes}
	for name := range all {
		if !c.Flags().Changed(name) {
			delete(all, name)
		}
	}
	return all
}

func (a *asker) tenantsCreate() *cobra.Command {
	var title, zone string
	var limits limitFlags
	var c *cobra.Command
	c = &cobra.Command{Use: "create <name>", Short: "Create a tenant", Args: one("a name for the tenant"),
		Long: "Create a tenant. A token for its first admin is printed once; only a hash is stored.\n" +
			"The server must require authentication: without, all callers are one tenant.",
		Example: lines("carillon tenants create acme -q > acme-admin.token", "carillon tenants create acme --title 'Acme Ltd' --zone Europe/Berlin --jobs 500 --waiting 100000 --starts 100/s --workers 20"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			body := map[string]any{"name": args[0]}
			for name, text := range map[string]string{"title": title, "zone": zone} {
				if text != "" {
					body[name] = text
				}
			}
			if set := limits.body(c); len(set) > 0 {
				body["limits"] = set
			}
			got, err := a.link.do(ctx, request{method: "POST", path: "/tenants", body: body})
			if err != nil {
				return err
			}
			var t api.CreatedTenant
			if err := got.into(&t); err != nil {
				return err
			}
			return a.showSecret(got, t.Token, "tenant %s is created. The token of its first admin is shown this once:", t.Name)
		})}
	c.Flags().StringVar(&title, "title", "", "name for people")
	c.Flags().StringVar(&zone, "zone", "", "default time zone of its jobs, such as Europe/Berlin")
	limits.add(c)
	return c
}

// showSecret prints a new token, with -q too.
func (a *asker) showSecret(got answer, text, remark string, args ...any) error {
	if a.human() {
		a.remark(remark, args...)
	}
	quiet := a.quiet
	a.quiet = false
	defer func() { a.quiet = quiet }()
	return a.show(view{raw: got.raw, names: []string{text}, text: func(p *page) { p.line("%s", text) }})
}

func (a *asker) tenantsLimit() *cobra.Command {
	var title string
	var limits limitFlags
	var c *cobra.Command
	c = &cobra.Command{Use: "limit <name>", Short: "Change a tenant's limits or title", Args: one("the name of a tenant"),
		Example: lines("carillon tenants limit acme --starts 50/s --waiting 20000", "carillon tenants limit acme --jobs 0"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			body := map[string]any{}
			if c.Flags().Changed("title") {
				body["title"] = title
			}
			if set := limits.body(c); len(set) > 0 {
				body["limits"] = set
			}
			if len(body) == 0 {
				return kernel.Invalid("nothing to change: give --title, --jobs, --waiting, --workers, --starts or --bytes")
			}
			got, err := a.link.do(ctx, request{method: "PATCH", path: tenantPath(args[0]), body: body})
			if err != nil {
				return err
			}
			return a.showTenant(got)
		}), ValidArgsFunction: a.completeTenants}
	c.Flags().StringVar(&title, "title", "", "name for people")
	limits.add(c)
	return c
}

func (a *asker) tenantsDo(verb, short string) *cobra.Command {
	return &cobra.Command{Use: verb + " <name>", Short: short, Args: one("the name of a tenant"), Example: lines("carillon tenants " + verb + " acme"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			got, err := a.link.do(ctx, request{method: "POST", path: tenantPath(args[0]) + "/" + verb})
			if err != nil {
				return err
			}
			return a.showTenant(got)
		}), ValidArgsFunction: a.completeTenants}
}

func (a *asker) tenantsToken() *cobra.Command {
	return &cobra.Command{Use: "token <name> <holder>", Short: "Create a token for another admin of a tenant", Args: counted("the name of a tenant and a name for the token", 2, 2),
		Long:    "Create a token for another admin of a tenant, as when all of its admins have lost theirs. It is printed once.",
		Example: lines("carillon tenants token acme ann"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			got, err := a.link.do(ctx, request{method: "POST", path: tenantPath(args[0]) + "/tokens", body: map[string]any{"name": args[1], "role": kernel.RoleAdmin}})
			if err != nil {
				return err
			}
			var t api.GrantedToken
			if err := got.into(&t); err != nil {
				return err
			}
			return a.showSecret(got, t.Text, "token %s for %s, admin of %s. It is shown this once:", t.ID, t.Name, args[0])
		}), ValidArgsFunction: a.completeTenants}
}

func (a *asker) tenantsExport() *cobra.Command {
	var file string
	c := &cobra.Command{Use: "export <name>", Short: "Export all that a tenant has, as JSON lines", Args: one("the name of a tenant"),
		Long: "Export all that a tenant has: settings, calendars, jobs, tokens without secrets, runs, missed due times and the audit, one\n" +
			"JSON object per line. The last line has the kind \"end\": without it, the export is incomplete.",
		Example: lines("carillon tenants export acme --to acme.jsonl", "carillon tenants export acme | jq 'select(.kind == \"job\").value.key'"),
		RunE: a.does(func(ctx context.Context, args []string) (err error) {
			to := a.out
			if file != "" {
				f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, f.Close()) }()
				to = f
			}
			end := &lastLine{to: to}
			if err := a.link.download(ctx, tenantPath(args[0])+"/export", nil, end); err != nil {
				return err
			}
			if strings.TrimSpace(string(end.line)) != `{"kind":"end"}` {
				return fmt.Errorf("the export of tenant %s is incomplete: its last line is missing", args[0])
			}
			return nil
		}), ValidArgsFunction: a.completeTenants}
	c.Flags().StringVar(&file, "to", "", "write to this new file instead of the output")
	return c
}

// lastLine passes on lines, and keeps the last one, as far as it is short.
type lastLine struct {
	to   io.Writer
	line []byte
}

func (l *lastLine) Write(b []byte) (int, error) {
	l.line = append(l.line, b[max(0, len(b)-64):]...)
	l.line = l.line[max(0, len(l.line)-64):]
	if i := strings.LastIndexByte(strings.TrimSuffix(string(l.line), "\n"), '\n'); i >= 0 {
		l.line = l.line[i+1:]
	}
	return l.to.Write(b)
}

func (a *asker) tenantsDelete() *cobra.Command {
	var yes bool
	c := &cobra.Command{Use: "delete <name>", Short: "Delete a suspended tenant with all that it has", Args: one("the name of a tenant"),
		Long:    "Delete a suspended tenant with all that it has: jobs, runs, settings, tokens, audit. It cannot be undone: export it first.",
		Example: lines("carillon tenants delete acme"),
		RunE: a.does(func(ctx context.Context, args []string) error {
			got, err := a.link.get(ctx, tenantPath(args[0]), nil)
			if err != nil {
				return err
			}
			var t api.Tenant
			if err := got.into(&t); err != nil {
				return err
			}
			if !yes {
				if err := a.confirm(fmt.Sprintf("Delete tenant %s with %s and %s?", t.Name, countOf(t.Jobs, "job"), countOf(unfinished(&t), "unfinished run"))); err != nil {
					return err
				}
			}
			if got, err = a.link.do(ctx, request{method: "DELETE", path: tenantPath(args[0])}); err != nil {
				return err
			}
			return a.showTenant(got)
		}), ValidArgsFunction: a.completeTenants}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return c
}
