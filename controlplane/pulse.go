package controlplane

import (
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// pulse counts what happens, by tenant and minute, from the effects that this node announces while it leads: every
// commit passes there once. It is memory, not a record: the store's tallies are.
type pulse struct {
	mu      sync.Mutex
	began   time.Time // the first minute that is known whole or in part; zero = none
	term    uint64    // the last term in which it counted
	tenants map[jobs.Tenant]*minutes

	totals totals

	last *minute // the one that was counted in last
	of   jobs.Tenant
}

// Limits of what is remembered. A tenant beyond the last is not counted until another has been silent for as long as
// minutes are kept.
const (
	pulseMinutes = 60
	pulseTenants = 256
)

// minutes are those of a tenant: the minute m of the Unix epoch is at m % pulseMinutes.
type minutes [pulseMinutes]*minute

// minute is what happened in one minute.
type minute struct {
	at      int64 // minutes since the Unix epoch
	counts  Minute
	late    [lateBuckets]uint32
	lateSum uint32 // how many are in late
}

// Minute is what the leader saw in one minute.
type Minute struct {
	At         time.Time // its beginning
	Started    int       // attempts
	Succeeded  int
	Failed     int // attempts: errors, timeouts, losses
	Terminated int
	Cancelled  int
	Skipped    int
	// From due to start, of first attempts. The percentiles are rounded up, by a quarter at most.
	LateP50, LateP99, LateMax time.Duration
}

// A latency goes into buckets that grow with it: linear up to 64 us, then four to each doubling, up to 38 hours.
const (
	lateUnit    = 16 * time.Microsecond
	lateBuckets = 128
)

func lateBucket(d time.Duration) int {
	v := uint64(max(0, d) / lateUnit)
	if v < 4 {
		return int(v)
	}
	e := bits.Len64(v) - 3
	return min(4*e+int(v>>e), lateBuckets-1)
}

// lateBound returns the end of a bucket.
func lateBound(i int) time.Duration {
	if i < 4 {
		return time.Duration(i+1) * lateUnit
	}
	return time.Duration(i%4+5) << (i/4 - 1) * lateUnit
}

// begin starts to count for a term. What was counted before stays if no other node has led in between.
func (p *pulse) begin(term uint64, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.term == 0 || term != p.term+1 {
		p.began, p.tenants, p.last = now, map[jobs.Tenant]*minutes{}, nil
	}
	p.term = term
}

// note counts a step that a run has taken. The lock is held.
func (p *pulse) note(run *kernel.Run, at int64) {
	p.totals.note(run)
	m := p.last
	if m == nil || m.at != at || p.of != run.Tenant {
		if m = p.minute(run.Tenant, at); m == nil {
			return
		}
		p.last, p.of = m, run.Tenant
	}
	m.note(run)
}

// minute returns the current minute of a tenant, or nil if there are too many tenants.
func (p *pulse) minute(tenant jobs.Tenant, at int64) *minute {
	b := p.tenants[tenant]
	if b == nil {
		if p.tenants == nil || len(p.tenants) >= pulseTenants && !p.drop(at) {
			return nil
		}
		b = new(minutes)
		p.tenants[tenant] = b
	}
	m := b[at%pulseMinutes]
	switch {
	case m == nil:
		m = &minute{at: at}
		b[at%pulseMinutes] = m
	case m.at != at:
		*m = minute{at: at}
	}
	return m
}

// drop forgets tenants of which nothing is left to show, and reports whether there were any.
func (p *pulse) drop(at int64) (some bool) {
	for tenant, b := range p.tenants {
		quiet := true
		for _, m := range b {
			quiet = quiet && (m == nil || m.at <= at-pulseMinutes)
		}
		if quiet {
			delete(p.tenants, tenant)
			p.last, some = nil, true
		}
	}
	return some
}

// forget drops what was counted of a tenant: another may have its name. The lock is held.
func (p *pulse) forget(tenant jobs.Tenant) {
	delete(p.tenants, tenant)
	p.last = nil
}

func (m *minute) note(run *kernel.Run) {
	c := &m.counts
	switch run.State {
	case jobs.Processing:
		c.Started++
		if late, first := late(run); first {
			c.LateMax = max(c.LateMax, late)
			m.late[lateBucket(late)]++
			m.lateSum++
		}
	case jobs.Succeeded:
		c.Succeeded++
	case jobs.Failed:
		switch run.Cause {
		case kernel.ByError, kernel.ByTimeout, kernel.ByLoss:
			c.Failed++
		}
	case jobs.Terminated:
		c.Failed++
		c.Terminated++
	case jobs.Cancelled:
		c.Cancelled++
	case jobs.Skipped:
		c.Skipped++
	}
}

// lateAt returns the latency that a part q of the starts did not exceed: the first of them in order that covers that
// many.
func (m *minute) lateAt(q float64) time.Duration {
	left := uint32(max(0, math.Ceil(q*float64(m.lateSum))-1))
	for i, n := range m.late {
		if n > left {
			return min(lateBound(i), m.counts.LateMax)
		}
		left -= n
	}
	return m.counts.LateMax
}

// Pulse returns what this node has seen of a tenant since it began to lead, within the last hour: a Minute for each
// minute, oldest first, the last one under way. Nil if this node does not lead.
func (cp *ControlPlane) Pulse(tenant jobs.Tenant) []Minute {
	if term, _ := cp.Leading(); term == 0 {
		return nil
	}
	now := cp.cfg.Clock.Now().Unix() / 60
	p := &cp.pulse
	p.mu.Lock()
	defer p.mu.Unlock()
	first := max(now-pulseMinutes+1, p.began.Unix()/60)
	if first > now {
		return nil // the clock was set back
	}
	list := make([]Minute, now-first+1)
	b := p.tenants[tenant]
	for i := range list {
		at := first + int64(i)
		if b != nil {
			if m := b[at%pulseMinutes]; m != nil && m.at == at {
				list[i] = m.counts
				list[i].LateP50, list[i].LateP99 = m.lateAt(0.50), m.lateAt(0.99)
			}
		}
		list[i].At = time.Unix(at*60, 0).UTC()
	}
	return list
}

// late returns how long after its due time, or its request, the first attempt of a run started.
func late(run *kernel.Run) (d time.Duration, first bool) {
	n := 0 // numbers of attempts are also spent on those that never began
	for i := range run.Moves {
		if run.Moves[i].State == jobs.Processing {
			n++
		}
	}
	return max(0, run.Started.Sub(run.Wanted())), n <= 1
}

// step reports whether a command made a run take a step that counts; starts count when workers have confirmed them. A command returns first the run that it names,
// then those that got slots by it, and these may only have been skipped. over means that the run's attempt had ended
// before, and that only its handler has returned now.
func step(verb kernel.Verb, first, over bool, run *kernel.Run) bool {
	switch run.State {
	case jobs.Skipped:
		return true
	case jobs.Cancelled:
		replaced := run.Cause == kernel.ByReplaced && (verb == kernel.VerbCreate || verb == kernel.VerbFire || verb == kernel.VerbRelease)
		return first && verb == kernel.VerbCancel || replaced
	case jobs.Succeeded, jobs.Failed, jobs.Terminated:
		return first && !over && (verb == kernel.VerbFinish || verb == kernel.VerbExpire)
	}
	return false
}
