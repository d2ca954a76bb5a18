package embed

import (
	"cmp"
	"context"
	"database/sql"
	"errors"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/outbox"
)

// EnqueueTx enqueues runs inside a transaction of the scheduler's Database: they exist if tx commits, and only then. tx
// may come from any connection to that database. Runs start some 20 to 100 ms after the commit. A job that does not
// exist is refused as jobs.NotFound; a request that is sent twice under its ID makes no second run. Programs without a
// Scheduler use package outbox.
func (s *Scheduler) EnqueueTx(ctx context.Context, tx *sql.Tx, requests ...jobs.Request) error {
	return s.enqueueIn(ctx, requests, func(box outbox.Outbox) error { return box.Enqueue(ctx, tx, requests...) })
}

// EnqueuePgx is [Scheduler.EnqueueTx] for a transaction of pgx, of any version of it.
func EnqueuePgx[T any, R outbox.PgxRows](ctx context.Context, s *Scheduler, tx outbox.PgxTx[T, R], requests ...jobs.Request) error {
	return s.enqueueIn(ctx, requests, func(box outbox.Outbox) error { return outbox.EnqueuePgx(ctx, box, tx, requests...) })
}

func (s *Scheduler) enqueueIn(ctx context.Context, requests []jobs.Request, enqueue func(outbox.Outbox) error) error {
	if s.database == nil {
		return kernel.Invalid("embed: EnqueueTx needs Config.Database: the rows of this scheduler are in another store")
	}
	box := s.database.Outbox(cmp.Or(s.tenant, jobs.DefaultTenant), "client:client")
	err := enqueue(box)
	if !errors.Is(err, jobs.NotFound) {
		return err
	}
	// The table of jobs may lack one that has just been created.
	for _, r := range requests {
		if _, err := s.store.Definition(ctx, box.Tenant, r.Key); err != nil {
			return err
		}
	}
	box.Unchecked = true
	return enqueue(box)
}
