package controlplane

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// refusals counts the requests that this process refuses at a bound (kernel.Exhausted), so that others than their
// senders learn of it.
type refusals struct {
	mu sync.Mutex
	of map[jobs.Tenant]map[kernel.Bound]*refused // OtherTenants has those of tenants beyond the first MaxTenants
}

// refused is what a bound refused to a tenant: in all, and in its last episode.
type refused struct {
	total       uint64
	n           int
	first, last time.Time
	why         string
}

// Refusals are the requests of a tenant that a bound refused in one episode, without a break of episode.Quiet.
type Refusals struct {
	Bound       kernel.Bound
	N           int
	First, Last time.Time
	Why         string // the last refusal's text
}

// refusalsShown is how long after its end an episode is still listed.
const refusalsShown = 10 * time.Minute

// Refused records a request that was refused before it came to the store, if that was at a bound.
func (cp *ControlPlane) Refused(tenant jobs.Tenant, err error) {
	bound := kernel.BoundReached(err)
	if bound == "" {
		return
	}
	tenant = cmp.Or(tenant, jobs.DefaultTenant)
	cp.refusals.note(tenant, bound, err, cp.cfg.Clock.Now())
	cp.episodes.Failed(slog.LevelWarn, string(bound)+" "+string(tenant), "requests are refused at a limit",
		"limit", bound, "tenant", tenant, "err", err)
}

// RefusedCommand is Refused for a command, which counts among the refused ones, too.
func (cp *ControlPlane) RefusedCommand(tenant jobs.Tenant, err error) {
	cp.pulse.mu.Lock()
	cp.pulse.totals.refused[jobs.CodeOf(err)]++
	cp.pulse.mu.Unlock()
	cp.Refused(tenant, err)
}

func (r *refusals) note(tenant jobs.Tenant, bound kernel.Bound, err error, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[jobs.Tenant]map[kernel.Bound]*refused{}
	}
	if r.of[tenant] == nil {
		if len(r.of) >= MaxTenants {
			tenant = OtherTenants
		}
		if r.of[tenant] == nil {
			r.of[tenant] = map[kernel.Bound]*refused{}
		}
	}
	is := r.of[tenant][bound]
	if is == nil {
		is = new(refused)
		r.of[tenant][bound] = is
	}
	if now.Sub(is.last) >= episode.Quiet {
		is.n, is.first = 0, now
	}
	is.total++
	is.n++
	is.last, is.why = now, err.Error()
}

// forget drops what a deleted tenant would show its successor. Counters stay.
func (r *refusals) forget(tenant jobs.Tenant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, is := range r.of[tenant] {
		is.last = time.Time{}
	}
}

// totals returns how many requests were refused, by tenant and bound.
func (r *refusals) totals() map[jobs.Tenant]map[kernel.Bound]uint64 {
	all := map[jobs.Tenant]map[kernel.Bound]uint64{}
	r.mu.Lock()
	defer r.mu.Unlock()
	for tenant, bounds := range r.of {
		all[tenant] = map[kernel.Bound]uint64{}
		for bound, is := range bounds {
			all[tenant][bound] = is.total
		}
	}
	return all
}

// Refusals lists the episodes of a tenant that are not long over, by bound. The default tenant's administrators are the
// server's: theirs include what bounds of the server refused to other tenants.
func (cp *ControlPlane) Refusals(tenant jobs.Tenant) []Refusals {
	tenant = cmp.Or(tenant, jobs.DefaultTenant)
	now, all := cp.cfg.Clock.Now(), map[kernel.Bound]Refusals{}
	r := &cp.refusals
	r.mu.Lock()
	defer r.mu.Unlock()
	for of, bounds := range r.of {
		for bound, is := range bounds {
			theirs := of == tenant || tenant == jobs.DefaultTenant && bound.OfServer()
			if theirs && now.Sub(is.last) < refusalsShown {
				all[bound] = all[bound].with(bound, is)
			}
		}
	}
	var list []Refusals
	for _, bound := range all {
		list = append(list, bound)
	}
	slices.SortFunc(list, func(a, b Refusals) int { return cmp.Compare(a.Bound, b.Bound) })
	return list
}

// with adds the episode of another tenant.
func (r Refusals) with(bound kernel.Bound, is *refused) Refusals {
	if r.N == 0 || is.first.Before(r.First) {
		r.First = is.first
	}
	if is.last.After(r.Last) || r.N == 0 {
		r.Last, r.Why = is.last, is.why
	}
	r.Bound, r.N = bound, r.N+is.n
	return r
}
