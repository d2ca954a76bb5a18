package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// pages fills the store with finished and delayed runs and looks at every page, as one person would; then has 200
// people look at the first page while 200 runs a second come and go.
func pages(ctx context.Context, h *fixture) (map[string]float64, error) {
	if err := h.hire(ctx); err != nil {
		return nil, err
	}
	finished, delayed := number(1_000_000), number(1_000_000)/10
	for done := 0; done < finished; done += 100_000 { // in parts, so that what waits stays small
		if err := h.bulk(ctx, min(100_000, finished-done)); err != nil {
			return nil, err
		}
		if _, err := h.settled(ctx, time.Now()); err != nil {
			return nil, err
		}
	}
	if err := h.define(ctx, 1000, daily); err != nil { // now: some of them may be due, without a worker
		return nil, err
	}
	requests := make([]jobs.Request, 0, 10_000)
	for i := range delayed {
		request, err := noop.Request(hundred, jobs.After(24*time.Hour+time.Duration(i)*time.Millisecond))
		if err != nil {
			return nil, err
		}
		if requests = append(requests, request); len(requests) == cap(requests) || i == delayed-1 {
			if _, err := h.client.Enqueue(ctx, requests...); err != nil {
				return nil, err
			}
			requests = requests[:0]
		}
	}
	request, err := noop.Request(hundred)
	if err != nil {
		return nil, err
	}
	if _, err := h.client.Enqueue(ctx, request); err != nil {
		return nil, err
	}
	figures := map[string]float64{"finished": float64(finished), "delayed": float64(delayed), "server_rss_mib": h.rss()}
	paths := map[string]string{
		"overview": "/", "jobs": "/jobs", "job": "/jobs/bench.noop", "runs": "/runs", "runs_of_job": "/runs?job=bench.noop", "runs_succeeded": "/runs?state=Succeeded",
		"run": "/runs/" + request.ID.String(), "workers": "/workers", "settings": "/settings", "api_runs": "/api/v1/runs?limit=200",
	}
	worst := 0.0
	for name, path := range paths {
		took, err := h.look(path, 60)
		if err != nil {
			return nil, err
		}
		figures[name+"_p95_ms"] = percentile(took, .95)
		worst = max(worst, percentile(took, .95))
	}
	figures["worst_p95_ms"] = worst
	return figures, h.dashboards(ctx, figures)
}

// look reads a page n times, and returns how long each took.
func (h *fixture) look(path string, n int) ([]time.Duration, error) {
	took := make([]time.Duration, n)
	for i := range took {
		begin := time.Now()
		if _, err := h.get(path); err != nil {
			return nil, err
		}
		took[i] = time.Since(begin)
	}
	return took, nil
}

// dashboards measures what the server uses for a load of 200 runs a second, and what for the same load while 200
// browsers show the first page.
func (h *fixture) dashboards(ctx context.Context, figures map[string]float64) error {
	const browsers, length = 200, 20 * time.Second
	alone, err := h.under(ctx, length)
	if err != nil {
		return err
	}
	watching, leave := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var fetched, unchanged, failed atomic.Int64
	transport := &http.Transport{MaxIdleConnsPerHost: browsers, MaxConnsPerHost: 0}
	browser := &http.Client{Transport: transport}
	for range browsers {
		wg.Go(func() { h.browse(watching, browser, &fetched, &unchanged, &failed) })
	}
	with, err := h.under(ctx, length)
	leave()
	wg.Wait()
	figures["cores_alone"], figures["cores_200_dashboards"] = alone, with
	figures["cores_for_dashboards"] = with - alone
	figures["fragments_per_s"] = float64(fetched.Load()) / length.Seconds()
	figures["fragments_unchanged"], figures["fragments_failed"] = float64(unchanged.Load()), float64(failed.Load())
	return err
}

// under runs the load for a while and answers how many cores the server used.
func (h *fixture) under(ctx context.Context, length time.Duration) (float64, error) {
	cpu, begin := h.serverCPU(), time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for time.Since(begin) < length {
		<-tick.C
		if _, err := noop.EnqueueAll(ctx, h.client, []noArgs{hundred, hundred, hundred, hundred, hundred, hundred, hundred, hundred, hundred, hundred}); err != nil {
			return 0, err
		}
	}
	return (h.serverCPU() - cpu).Seconds() / time.Since(begin).Seconds(), nil
}

// browse does what the page's script does: it receives events, and reloads the page when something has changed.
func (h *fixture) browse(ctx context.Context, browser *http.Client, fetched, unchanged, failed *atomic.Int64) {
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.http+"/events", nil)
	if err != nil {
		return
	}
	stream, err := browser.Do(ask)
	if err != nil || stream.StatusCode != http.StatusOK {
		failed.Add(1)
		return
	}
	defer stream.Body.Close()
	tag := ""
	for s := bufio.NewScanner(stream.Body); s.Scan(); {
		if !strings.HasPrefix(s.Text(), "event: change") {
			continue
		}
		ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.http+"/", nil)
		if err != nil {
			return
		}
		ask.Header.Set("X-Fragment", "1")
		if tag != "" {
			ask.Header.Set("If-None-Match", tag)
		}
		answer, err := browser.Do(ask)
		if err != nil {
			if ctx.Err() == nil {
				failed.Add(1)
			}
			continue
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		switch tag = answer.Header.Get("ETag"); answer.StatusCode {
		case http.StatusOK:
			fetched.Add(1)
		case http.StatusNotModified:
			fetched.Add(1)
			unchanged.Add(1)
		default:
			failed.Add(1)
		}
	}
}

// serverCPU is the processor time that the server has used.
func (h *fixture) serverCPU() time.Duration { return used(h.server.Process.Pid) }

// used is the processor time of a process, and of those it has started and waited for.
func used(pid int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	var f [15]string
	copy(f[:], strings.Fields(rest))
	var ticks int64
	for _, field := range f[11:] { // in user mode, in the kernel; the same of children that it has waited for
		var n int64
		fmt.Sscan(field, &n)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
