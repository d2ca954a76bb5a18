package metastore

import (
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Effects of failures beyond a retry: budgets that spread retries, and jobs that pause themselves.

// budgeted reports whether a retry may begin now. It needs room in its job's budget first, then in that of all jobs;
// a full budget assigns it a later turn, so that after an outage retries come one by one, and none is lost. Runs that
// were lost, released or snoozed have no budget: they did not fail by themselves.
func (c *change) budgeted(run *kernel.Run) bool {
	if run.Cause != kernel.ByError && run.Cause != kernel.ByTimeout {
		return true
	}
	for ; run.Budgeted < 2; run.Budgeted++ {
		of, rate := run.Job, jobs.Rate{}
		if run.Budgeted == 0 {
			if d := c.definition(run.Key); d != nil && d.UID == run.Job {
				rate = d.Policy.RetryBudget
			}
		} else {
			of, rate = jobs.ID{}, c.global().Budget()
		}
		if rate.Max == 0 {
			continue
		}
		ref := kernel.GateRef(run.Tenant, kernel.RetryGate(of))
		g := kernel.Gate{Tenant: run.Tenant, Name: ref.Name}
		if row, ok := c.tx.Get(ref).(*kernel.Gate); ok {
			g = *row
		}
		g = *g.Under(jobs.Limit{Rate: rate})
		turn := g.Spend(c.at)
		// Each retry moves the next one's turn, without an end, but stored times end in 2262.
		if most := c.at.Add(kernel.MaxDelay); turn.After(most) {
			turn, g.Opens = most, most
		}
		c.tx.Put(&g)
		if turn.After(c.at) {
			run.RetryAt = turn
			run.Budgeted++
			return false
		}
	}
	return true
}

// inRow counts consecutive runs of a job that failed for good, and pauses the job when they are too many.
func (c *change) inRow(run *kernel.Run) {
	row := c.definition(run.Key)
	if row == nil || row.UID != run.Job || row.Policy.PauseAfter == 0 {
		return
	}
	d := *row
	switch {
	case run.State == jobs.Succeeded && row.Failing > 0:
		d.Failing = 0
		c.tx.Put(&d)
		return
	case run.State != jobs.Terminated:
		return
	}
	if d.Failing++; d.Failing < d.Policy.PauseAfter || d.Holds(c.at) {
		c.tx.Put(&d)
		return
	}
	d.Paused, d.AfterPause = &kernel.Held{Reason: cut(run.Error, 1024), By: kernel.ByItself, At: c.at, Failed: d.Failing, Run: run.ID}, nil
	d.Silenced(row, c.at)
	d.Revision++
	d.Edited, d.Change = c.at, c.number()
	c.tx.Put(&d)
	c.effect.Definitions = append(c.effect.Definitions, &d)
	c.alarmed(kernel.AlarmPaused, finding{d.Key, d.App, d.Paused.Reason, run.ID, 1})
	c.auditBy(kernel.ByItself, kernel.VerbPause.String(), jobTarget(d.Key), nil, pausing(d.Paused))
}

// cut shortens a text to at most n bytes, between characters.
func cut(s string, n int) string {
	for n > 0 && n < len(s) && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:min(n, len(s))]
}

// appLimits lets gates of apps that are in use follow the settings.
func (c *change) appLimits(before, after *kernel.Global) {
	for _, list := range [][]jobs.Limit{before.AppLimits, after.AppLimits} {
		for _, l := range list {
			c.limit(after.Tenant, kernel.AppGate(l.Name), limitOfApp(after, l.Name))
		}
	}
}
