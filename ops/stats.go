package ops

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// MaxStatsDays is how many days Stats returns at most: hourly counts are kept at least as long.
const MaxStatsDays = 35

// Stats is how many runs finished, by day.
type Stats struct {
	Days  []StatsDay     // UTC, oldest first; the last one is incomplete
	Hours []kernel.Tally // of the final states, oldest first
}

// StatsDay is a day of Stats.
type StatsDay struct {
	Day  time.Time // its start
	Runs map[jobs.State]int64
}

// Stats returns how many runs of a job finished, in today and the days before it; "" = of all jobs. Runs that were
// purged count.
func (o *Ops) Stats(ctx context.Context, who Who, key jobs.Key, days int) (Stats, error) {
	if days < 1 || days > MaxStatsDays {
		return Stats{}, kernel.Invalid("invalid number of days %d: want 1 to %d", days, MaxStatsDays)
	}
	if key != "" {
		if _, err := o.definition(ctx, who, key); err != nil {
			return Stats{}, err
		}
	}
	to := o.Now().Truncate(24 * time.Hour).Add(24 * time.Hour)
	from := to.Add(-time.Duration(days) * 24 * time.Hour)
	counts, err := o.store.Counts(ctx, metastore.CountQuery{Tenant: who.tenant(), Job: key, From: from, To: to})
	if err != nil {
		return Stats{}, err
	}
	s := Stats{Days: make([]StatsDay, days)}
	for i := range s.Days {
		s.Days[i] = StatsDay{Day: from.Add(time.Duration(i) * 24 * time.Hour), Runs: map[jobs.State]int64{}}
	}
	for _, t := range counts.Hours {
		if t.State.Final() {
			s.Hours = append(s.Hours, t)
			s.Days[time.Unix(0, t.Hour).Sub(from)/(24*time.Hour)].Runs[t.State] += t.N
		}
	}
	return s, nil
}
