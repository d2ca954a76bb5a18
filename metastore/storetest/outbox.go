package storetest

import (
	"context"
	"slices"
	"sync"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Outbox is a metastore.Outbox in memory, for tests of what shows one.
type Outbox struct {
	mu      sync.Mutex
	rows    []metastore.RefusedRequest // oldest first
	retried []int64
	failed  error
}

// NewOutbox returns an outbox with refused requests, which get the numbers from 1.
func NewOutbox(rows ...metastore.RefusedRequest) *Outbox {
	o := &Outbox{rows: rows}
	for i := range rows {
		rows[i].Number = int64(i + 1)
		if rows[i].Tenant == "" {
			rows[i].Tenant = jobs.DefaultTenant
		}
	}
	return o
}

// Fail makes the next calls return an error, the changes after they are done; nil ends that.
func (o *Outbox) Fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed = err
}

// Retried returns the numbers of the requests that were delivered again.
func (o *Outbox) Retried() []int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.retried)
}

// Refused lists refused requests, the newest first.
func (o *Outbox) Refused(_ context.Context, tenant jobs.Tenant, limit int) (list []metastore.RefusedRequest, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if limit == 0 {
		limit = 50
	}
	for _, r := range slices.Backward(o.rows) {
		if r.Tenant == tenant && len(list) < limit && o.failed == nil {
			list = append(list, r)
		}
	}
	return list, o.failed
}

// RetryRefused removes refused requests and notes them.
func (o *Outbox) RetryRefused(_ context.Context, tenant jobs.Tenant, numbers []int64) (int, error) {
	return o.take(tenant, numbers, func(n int64) { o.retried = append(o.retried, n) })
}

// DiscardRefused removes refused requests.
func (o *Outbox) DiscardRefused(_ context.Context, tenant jobs.Tenant, numbers []int64) (int, error) {
	return o.take(tenant, numbers, func(int64) {})
}

func (o *Outbox) take(tenant jobs.Tenant, numbers []int64, fn func(int64)) (n int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rows = slices.DeleteFunc(o.rows, func(r metastore.RefusedRequest) bool {
		if r.Tenant != tenant || !slices.Contains(numbers, r.Number) {
			return false
		}
		n++
		fn(r.Number)
		return true
	})
	return n, o.failed
}
