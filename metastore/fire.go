package metastore

import (
	"fmt"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/sabotage"
	"github.com/carillon-scheduler/carillon/jobs"
)

// fire turns due times into runs and ledger ranges, and moves the cursor with them. Everything that the leader's
// decision depended on is compared here, so a stale decision costs a retry and never a wrong firing.
func (c *change) fire(k kernel.Fire) error {
	if s := stateOf(c.tx); s.Term != k.Term && !sabotage.Off(sabotage.StaleTerm) {
		return kernel.Refuse(jobs.Stale, "fire of %s by term %d: term %d is current", k.Key, k.Term, s.Term)
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
		return kernel.Refuse(jobs.Stale, "fire of %s: the job has changed since it was decided", k.Key)
	}
	if len(row.Policy.Calendars) > 0 && c.global().Calendars != k.Calendars {
		return kernel.Refuse(jobs.Stale, "fire of %s: a calendar has changed since it was decided", k.Key)
	}
	if row.FixedDelay() && (row.Waits() && len(k.Due) > 0 || len(k.Due) > 1) {
		return kernel.Refuse(jobs.Stale, "fire of %s: its next due time counts from the end of a run that has not ended", k.Key)
	}
	if k.To.After(c.at.Add(row.Policy.Early)) && !sabotage.Off(sabotage.NotEarly) {
		return kernel.Refuse(jobs.Conflict, "fire of %s: %v is ahead of %v", k.Key, k.To, c.at)
	}
	if n := len(k.Due); n > 0 && k.Due[n-1].After(c.at) && row.Idle(c.global(), c.at) {
		return kernel.Refuse(jobs.Conflict, "fire of %s: %v is ahead of %v, and nothing of the job begins now", k.Key, k.Due[n-1], c.at)
	}
	if len(k.Due) > 0 && !k.Due[0].After(row.SetAt) {
		return kernel.Refuse(jobs.Conflict, "fire of %s: %v is a due time of an earlier schedule, which was changed at %v", k.Key, k.Due[0], row.SetAt)
	}
	d := *row
	due := k.Due
	for _, m := range k.Missed {
		for len(due) > 0 && due[0].Before(m.From) {
			d.Cursor, due = due[0], due[1:]
		}
		c.miss(&d, m)
	}
	d.Cursor = k.To
	d.Decided()
	if sabotage.Off(sabotage.Cursor) && !row.Cursor.Equal(k.To) { // the first of two commits
		c.tx.Put(&d)
		c.effect.Definitions = append(c.effect.Definitions, &d)
		return nil
	}
	var misfires, onTime []*kernel.Run
	for i, due := range k.Due {
		origin := kernel.FromCron
		if i < k.Late {
			origin = kernel.FromMisfire
		}
		run := c.fresh(&d, origin)
		run.ID, run.Due, run.Args = kernel.DueID(d.Tenant, d.UID, due, 0, 0), due, d.Policy.Args
		run.Place = placed(&d, nil, run.Args)
		c.gatesOf(&d, run)
		if sabotage.Off(sabotage.DueID) {
			run.ID = kernel.DerivedID(c.env.ID.String(), due.String(), c.at.String())
		}
		if c.live(run.ID) != nil {
			continue
		}
		if !kernel.NoWork(d.Policy.HTTP) {
			d.Executions++
			run.Execution = d.Executions
		}
		if i < k.Late {
			misfires = append(misfires, run)
		} else {
			onTime = append(onTime, run)
		}
		if d.FixedDelay() {
			d.Running = run.ID
		}
	}
	c.tx.Put(&d)
	c.effect.Definitions = append(c.effect.Definitions, &d)
	return c.ringAll(&d, misfires, onTime)
}

// ringAll begins the runs of one decision: those on time first, so that misfires take no slot from them. Only where a
// newer run replaces older ones, the order of due times decides. Several came together because the scheduler was late:
// once the first has its slots, the others queue for them instead of being skipped for it.
func (c *change) ringAll(d *kernel.Definition, misfires, onTime []*kernel.Run) error {
	c.misfires = len(misfires) > 0
	for _, run := range onTime {
		run.Late = len(onTime) > 1
	}
	all := append(onTime, misfires...)
	if d.Policy.Overlap == jobs.OverlapReplace {
		all = append(misfires, onTime...)
	}
	together := false
	for _, run := range all {
		if together && run.Terms.Overlap != jobs.OverlapReplace {
			run.Terms.Overlap = jobs.OverlapQueue
		}
		if err := c.ring(d, run); err != nil {
			return err
		}
		together = together || run.Holds
	}
	return nil
}

// ring begins the run of a due time: at once, or when its jitter ends, unless something holds it. The start deadline
// counts from the due time, or from a later start. A run that is past its deadline never starts.
func (c *change) ring(d *kernel.Definition, run *kernel.Run) error {
	start := d.Starts(run.Due)
	if within := d.Policy.StartWithin; within > 0 {
		run.StartBy = run.Due.Add(within)
		if start.After(run.Due) {
			run.StartBy = start.Add(within)
		}
	}
	run.Moves = make([]kernel.Move, 0, 4)
	why, until := c.held(run, d)
	begun, err := run.BeginAt(c.at, start, why, until)
	if err != nil {
		return err
	}
	*run = begun
	switch {
	case run.State == jobs.Scheduled:
		c.store(run, kernel.New)
		return nil
	case !run.StartBy.IsZero() && c.at.After(run.StartBy):
		c.tally(run)
		if *run, err = run.Skip(c.at, kernel.ByDeadline, ""); err != nil {
			return err
		}
		c.store(run, jobs.Enqueued)
		return nil
	}
	c.tally(run)
	return c.enter(run, jobs.Enqueued)
}

// overOf notes in a job that its run ended, if its next due time counts from that: the commit that ends a run decides
// when the next is due, whichever node leads.
func (c *change) overOf(run *kernel.Run) {
	row := c.definition(run.Key)
	if row == nil || row.UID != run.Job || row.Running != run.ID {
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
func (c *change) miss(d *kernel.Definition, m kernel.Missed) {
	m.Tenant, m.Job, m.Key = d.Tenant, d.UID, d.Key
	missed := m.Count
	if !d.Missed.IsZero() {
		last, _ := c.tx.Get(kernel.MissedRef(d.Tenant, d.UID, d.Missed)).(*kernel.Missed)
		if last != nil && last.Reason == m.Reason && last.To.Equal(d.Cursor) {
			m.From, m.Count = last.From, m.Count+last.Count
		}
	}
	if m.Reason == kernel.MissedLate {
		c.alarmed(kernel.AlarmMissed, finding{job: d.Key, app: d.App, n: missed, text: fmt.Sprintf("the last one at %s", stamp(m.To))})
	}
	d.Missed, d.Cursor = m.From, m.To
	c.tx.Put(&m)
	c.effect.Missed = append(c.effect.Missed, &m)
}
