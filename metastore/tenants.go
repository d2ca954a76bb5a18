package metastore

import (
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Tenants: see kernel.Tenancy. The server's administrators manage them, from the default tenant: there are the audits
// of what they do.

// begins are the commands with which something begins to exist in a tenant, if only an audit. All others need what these
// have made.
func begins(v kernel.Verb) bool {
	switch v {
	case kernel.VerbRegister, kernel.VerbCreate, kernel.VerbGrant, kernel.VerbConfigure, kernel.VerbSetCalendar, kernel.VerbSignIn,
		kernel.VerbSetAlarmTarget, kernel.VerbDrain, kernel.VerbPurge, kernel.VerbLedgerKey, kernel.VerbInvite, kernel.VerbMembers,
		kernel.VerbDenied, kernel.VerbOpenBatch, kernel.VerbCheckIn:
		return true
	}
	return false
}

// inTenant refuses commands in a tenant that does not exist, and those with which something begins in one that is being
// deleted: it would be left to the next tenant of that name.
func (c *change) inTenant() error {
	name := c.env.Tenant
	if name == jobs.DefaultTenant {
		return nil
	}
	if g := c.global(); g.Exists(name) || !g.Tenancy.Since.IsZero() && !begins(c.env.Command.Verb()) {
		return nil
	}
	return kernel.Refuse(jobs.NotFound, "there is no tenant %q: an administrator of the server creates it, with: carillon tenants create %s", name, name)
}

// suspended refuses to create or start a run in a suspended tenant.
func (c *change) suspended() error {
	if c.env.Tenant == jobs.DefaultTenant {
		return nil // the common case, and it never is
	}
	if s := c.global().Tenancy.Suspended; s.On {
		return kernel.Refuse(jobs.Conflict, "tenant %s is suspended by %s since %s: no run is created or started", c.env.Tenant, s.By, stamp(s.At))
	}
	return nil
}

// ofTenant returns the Global of a tenant that a command of the server's administrators is about.
func (c *change) ofTenant(name jobs.Tenant) (*kernel.Global, error) {
	if c.env.Tenant != jobs.DefaultTenant {
		return nil, kernel.Refuse(jobs.Forbidden, "tenant %s may not manage tenants: administrators of the server do, who are admins of tenant %s", c.env.Tenant, jobs.DefaultTenant)
	}
	if g, ok := c.tx.Get(kernel.GlobalRef(name)).(*kernel.Global); ok {
		return g, nil
	}
	return &kernel.Global{Tenant: name}, nil
}

func (c *change) setTenant(k kernel.SetTenant) error {
	row, err := c.ofTenant(k.Name)
	if err != nil {
		return err
	}
	was, g := row.Tenancy, *row
	is := &g.Tenancy
	switch {
	case was.Deleted.On:
		return kernel.Refuse(jobs.Conflict, "tenant %s is being deleted since %s: wait until it is gone", k.Name, stamp(was.Deleted.At))
	case k.Create:
		return c.createTenant(k, &g)
	case was.Since.IsZero():
		return noTenant(k.Name)
	}
	setTenancy(is, k)
	if *is == was {
		c.effect.Existing, c.effect.Global = true, row
		return nil
	}
	c.tenancy(&g)
	c.auditTenant(&g, &was)
	return nil
}

// createTenant creates a tenant, with what makes it usable, or finds the one that the same command has created.
func (c *change) createTenant(k kernel.SetTenant, g *kernel.Global) error {
	in := *c.env
	in.Tenant = k.Name
	inside := change{tx: c.tx, env: &in, at: c.at, numbers: c.numbers}
	if was := g.Tenancy; !was.Since.IsZero() {
		setTenancy(&was, k)
		if k.First == nil && was != g.Tenancy || k.First != nil && inside.token(k.First.ID) == nil {
			return kernel.Refuse(jobs.Conflict, "tenant %s exists since %s", k.Name, stamp(was.Since))
		}
		c.effect.Existing, c.effect.Global = true, g
		return nil
	}
	if err := c.countTenants(+1); err != nil {
		return err
	}
	none := g.Tenancy
	g.Tenancy.Since, g.Tenancy.By = c.at, c.env.Actor
	setTenancy(&g.Tenancy, k)
	c.tenancy(g)
	c.auditTenant(g, &none)
	for _, then := range k.Inside() {
		in.Command = then
		if err := inside.apply(); err != nil {
			return err
		}
	}
	c.effect.Global = inside.global()
	return nil
}

func setTenancy(is *kernel.Tenancy, k kernel.SetTenant) {
	if k.Title != nil {
		is.Title = *k.Title
	}
	if k.Limits != nil {
		is.Limits = *k.Limits
	}
}

func (c *change) auditTenant(g *kernel.Global, was *kernel.Tenancy) {
	is, before, after := &g.Tenancy, fields{}, fields{}
	if was.Title != is.Title {
		put(before, after, "title", was.Title, is.Title)
	}
	if was.Limits != is.Limits {
		put(before, after, "limits", limitsOf(was), limitsOf(is))
	}
	c.audit(tenantTarget(g.Tenant), before, after)
}

// countTenants counts them in the default tenant's Global.
func (c *change) countTenants(more int) error {
	if more > 0 && c.global().Tenants >= kernel.MaxTenants {
		return kernel.Exhausted(kernel.BoundTenants, "too many tenants: %d of %d", c.global().Tenants, kernel.MaxTenants)
	}
	c.count(func(g *kernel.Global) { g.Tenants += more })
	return nil
}

// tenancy stores a tenant's changed row. Fires that are based on the former one are refused.
func (c *change) tenancy(g *kernel.Global) {
	g.Revision++
	c.number()
	c.tx.Put(g)
	c.effect.Global = g
}

func (c *change) suspendTenant(k kernel.SuspendTenant) error {
	row, err := c.ofTenant(k.Name)
	if err != nil {
		return err
	}
	was := row.Tenancy
	switch {
	case was.Since.IsZero():
		return noTenant(k.Name)
	case was.Deleted.On && !k.On:
		return kernel.Refuse(jobs.Conflict, "tenant %s is being deleted since %s: it cannot be resumed", k.Name, stamp(was.Deleted.At))
	case was.Suspended.On == k.On:
		c.effect.Existing, c.effect.Global = true, row
		return nil
	}
	g := *row
	if !k.On {
		g.Silenced(kernel.MissedSuspended, was.Suspended.At, c.at)
	}
	g.Tenancy.Suspended = kernel.Debug{On: k.On, By: c.env.Actor, At: c.at}
	c.tenancy(&g)
	c.audit(tenantTarget(k.Name), fields{"suspended": !k.On}, fields{"suspended": k.On})
	return nil
}

func (c *change) deleteTenant(k kernel.DeleteTenant) error {
	row, err := c.ofTenant(k.Name)
	if err != nil {
		return err
	}
	was := row.Tenancy
	switch {
	case was.Since.IsZero():
		return noTenant(k.Name)
	case was.Deleted.On:
		c.effect.Existing, c.effect.Global = true, row
		return nil
	case !was.Suspended.On:
		return kernel.Refuse(jobs.Conflict, "tenant %s is not suspended: suspend it first, with: carillon tenants suspend %s", k.Name, k.Name)
	case c.tx.Live(k.Name, jobs.Processing) > 0: // their ends would be lost
		return kernel.Refuse(jobs.Conflict, "tenant %s has runs under way (%d): wait for them, or cancel them", k.Name, c.tx.Live(k.Name, jobs.Processing))
	}
	g := *row
	g.Tenancy.Deleted = kernel.Debug{On: true, By: c.env.Actor, At: c.at}
	g.Purged = c.at
	c.tenancy(&g)
	c.audit(tenantTarget(k.Name), nil, nil)
	return nil
}

// dropTenant deletes rows. Jobs are deleted as such before, so that all caches know.
func (c *change) dropTenant(k kernel.DropTenant) error {
	row, err := c.ofTenant(k.Name)
	if err != nil {
		return err
	}
	if !row.Tenancy.Deleted.On {
		if row.Tenancy.Since.IsZero() {
			c.effect.Existing = true // repeated after the last one
			return nil
		}
		return kernel.Refuse(jobs.Conflict, "tenant %s is not being deleted", k.Name)
	}
	for _, ref := range k.Refs {
		if ref.Tenant = k.Name; ref.Kind == kernel.RowAudit && row.Audits > 0 { // the chain ends with its lines
			g := *row
			g.Audits, g.AuditHead, g.AuditsFrom, g.AuditSinks = 0, nil, 0, nil
			c.tx.Put(&g)
			row = &g
		}
		if d, ok := c.tx.Get(ref).(*kernel.Definition); ref.Kind == kernel.RowGlobal || ref.Kind == kernel.RowStore || ok && !d.Gone() {
			continue
		}
		c.tx.Delete(ref)
	}
	if !k.Last {
		return nil
	}
	if err := c.countTenants(-1); err != nil {
		return err
	}
	// The revisions go on: caches of the former tenant's settings and calendars are not valid for a new one.
	c.tenancy(&kernel.Global{Tenant: k.Name, Revision: row.Revision, Calendars: row.Calendars, Purged: row.Purged})
	c.audit(tenantTarget(k.Name), nil, fields{"gone": true})
	return nil
}

func noTenant(name jobs.Tenant) error {
	return kernel.Refuse(jobs.NotFound, "there is no tenant %q", name)
}

func tenantTarget(name jobs.Tenant) string { return "tenant " + string(name) }

func limitsOf(t *kernel.Tenancy) fields {
	l := &t.Limits
	return fields{"jobs": l.Jobs, "waiting": l.Waiting, "workers": l.Workers, "starts": l.Starts.String(), "bytes": l.Bytes}
}
