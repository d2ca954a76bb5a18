package metastore

import (
	"context"
	"errors"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Retention says which runs that are over a store keeps. Counts, and what says who changed what, are no part of it.
type Retention struct {
	// Now is the time by which their age is told.
	Now time.Time
	// Of says what is kept of a job's runs. It is asked once for each job in a pass, and may read the store.
	Of func(jobs.Tenant, jobs.Key) (kernel.Kept, error)
	// Bytes is how much all of them may take on disk: beyond, the oldest go; 0 = any number.
	Bytes int64
	// Logs is how long log lines are kept at most; 0 = for ever. Those of a run that is forgotten go with it, or a few
	// days later where they lie in files of days.
	Logs time.Duration
}

// Retained is what a pass did.
type Retained struct {
	Dropped int   // runs that were forgotten
	Bytes   int64 // that the others take, about
}

// Retainer is a store, or a part of one, that forgets what need not be kept.
type Retainer interface {
	// Retain forgets what need not be kept, in small steps between which commits go on. To break it off does no harm:
	// the next pass goes on. ErrNotWhole is no failure: a later pass does it.
	Retain(ctx context.Context, r Retention) (Retained, error)
}

// ErrNotWhole is why nothing was forgotten: rows are missing that may say what is kept.
var ErrNotWhole = errors.New("nothing is forgotten before the rows are complete")

// KeptBy says what is kept at a time, by the rows of a store.
func KeptBy(ctx context.Context, rows Reader, now time.Time) func(jobs.Tenant, jobs.Key) (kernel.Kept, error) {
	globals := map[jobs.Tenant]*kernel.Global{}
	gone := map[jobs.Tenant]map[jobs.Key]*kernel.Definition{} // read once somebody asks for one
	return func(t jobs.Tenant, key jobs.Key) (kernel.Kept, error) {
		g := globals[t]
		if g == nil {
			var err error
			if g, err = rows.Global(ctx, t); err != nil {
				return kernel.Kept{}, err
			}
			globals[t] = g
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

// deleted are the jobs of which only that is left.
func deleted(ctx context.Context, rows Reader, t jobs.Tenant) (map[jobs.Key]*kernel.Definition, error) {
	changed, err := rows.Definitions(ctx, DefinitionQuery{Tenant: t, Since: 1}) // the first change makes a job
	all := map[jobs.Key]*kernel.Definition{}
	for _, d := range changed {
		if d.Gone() {
			all[d.Key] = d
		}
	}
	return all, err
}
