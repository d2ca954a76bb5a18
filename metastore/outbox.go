package metastore

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Outbox manages requests for runs that programs wrote in transactions of their own, and that were refused after the
// commit. Only stores in a database have one.
type Outbox interface {
	// Refused lists refused requests of a tenant, the newest request first; limit is 1 to MaxPage, 0 = 50.
	Refused(ctx context.Context, tenant jobs.Tenant, limit int) ([]RefusedRequest, error)
	// RetryRefused has refused requests delivered again, and returns how many of the numbers were those of refused
	// requests of the tenant. The others are ignored, and so are they by DiscardRefused. A request that was refused less
	// than KeepFinal ago is jobs.Conflict, and then none is retried: the same refusal would be repeated.
	RetryRefused(ctx context.Context, tenant jobs.Tenant, numbers []int64) (int, error)
	// DiscardRefused deletes refused requests, and returns how many there were.
	DiscardRefused(ctx context.Context, tenant jobs.Tenant, numbers []int64) (int, error)
}

// RefusedRequest is a request for a run that was refused after its transaction had committed.
type RefusedRequest struct {
	Number int64     // identifies it in the outbox
	At     time.Time // when it was refused, by the database's clock
	Tenant jobs.Tenant
	Actor  string
	Key    jobs.Key
	Run    jobs.ID
	Reason string // why it was refused
	// Unreadable reports that a leader cannot read the request, mostly because a newer program wrote it. It is delivered
	// once a leader can. If this process cannot read it either, its tenant is the default one and the fields from Actor
	// to Run are empty.
	Unreadable bool
}
