package ops

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Overview is the current activity, and the problems that need attention.
type Overview struct {
	Now       time.Time
	Leader    Leader
	Shares    []Share      // nodes that fire a share of the jobs each; none if the leader fires all
	Recurring kernel.Debug // debug mode of recurring jobs
	Triggered kernel.Debug // and of triggered ones
	Workers   int
	Live      map[jobs.State]int // unfinished runs, by state
	Failed    int                // runs that failed for good within the last hour, up to metastore.MaxPage
	Hours     []kernel.Tally     // of the last 24, oldest first
	Pulse     []Minute           // of the last hour, as the leader saw it, oldest first
	Attention []Attention        // problems that need attention, most urgent first
}

// Overview reads everything once.
func (o *Ops) Overview(ctx context.Context, who Who) (Overview, error) {
	now := o.Now()
	global, err := o.store.Global(ctx, who.tenant())
	if err != nil {
		return Overview{}, err
	}
	counts, err := o.store.Counts(ctx, metastore.CountQuery{Tenant: who.tenant(), From: now.Truncate(time.Hour).Add(-23 * time.Hour), To: now.Add(time.Hour)})
	if err != nil {
		return Overview{}, err
	}
	failed, err := o.FilterRuns(ctx, who, FailedLately)
	if err != nil {
		return Overview{}, err
	}
	attention, err := o.seen.look(who.tenant(), func() ([]Attention, error) { return o.attention(ctx, who, global, counts.Live) })
	if err != nil {
		return Overview{}, err
	}
	return Overview{
		Pulse: o.live.Pulse(who.tenant()), Attention: attention,
		Now: now, Leader: o.live.Leader(), Shares: o.shares(who), Recurring: global.RecurringDebug, Triggered: global.TriggeredDebug,
		Workers: len(o.live.Workers(who.tenant())), Live: counts.Live, Failed: len(failed.Runs), Hours: metastore.Hours(counts.Tallies),
	}, nil
}

// FailedLately selects the runs that Overview.Failed counts.
var FailedLately = RunFilter{RunQuery: metastore.RunQuery{State: jobs.Terminated, Limit: metastore.MaxPage}, Within: time.Hour}
