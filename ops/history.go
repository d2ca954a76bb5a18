package ops

import (
	"context"
	"sort"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// History is the recent activity of a job.
type History struct {
	Live   map[jobs.State]int // unfinished runs, by state
	Hours  []kernel.Tally     // of the last 24, oldest first
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
	return History{Live: counts.Live, Hours: metastore.Hours(counts.Tallies), Missed: missed}, err
}

// MaxMissedPage is the most ranges in one answer of Missed.
const MaxMissedPage = 1_000

// Missed lists the ranges of due times of a job that have no run, newest first: those that begin before a time, or all
// if it is zero. more reports that others follow.
func (o *Ops) Missed(ctx context.Context, who Who, key jobs.Key, before time.Time, limit int) (list []*kernel.Missed, more bool, err error) {
	if limit < 1 || limit > MaxMissedPage {
		return nil, false, kernel.Invalid("invalid page size %d: want 1 to %d", limit, MaxMissedPage)
	}
	d, err := o.definition(ctx, who, key)
	if err != nil {
		return nil, false, err
	}
	all, err := o.store.Ledger(ctx, d.Tenant, d.UID, ledgerMost)
	if err != nil {
		return nil, false, err
	}
	if !before.IsZero() {
		all = all[sort.Search(len(all), func(i int) bool { return all[i].From.Before(before) }):]
	}
	return all[:min(limit, len(all))], len(all) > limit, nil
}
