package metastore

import (
	"github.com/carillon-scheduler/carillon/jobs"
)

// fire turns due times into runs and ledger ranges, and moves the cursor with them. Everything that the leader's
// decision rested on is compared here, so a stale decision costs a retry and never a wrong firing.
func (c *change) fire(k jobs.Fire) error {
	if s := stateOf(c.tx); s.Epoch != k.Epoch {
		return jobs.Refuse(jobs.Stale, "fire of %s by epoch %d: epoch %d leads", k.Key, k.Epoch, s.Epoch)
	}
	row, err := c.job(k.Key)
	if err != nil {
		return err
	}
	if row.UID == k.Job && !row.Cursor.Before(k.To) {
		return c.same(row) // sent twice
	}
	if row.UID != k.Job || row.Revision != k.Revision || !row.Cursor.Equal(k.From) || c.global().Revision != k.Global {
		return jobs.Refuse(jobs.Stale, "fire of %s: the job has changed since it was decided", k.Key)
	}
	if k.To.After(c.at) {
		return jobs.Refuse(jobs.Conflict, "fire of %s: %v is ahead of %v", k.Key, k.To, c.at)
	}
	d := *row
	for i := range k.Missed {
		c.miss(&d, k.Missed[i])
	}
	d.Cursor = k.To
	c.tx.Put(&d)
	c.effect.Definitions = append(c.effect.Definitions, &d)
	for _, due := range k.Due {
		in := c.fresh(&d, k.Origin)
		in.ID, in.Due, in.Args = jobs.DueID(d.Tenant, d.UID, due, 0, 0), due, d.Policy.Args
		if d.Policy.StartWithin > 0 {
			in.StartBy = due.Add(d.Policy.StartWithin)
		}
		if c.instance(in.ID) != nil {
			continue
		}
		if err := c.begin(in, false); err != nil {
			return err
		}
	}
	return nil
}

// miss writes a range to the ledger. One that follows right after the last, for the same reason, extends it.
func (c *change) miss(d *jobs.Definition, m jobs.Missed) {
	m.Tenant, m.Job, m.Key = d.Tenant, d.UID, d.Key
	if !d.Missed.IsZero() {
		last, _ := c.tx.Get(jobs.MissedRef(d.Tenant, d.UID, d.Missed)).(*jobs.Missed)
		if last != nil && last.Reason == m.Reason && last.To.Equal(d.Cursor) {
			m.From, m.Count = last.From, m.Count+last.Count
		}
	}
	d.Missed, d.Cursor = m.From, m.To
	c.tx.Put(&m)
	c.effect.Missed = append(c.effect.Missed, &m)
}
