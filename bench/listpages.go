package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// How long a list or page may take with ten million finished runs.
const (
	listHalf = 100 // milliseconds, p50
	listMost = 300 // p99
)

// lists reads every page and list of a store that fill has filled.
func lists(ctx context.Context, h *fixture) (map[string]float64, error) {
	figures := map[string]float64{"finished": float64(h.past.finished), "filled_s": h.filled.Seconds(), "server_rss_mib": h.rss()}
	if h.db == nil {
		figures["disk_bytes_per_run"] = float64(weight(h.dir+"/data")) / float64(h.past.finished)
	}
	leave, err := h.crowd(ctx, less(listWorkers, h.past.finished))
	if err != nil {
		return nil, err
	}
	defer leave()
	paths := h.listPaths()
	if err := h.deeper(paths); err != nil {
		return nil, err
	}
	var slow []string
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		if !strings.Contains(name, *only) {
			continue
		}
		took, err := h.looks(paths[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		half, most := percentile(took, .5), percentile(took, .99)
		figures[name+"_p50_ms"], figures[name+"_p99_ms"] = half, most
		if half > listHalf || most > listMost {
			slow = append(slow, name)
		}
		h.say("%-24s p50 %8.2f  p99 %8.2f  first %8.2f  %s", name, half, most, float64(took[0].Microseconds())/1000, paths[name])
	}
	figures["slow"] = float64(len(slow))
	h.say("too slow: %s", strings.Join(slow, ", "))
	return figures, nil
}

// looks reads a page 100 times, or fewer if that takes long or if there is little to read.
func (h *fixture) looks(path string) (took []time.Duration, err error) {
	most := min(100, max(3, h.past.finished/1000))
	for begin := time.Now(); len(took) < most && (len(took) < 5 || time.Since(begin) < 4*time.Second); {
		one, err := h.look(path, 1)
		if err != nil {
			return nil, err
		}
		took = append(took, one...)
	}
	return took, nil
}

// crowd has workers connect that are never given a run.
func (h *fixture) crowd(ctx context.Context, n int) (leave func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, n)
	begun := 0
	leave = func() {
		cancel()
		for range begun {
			<-ended
		}
	}
	idle := jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error { return nil })
	for i := range n {
		w, err := carillon.NewWorker(h.url(), worker.Config{App: "idle", Name: fmt.Sprintf("idle-%d", i)}, jobs.NewTriggered(idle, jobs.Options{Key: "idle.job"}))
		if err != nil {
			leave()
			return nil, err
		}
		begun++
		go func() { ended <- w.Run(ctx) }()
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		known, err := h.workersOf("idle")
		if err == nil && known < n && time.Now().After(deadline) {
			err = errors.New("the workers did not register")
		}
		if err != nil || known >= n {
			return leave, err
		}
	}
}

// listPaths is the pages and lists by name. Those of the API begin with api.
func (h *fixture) listPaths() map[string]string {
	first, rare := h.past.of(0), h.past.of(len(h.past.jobs)-1)
	parent, _ := h.past.id(h.past.parent())
	child, _ := h.past.id(h.past.parent() + 1)
	time := func(before time.Duration) string { return h.past.now.Add(-before).Format("2006-01-02T15:04") }
	const hour, day = 3600e9, 24 * 3600e9
	paths := map[string]string{
		"overview": "/", "jobs": "/jobs", "job": "/jobs/" + string(first.Key), "job_ledger": "/jobs/" + string(h.past.of(1).Key), "job_rare": "/jobs/" + string(rare.Key),
		"run": "/runs/" + child.String(), "run_children": "/runs/" + parent.String(), "workers": "/workers", "stats": "/stats", "forecast": "/forecast", "day": "/forecast/day",
		"calendars": "/calendars", "alarms": "/alarms", "alarms_deep": "/alarms?before=500", "cluster": "/cluster", "settings": "/settings", "audit": "/audit", "audit_deep": "/audit?before=10000",
		"audit_actor": "/audit?actor=person%3Anobody", "audit_target": "/audit?target=" + url.QueryEscape("job "+string(first.Key)), "tenants": "/tenants", "tenant": "/tenants/tenant-0", "search": "/search?q=job-77",
		"api_overview": "/api/v1/overview", "api_jobs": "/api/v1/jobs?limit=1000", "api_workers": "/api/v1/workers", "api_apps": "/api/v1/apps", "api_tenants": "/api/v1/tenants?limit=1000", "api_tenants_all": "/api/v1/tenants",
		"api_children": "/api/v1/runs/" + parent.String() + "/children", "api_tree": "/api/v1/runs/" + parent.String() + "/tree", "api_audit": "/api/v1/audit?limit=200", "api_audit_old": "/api/v1/audit?limit=200&since=1000",
		"api_alarms": "/api/v1/alarms?limit=200", "api_missed": "/api/v1/jobs/" + string(h.past.of(1).Key) + "/missed?limit=1000", "api_forecast": "/api/v1/forecast", "api_calendars": "/api/v1/calendars",
		"api_explain": "/api/v1/jobs/" + string(first.Key) + "/explain", "api_explain_run": "/api/v1/runs/" + child.String() + "/explain",
		"api_stats_1d": "/api/v1/stats?days=1", "api_stats_7d": "/api/v1/stats?days=7", "api_stats_30d": "/api/v1/stats?days=30", "api_stats_30d_app": "/api/v1/stats?days=30&app=" + first.App,
		"api_stats_30d_job": "/api/v1/jobs/" + string(first.Key) + "/stats?days=30",
	}
	for _, state := range []string{"Scheduled", "Enqueued", "Processing", "Succeeded", "Terminated", "Cancelled", "Skipped"} {
		paths["runs_"+strings.ToLower(state)] = "/runs?state=" + state
	}
	for name, query := range map[string]string{
		"all": "", "job": "job=" + string(first.Key), "job_failed": "state=Terminated&job=" + string(first.Key), "job_rare": "job=" + string(rare.Key), "match": "job=app-01.*", "match_rare": "job=rare*", "app": "app=" + first.App, "app_rare": "app=" + rareApp,
		"tag": "tag=team-7", "tag_rare": "tag=rare", "worker": "worker=worker-7", "worker_rare": "worker=" + rareWorker, "worker_none": "worker=nobody", "origin": "origin=cron", "origin_rare": "origin=backfill",
		"parent": "parent=" + parent.String(), "code_none": "code=" + rareCode, "arg": "arg=customer+%3D+c77&job=" + string(first.Key), "arg_all": "arg=customer+%3D+c77", "arg_none": "arg=customer+%3D+none",
		"from": "from=" + time(hour), "to": "to=" + time(10*day), "between": "from=" + time(10*day) + "&to=" + time(10*day-hour), "between_failed": "state=Terminated&from=" + time(10*day) + "&to=" + time(10*day-hour),
		"between_job": "job=" + string(h.past.of(5).Key) + "&from=" + time(20*day) + "&to=" + time(20*day-hour),
	} {
		paths["runs_"+name] = "/runs?" + query
		paths["api_runs_"+name] = "/api/v1/runs?limit=200&" + strings.NewReplacer("job=app-01.*", "match=app-01.*", "job=rare*", "match=rare*", "+%3D+", "%3D").Replace(query)
		if strings.Contains(query, "from=") || strings.Contains(query, "to=") {
			paths["api_runs_"+name] = apiTimes(paths["api_runs_"+name])
		}
	}
	return paths
}

// apiTimes gives times of a query the form of the API.
func apiTimes(path string) string {
	at, query, _ := strings.Cut(path, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		return path
	}
	for _, name := range []string{"from", "to"} {
		if t := q.Get(name); t != "" {
			q.Set(name, t+":00Z")
		}
	}
	return at + "?" + q.Encode()
}

// deeper adds a page far behind the first one.
func (h *fixture) deeper(paths map[string]string) error {
	next := ""
	for range 60 {
		body, err := h.get("/api/v1/runs?limit=200&state=Succeeded&cursor=" + url.QueryEscape(next))
		if err != nil {
			return err
		}
		var page struct {
			Next string `json:"next"`
		}
		if err := json.Unmarshal([]byte(body), &page); err != nil {
			return err
		}
		if page.Next == "" {
			break
		}
		next = page.Next
	}
	paths["runs_deep"] = "/runs?state=Succeeded&cursor=" + url.QueryEscape(next)
	return nil
}

// lists shows how long each page and list took, with a column for each store.
func (r results) lists(b *strings.Builder) {
	some := slices.DeleteFunc(slices.Clone(r), func(l line) bool { return !strings.HasPrefix(l.Scenario, "lists") || len(l.Figures) == 0 })
	if len(some) == 0 {
		return
	}
	head, under, names := "| page, p50 / p99 ms |", "|---|", map[string]bool{}
	for _, l := range some {
		head, under = head+" "+l.System+" |", under+"---|"
		fmt.Fprintf(b, "\n%s: %s finished runs, %s pages beyond %d ms p50 or %d ms p99; filled in %s s; the load of the machine was %.1f.", l.System, number3(l.Figures["finished"]), number3(l.Figures["slow"]), listHalf, listMost,
			number3(l.Figures["filled_s"]), l.Load)
		for name := range l.Figures {
			if page, ok := strings.CutSuffix(name, "_p50_ms"); ok {
				names[page] = true
			}
		}
	}
	fmt.Fprintf(b, "\n\n%s\n%s\n", head, under)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(b, "| %s |", name)
		for _, l := range some {
			fmt.Fprintf(b, " %s / %s |", number3(l.Figures[name+"_p50_ms"]), number3(l.Figures[name+"_p99_ms"]))
		}
		b.WriteString("\n")
	}
}
