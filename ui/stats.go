package ui

import (
	"net/http"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/ui/chart"
)

// statsPage is how the runs of a job, of an app, or of all jobs finished.
type statsPage struct {
	visitor
	Job     jobs.Key
	App     string
	Apps    []string
	Periods []periodRow
	Day     chart.Stack
	Month   chart.Stack
}

// periodRow is a row of the table.
type periodRow struct {
	Name                                                    string
	Runs, Succeeded, Terminated, Cancelled, Skipped, Failed int
	Mean                                                    time.Duration // 0 = unknown
}

// monthDays is how many days the longer chart has.
const monthDays = 30

func (u *UI) stats(r *http.Request, v visitor) (answer, error) {
	ctx := r.Context()
	p := statsPage{visitor: v, Job: jobs.Key(r.FormValue("job")), App: r.FormValue("app")}
	s, err := u.ops.Stats(ctx, v.Who, ops.StatsQuery{Job: p.Job, App: p.App, Days: monthDays})
	if err != nil {
		return answer{}, err
	}
	all, err := u.ops.Apps(ctx, v.Who)
	if err != nil {
		return answer{}, err
	}
	for _, a := range all {
		p.Apps = append(p.Apps, a.Name)
	}
	if p.App != "" && !slices.Contains(p.Apps, p.App) {
		p.Apps = append(p.Apps, p.App)
	}
	p.Periods = periodRows(s.Periods)
	p.Day, p.Month = hours(s.Hours, u.ops.Now()), daily(s.Days)
	return answer{page: "stats", title: "Statistics", data: p}, nil
}

var periodNames = map[string]string{"24h": "24 hours", "7d": "7 days", "30d": "30 days"}

func periodRows(periods []ops.StatsPeriod) (rows []periodRow) {
	for _, s := range periods {
		n := func(state jobs.State) int { return int(s.Runs[state]) }
		rows = append(rows, periodRow{Name: periodNames[s.Name], Runs: int(s.Finished()), Succeeded: n(jobs.Succeeded), Terminated: n(jobs.Terminated),
			Cancelled: n(jobs.Cancelled), Skipped: n(jobs.Skipped), Failed: n(jobs.Failed), Mean: s.Mean()})
	}
	return rows
}

// hours converts the last day: how runs ended.
func hours(counts []kernel.Tally, now time.Time) chart.Stack {
	s := ended("Finished per hour", columns(chartHours, time.Hour, now))
	for _, t := range counts {
		i := int(t.Start().Sub(s.At[0]) / time.Hour)
		if t.Start().Before(s.At[0]) || i >= len(s.At) {
			continue
		}
		for state, j := range endedSeries {
			s.Series[j].Values[i] += t.Runs[state]
		}
	}
	return s
}

// daily converts the last days: how runs ended.
func daily(days []ops.StatsPeriod) chart.Stack {
	at := make([]time.Time, len(days))
	for i, d := range days {
		at[i] = d.From
	}
	s := ended("Finished per day", at)
	s.Days = true
	for i, d := range days {
		for state, j := range endedSeries {
			s.Series[j].Values[i] += d.Runs[state]
		}
	}
	return s
}

// endedSeries are the series of how runs ended.
var endedSeries = map[jobs.State]int{jobs.Succeeded: 0, jobs.Skipped: 1, jobs.Cancelled: 2, jobs.Terminated: 3}

// ended is an empty chart of how runs ended.
func ended(title string, at []time.Time) chart.Stack {
	s := chart.Stack{Title: title, At: at, Series: []chart.Series{
		{Name: "succeeded", Class: "succeeded"}, {Name: "skipped", Class: "wait"}, {Name: "cancelled", Class: "cancelled"}, {Name: "terminated", Class: "terminated"}}}
	for i := range s.Series {
		s.Series[i].Values = make([]int64, len(at))
	}
	return s
}
