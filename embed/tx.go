package embed

import (
	"context"
	"database/sql"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// EnqueueTx enqueues runs inside a transaction of the scheduler's Database: they exist if tx commits, and only then. tx
// may come from any connection to that database. On PostgreSQL runs start right after the commit, on MariaDB within
// half a second. A job that does not exist is refused as jobs.NotFound; a request that is sent twice under its ID makes
// no second run.
func (s *Scheduler) EnqueueTx(ctx context.Context, tx *sql.Tx, requests ...jobs.Request) error {
	if s.database == nil {
		return kernel.Invalid("embed: EnqueueTx needs Config.Database: the rows of this scheduler are in another store")
	}
	return s.database.EnqueueTx(ctx, tx, s.tenant, "client:client", requests...)
}
