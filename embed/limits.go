package embed

import (
	"cmp"

	"github.com/carillon-scheduler/carillon/metastore"
)

// Limits limits the resources that HTTP requests may use in this process. A field that is 0 has its default. Limits per
// tenant and per token apply only where requests are authenticated.
type Limits struct {
	// RequestMemory limits the memory of requests in progress, in bytes, as estimated from their bodies; default 1 GiB.
	// RequestMemoryPerToken limits that of one token's requests; default 512 MiB. At least api.LeastMemory.
	RequestMemory, RequestMemoryPerToken int64
	// HTTPWorkers limits the HTTP workers that this process serves at the same time; default 2,000.
	// HTTPWorkersPerTenant limits those of a tenant, default 1,000, and HTTPWorkersPerToken those of a token, default
	// 500.
	HTTPWorkers, HTTPWorkersPerTenant, HTTPWorkersPerToken int
	// WaitingRuns limits a tenant's backlog, beyond which requests for runs are refused; default 2,000,000.
	// WaitingRunsPerToken limits that of one token; default 1,500,000. All workers of an app count as one token, and
	// all clients of a tenant on the bus. Runs that the scheduler makes by itself are not refused.
	WaitingRuns, WaitingRunsPerToken int
	// JobsPerApp limits the jobs that workers register in an app; default 10,000. People may create more.
	JobsPerApp int
}

func (l Limits) quotas() metastore.Quotas {
	return metastore.Quotas{Waiting: cmp.Or(l.WaitingRuns, 2_000_000), WaitingPerPayer: cmp.Or(l.WaitingRunsPerToken, 1_500_000), JobsPerApp: cmp.Or(l.JobsPerApp, 10_000)}
}

func (l Limits) workers(authenticated bool) (all, tenant, token int) {
	all = cmp.Or(l.HTTPWorkers, 2_000)
	if !authenticated {
		return all, all, all
	}
	return all, cmp.Or(l.HTTPWorkersPerTenant, 1_000), cmp.Or(l.HTTPWorkersPerToken, 500)
}
