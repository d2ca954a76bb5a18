package ops

import (
	"context"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Batches lists batches, the latest first.
func (o *Ops) Batches(ctx context.Context, who Who, limit int) ([]*kernel.Batch, error) {
	if limit < 1 || limit > metastore.MaxPage {
		return nil, kernel.Invalid("invalid number of batches %d: want 1 to %d", limit, metastore.MaxPage)
	}
	return o.store.Batches(ctx, metastore.BatchQuery{Tenant: who.tenant(), Limit: limit})
}

// Batch returns a batch.
func (o *Ops) Batch(ctx context.Context, who Who, id jobs.ID) (*kernel.Batch, error) {
	return batchOf(ctx, o.store, who.tenant(), id)
}

func batchOf(ctx context.Context, from metastore.Reader, t jobs.Tenant, id jobs.ID) (*kernel.Batch, error) {
	list, err := from.Batches(ctx, metastore.BatchQuery{Tenant: t, ID: id, Limit: 1})
	if err == nil && len(list) == 0 {
		err = kernel.Refuse(jobs.NotFound, "there is no batch %s", id)
	}
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// OpenBatch opens a batch and returns it. One with a name may be open already, or have ended.
func (o *Ops) OpenBatch(ctx context.Context, who Who, k kernel.OpenBatch) (*kernel.Batch, error) {
	if k.ID = jobs.NewID(o.now()); k.Name != "" {
		k.ID = kernel.BatchID(who.tenant(), k.Name)
	}
	if _, err := o.apply(ctx, who, k); err != nil {
		return nil, err
	}
	return o.Batch(ctx, who, k.ID)
}

// CloseBatch closes a batch: its run begins once all its runs are final.
func (o *Ops) CloseBatch(ctx context.Context, who Who, id jobs.ID) (*kernel.Batch, error) {
	if _, err := o.apply(ctx, who, kernel.CloseBatch{ID: id}); err != nil {
		return nil, err
	}
	return o.Batch(ctx, who, id)
}
