package controlplane

import (
	"maps"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Totals are the counts of this process since it started, for monitoring. Runs are counted while it leads, commands
// always.
type Totals struct {
	Runs map[Class]Steps
	Late map[kernel.Kind]metastore.Histogram // seconds from due to start, of first attempts
	Took map[kernel.Kind]metastore.Histogram // seconds from an attempt's start to its end

	Fired      uint64                   // due times that became runs
	Missed     map[kernel.Reason]uint64 // due times that did not
	Commands   map[kernel.Verb]uint64   // that were applied
	Refused    map[jobs.Code]uint64     // refused ones, by code; "" = an internal error
	Heartbeats uint64

	AtLimit map[jobs.Tenant]map[kernel.Bound]uint64 // requests that a bound refused

	Pushed    uint64 // attempts sent to workers
	Repeated  uint64 // attempts sent again, because there was no answer
	Mended    uint64 // ready runs that the leader had lost, and the sweep found
	Unstarted uint64 // attempts that workers refused

	// As of now.
	Leases      int // attempts under way
	Unconfirmed int // of these, those whose workers have not said that they began
	Stuck       int // of these, those that were stopped and do not end
}

// Class is the key that runs are counted by. It has no job: there may be a million of them.
type Class struct {
	Tenant jobs.Tenant // OtherTenants for those beyond the first MaxTenants
	Kind   kernel.Kind
}

// The number of tenants that are counted apart, and the name for the others. No tenant can have that name.
const (
	MaxTenants   = 50
	OtherTenants = jobs.Tenant("(other)")
)

// Steps counts what has happened to runs of a class.
type Steps struct {
	Created, Started uint64
	// How attempts ended, those that succeeded aside.
	Error, Timeout, Lost, Handback, Snooze uint64
	// Ended counts runs by their final states.
	Ended [kernel.StateCount]uint64
}

// totals keeps Totals. It is guarded by the lock of pulse.
type totals struct {
	runs       map[Class]*Steps
	late, took [kernel.Triggered + 1]metastore.Histogram
	fired      uint64
	missed     map[kernel.Reason]uint64
	commands   [256]uint64
	refused    map[jobs.Code]uint64

	last *Steps // the class that was counted in last
	of   Class
}

func (t *totals) init() {
	t.runs, t.missed, t.refused = map[Class]*Steps{}, map[kernel.Reason]uint64{}, map[jobs.Code]uint64{}
	for k := range t.late {
		t.late[k] = metastore.NewHistogram(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
		t.took[k] = metastore.NewHistogram(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800, 3600, 21600)
	}
}

// class returns the counts for the runs of a tenant and a kind.
func (t *totals) class(tenant jobs.Tenant, kind kernel.Kind) *Steps {
	of := Class{tenant, kind}
	if t.last != nil && t.of == of {
		return t.last
	}
	key := of
	s := t.runs[key]
	if s == nil {
		if len(t.runs) >= 2*MaxTenants {
			key.Tenant = OtherTenants
			s = t.runs[key]
		}
		if s == nil {
			s = new(Steps)
			t.runs[key] = s
		}
	}
	t.last, t.of = s, of
	return s
}

// command counts a command and its effects besides moving runs.
func (t *totals) command(c kernel.Command, r *metastore.Result) {
	if r.Err != nil {
		t.refused[jobs.CodeOf(r.Err)]++
		return
	}
	t.commands[c.Verb()]++
	if r.Existing {
		return
	}
	switch c := c.(type) {
	case kernel.Create, kernel.Notify:
		if run := r.Run(); run != nil {
			t.class(run.Tenant, run.Kind).Created++
		}
	case kernel.Fire:
		for _, run := range r.Runs {
			t.class(run.Tenant, run.Kind).Created++
			t.fired++
		}
		for _, m := range c.Missed {
			t.missed[m.Reason] += m.Count
		}
	}
}

// note counts a step that a run has taken.
func (t *totals) note(run *kernel.Run) {
	s := t.class(run.Tenant, run.Kind)
	if run.State.Final() {
		s.Ended[run.State]++
	}
	switch run.State {
	case jobs.Processing:
		s.Started++
		if d, first := late(run); first {
			t.late[min(run.Kind, kernel.Triggered)].Observe(d.Seconds())
		}
		return
	case jobs.Succeeded:
	case jobs.Failed, jobs.Terminated:
		switch run.Cause {
		case kernel.ByTimeout:
			s.Timeout++
		case kernel.ByLoss, kernel.ByPoison:
			s.Lost++
		case kernel.ByHandback:
			s.Handback++
		case kernel.BySnooze:
			s.Snooze++
		default:
			s.Error++
		}
	default: // no attempt ended by itself
		return
	}
	t.took[min(run.Kind, kernel.Triggered)].Observe(took(run).Seconds())
}

// took returns how long the attempt took that has just ended.
func took(run *kernel.Run) time.Duration {
	if n := len(run.Moves); n > 0 {
		return max(0, run.Moves[n-1].At.Sub(run.Started))
	}
	return 0
}

// Totals returns the counts of this process so far.
func (cp *ControlPlane) Totals() Totals {
	all := Totals{Runs: map[Class]Steps{}, Late: map[kernel.Kind]metastore.Histogram{}, Took: map[kernel.Kind]metastore.Histogram{},
		Commands: map[kernel.Verb]uint64{}, Heartbeats: cp.heartbeats.Load(), AtLimit: cp.refusals.totals()}
	p := &cp.pulse
	p.mu.Lock()
	t := &p.totals
	for class, s := range t.runs {
		all.Runs[class] = *s
	}
	for _, kind := range []kernel.Kind{kernel.Recurring, kernel.Triggered} {
		all.Late[kind], all.Took[kind] = t.late[kind].Copy(), t.took[kind].Copy()
	}
	for verb, n := range t.commands {
		if n > 0 {
			all.Commands[kernel.Verb(verb)] = n
		}
	}
	all.Fired, all.Missed, all.Refused = t.fired, maps.Clone(t.missed), maps.Clone(t.refused)
	p.mu.Unlock()

	b := &cp.board
	b.mu.Lock()
	defer b.mu.Unlock()
	all.Pushed, all.Unstarted, all.Repeated, all.Mended = b.pushed, b.refused, b.repeated, b.mended
	for k := range b.attempts {
		all.Leases++
		if k.run != nil {
			all.Unconfirmed++
		}
		if k.stuck {
			all.Stuck++
		}
	}
	return all
}
