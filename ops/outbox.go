package ops

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Requests for runs that programs wrote in transactions of their own, and that were refused after the commit: the
// program cannot get that error any more, so a person decides.

const (
	// mostNumbers is how many refused requests one change may name.
	mostNumbers = 1_000
	maxReason   = 1_024 // bytes
	// lookedRefused is how many refused requests the overview counts, and refusedWithin how long it waits for them.
	lookedRefused = 100
	refusedWithin = 2 * time.Second
)

// RefusedRequests lists requests from transactions that were refused, the newest first; limit is 1 to
// metastore.MaxPage, 0 = 50. A store without an outbox has none.
func (o *Ops) RefusedRequests(ctx context.Context, who Who, limit int) ([]metastore.RefusedRequest, error) {
	if o.outbox == nil {
		return nil, nil
	}
	return o.outbox.Refused(ctx, who.tenant(), limit)
}

// RetryRefused has refused requests delivered again, and returns how many there were. Requests that are not refused any
// more are ignored, unless all are.
func (o *Ops) RetryRefused(ctx context.Context, who Who, numbers []int64) (int, error) {
	return o.changeRefused(ctx, who, numbers, "retry", metastore.Outbox.RetryRefused)
}

// DiscardRefused deletes refused requests, and returns how many there were. Requests that are not refused any more are
// ignored, unless all are.
func (o *Ops) DiscardRefused(ctx context.Context, who Who, numbers []int64) (int, error) {
	return o.changeRefused(ctx, who, numbers, "discard", metastore.Outbox.DiscardRefused)
}

// changeRefused logs each change. The audit is part of the commits of commands, and the outbox is beside the commands.
func (o *Ops) changeRefused(ctx context.Context, who Who, numbers []int64, does string, change func(metastore.Outbox, context.Context, jobs.Tenant, []int64) (int, error)) (int, error) {
	switch {
	case o.outbox == nil:
		return 0, kernel.Refuse(jobs.Conflict, "this scheduler takes no requests from transactions: its rows are not in a database")
	case who.unlimited() != nil:
		return 0, who.unlimited()
	case len(numbers) == 0:
		return 0, kernel.Invalid("no refused requests are selected: give their numbers")
	case len(who.Reason) > maxReason:
		return 0, kernel.Invalid("reason has %d bytes, at most %d are allowed", len(who.Reason), maxReason)
	case len(numbers) > mostNumbers:
		return 0, kernel.Invalid("%d refused requests are selected: at most %d can be changed at once", len(numbers), mostNumbers)
	}
	n, err := change(o.outbox, ctx, who.tenant(), numbers)
	switch {
	case err == nil && n == 0:
		return 0, kernel.Refuse(jobs.NotFound, "there is no refused request with these numbers: they were retried or discarded meanwhile, or never refused")
	case err == nil:
		o.log.InfoContext(ctx, "refused requests from transactions are changed", "does", does, "tenant", who.tenant(), "actor", who.Actor, "reason", who.Reason, "count", n, "row", numbers)
	case jobs.CodeOf(err) == jobs.Unknown:
		o.log.WarnContext(ctx, "it is unknown whether refused requests from transactions are changed", "does", does, "tenant", who.tenant(), "actor", who.Actor, "reason", who.Reason, "row", numbers, "err", err)
	}
	return n, err
}

// refused reports requests from transactions that were refused. The overview does not depend on them: the outbox is
// not part of the store.
func (l *look) refused() {
	ctx, cancel := context.WithTimeout(l.ctx, refusedWithin)
	defer cancel()
	list, err := l.o.RefusedRequests(ctx, l.who, lookedRefused+1)
	n := len(list)
	if err != nil || n == 0 {
		return
	}
	what := count(n, "request") + " from transactions"
	switch {
	case n == 1:
		what = "1 request from a transaction was"
	case n > lookedRefused:
		n = lookedRefused
		what = "More than " + count(n, "request") + " from transactions were"
	default:
		what += " were"
	}
	l.add(Attention{Kind: Undelivered, N: n, Since: list[n-1].At}, "%s refused after the commit.", what)
}

// discardAll deletes all refused requests of a tenant: the next one of its name must not see or retry them.
func (o *Ops) discardAll(ctx context.Context, tenant jobs.Tenant) error {
	for o.outbox != nil {
		list, err := o.outbox.Refused(ctx, tenant, metastore.MaxPage)
		if err != nil || len(list) == 0 {
			return err
		}
		numbers := make([]int64, len(list))
		for i, r := range list {
			numbers[i] = r.Number
		}
		if n, err := o.outbox.DiscardRefused(ctx, tenant, numbers); err != nil || n == 0 {
			return err
		}
	}
	return nil
}
