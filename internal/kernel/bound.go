package kernel

import (
	"errors"
	"fmt"

	"github.com/carillon-scheduler/carillon/internal/outcome"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Bound is the limit that a refusal with jobs.Exhausted names. It is a label of metrics: settings have their own name,
// and there are few.
type Bound string

// The bounds, which docs/metrics.md lists. All tenants reach those of a server together: its administrators act on them.
const (
	BoundMemory       Bound = "memory"         // of the leader, for runs and jobs
	BoundCommitQueue  Bound = "commit-queue"   // commands that wait to be committed
	BoundLogEntry     Bound = "log-entry"      // the size of one change
	BoundHTTPWorkers  Bound = "http-workers"   // of a node
	BoundRequestBytes Bound = "request-memory" // of requests to a node
	BoundTenants      Bound = "tenants"

	BoundWaitingRuns    Bound = "waiting-runs"
	BoundWaitingOfToken Bound = "waiting-runs-per-token"
	BoundTenantWaiting  Bound = "tenant-waiting-runs" // a limit that administrators of the server set
	BoundTenantBytes    Bound = "tenant-bytes"
	BoundTenantWorkers  Bound = "tenant-workers"
	BoundJobs           Bound = "jobs"
	BoundJobsOfApp      Bound = "jobs-per-app"
	BoundAppDefaults    Bound = "app-defaults"
	BoundFollowers      Bound = "followers"
	BoundBatches        Bound = "batches"
	BoundCalendars      Bound = "calendars"
	BoundAlarmTargets   Bound = "alarm-targets"
	BoundAlarmRules     Bound = "alarm-rules"
	BoundLedgerExports  Bound = "ledger-exports"
	BoundWorkerName     Bound = "workers-per-name"
	BoundHTTPOfTenant   Bound = "http-workers-per-tenant"
	BoundHTTPOfToken    Bound = "http-workers-per-token"
	BoundRequestOfToken Bound = "request-memory-per-token"
)

// OfServer reports whether all tenants use up a bound together.
func (b Bound) OfServer() bool {
	switch b {
	case BoundMemory, BoundCommitQueue, BoundLogEntry, BoundHTTPWorkers, BoundRequestBytes, BoundTenants:
		return true
	}
	return false
}

// full is a refusal with jobs.Exhausted. The bound stays in the process: who refuses counts.
type full struct {
	*Refusal
	bound Bound
}

func (f full) Unwrap() error { return f.Refusal }

// Exhausted returns a refusal at a bound, with a text that names its value.
func Exhausted(b Bound, format string, args ...any) error {
	return full{&outcome.Refusal[jobs.Code]{Code: jobs.Exhausted, Text: fmt.Sprintf(format, args...)}, b}
}

// BoundReached returns the bound that an error of Exhausted names; "" = it names none.
func BoundReached(err error) Bound {
	f, _ := errors.AsType[full](err)
	return f.bound
}
