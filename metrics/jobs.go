package metrics

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Series of single jobs, for those that the configuration names: by default a million jobs would be a million series.

// Rows reads what the metrics show of a store.
type Rows interface {
	Counts(context.Context, metastore.CountQuery) (metastore.Counts, error)
	Definitions(context.Context, metastore.DefinitionQuery) ([]*kernel.Definition, error)
	Runs(context.Context, metastore.RunQuery) (metastore.Page, error)
}

const (
	// maxJobs is how many jobs have series of their own: the first by tenant and key.
	maxJobs = 200
	// jobsFor is how long their values are cached.
	jobsFor = 15 * time.Second
)

// jobCache is the values of the named jobs.
type jobCache struct {
	mu      sync.Mutex
	at      time.Time
	samples []jobSample
	more    bool // more jobs match than have series
}

// jobSample is the values of a job.
type jobSample struct {
	labels          []string
	live            map[jobs.State]int
	paused          bool
	success, failed time.Time // when a run last ended so; zero = no kept run did
}

// named shows the jobs that the configuration names.
func (c *collector) named(ctx context.Context, s *sink) {
	if len(c.Jobs) == 0 {
		return
	}
	c.jobs.mu.Lock()
	defer c.jobs.mu.Unlock()
	if age := time.Since(c.jobs.at); c.jobs.at.IsZero() || age >= jobsFor || age < 0 {
		samples, more, err := c.sampleJobs(ctx)
		if err != nil {
			c.Logger.Warn("cannot read jobs for the metrics", "err", err)
			return
		}
		if more && !c.jobs.more {
			c.Logger.Warn("more jobs match metrics.jobs than have metrics of their own", "limit", maxJobs)
		}
		c.jobs.samples, c.jobs.more, c.jobs.at = samples, more, time.Now()
	}
	for _, j := range c.jobs.samples {
		for _, state := range kernel.LiveStates() {
			s.gauge("job_runs", "Unfinished runs of a job, by state; up to 15 s old.", float64(j.live[state]), append(slices.Clone(j.labels), "state", word(state.String()))...)
		}
		s.gauge("job_paused", "1 if the job is paused or disabled.", truth(j.paused), j.labels...)
		for _, last := range []struct {
			name, help string
			at         time.Time
		}{{"job_last_success_timestamp_seconds", "When a run of the job last succeeded; missing if no kept run did.", j.success},
			{"job_last_failure_timestamp_seconds", "When a run of the job was last terminated; missing if no kept run was.", j.failed}} {
			if !last.at.IsZero() {
				s.gauge(last.name, last.help, float64(last.at.UnixMilli())/1000, j.labels...)
			}
		}
	}
}

func (c *collector) sampleJobs(ctx context.Context) (samples []jobSample, more bool, err error) {
	list, err := c.namedJobs(ctx)
	if err != nil {
		return nil, false, err
	}
	if more = len(list) > maxJobs; more {
		list = list[:maxJobs]
	}
	now := time.Now()
	for _, d := range list {
		counts, err := c.Rows.Counts(ctx, metastore.CountQuery{Tenant: d.Tenant, Job: d.Key})
		if err != nil {
			return nil, false, err
		}
		sample := jobSample{labels: []string{"tenant", string(d.Tenant), "app", d.App, "key", string(d.Key)}, live: counts.Live,
			paused: d.Policy.Disabled || d.Paused != nil && (d.Paused.Until.IsZero() || now.Before(d.Paused.Until))}
		for state, to := range map[jobs.State]*time.Time{jobs.Succeeded: &sample.success, jobs.Terminated: &sample.failed} {
			page, err := c.Rows.Runs(ctx, metastore.RunQuery{Tenant: d.Tenant, Job: d.Key, State: state, Limit: 1})
			if err != nil {
				return nil, false, err
			}
			if len(page.Runs) > 0 {
				*to = page.Runs[0].Ended
			}
		}
		samples = append(samples, sample)
	}
	return samples, more, nil
}

// namedJobs lists the jobs that match, by tenant and key. All jobs are read only for patterns.
func (c *collector) namedJobs(ctx context.Context) ([]*kernel.Definition, error) {
	q := metastore.DefinitionQuery{Tenant: "*"}
	if !slices.ContainsFunc(c.Jobs, func(pattern string) bool { return strings.ContainsAny(pattern, `*?[`) }) {
		for _, key := range c.Jobs {
			q.Keys = append(q.Keys, jobs.Key(key))
		}
	}
	list, err := c.Rows.Definitions(ctx, q)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(slices.Clone(list), func(d *kernel.Definition) bool {
		return !slices.ContainsFunc(c.Jobs, func(pattern string) bool { return metastore.MatchesKey(pattern, d.Key) })
	})
	slices.SortFunc(list, func(a, b *kernel.Definition) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Key, b.Key))
	})
	return list, nil
}
