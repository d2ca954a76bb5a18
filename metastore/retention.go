package metastore

import (
	"context"
	"errors"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Retention defines which finished runs a store keeps. Counts and audits are no part of it.
type Retention struct {
	// Now is the time by which their age is measured.
	Now time.Time
	// Of returns what is kept of a job's runs. It is called once for each job in a pass, and may read the store.
	Of func(jobs.Tenant, jobs.Key) (kernel.Kept, error)
	// Bytes is how much all of them may take on disk, with log lines beside them: beyond, the oldest go of those owners
	// that exceed their shares (Excess); 0 = any number.
	Bytes int64
	// Logs is how long log lines are kept at most; 0 = for ever. Those of a purged run go with it, or a few days
	// later where they are in files with those of others.
	Logs time.Duration
}

// Retained is what a pass did.
type Retained struct {
	Dropped int   // purged runs
	Bytes   int64 // about how much the others take, with log lines beside them
}

// Retainer is a store, or a part of one, that purges by a Retention.
type Retainer interface {
	// Retain purges in small steps, with commits between them. It may be interrupted: the next pass continues.
	// ErrNotWhole is no failure: a later pass does the work.
	Retain(ctx context.Context, r Retention) (Retained, error)
}

// ErrNotWhole is returned when nothing was purged because rows are missing that may define what is kept.
var ErrNotWhole = errors.New("nothing is purged before the rows are complete")

// nothing is after now a time that a tenant's runs are purged up to while the tenant is deleted, those included that a
// store writes later than they ended.
const nothing = 24 * time.Hour

// KeptBy returns what is kept at a time, by the rows of a store.
func KeptBy(ctx context.Context, rows Reader, now time.Time) func(jobs.Tenant, jobs.Key) (kernel.Kept, error) {
	globals := map[jobs.Tenant]*kernel.Global{}
	gone := map[jobs.Tenant]map[jobs.Key]*kernel.Definition{} // read when one is first needed
	return func(t jobs.Tenant, key jobs.Key) (kernel.Kept, error) {
		g := globals[t]
		if g == nil {
			var err error
			if g, err = rows.Global(ctx, t); err != nil {
				return kernel.Kept{}, err
			}
			globals[t] = g
		}
		if g.Tenancy.Deleted.On {
			return kernel.Kept{Since: now.Add(nothing)}, nil
		}
		d, err := rows.Definition(ctx, t, key)
		if errors.Is(err, jobs.NotFound) {
			if gone[t] == nil {
				if gone[t], err = deleted(ctx, rows, t); err != nil {
					return kernel.Kept{}, err
				}
			}
			if d = gone[t][key]; d == nil {
				return g.Kept(now), nil
			}
		} else if err != nil {
			return kernel.Kept{}, err
		}
		return d.Kept(g, now), nil
	}
}

// deleted are the jobs of which only a row for deleted jobs remains.
func deleted(ctx context.Context, rows Reader, t jobs.Tenant) (map[jobs.Key]*kernel.Definition, error) {
	all := map[jobs.Key]*kernel.Definition{}
	return all, EachChange(ctx, rows, 0, func(part []*kernel.Definition) error {
		for _, d := range part {
			if d.Tenant == t && d.Gone() {
				all[d.Key] = d
			}
		}
		return nil
	})
}
