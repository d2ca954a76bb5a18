package ops

import (
	"context"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Tenants are managed by administrators of the server: the admins of the default tenant.

// Tenant is a tenant, with what it has.
type Tenant struct {
	*kernel.Global
	Live    map[jobs.State]int // unsettled runs, by state
	Workers int
}

// NewTenant describes a tenant to create.
type NewTenant struct {
	Name   jobs.Tenant
	Title  string
	Zone   string // default time zone of its jobs; "" = the server's
	Limits kernel.TenantLimits
}

// administers refuses callers that are not administrators of the server.
func (w Who) administers() error {
	if w.tenant() != jobs.DefaultTenant {
		return kernel.Refuse(jobs.Forbidden, "tenant %s may not manage tenants: administrators of the server do, who are admins of tenant %s", w.tenant(), jobs.DefaultTenant)
	}
	return w.unlimited()
}

// TenantQuery selects tenants. Empty fields do not filter.
type TenantQuery struct {
	Text  string      // part of the name or the title
	After jobs.Tenant // page: names after this one
	Limit int         // 0 = all
}

func (q *TenantQuery) selects(g *kernel.Global) bool {
	return g.Tenant > q.After && (q.Text == "" || strings.Contains(string(g.Tenant), q.Text) || strings.Contains(strings.ToLower(g.Tenancy.Title), strings.ToLower(q.Text)))
}

// Tenants lists the tenants that were created, by name, and reports whether there are more.
func (o *Ops) Tenants(ctx context.Context, who Who, q TenantQuery) (list []Tenant, more bool, err error) {
	if err := who.administers(); err != nil {
		return nil, false, err
	}
	rows, err := o.store.Tenants(ctx)
	if err != nil {
		return nil, false, err
	}
	workers := map[jobs.Tenant]int{}
	for _, w := range o.live.Workers("*") { // each call walks all workers
		workers[w.Tenant]++
	}
	for _, g := range rows {
		if !q.selects(g) {
			continue
		}
		if q.Limit > 0 && len(list) == q.Limit {
			return list, true, nil
		}
		t, err := o.tenant(ctx, g, workers[g.Tenant])
		if err != nil {
			return nil, false, err
		}
		list = append(list, t)
	}
	return list, false, nil
}

// Tenant returns a tenant.
func (o *Ops) Tenant(ctx context.Context, who Who, name jobs.Tenant) (Tenant, error) {
	if err := who.administers(); err != nil {
		return Tenant{}, err
	}
	g, err := o.store.Global(ctx, name)
	if err != nil {
		return Tenant{}, err
	}
	if g.Tenancy.Since.IsZero() {
		return Tenant{}, kernel.Refuse(jobs.NotFound, "there is no tenant %.60q", name)
	}
	return o.tenant(ctx, g, len(o.live.Workers(name)))
}

func (o *Ops) tenant(ctx context.Context, g *kernel.Global, workers int) (Tenant, error) {
	counts, err := o.store.Counts(ctx, metastore.CountQuery{Tenant: g.Tenant})
	return Tenant{Global: g, Live: counts.Live, Workers: workers}, err
}

// CreateTenant creates a tenant, and returns a token for its first admin: only this call returns the text.
func (o *Ops) CreateTenant(ctx context.Context, who Who, want NewTenant) (t Tenant, token string, err error) {
	if err := who.administers(); err != nil {
		return t, "", err
	}
	if !o.authenticates {
		return t, "", kernel.Refuse(jobs.Conflict, "this server requires no authentication, so every caller is an admin of tenant %s: start it with authentication to create tenants", jobs.DefaultTenant)
	}
	if want.Zone != "" {
		if err := CheckDefaults(kernel.Settings{Zone: &want.Zone}); err != nil {
			return t, "", err
		}
	}
	set := kernel.SetTenant{Name: want.Name, Title: &want.Title, Limits: &want.Limits, Create: true, Zone: want.Zone}
	if err := kernel.CheckCommand(set); err != nil {
		return t, "", err
	}
	token = TokenText(want.Name)
	first, err := o.tokenOf(want.Name, NewToken{Name: "first admin", Role: kernel.RoleAdmin}, token)
	if err != nil {
		return t, "", err
	}
	set.First = &first
	t, err = o.setTenant(ctx, who, set)
	return t, token, err
}

// ChangeTenant changes a tenant's title or limits. nil: no change.
func (o *Ops) ChangeTenant(ctx context.Context, who Who, name jobs.Tenant, title *string, limits *kernel.TenantLimits) (Tenant, error) {
	return o.setTenant(ctx, who, kernel.SetTenant{Name: name, Title: title, Limits: limits})
}

// SuspendTenant suspends a tenant, or resumes it.
func (o *Ops) SuspendTenant(ctx context.Context, who Who, name jobs.Tenant, on bool) (Tenant, error) {
	return o.setTenant(ctx, who, kernel.SuspendTenant{Name: name, On: on})
}

// DeleteTenant deletes a suspended tenant with all that it has; the leader does so in the background, but for the refused
// requests in the outbox. It is refused while attempts are under way: their ends would be lost.
func (o *Ops) DeleteTenant(ctx context.Context, who Who, name jobs.Tenant) (Tenant, error) {
	t, err := o.setTenant(ctx, who, kernel.DeleteTenant{Name: name})
	if err != nil {
		return t, err
	}
	return t, after(o.discardAll(ctx, name))
}

func (o *Ops) setTenant(ctx context.Context, who Who, k kernel.Command) (Tenant, error) {
	if err := who.administers(); err != nil {
		return Tenant{}, err
	}
	if err := kernel.CheckCommand(k); err != nil {
		return Tenant{}, err
	}
	effect, err := o.apply(ctx, who, k)
	if err != nil {
		return Tenant{}, err
	}
	t, err := o.tenant(ctx, effect.Global, len(o.live.Workers(effect.Global.Tenant))) // not read again: a deleted one may be gone by now
	return t, after(err)
}

// Inside returns an administrator of the server as an admin of a tenant, to read what that has, or to give it a token.
func (o *Ops) Inside(ctx context.Context, who Who, name jobs.Tenant) (Who, error) {
	if _, err := o.Tenant(ctx, who, name); err != nil {
		return Who{}, err
	}
	who.Home, who.Tenant = who.tenant(), name
	return who, nil
}

// Exported receives all that a tenant has: a function for each kind, called once for each thing, in this order.
type Exported struct {
	Calendar func(*kernel.Calendar) error
	Job      func(Job) error
	Missed   func(jobs.Key, *kernel.Missed) error // after the job, newest first
	Token    func(*kernel.Token) error
	Run      func(*kernel.Run) error   // unfinished ones, newest first, then those that ended, last ended first
	Change   func(*kernel.Audit) error // newest first
}

// Export reads all that the caller's tenant has. What changes meanwhile may be in it, or not.
func (o *Ops) Export(ctx context.Context, who Who, to Exported) error {
	calendars, err := o.Calendars(ctx, who)
	if err != nil {
		return err
	}
	for _, c := range calendars {
		if err := to.Calendar(c); err != nil {
			return err
		}
	}
	err = metastore.EachDefinition(ctx, o.store, who.tenant(), func(part []*kernel.Definition) error {
		for _, d := range part {
			if err := to.Job(Job{Definition: d}); err != nil {
				return err
			}
			missed, err := o.store.Ledger(ctx, who.tenant(), d.UID, allMissed)
			if err != nil {
				return err
			}
			for _, m := range missed {
				if err := to.Missed(d.Key, m); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	tokens, err := o.Tokens(ctx, who)
	if err != nil {
		return err
	}
	for _, t := range tokens {
		if err := to.Token(t); err != nil {
			return err
		}
	}
	for q := (metastore.RunQuery{Tenant: who.tenant(), Limit: metastore.MaxPage}); ; {
		page, err := o.store.Runs(ctx, q)
		if err != nil {
			return err
		}
		for _, run := range page.Runs {
			if err := to.Run(run); err != nil {
				return err
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	for q := (metastore.AuditQuery{Tenant: who.tenant(), Limit: metastore.MaxPage}); ; {
		list, err := o.store.Audits(ctx, q)
		if err != nil || len(list) == 0 {
			return err
		}
		for _, c := range list {
			if err := to.Change(c); err != nil {
				return err
			}
		}
		q.Before = list[len(list)-1].N
	}
}

// allMissed is more missed ranges than a job has.
const allMissed = 1 << 20
