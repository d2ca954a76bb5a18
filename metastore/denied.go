package metastore

import (
	"bytes"
	"cmp"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// denied writes an audit for each refused request. A repeated command is recognized by its audits: their times have
// nanoseconds.
func (c *change) denied(k kernel.Denied) error {
	for _, d := range k.List {
		a := kernel.Audit{Actor: cmp.Or(d.Actor, kernel.UnknownActor), Verb: k.Verb().String(), Target: d.Target, From: d.From}
		after := fields{"why": d.Why}
		if d.Times > 1 {
			after["times"], after["first"] = d.Times, d.First
		}
		after["last"] = d.Last
		a.After = after.json()
		if c.hasLately(&a) {
			c.effect.Existing = true
			continue
		}
		c.append(&a)
	}
	return nil
}

// hasLately reports whether one of the newest audits says the same.
func (c *change) hasLately(is *kernel.Audit) bool {
	g := c.global()
	for n := g.Audits; n > 0 && g.Audits-n < kernel.MaxDenials; n-- {
		a, _ := c.tx.Get(kernel.AuditRef(c.env.Tenant, n)).(*kernel.Audit)
		if a != nil && a.Verb == is.Verb && a.Actor == is.Actor && a.Target == is.Target && a.From == is.From && bytes.Equal(a.After, is.After) {
			return true
		}
	}
	return false
}
