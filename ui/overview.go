package ui

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/ui/chart"
)

// overview is the first page: problems, current activity, next due times.
type overview struct {
	visitor
	ops.Overview
	Urgent     []urgent
	Busy       int // runs that a worker has
	Waiting    int // due, for a slot or a worker
	Retrying   int
	Delayed    int
	Throughput chart.Stack
	Lateness   chart.Band
	Now        chart.Share
	Day, Week  chart.Stack
	Jobs       int    // in all
	Curl       string // triggers the first job, while there is none
	Worker     string // the code of a first worker
	Running    []runRow
	Next       []ops.Job // those that fire next, soonest first
	Failures   []runRow
	Workers    []ops.Worker
}

const (
	homeNext = 10
	homeRuns = 8 // runs in each of the first page's tables
)

func (u *UI) overview(r *http.Request, v visitor) (answer, error) {
	ctx := r.Context()
	p := overview{visitor: v, Workers: u.ops.Workers(ctx, v.Who), Curl: "curl -X POST " + origin(r) + u.base + "/api/v1/jobs/hello/trigger"}
	p.Worker = strings.ReplaceAll(welcomeWorker, defaultBus, u.busAddress(r, "worker.token"))
	var err error
	if p.Overview, err = u.ops.Overview(ctx, v.Who); err != nil {
		return answer{}, err
	}
	p.draw(u.base)
	for _, a := range p.Overview.Attention {
		p.Urgent = append(p.Urgent, urgentOf(a))
	}
	if p.Next, p.Jobs, err = u.ops.Soon(ctx, v.Who, homeNext); err != nil {
		return answer{}, err
	}
	if p.Running, err = u.latest(ctx, v.Who, jobs.Processing); err != nil {
		return answer{}, err
	}
	if p.Failures, err = u.latest(ctx, v.Who, jobs.Terminated); err != nil {
		return answer{}, err
	}
	stats, err := u.ops.Stats(ctx, v.Who, ops.StatsQuery{Days: chartDays})
	if err != nil {
		return answer{}, err
	}
	p.Week = daily(stats.Days)
	return answer{page: "overview", data: p}, nil
}

// urgent is a problem as the page shows it.
type urgent struct {
	ops.Attention
	Tone string // bad or warn
	Word string
	Path string // where to look
}

// urgentOf links a problem to the run, the job, or the list where a user can act on it.
func urgentOf(a ops.Attention) urgent {
	w := urgent{Attention: a, Tone: "bad", Path: "/workers"}
	w.Word = map[ops.AttentionKind]string{ops.NoWorker: "no worker", ops.Unserving: "stopped", ops.Stuck: "stuck", ops.Failing: "failing", ops.GaveUp: "paused automatically", ops.Lost: "worker lost",
		ops.Undelivered: "refused", ops.Clock: "clock", ops.AtLimit: "at a limit", ops.AuditSinks: "audit export", ops.Endless: "long-running",
		ops.Unfired: "missed", ops.Alarmed: "alarm", ops.Trouble: "schedule", ops.Paused: "paused"}[a.Kind]
	if a.Kind == ops.Paused || a.Kind == ops.Unfired {
		w.Tone = "warn"
	}
	switch {
	case a.Kind == ops.Undelivered:
		w.Path = "/outbox"
	case a.Kind == ops.Unserving && a.Job == "":
		w.Path = "/jobs?state=" + string(ops.IsStopped)
	case a.Kind == ops.AtLimit:
		w.Path = "/runs?state=" + jobs.Enqueued.String()
	case a.Target != "":
		w.Path = "/alarms/targets/" + a.Target
	case a.Kind == ops.Alarmed:
		w.Path = "/alarms"
	case !a.Run.IsZero():
		w.Path = "/runs/" + a.Run.String()
	case a.Job != "":
		w.Path = "/jobs/" + string(a.Job)
	}
	return w
}

// latest returns the newest runs in a state.
func (u *UI) latest(ctx context.Context, who ops.Who, state jobs.State) ([]runRow, error) {
	page, err := u.ops.Runs(ctx, who, metastore.RunQuery{State: state, Limit: homeRuns})
	return u.runRows(page.Runs), err
}

// draw renders the charts.
func (p *overview) draw(base string) {
	live := p.Live
	p.Busy, p.Waiting, p.Retrying, p.Delayed = live[jobs.Processing], live[jobs.Enqueued], live[jobs.Failed], live[jobs.Scheduled]
	link := func(s jobs.State) string { return base + "/runs?state=" + s.String() }
	p.Now = chart.Share{Title: "Live runs", Parts: []chart.Part{
		{Name: "running", Class: "processing", N: live[jobs.Processing], Href: link(jobs.Processing)},
		{Name: "waiting for a worker or a slot", Class: "enqueued", N: live[jobs.Enqueued], Href: link(jobs.Enqueued)},
		{Name: "waiting for a retry", Class: "failed", N: live[jobs.Failed], Href: link(jobs.Failed)},
		{Name: "due later", Class: "calm", N: live[jobs.Scheduled], Href: link(jobs.Scheduled)},
	}}
	p.Throughput, p.Lateness = minutes(p.Pulse, p.Overview.Now)
	p.Day = hours(p.Hours, p.Overview.Now)
}

const (
	chartMinutes = 60
	chartHours   = 24
	chartDays    = 7
)

// columns returns n steps of time, the last one with the current time.
func columns(n int, step time.Duration, now time.Time) []time.Time {
	at := make([]time.Time, n)
	for i := range at {
		at[i] = now.UTC().Truncate(step).Add(time.Duration(i+1-n) * step)
	}
	return at
}

// minutes converts the last hour: how many runs ended, and how late they started.
func minutes(pulse []ops.Minute, now time.Time) (chart.Stack, chart.Band) {
	at := columns(chartMinutes, time.Minute, now)
	stack := chart.Stack{Title: "Finished per minute", At: at, Series: []chart.Series{
		{Name: "succeeded", Class: "succeeded"}, {Name: "skipped or cancelled", Class: "skipped"}, {Name: "attempts failed", Class: "failed"}, {Name: "terminated", Class: "terminated"}}}
	for i := range stack.Series {
		stack.Series[i].Values = make([]int64, len(at))
	}
	band := chart.Band{Title: "Delay per minute", At: at, LowName: "median (p50)", HighName: "99th percentile (p99)",
		Low: make([]time.Duration, len(at)), High: make([]time.Duration, len(at)), Known: make([]bool, len(at))}
	for _, m := range pulse {
		i := int(m.At.Sub(at[0]) / time.Minute)
		if m.At.Before(at[0]) || i >= len(at) {
			continue
		}
		// The last failed attempt of a run that is Terminated counts as both.
		for j, n := range []int{m.Succeeded, m.Skipped + m.Cancelled, max(0, m.Failed-m.Terminated), m.Terminated} {
			stack.Series[j].Values[i] = int64(n)
		}
		band.Low[i], band.High[i], band.Known[i] = m.LateP50, m.LateP99, m.LateMax > 0
	}
	return stack, band
}
