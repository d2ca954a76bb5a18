package metastore

import (
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// purge stores up to when finished runs are purged. The runs themselves are no rows: the archive purges by this row
// (see Retention).
func (c *change) purge(k kernel.Purge) error {
	before := k.Before
	if before.After(c.at) {
		before = c.at
	}
	if k.Key == "" {
		g := *c.global()
		g.Tenant = c.env.Tenant
		if !before.After(g.Purged) {
			c.effect.Global, c.effect.Existing = &g, true
			return nil
		}
		was := g.Purged
		g.Purged = before
		c.tx.Put(&g)
		c.effect.Global = &g
		c.audit("runs of all jobs", purgedTo(was), purgedTo(before))
		return nil
	}
	row := c.row(k.Key)
	if row == nil {
		return kernel.Refuse(jobs.NotFound, "there is no job %q, and no deleted one", k.Key)
	}
	if !before.After(row.Purged) {
		return c.same(row)
	}
	d := *row
	d.Purged = before
	c.tx.Put(&d)
	c.effect.Definitions = append(c.effect.Definitions, &d)
	c.audit("runs of "+string(k.Key), purgedTo(row.Purged), purgedTo(before))
	return nil
}

func purgedTo(t time.Time) fields {
	if t.IsZero() {
		return nil
	}
	return fields{"endedBefore": stamp(t)}
}
