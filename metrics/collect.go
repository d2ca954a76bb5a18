package metrics

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// collector reads the counters of the parts. It describes no metric beforehand: each has its name once, where it is
// created.
type collector struct {
	Config

	mu     sync.Mutex
	counts map[jobs.Tenant]map[jobs.State]int
	at     time.Time // of counts
	jobs   jobCache
	apps   appCache
}

// countsFor is how long counts of rows are cached.
const countsFor = 5 * time.Second

// Describe describes nothing.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect reads everything once.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), countsFor)
	defer cancel()
	s := &sink{to}
	s.gauge("build_info", "Always 1; the labels are the versions of the program and of Go.", 1, "version", c.Version, "go", runtime.Version())
	s.gauge("ready", "1 if requests may be sent here: the store answers, and a leader is known.", truth(c.Ready == nil || c.Ready(ctx) == nil))
	term, _ := c.Plane.Leading()
	s.gauge("leader", "1 if this process is the leader.", truth(term > 0))
	s.gauge("leader_term", "The term of this process as the leader, 0 if it is not.", float64(term))

	s.gauge("clock_off_seconds", "How far this process's clock is ahead of the median of three or more nodes; 0 if there are fewer.", c.Plane.ClockOff().Seconds())

	all := c.Plane.Totals()
	c.runs(s, &all)
	c.live(ctx, s, &all)
	c.named(ctx, s)
	commands(s, &all)
	pushes(s, &all)
	c.apps.show(ctx, s, &c.Config)
	if c.Store != nil {
		store(s, c.Store.Stats())
	}
	purged := c.Plane.Purging()
	s.counter("purged_runs_total", "Finished runs that this process has purged.", float64(purged.Total))
	if !purged.Looked.IsZero() {
		s.gauge("purged_timestamp_seconds", "When this process last checked for runs to purge; missing if it has not.", float64(purged.Looked.UnixMilli())/1000)
		s.gauge("kept_bytes", "Approximate bytes of finished runs then.", float64(purged.Bytes))
	}
	if c.Extra != nil {
		c.Extra(func(v Value) {
			if strings.HasSuffix(v.Name, "_total") {
				s.counter(v.Name, v.Help, v.Value)
			} else {
				s.gauge(v.Name, v.Help, v.Value)
			}
		})
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// kinds are the kinds of jobs.
var kinds = []kernel.Kind{kernel.Recurring, kernel.Triggered}

// runs shows the counts of runs.
func (c *collector) runs(s *sink, all *controlplane.Totals) {
	for _, kind := range kinds { // so that the default tenant's exist before any run
		class := controlplane.Class{Tenant: jobs.DefaultTenant, Kind: kind}
		if _, there := all.Runs[class]; !there {
			all.Runs[class] = controlplane.Steps{}
		}
	}
	for class, n := range all.Runs {
		of := []string{"tenant", string(class.Tenant), "kind", class.Kind.String()}
		s.counter("runs_created_total", "Runs that were created.", float64(n.Created), of...)
		s.counter("attempts_started_total", "Attempts that workers started.", float64(n.Started), of...)
		for _, o := range []struct {
			outcome string
			n       uint64
		}{{"succeeded", n.Ended[jobs.Succeeded]}, {"error", n.Error}, {"timeout", n.Timeout}, {"lost", n.Lost}, {"handback", n.Handback}, {"snooze", n.Snooze}} {
			s.counter("attempts_ended_total", "Attempts that ended, by outcome: lost means that the worker's lease expired.", float64(o.n), append(of, "outcome", o.outcome)...)
		}
		for _, state := range kernel.FinalStates() {
			s.counter("runs_ended_total", "Runs that ended, by their final state.", float64(n.Ended[state]), append(of, "state", word(state.String()))...)
		}
	}
	for _, kind := range kinds {
		s.histogram("start_lateness_seconds", "From a run's due time to the start of its first attempt.", all.Late[kind], "kind", kind.String())
		s.histogram("attempt_seconds", "Duration of attempts that ended by themselves, by a timeout or by the loss of their worker.", all.Took[kind], "kind", kind.String())
	}
	s.counter("due_times_fired_total", "Due times of recurring jobs that became runs.", float64(all.Fired))
	for _, why := range []kernel.Reason{kernel.MissedLate, kernel.MissedPaused, kernel.MissedDisabled, kernel.MissedDebug, kernel.MissedSuspended} {
		s.counter("due_times_missed_total", "Due times of recurring jobs that passed without a run, by reason: missed means that the scheduler could not fire them in time.",
			float64(all.Missed[why]), "reason", word(string(why)))
	}
	s.gauge("leases", "Attempts under way, as the leader knows them.", float64(all.Leases))
	s.gauge("stuck_attempts", "Attempts that were asked to stop and whose handler has not returned.", float64(all.Stuck))
}

// live shows the unfinished runs, for the tenants with any activity.
func (c *collector) live(ctx context.Context, s *sink, all *controlplane.Totals) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil || time.Since(c.at) >= countsFor || time.Since(c.at) < 0 {
		counts := map[jobs.Tenant]map[jobs.State]int{}
		for class := range all.Runs {
			if _, known := counts[class.Tenant]; known || class.Tenant == controlplane.OtherTenants {
				continue
			}
			n, err := c.Rows.Counts(ctx, metastore.CountQuery{Tenant: class.Tenant})
			if err != nil {
				c.Logger.Warn("cannot count runs for the metrics", "tenant", class.Tenant, "err", err)
				return
			}
			counts[class.Tenant] = n.Live
		}
		c.counts, c.at = counts, time.Now()
	}
	for tenant, states := range c.counts {
		for _, state := range kernel.LiveStates() {
			s.gauge("runs", "Unfinished runs, by state; a few seconds old.", float64(states[state]), "tenant", string(tenant), "state", word(state.String()))
		}
	}
}

// commands shows the commands to the store.
func commands(s *sink, all *controlplane.Totals) {
	for verb, n := range all.Commands {
		s.counter("commands_total", "Commands that were applied through this process.", float64(n), "verb", verb.String())
	}
	for _, code := range []jobs.Code{jobs.NotFound, jobs.Conflict, jobs.Stale, jobs.BadInput, jobs.Forbidden, jobs.Exhausted, jobs.Unknown, jobs.Unavailable, ""} {
		if _, there := all.Refused[code]; !there {
			all.Refused[code] = 0
		}
	}
	for code, n := range all.Refused {
		s.counter("commands_refused_total", "Commands that were refused, by code. Stale and conflict are normal: a concurrent command was faster.",
			float64(n), "code", cmp.Or(word(string(code)), "internal"))
	}
	for _, bound := range []kernel.Bound{kernel.BoundMemory, kernel.BoundCommitQueue} { // so that their first refusals count for rate()
		s.atLimit(jobs.DefaultTenant, bound, all.AtLimit[jobs.DefaultTenant][bound])
		delete(all.AtLimit[jobs.DefaultTenant], bound)
	}
	for tenant, bounds := range all.AtLimit {
		for bound, n := range bounds {
			s.atLimit(tenant, bound, n)
		}
	}
}

// pushes shows the traffic between the leader and the workers.
func pushes(s *sink, all *controlplane.Totals) {
	s.gauge("attempts_unconfirmed", "Attempts that were sent to workers which have not said yet that they began.", float64(all.Unconfirmed))
	s.counter("attempts_pushed_total", "Attempts that the leader sent to workers.", float64(all.Pushed))
	s.counter("dispatch_repairs_total", "Ready runs that the leader had lost, and its sweep found. It should be 0.", float64(all.Mended))
	s.counter("attempts_repeated_total", "Attempts that the leader sent again, because there was no answer.", float64(all.Repeated))
	s.counter("attempts_refused_total", "Attempts that workers refused: they went to others.", float64(all.Unstarted))
	s.counter("heartbeats_total", "Heartbeats of workers that this process received.", float64(all.Heartbeats))
}

// store shows the counters of a store.
func store(s *sink, st metastore.Stats) {
	s.counter("store_commits_total", "Commits.", float64(st.Commits))
	s.counter("store_commands_total", "Commands in these commits.", float64(st.Commands))
	s.histogram("store_commit_commands", "Commands in a commit.", st.Sizes)
	s.histogram("store_commit_seconds", "Duration of a commit, until it was durable and applied.", st.Seconds)
	if l := st.Log; l != nil {
		s.gauge("store_log_term", "The term of the log's last entry, or of raft.", float64(l.Term))
		s.gauge("store_log_applied_index", "The last entry of the log that is in the rows.", float64(l.Applied))
		s.gauge("store_log_bytes", "Bytes of entries since the last snapshot; 0 on a node that takes none.", float64(l.Bytes))
		if !l.Snapshot.IsZero() {
			s.gauge("store_log_snapshot_timestamp_seconds", "When this process took its last snapshot; missing if it has not.", float64(l.Snapshot.UnixMilli())/1000)
		}
		s.gauge("store_rows_age_seconds", "How old the rows of this process may be; about 0 at the leader.", l.Age.Seconds())
	}
	if u := st.Unwritten; u != nil {
		s.gauge("store_unwritten_runs", "Finished runs that may not be in the database's table yet.", float64(u.Runs))
		s.gauge("store_unwritten_bytes", "Bytes of these runs.", float64(u.Bytes))
	}
	if a := st.Archive; a != nil {
		s.gauge("archive_files", "Files of finished runs.", float64(a.Files))
		s.gauge("archive_bytes", "Bytes of finished runs.", float64(a.Bytes))
	}
}

func (s *sink) atLimit(tenant jobs.Tenant, bound kernel.Bound, n uint64) {
	s.counter("limit_refusals_total", "Requests that were refused at a limit, by the tenant that made them.", float64(n), "tenant", string(tenant), "limit", string(bound))
}

// word converts a short text to a label's value.
func word(text string) string { return strings.ReplaceAll(strings.ToLower(text), " ", "_") }

// sink collects values. Labels are names and values in turn.
type sink struct{ to chan<- prometheus.Metric }

func (s *sink) counter(name, help string, v float64, labels ...string) {
	s.send(prometheus.CounterValue, name, help, v, labels)
}

func (s *sink) gauge(name, help string, v float64, labels ...string) {
	s.send(prometheus.GaugeValue, name, help, v, labels)
}

func (s *sink) send(kind prometheus.ValueType, name, help string, v float64, labels []string) {
	names, values := split(labels)
	s.to <- prometheus.MustNewConstMetric(prometheus.NewDesc(namespace+name, help, names, nil), kind, v, values...)
}

func (s *sink) histogram(name, help string, h metastore.Histogram, labels ...string) {
	names, values := split(labels)
	buckets, n := make(map[float64]uint64, len(h.Bounds)), uint64(0)
	for i, count := range h.Counts {
		n += count
		if i < len(h.Bounds) {
			buckets[h.Bounds[i]] = n
		}
	}
	s.to <- prometheus.MustNewConstHistogram(prometheus.NewDesc(namespace+name, help, names, nil), n, h.Sum, buckets, values...)
}

func split(labels []string) (names, values []string) {
	for pair := range slices.Chunk(labels, 2) {
		names, values = append(names, pair[0]), append(values, strings.ToValidUTF8(pair[1], "?"))
	}
	return names, values
}
