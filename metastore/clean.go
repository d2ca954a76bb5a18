package metastore

import (
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// clean stores up to when finished runs are purged. The runs themselves are no rows: the archive purges by this row
// (see Retention).
func (c *change) clean(k kernel.Clean) error {
	before := k.Before
	if before.After(c.at) {
		before = c.at
	}
	if k.Key == "" {
		g := *c.global()
		g.Tenant = c.env.Tenant
		if !before.After(g.Cleaned) {
			c.effect.Global, c.effect.Existing = &g, true
			return nil
		}
		was := g.Cleaned
		g.Cleaned = before
		c.tx.Put(&g)
		c.effect.Global = &g
		c.audit("runs of all jobs", cleanedTo(was), cleanedTo(before))
		return nil
	}
	row := c.row(k.Key)
	if row == nil {
		return kernel.Refuse(jobs.NotFound, "there is no job %q, and no deleted one", k.Key)
	}
	if !before.After(row.Cleaned) {
		return c.same(row)
	}
	d := *row
	d.Cleaned = before
	c.tx.Put(&d)
	c.effect.Definitions = append(c.effect.Definitions, &d)
	c.audit("runs of "+string(k.Key), cleanedTo(row.Cleaned), cleanedTo(before))
	return nil
}

func cleanedTo(t time.Time) fields {
	if t.IsZero() {
		return nil
	}
	return fields{"endedBefore": stamp(t)}
}
