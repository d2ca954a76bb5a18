package embed

import (
	"cmp"

	"github.com/carillon-scheduler/carillon/metastore"
)

// Limits bounds what requests over HTTP may take of this process. A field that is 0 has its default. Those for a tenant
// and for a token hold only where requests are authenticated.
type Limits struct {
	// RequestMemory is how many bytes of memory requests in process may take, as estimated from their bodies; default
	// 1 GiB. RequestMemoryPerToken is that of the requests of one token; default 512 MiB. At least api.LeastMemory.
	RequestMemory, RequestMemoryPerToken int64
	// HTTPWorkers is how many HTTP workers this process serves at the same time; default 2,000. HTTPWorkersPerTenant is how
	// many of them one tenant may have, default 1,000, and HTTPWorkersPerToken how many one token, default 500.
	HTTPWorkers, HTTPWorkersPerTenant, HTTPWorkersPerToken int
	// WaitingRuns is how many runs of a tenant may wait before requests for more are refused; default 2,000,000.
	// WaitingRunsPerToken is how many of them may be of one token; default 1,500,000. All workers of an app count as one
	// token, and all clients of a tenant on the bus. Runs that the scheduler makes by itself are not refused.
	WaitingRuns, WaitingRunsPerToken int
	// JobsPerApp is how many jobs workers may register in an app; default 10,000. People make jobs beyond that.
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
