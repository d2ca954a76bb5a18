package kernel

import (
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Clean clears away runs that are over, of one job or of all: those that ended before a time. Each store forgets them
// soon after, as it does with those that are older or more than their job keeps; counts stay. The job may have been
// deleted. Live runs are not concerned, and a time that was cleaned up to is never taken back.
type Clean struct {
	Key    jobs.Key  // "" = of all jobs
	Before time.Time // not later than the commit
}

// Verb of the command.
func (Clean) Verb() Verb { return VerbClean }

// Check says what is wrong with the time, or the key.
func (c Clean) Check() error {
	if c.Before.IsZero() {
		return Invalid("clean says up to when: there is no time given")
	}
	if err := checkTime("time up to which is cleaned", c.Before); err != nil {
		return err
	}
	if c.Key == "" {
		return nil
	}
	return c.Key.Check()
}

// Kept says which runs of a job that are over are kept: none that ended before Since, and of the others those that no
// bound excludes. A bound of 0 excludes none.
type Kept struct {
	Succeeded int // the newest that Succeeded
	Others    int // the newest of those that ended otherwise
	Since     time.Time
	Young     time.Time // what ended since is kept whatever their number; zero = nothing is
}

// KeepYoung is how long a run can be read once it is over, however many of its job there are: whoever waits for it is
// to find it.
const KeepYoung = 10 * time.Minute

// Kept says which runs of the job are kept at a time.
func (d *Definition) Kept(g *Global, at time.Time) Kept {
	p := &d.Policy
	if p.KeepFor == 0 && p.KeepSucceeded == 0 && p.KeepOthers == 0 { // perhaps written before jobs had these settings
		p = new(d.Resolve(g))
	}
	k := p.kept(g, at)
	if d.Cleaned.After(k.Since) {
		k.Since = d.Cleaned
	}
	return k
}

// Kept says which runs of jobs are kept of which nothing is left but those.
func (g *Global) Kept(at time.Time) Kept {
	p := builtin(Triggered)
	g.TriggeredDefaults.lay(&p)
	return p.kept(g, at)
}

func (p *Policy) kept(g *Global, at time.Time) Kept {
	k := Kept{Succeeded: p.KeepSucceeded, Others: p.KeepOthers, Since: g.Cleaned, Young: at.Add(-KeepYoung)}
	if oldest := at.Add(-p.KeepFor); p.KeepFor > 0 && oldest.After(k.Since) {
		k.Since = oldest
	}
	return k
}
