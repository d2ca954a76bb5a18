package metastore

import (
	"context"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Planning checks changes of jobs before they are sent, in their order, each with those before it.
type Planning struct {
	policies  map[jobs.Key]*kernel.Policy
	followers map[jobs.Key][]jobs.Key
}

// NewPlanning reads the jobs of a tenant.
func NewPlanning(ctx context.Context, r Reader, tenant jobs.Tenant) (*Planning, error) {
	p := &Planning{policies: map[jobs.Key]*kernel.Policy{}, followers: map[jobs.Key][]jobs.Key{}}
	return p, EachDefinition(ctx, r, tenant, func(part []*kernel.Definition) error {
		for _, d := range part {
			p.put(d.Key, &d.Policy)
		}
		return nil
	})
}

// Add plans a new or edited job, unless the store would refuse it.
func (p *Planning) Add(d *kernel.Definition) error {
	if err := checkPolicy(d, &d.Policy, p); err != nil {
		return err
	}
	p.put(d.Key, &d.Policy)
	return nil
}

// put keeps a policy. A Planning without the jobs of a store checks each job by itself.
func (p *Planning) put(key jobs.Key, policy *kernel.Policy) {
	if before := p.policies[key]; before != nil {
		for _, of := range before.AfterKeys() {
			p.followers[of] = slices.DeleteFunc(p.followers[of], func(k jobs.Key) bool { return k == key })
		}
	}
	if p.policies == nil {
		return
	}
	p.policies[key] = policy
	for _, of := range policy.AfterKeys() {
		p.followers[of] = append(p.followers[of], key)
	}
}

func (p *Planning) policyOf(key jobs.Key) *kernel.Policy { return p.policies[key] }
func (p *Planning) followersOf(key jobs.Key) []jobs.Key  { return p.followers[key] }
