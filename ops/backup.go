package ops

import (
	"context"
	"io"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Backup writes all that the store holds, in the format of package backup. A refusal comes before the first byte; after
// an error the output is incomplete, which readers detect by the checksum at the end.
func (o *Ops) Backup(ctx context.Context, who Who, to io.Writer) error {
	if who.tenant() != jobs.DefaultTenant {
		return kernel.Refuse(jobs.Forbidden, "tenant %s may not take a backup: it contains all tenants", who.tenant())
	}
	if o.backup == nil {
		return kernel.Refuse(jobs.Conflict, "this store cannot be backed up from here: use the tools of its database")
	}
	return o.backup(ctx, to)
}
