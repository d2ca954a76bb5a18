package ops

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// History is the recent activity of a job.
type History struct {
	Live   map[jobs.State]int // unfinished runs, by state
	Hours  []kernel.Tally     // of the last 24 hours, by state, oldest first
	Missed []*kernel.Missed   // due times without a run, newest first
}

// MaxMissed is how many ranges of due times without a run History lists.
const MaxMissed = 20

// History returns the recent activity of a job.
func (o *Ops) History(ctx context.Context, who Who, d *kernel.Definition) (History, error) {
	now := o.Now()
	counts, err := o.store.Counts(ctx, metastore.CountQuery{Tenant: who.tenant(), Job: d.Key, From: now.Truncate(time.Hour).Add(-23 * time.Hour), To: now.Add(time.Hour)})
	if err != nil {
		return History{}, err
	}
	missed, err := o.store.Ledger(ctx, who.tenant(), d.UID, MaxMissed)
	return History{Live: counts.Live, Hours: counts.Hours, Missed: missed}, err
}
