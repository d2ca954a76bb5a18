package client

import (
	"context"
	"encoding/json"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Batch is runs that are enqueued together, of any triggered jobs, and the job that runs once, when all of them have
// ended.
type Batch struct {
	// Name identifies the batch in the tenant, such as "payroll 2026-11": opening it again returns the same batch, for a
	// week after its end. "" = each one is new.
	Name string
	Then jobs.Key // the triggered job that runs at the end
	// Args are its arguments, encoded as JSON; nil = its defaults. A field "batch" is added: a jobs.BatchSummary.
	Args any
}

// InBatch adds a run to a batch, whose end waits for it.
func InBatch(id jobs.ID) jobs.EnqueueOption { return func(r *jobs.Request) { r.Batch = id } }

// EnqueueBatch opens a batch, enqueues runs in it and closes it. After an error the batch stays open: call it again with
// the same Name and the same requests, each with an Idempotency key, or close it. A batch that stays open is closed a day
// after the last run was added.
func (c *Client) EnqueueBatch(ctx context.Context, b Batch, requests ...jobs.Request) (id jobs.ID, runs []jobs.Receipt, err error) {
	if id, err = c.OpenBatch(ctx, b); err != nil {
		return id, nil, err
	}
	in := make([]jobs.Request, len(requests))
	for i, r := range requests {
		in[i], in[i].Batch = r, id
	}
	if runs, err = c.Enqueue(ctx, in...); err != nil {
		return id, runs, err
	}
	return id, runs, c.CloseBatch(ctx, id)
}

// OpenBatch opens a batch, to which runs are then added with InBatch. The error is jobs.NotFound if there is no job
// b.Then, and jobs.Conflict if a batch of this name has another.
func (c *Client) OpenBatch(ctx context.Context, b Batch) (jobs.ID, error) {
	k := kernel.OpenBatch{ID: jobs.NewID(time.Now()), Name: b.Name, Then: b.Then}
	if b.Name != "" {
		k.ID = kernel.BatchID(c.config.Tenant, b.Name)
	}
	if b.Args != nil {
		args, err := json.Marshal(b.Args)
		if err != nil {
			return jobs.ID{}, kernel.Invalid("arguments of the end of a batch: %v", err)
		}
		k.Args = args
	}
	return k.ID, c.one(ctx, k)
}

// CloseBatch closes a batch: once all its runs are final, the run of its end begins. Until then its handlers can add
// more. Closing it again is no error.
func (c *Client) CloseBatch(ctx context.Context, id jobs.ID) error {
	return c.one(ctx, kernel.CloseBatch{ID: id})
}

// Batch returns how far a batch is. The error is jobs.NotFound if there is none, or it ended more than a week ago.
func (c *Client) Batch(ctx context.Context, id jobs.ID) (jobs.BatchSummary, error) {
	if err := c.ready(id); err != nil {
		return jobs.BatchSummary{}, err
	}
	list, err := c.store.Batches(ctx, metastore.BatchQuery{Tenant: c.config.Tenant, ID: id, Limit: 1})
	if err == nil && len(list) == 0 {
		err = kernel.Refuse(jobs.NotFound, "there is no batch %s", id)
	}
	if err != nil {
		return jobs.BatchSummary{}, err
	}
	return list[0].View(), nil
}

// one sends one command.
func (c *Client) one(ctx context.Context, k kernel.Command) error {
	if c.store == nil {
		return jobs.ErrNotRunning
	}
	e := c.envelope(k)
	if err := e.Check(); err != nil {
		return err
	}
	return c.send(ctx, []kernel.Envelope{e})[0].Err
}
