package kernel

import (
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Purge purges finished runs, of one job or of all: those that ended before a time. Each store deletes them soon after,
// like runs beyond the retention of their job; counts stay. The job may have been deleted. Live runs are not affected,
// and a later Purge cannot move the time back.
type Purge struct {
	Key    jobs.Key  // "" = of all jobs
	Before time.Time // not later than the commit
}

// Verb returns the verb of the command.
func (Purge) Verb() Verb { return VerbPurge }

// Check validates the time, or the key.
func (c Purge) Check() error {
	if c.Before.IsZero() {
		return Invalid("purge needs a time: set before")
	}
	if err := checkTime("time of a purge", c.Before); err != nil {
		return err
	}
	if c.Key == "" {
		return nil
	}
	return c.Key.Check()
}

// Kept is the retention of a job's finished runs: none that ended before Since, and the others within the limits. A
// limit of 0 means none.
type Kept struct {
	Succeeded int // the newest that Succeeded
	Others    int // the newest in other final states
	Since     time.Time
	Young     time.Time // runs that ended since are kept whatever their number; zero = none
	App       string    // that owns them; "" = no row knows it
}

// KeepYoung is how long a finished run is kept at least, whatever the number of runs, so that clients waiting for it
// find it.
const KeepYoung = 10 * time.Minute

// Kept returns the retention of the job's runs at a time.
func (d *Definition) Kept(g *Global, at time.Time) Kept {
	p := &d.Policy
	if p.KeepFor == 0 && p.KeepSucceeded == 0 && p.KeepOthers == 0 { // perhaps written before jobs had these settings
		p = new(d.Resolve(g))
	}
	k := p.kept(g, at)
	k.App = d.App
	if d.Purged.After(k.Since) {
		k.Since = d.Purged
	}
	return k
}

// Kept returns the retention of runs whose jobs have no definition any more.
func (g *Global) Kept(at time.Time) Kept {
	p := g.defaults(Triggered, "")
	return p.kept(g, at)
}

func (p *Policy) kept(g *Global, at time.Time) Kept {
	k := Kept{Succeeded: p.KeepSucceeded, Others: p.KeepOthers, Since: g.Purged, Young: at.Add(-KeepYoung)}
	if oldest := at.Add(-p.KeepFor); p.KeepFor > 0 && oldest.After(k.Since) {
		k.Since = oldest
	}
	return k
}
