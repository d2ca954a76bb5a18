package kernel

import (
	"strings"
	"time"
	"unicode"

	"github.com/carillon-scheduler/carillon/jobs"
)

// A tenant is a separate set of jobs, runs, settings and tokens. Administrators of the server, who are the admins of
// the default tenant, create tenants, limit and suspend them; a tenant's own admins do the rest. The default tenant
// always exists and has none of this.

// Tenancy is what the server's administrators decide about a tenant. It is part of the tenant's Global, and
// Configure does not change it.
type Tenancy struct {
	Since     time.Time // when it was created; zero = it was not
	By        string
	Title     string // for people
	Limits    TenantLimits
	Suspended Debug // while it is on, no run of the tenant is created or started
	Deleted   Debug // once it is on, the rows of the tenant are deleted, and then the name is free
}

// TenantLimits limits a tenant; 0 = only the server's limits apply.
type TenantLimits struct {
	Jobs    int       // jobs, at most; the tenant's own setting cannot exceed it
	Waiting int       // runs that have not started
	Workers int       // workers that are connected
	Starts  jobs.Rate // attempts that start; runs beyond it wait
	Bytes   int64     // arguments, results and checkpoints of runs that have not ended
}

// The bounds of a tenant's fields.
const (
	MaxTenantTitle = 200 // bytes
	MaxTenants     = 10_000
)

// Exists reports whether a tenant may have jobs, runs and tokens: the default one, and those that were created.
func (g *Global) Exists(tenant jobs.Tenant) bool {
	return tenant == jobs.DefaultTenant || !g.Tenancy.Since.IsZero() && !g.Tenancy.Deleted.On
}

// SetTenant creates a tenant or changes it. Nil fields do not change. Refused as NotFound if the tenant does not exist
// and Create is not set, as Conflict if it exists and another command created it or while its rows are deleted, and as
// Exhausted beyond MaxTenants.
type SetTenant struct {
	Name   jobs.Tenant
	Title  *string
	Limits *TenantLimits
	Create bool
	Zone   string // Create: the default time zone of its jobs; "" = the server's
	First  *Token // Create: the token of its first admin, by which a repeated command is known
}

// SuspendTenant suspends a tenant, or resumes it. While it is suspended its runs wait, new ones are refused, and due
// times become ledger entries. Attempts under way continue. Repeating it changes nothing.
type SuspendTenant struct {
	Name jobs.Tenant
	On   bool
}

// DeleteTenant has the rows of a suspended tenant deleted, by DropTenant. Refused as Conflict if it is not suspended,
// or while attempts are under way: their ends would be lost. Repeating it changes nothing.
type DeleteTenant struct{ Name jobs.Tenant }

// DropTenant deletes rows of a tenant that is being deleted. With Last, nothing else is left, and the name is free. The
// time of deletion stays: what was archived before it is never shown to a new tenant of that name.
type DropTenant struct {
	Name jobs.Tenant
	Refs []Ref
	Last bool
}

// Verb returns the verb of each command.
func (SetTenant) Verb() Verb     { return VerbSetTenant }
func (SuspendTenant) Verb() Verb { return VerbSuspendTenant }
func (DeleteTenant) Verb() Verb  { return VerbDeleteTenant }
func (DropTenant) Verb() Verb    { return VerbDropTenant }

// Inside returns the commands in a tenant that is created.
func (c SetTenant) Inside() (then []Command) {
	if c.Zone != "" {
		then = append(then, Configure{Defaults: &Settings{Zone: &c.Zone}})
	}
	if c.First != nil {
		then = append(then, Grant{*c.First})
	}
	return then
}

// Check validates the name, the title, the limits, and what a tenant begins with.
func (c SetTenant) Check() error {
	if err := checkTenant(c.Name); err != nil {
		return err
	}
	if t := c.Title; t != nil && (len(*t) > MaxTenantTitle || strings.ContainsFunc(*t, unicode.IsControl)) {
		return Invalid("invalid title %.80q of tenant %s: want at most %d bytes without control characters", *t, c.Name, MaxTenantTitle)
	}
	if !c.Create && (c.Zone != "" || c.First != nil) {
		return Invalid("tenant %s: a time zone and a first token are of a tenant that is created", c.Name)
	}
	if c.First != nil && !c.First.Master() {
		return Invalid("tenant %s: the first token must be an admin's that never expires", c.Name)
	}
	for _, then := range c.Inside() {
		if err := then.Check(); err != nil {
			return err
		}
	}
	if c.Limits == nil {
		return nil
	}
	return c.Limits.check()
}

func (l *TenantLimits) check() error {
	for _, n := range []struct {
		what string
		is   int64
	}{{"jobs", int64(l.Jobs)}, {"waiting runs", int64(l.Waiting)}, {"workers", int64(l.Workers)}, {"bytes", l.Bytes}} {
		if n.is < 0 || n.is > 1<<50 {
			return Invalid("invalid limit of %d %s: want 0 (no limit of its own) or more", n.is, n.what)
		}
	}
	return checkRate(l.Starts, "limit of starts")
}

// Check validates the name.
func (c SuspendTenant) Check() error { return checkTenant(c.Name) }

// Check validates the name.
func (c DeleteTenant) Check() error { return checkTenant(c.Name) }

// Check validates the name and the number of rows.
func (c DropTenant) Check() error {
	if len(c.Refs) > MaxTrim {
		return Invalid("%d rows of tenant %s at once, at most %d are deleted", len(c.Refs), c.Name, MaxTrim)
	}
	return checkTenant(c.Name)
}

// checkTenant refuses names that cannot be a tenant's, and the default tenant's: that one is the server's own.
func checkTenant(name jobs.Tenant) error {
	if name == jobs.DefaultTenant {
		return Invalid("tenant %s always exists: it is not created, limited, suspended or deleted", name)
	}
	return CheckName("tenant", string(name))
}

func wireTenancy(c *coder, t *Tenancy) {
	c.time(&t.Since)
	text(c, &t.By)
	text(c, &t.Title)
	wireTenantLimits(c, &t.Limits)
	wireDebug(c, &t.Suspended)
	wireDebug(c, &t.Deleted)
}

func wireTenantLimits(c *coder, l *TenantLimits) {
	signed(c, &l.Jobs)
	signed(c, &l.Waiting)
	signed(c, &l.Workers)
	wireRate(c, &l.Starts)
	signed(c, &l.Bytes)
}

func wireSetTenant(c *coder, k *SetTenant) {
	text(c, &k.Name)
	some(c, &k.Title, text)
	some(c, &k.Limits, wireTenantLimits)
	c.bool(&k.Create)
	text(c, &k.Zone)
	some(c, &k.First, wireToken)
}
