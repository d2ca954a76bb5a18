package metastore

import (
	"slices"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// backfill makes runs of due times that have been decided: the cursor stays, and only the ledger changes. What a
// person requests runs even if the job is paused, and ignores its start deadline, which counts from a time in the
// past.
func (c *change) backfill(k kernel.Backfill) error {
	d, err := c.job(k.Key)
	if err != nil {
		return err
	}
	switch {
	case d.UID != k.Job:
		return kernel.Refuse(jobs.Stale, "backfill of %s: the job has been deleted, and another one is under its key", k.Key)
	case d.Kind != kernel.Recurring:
		return kernel.Refuse(jobs.Conflict, "job %s is triggered: it has no due times", k.Key)
	case d.FixedDelay():
		return kernel.Refuse(jobs.Conflict, "job %s is due after the end of its last run: it has no missed due times", k.Key)
	case d.Policy.Schedule == "":
		return kernel.Refuse(jobs.Conflict, "job %s has no schedule, and so no due times", k.Key)
	case d.Policy.Disabled:
		return kernel.Refuse(jobs.Conflict, "job %s is disabled: a run of it would only be skipped; enable it first", k.Key)
	}
	gate, replayed := kernel.BackfillGate(k.ID, k.Parallel), 0
	var runs, there []*kernel.Run
	for _, due := range k.Due {
		if due.At.After(d.Cursor) {
			return kernel.Refuse(jobs.Conflict, "backfill of %s: due time %s is still undecided: try again later", k.Key, stamp(due.At))
		}
		run := c.fresh(d, kernel.FromBackfill)
		run.ID, run.Parent, run.Due, run.Args = k.Run(d.Tenant, due), k.ID, due.At, d.Policy.Args
		if row := c.live(run.ID); row != nil {
			if row.Parent == k.ID {
				there = append(there, row)
			}
			continue
		}
		run.Place = placed(d, nil, run.Args)
		run.Terms.Overlap = jobs.OverlapQueue
		if k.Priority != nil {
			run.Priority = *k.Priority
		}
		c.gatesOf(d, run)
		run.Gates = append(run.Gates, gate)
		slices.Sort(run.Gates)
		runs = append(runs, run)
		if due.Replay {
			replayed++
		}
	}
	if len(runs) == 0 {
		c.effect.Existing, c.effect.Runs = true, there
		return nil
	}
	if err := c.suspended(); err != nil {
		return err
	}
	for _, m := range k.Take {
		row, _ := c.tx.Get(kernel.MissedRef(d.Tenant, d.UID, m.From)).(*kernel.Missed)
		if row == nil || !row.To.Equal(m.To) || row.Count != m.Count || row.Reason != m.Reason {
			return kernel.Refuse(jobs.Stale, "backfill of %s: the ledger from %s has changed: read it and try again", k.Key, stamp(m.From))
		}
	}
	for _, m := range k.Take {
		c.tx.Delete(kernel.MissedRef(d.Tenant, d.UID, m.From))
	}
	for _, m := range k.Give {
		m.Tenant, m.Job, m.Key = d.Tenant, d.UID, d.Key
		c.tx.Put(&m)
		c.effect.Missed = append(c.effect.Missed, &m)
	}
	// The next due time extends what is left.
	if n := len(k.Take); n > 0 && len(k.Give) > 0 && k.Take[n-1].From.Equal(d.Missed) {
		now := *d
		now.Missed = k.Give[len(k.Give)-1].From
		c.tx.Put(&now)
	}
	for _, run := range runs {
		c.executes(d, run)
		if err := c.begin(run, "", run.Due); err != nil {
			return err
		}
	}
	is := fields{"id": k.ID.String(), "runs": len(runs), "from": runs[0].Due, "to": runs[len(runs)-1].Due, "parallel": k.Parallel}
	if replayed > 0 {
		is["replayed"] = replayed
	}
	c.audit(jobTarget(k.Key), nil, is)
	return nil
}
