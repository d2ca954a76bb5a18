package ops

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// MaxStatsDays is how many days Stats returns at most: counts are kept at least as long.
const MaxStatsDays = 35

// StatsQuery selects what Stats counts: the runs of a job, of an app's jobs, or of all jobs.
type StatsQuery struct {
	Job  jobs.Key // "" = not of one
	App  string   // without Job; "" = of all apps
	Days int      // by day: today and the days before, up to MaxStatsDays in all
}

// Stats is how many runs finished.
type Stats struct {
	Days    []StatsPeriod  // UTC, oldest first; the last one is incomplete
	Periods []StatsPeriod  // the last 24 hours, 7 and 30 days, each with the incomplete one
	Hours   []kernel.Tally // of these days within the last two, oldest first
}

// StatsPeriod is a time of Stats.
type StatsPeriod struct {
	Name string    // 24h, 7d, 30d; "" for a day
	From time.Time // its start
	kernel.Sums
}

// Finished returns how many runs finished.
func (p *StatsPeriod) Finished() (n int64) {
	for _, state := range kernel.States() {
		if state.Final() {
			n += p.Runs[state]
		}
	}
	return n
}

// Mean returns how long the last attempts of the runs that succeeded took on average; 0 if there were none.
func (p *StatsPeriod) Mean() time.Duration {
	n := p.Runs[jobs.Succeeded]
	if n == 0 {
		return 0
	}
	return p.Took / time.Duration(n)
}

// Stats returns how many runs finished. Runs that were purged count, and runs of deleted jobs count for their app.
func (o *Ops) Stats(ctx context.Context, who Who, q StatsQuery) (Stats, error) {
	if q.Days < 1 || q.Days > MaxStatsDays {
		return Stats{}, kernel.Invalid("invalid number of days %d: want 1 to %d", q.Days, MaxStatsDays)
	}
	if q.Job != "" {
		if _, err := o.definition(ctx, who, q.Job); err != nil {
			return Stats{}, err
		}
	}
	const day = 24 * time.Hour
	now := o.Now()
	to := now.Truncate(day).Add(day)
	s := Stats{Days: make([]StatsPeriod, q.Days), Periods: []StatsPeriod{
		{Name: "24h", From: now.Truncate(time.Hour).Add(-23 * time.Hour)}, {Name: "7d", From: to.Add(-7 * day)}, {Name: "30d", From: to.Add(-30 * day)}}}
	for i := range s.Days {
		s.Days[i].From = to.Add(time.Duration(i-q.Days) * day)
	}
	first := s.Days[0].From
	counts, err := o.store.Counts(ctx, metastore.CountQuery{Tenant: who.tenant(), Job: q.Job, App: q.App, From: to.Add(-time.Duration(max(q.Days, 30)) * day), To: to})
	if err != nil {
		return Stats{}, err
	}
	for _, t := range counts.Tallies {
		if !t.Start().Before(first) {
			s.Days[t.Start().Sub(first)/day].Add(t.Sums)
			if t.Span == kernel.Hour {
				s.Hours = append(s.Hours, t)
			}
		}
		for i := range s.Periods {
			if !t.Start().Before(s.Periods[i].From) {
				s.Periods[i].Add(t.Sums)
			}
		}
	}
	return s, nil
}
