package ops

import (
	"context"
	"io"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Backup writes all that the store holds, as package backup reads it. It is refused before the first byte, or all is
// well with what was written unless there is an error after it; whoever reads tells that by the checksum at the end.
func (o *Ops) Backup(ctx context.Context, who Who, to io.Writer) error {
	if who.tenant() != jobs.DefaultTenant {
		return kernel.Refuse(jobs.Forbidden, "a backup holds what belongs to all tenants, and is not tenant %s's", who.tenant())
	}
	if o.backup == nil {
		return kernel.Refuse(jobs.Conflict, "the rows of this scheduler cannot be backed up from here")
	}
	return o.backup(ctx, to)
}
