package assign

import (
	"time"

	"github.com/carillon-scheduler/carillon/internal/dispatch"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A tenant may be suspended, and its starts may be limited. Its runs wait in the store, and those of others do not
// notice: a tenant that may start nothing is passed over.

// rule is what holds for a tenant. The rate is a bucket of tokens: opens is when the next one is there, and encodes how
// full it is (the generic cell rate algorithm). A new leader begins with a full one.
type rule struct {
	suspended bool
	most      int // tokens of a full bucket; 0 = no limit
	step      time.Duration
	opens     dispatch.Stamp
}

// longAgo is when the first token of a full bucket was there.
const longAgo = dispatch.Stamp(-1 << 62)

// Rule follows what the server's administrators decide about a tenant.
func (b *Board) Rule(tenant jobs.Tenant, t *kernel.Tenancy) {
	r := rule{suspended: t.Suspended.On, most: t.Limits.Starts.Max, opens: longAgo}
	if r.most > 0 {
		r.step = max(1, t.Limits.Starts.Per/time.Duration(r.most))
	}
	switch old := b.rules[tenant]; {
	case !r.suspended && r.most == 0:
		delete(b.rules, tenant)
		return
	case old != nil && old.most == r.most && old.step == r.step:
		r.opens = old.opens
	}
	b.rules[tenant] = &r
}

// room returns how many attempts of a tenant may start now, at most most.
func (b *Board) room(tenant jobs.Tenant, most int, now dispatch.Stamp) int {
	r := b.rules[tenant]
	switch {
	case r == nil:
		return most
	case r.suspended:
		return 0
	case r.most == 0:
		return most
	}
	if full := now - time.Duration(r.most-1)*r.step; r.opens < full {
		r.opens = full
	}
	if r.opens > now {
		return 0
	}
	return min(most, 1+int((now-r.opens)/r.step))
}

// spend counts a start, for which there was room.
func (b *Board) spend(tenant jobs.Tenant) {
	if r := b.rules[tenant]; r != nil {
		r.opens += r.step
	}
}

// Opens returns how long to wait until a tenant whose runs wait for its rate may start the next; 0 = none waits.
func (b *Board) Opens(now dispatch.Stamp) (wait time.Duration) {
	for _, t := range b.turns {
		r := b.rules[t.name]
		if r == nil || r.suspended || r.most == 0 || r.opens <= now || !t.waits() {
			continue
		}
		if w := r.opens - now; wait == 0 || w < wait {
			wait = w
		}
	}
	return wait
}

// waits reports whether a tenant has runs that could start.
func (t *tenant) waits() bool {
	for _, a := range t.apps {
		if len(a.active) > 0 {
			return true
		}
	}
	return false
}
