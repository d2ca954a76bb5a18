package metastore

import (
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// openBatch opens a batch.
func (c *change) openBatch(k kernel.OpenBatch) error {
	if b := c.batch(k.ID); b != nil {
		if b.Then != k.Then || b.Name != k.Name {
			return kernel.Refuse(jobs.Conflict, "batch %s exists, and its end runs %s: choose another ID or name", k.ID, b.Then)
		}
		c.effect.Existing = true
		return nil
	}
	if err := c.suspended(); err != nil {
		return err
	}
	if _, err := c.afterBatch(k.Then); err != nil {
		return err
	}
	if n := c.global().Batches; n >= kernel.OpenBatches.Most {
		return kernel.Exhausted(kernel.BoundBatches, "the tenant has %d batches: one is deleted %v after its end", n, kernel.KeepBatch)
	}
	c.count(func(g *kernel.Global) { g.Batches++ })
	b := kernel.Batch{Tenant: c.env.Tenant, ID: k.ID, Name: k.Name, Then: k.Then, Args: k.Args, Actor: c.env.Actor, Opened: c.at}
	c.keepBatch(&b, c.at.Add(kernel.BatchOpen))
	if c.byPerson() {
		c.audit(batchTarget(&b), nil, fields{"then": b.Then})
	}
	return nil
}

// afterBatch is the job that runs at the end of a batch.
func (c *change) afterBatch(key jobs.Key) (*kernel.Definition, error) {
	d, err := c.job(key)
	if err == nil && d.Kind != kernel.Triggered {
		err = kernel.Refuse(jobs.Conflict, "job %s is recurring: only a triggered job can run at the end of a batch", key)
	}
	return d, err
}

func (c *change) batch(id jobs.ID) *kernel.Batch {
	b, _ := c.tx.Get(kernel.BatchRef(c.env.Tenant, id)).(*kernel.Batch)
	return b
}

// keepBatch puts a batch with a time until which it stays as it is.
func (c *change) keepBatch(b *kernel.Batch, until time.Time) {
	b.Until = until
	c.tx.Put(&kernel.UniqueKey{Tenant: b.Tenant, Name: b.TimerName(), Until: until})
	c.tx.Put(b)
}

// batchOf is the batch to which a run can be added, or nil. While runs of a closed one are not final, they may add
// others.
func (c *change) batchOf(id jobs.ID) (*kernel.Batch, error) {
	if id.IsZero() {
		return nil, nil
	}
	switch b := c.batch(id); {
	case b == nil:
		return nil, kernel.Refuse(jobs.NotFound, "there is no batch %s: open it first", id)
	case !b.Ended.IsZero():
		return nil, kernel.Refuse(jobs.Conflict, "batch %s has ended: open another one", id)
	default:
		return b, nil
	}
}

// addTo counts a run that begins for its batch, or for nil.
func (c *change) addTo(row *kernel.Batch) {
	if row == nil {
		return
	}
	b := *row
	b.Total++
	if until := c.at.Add(kernel.BatchOpen); b.Closed.IsZero() && until.Sub(b.Until) > kernel.BatchOpen/24 {
		c.keepBatch(&b, until)
	} else {
		c.tx.Put(&b)
	}
}

func (c *change) closeBatch(k kernel.CloseBatch) error {
	row := c.batch(k.ID)
	switch {
	case row == nil:
		return kernel.Refuse(jobs.NotFound, "there is no batch %s", k.ID)
	case !row.Closed.IsZero():
		c.effect.Existing = true
		return nil
	}
	b := *row
	if c.byPerson() {
		c.audit(batchTarget(&b), nil, fields{"runs": b.Total})
	}
	return c.shut(&b)
}

func batchTarget(b *kernel.Batch) string {
	if b.Name == "" {
		return "batch " + b.ID.String()
	}
	return "batch " + b.Name
}

// shut closes a batch, and ends it if all its runs are final.
func (c *change) shut(b *kernel.Batch) error {
	b.Closed = c.at
	if b.Live() == 0 {
		return c.endBatch(b)
	}
	c.tx.Delete(kernel.UniqueRef(b.Tenant, b.TimerName()))
	b.Until = time.Time{}
	c.tx.Put(b)
	return nil
}

// inBatch counts a final run for its batch.
func (c *change) inBatch(run *kernel.Run) error {
	row := c.batch(run.Batch)
	if row == nil || !row.Ended.IsZero() {
		return nil
	}
	b := *row
	b.Count(run)
	if b.Live() == 0 && !b.Closed.IsZero() {
		return c.endBatch(&b)
	}
	c.tx.Put(&b)
	return nil
}

// endBatch begins the run of a batch's end.
func (c *change) endBatch(b *kernel.Batch) error {
	b.Ended = c.at
	if d, err := c.afterBatch(b.Then); err == nil {
		b.Run = b.RunID()
		args := b.Args
		b.Args = nil // they are in the run
		c.keepBatch(b, c.at.Add(kernel.KeepBatch))
		return c.atEnd(b, d, args)
	}
	c.keepBatch(b, c.at.Add(kernel.KeepBatch)) // the job is gone, and no run begins
	return nil
}

func (c *change) atEnd(b *kernel.Batch, d *kernel.Definition, args []byte) error {
	run := c.fresh(d, kernel.FromCode)
	run.ID, run.Due, run.Actor = b.RunID(), c.at, b.Actor
	if run.Args = d.Policy.Args; args != nil {
		run.Args = args
	}
	c.gatesOf(d, run)
	run.Args = kernel.WithBatch(run.Args, b)
	return c.enterNew(run, d)
}

// expireBatch closes a batch that its program left open, or deletes one that ended long ago.
func (c *change) expireBatch(ref kernel.Ref) error {
	row, _ := c.tx.Get(ref).(*kernel.Batch)
	if row == nil {
		return nil
	}
	if row.Ended.IsZero() {
		b := *row
		b.Late = true
		return c.shut(&b)
	}
	c.tx.Delete(ref)
	c.count(func(g *kernel.Global) { g.Batches-- })
	return nil
}
