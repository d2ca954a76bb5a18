package metastore

import (
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/sabotage"
)

// fire turns due times into runs and ledger ranges, and moves the cursor with them. Everything that the leader's
// decision rested on is compared here, so a stale decision costs a retry and never a wrong firing.
func (c *change) fire(k jobs.Fire) error {
	if s := stateOf(c.tx); s.Epoch != k.Epoch && !sabotage.Off(sabotage.Epoch) {
		return jobs.Refuse(jobs.Stale, "fire of %s by epoch %d: epoch %d leads", k.Key, k.Epoch, s.Epoch)
	}
	row, err := c.job(k.Key)
	if err != nil {
		return err
	}
	moved, from := !row.Cursor.Before(k.To), row.Cursor.Equal(k.From)
	switch {
	case sabotage.Off(sabotage.CursorCompare):
		moved, from = false, true
	case sabotage.Off(sabotage.Cursor) && row.Cursor.Equal(k.To):
		moved, from = false, true // the second of two commits
	}
	if row.UID == k.Job && moved {
		return c.same(row) // sent twice
	}
	if row.UID != k.Job || row.Revision != k.Revision || !from || c.global().Revision != k.Global {
		return jobs.Refuse(jobs.Stale, "fire of %s: the job has changed since it was decided", k.Key)
	}
	if len(row.Policy.Calendars) > 0 && c.global().Calendars != k.Calendars {
		return jobs.Refuse(jobs.Stale, "fire of %s: a calendar has changed since it was decided", k.Key)
	}
	if row.FixedDelay() && (row.Waits() || len(k.Due) > 1) {
		return jobs.Refuse(jobs.Stale, "fire of %s: its next due time counts from the end of a run that is not over", k.Key)
	}
	if k.To.After(c.at.Add(row.Policy.Early)) && !sabotage.Off(sabotage.NotEarly) {
		return jobs.Refuse(jobs.Conflict, "fire of %s: %v is ahead of %v", k.Key, k.To, c.at)
	}
	if len(k.Due) > 0 && !k.Due[0].After(row.Anchor) {
		return jobs.Refuse(jobs.Conflict, "fire of %s: %v is a due time of an earlier schedule, which was changed at %v", k.Key, k.Due[0], row.Anchor)
	}
	d := *row
	for i := range k.Missed {
		c.miss(&d, k.Missed[i])
	}
	d.Cursor = k.To
	for len(d.Undecided) > 0 && !d.Cursor.Before(d.Undecided[0].Until) {
		d.Undecided = d.Undecided[1:]
	}
	if sabotage.Off(sabotage.Cursor) && !row.Cursor.Equal(k.To) { // the first of two commits
		c.tx.Put(&d)
		c.effect.Definitions = append(c.effect.Definitions, &d)
		return nil
	}
	var runs []*jobs.Instance
	for _, due := range k.Due {
		in := c.fresh(&d, k.Origin)
		in.ID, in.Due, in.Args = jobs.DueID(d.Tenant, d.UID, due, 0, 0), due, d.Policy.Args
		in.Place = placed(&d, nil, in.Args)
		c.gatesOf(&d, in)
		if sabotage.Off(sabotage.DueID) {
			in.ID = jobs.DerivedID(c.env.ID.String(), due.String(), c.at.String())
		}
		if c.instance(in.ID) != nil {
			continue
		}
		runs = append(runs, in)
		if d.FixedDelay() {
			d.Running = in.ID
		}
	}
	c.tx.Put(&d)
	c.effect.Definitions = append(c.effect.Definitions, &d)
	for _, in := range runs {
		if err := c.ring(&d, in); err != nil {
			return err
		}
	}
	return nil
}

// ring begins the run of a due time: at once, or when its jitter says. The start deadline counts from the due time, or
// from a start that lies behind it. One that has passed it already never starts.
func (c *change) ring(d *jobs.Definition, in *jobs.Instance) error {
	start := d.Starts(in.Due)
	if within := d.Policy.StartWithin; within > 0 {
		in.StartBy = in.Due.Add(within)
		if start.After(in.Due) {
			in.StartBy = start.Add(within)
		}
	}
	in.Moves = make([]jobs.Move, 0, 4)
	begun, err := in.BeginAt(c.at, start)
	if err != nil {
		return err
	}
	*in = begun
	switch {
	case in.State == jobs.Scheduled:
		c.store(in, jobs.New)
		return nil
	case !in.StartBy.IsZero() && c.at.After(in.StartBy):
		c.tally(in)
		if *in, err = in.Skip(c.at, jobs.ByDeadline, ""); err != nil {
			return err
		}
		c.store(in, jobs.Enqueued)
		return nil
	}
	c.tally(in)
	return c.enter(in, jobs.Enqueued)
}

// overOf notes in a job that its run is over, if its next due time counts from that: the commit that ends a run decides
// when the next is due, whoever leads.
func (c *change) overOf(in *jobs.Instance) {
	row := c.definition(in.Key)
	if row == nil || row.UID != in.Job || row.Running != in.ID {
		return
	}
	d := *row
	d.Running, d.Ended = jobs.ID{}, c.at
	d.Change = c.number()
	c.tx.Put(&d)
	for i, before := range c.effect.Definitions {
		if before.Ref() == d.Ref() {
			c.effect.Definitions[i] = &d
			return
		}
	}
	c.effect.Definitions = append(c.effect.Definitions, &d)
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
