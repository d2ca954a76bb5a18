package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/jobs"
)

func number(def int) int {
	if *count > 0 {
		return *count
	}
	return def
}

// settled waits until no run is live, and answers how long that took.
func (h *fixture) settled(ctx context.Context, begin time.Time) (time.Duration, error) {
	return h.settledAt(ctx, begin, 20*time.Millisecond) // each look costs what tens of runs do
}

// settledAt is settled with a pause between looks.
func (h *fixture) settledAt(ctx context.Context, begin time.Time, pause time.Duration) (time.Duration, error) {
	for ctx.Err() == nil {
		live, err := h.live()
		if err != nil {
			return 0, err
		}
		if live == 0 {
			return time.Since(begin), nil
		}
		time.Sleep(pause)
	}
	return 0, fmt.Errorf("runs are still live: %w", ctx.Err())
}

// live is how many runs are not settled.
func (h *fixture) live() (int, error) {
	s, err := h.get("/api/v1/overview")
	if err != nil {
		return 0, err
	}
	var o struct {
		Live map[string]int `json:"runs"`
	}
	if err := json.Unmarshal([]byte(s), &o); err != nil {
		return 0, err
	}
	n := 0
	for _, k := range o.Live {
		n += k
	}
	return n, nil
}

// bulk enqueues n runs from some callers at the same time.
func (h *fixture) bulk(ctx context.Context, n int) error {
	return h.bulkOf(ctx, h.client, noop, hundred, n, *size)
}

// bulkOf is bulk of any job, with arguments, in calls of some size.
func (h *fixture) bulkOf(ctx context.Context, c *client.Client, job jobs.Trigger[noArgs], a noArgs, n, size int) error {
	var next atomic.Int64
	errs := make(chan error, *callers)
	for range *callers {
		go func() {
			list := slices.Repeat([]noArgs{a}, size)
			for {
				left := n + size - int(next.Add(int64(size)))
				if left <= 0 {
					errs <- nil
					return
				}
				if _, err := job.EnqueueAll(ctx, c, list[:min(left, size)]); err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	for range *callers {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

func batch(ctx context.Context, h *fixture) (map[string]float64, error) {
	if err := h.hire(ctx); err != nil {
		return nil, err
	}
	n := number(200_000)
	if err := h.bulk(ctx, n/10); err != nil { // warm up
		return nil, err
	}
	if _, err := h.settled(ctx, time.Now()); err != nil {
		return nil, err
	}
	h.profile()
	cpu, begin := h.cpu(), time.Now()
	if err := h.bulk(ctx, n); err != nil {
		return nil, err
	}
	enqueued := time.Since(begin)
	all, err := h.settled(ctx, begin)
	if err != nil {
		return nil, err
	}
	return map[string]float64{"jobs": float64(n), "jobs_per_s": float64(n) / all.Seconds(), "enqueued_per_s": float64(n) / enqueued.Seconds(),
		"cpu_us_per_job": float64((h.cpu() - cpu).Microseconds()) / float64(n)}, nil
}

// started waits until the worker has reported n starts.
func (h *fixture) started(ctx context.Context, n int) error {
	for ctx.Err() == nil {
		h.mu.Lock()
		k := len(h.starts)
		h.mu.Unlock()
		if k >= n {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return ctx.Err()
}

func latency(ctx context.Context, h *fixture) (map[string]float64, error) {
	if err := h.hire(ctx); err != nil {
		return nil, err
	}
	n := number(2000)
	timed := hundred
	timed.Report = true
	asked := make(map[jobs.ID]time.Time, n)
	acked := make([]time.Duration, 0, n)
	var mu sync.Mutex
	var wg sync.WaitGroup
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range n + 200 {
		<-tick.C
		wg.Go(func() {
			request, err := noop.Request(timed)
			if err != nil {
				return
			}
			begin := time.Now()
			if _, err := h.client.Enqueue(ctx, request); err != nil {
				fmt.Fprintln(os.Stderr, "enqueue:", err)
				return
			}
			mu.Lock()
			asked[request.ID] = begin
			acked = append(acked, time.Since(begin))
			mu.Unlock()
		})
	}
	wg.Wait()
	if err := h.started(ctx, n+200); err != nil {
		return nil, err
	}
	var late []time.Duration
	for id, at := range asked {
		late = append(late, h.starts[id].Sub(at))
	}
	return map[string]float64{"jobs": float64(n), "start_p50_ms": percentile(late, .5), "start_p99_ms": percentile(late, .99), "start_max_ms": percentile(late, 1),
		"ack_p50_ms": percentile(acked, .5), "ack_p99_ms": percentile(acked, .99)}, nil
}

func delayed(ctx context.Context, h *fixture) (map[string]float64, error) {
	if err := h.hire(ctx); err != nil {
		return nil, err
	}
	n := number(2000)
	timed := hundred
	timed.Report = true
	first := time.Now().Add(3 * time.Second)
	due := make(map[jobs.ID]time.Time, n)
	requests := make([]jobs.Request, n)
	for i := range requests {
		at := first.Add(time.Duration(i) * 5 * time.Millisecond)
		request, err := noop.Request(timed, jobs.At(at))
		if err != nil {
			return nil, err
		}
		requests[i], due[request.ID] = request, at
	}
	if _, err := h.client.Enqueue(ctx, requests...); err != nil {
		return nil, err
	}
	if err := h.started(ctx, n); err != nil {
		return nil, err
	}
	var late []time.Duration
	early := 0
	for id, at := range due {
		d := h.starts[id].Sub(at)
		late = append(late, d)
		if d < 0 {
			early++
		}
	}
	return map[string]float64{"jobs": float64(n), "late_p50_ms": percentile(late, .5), "late_p99_ms": percentile(late, .99), "late_max_ms": percentile(late, 1), "early": float64(early)}, nil
}

func onekey(ctx context.Context, h *fixture) (map[string]float64, error) {
	if err := h.hire(ctx); err != nil {
		return nil, err
	}
	n := number(1000)
	list := make([]noArgs, n)
	begin := time.Now()
	if _, err := oneSlot.EnqueueAll(ctx, h.client, list); err != nil {
		return nil, err
	}
	took, err := h.settled(ctx, begin)
	return map[string]float64{"jobs": float64(n), "seconds": took.Seconds()}, err
}

// flood enqueues runs without a worker. The worker has registered before, so the job is known.
func flood(ctx context.Context, h *fixture) (map[string]float64, error) {
	if err := h.hire(ctx); err != nil {
		return nil, err
	}
	h.dismiss()
	n := number(1_000_000)
	if err := h.count(); err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := h.bulk(ctx, n); err != nil {
		return nil, err
	}
	enqueued := time.Since(begin)
	time.Sleep(60 * time.Second)
	published := h.pushes.Load()
	timed := hundred
	timed.Report = true
	request, err := noop.Request(timed, jobs.WithPriority(50))
	if err != nil {
		return nil, err
	}
	if _, err := h.client.Enqueue(ctx, request); err != nil {
		return nil, err
	}
	ready := time.Now()
	if err := h.hire(ctx); err != nil {
		return nil, err
	}
	if err := h.started(ctx, 1); err != nil {
		return nil, err
	}
	first := h.starts[request.ID].Sub(ready)
	all, err := h.settled(ctx, ready)
	return map[string]float64{"jobs": float64(n), "enqueued_per_s": float64(n) / enqueued.Seconds(), "messages_in_60s": float64(published),
		"first_start_s": first.Seconds(), "drained_per_s": float64(n) / all.Seconds(), "server_rss_mib": h.rss()}, err
}

// heap fills the store with jobs and delayed runs, and restarts the server.
func heap(ctx context.Context, h *fixture) (map[string]float64, error) {
	if err := h.hire(ctx); err != nil {
		return nil, err
	}
	n, defs := number(100_000), 10_000
	if err := h.define(ctx, defs, daily); err != nil {
		return nil, err
	}
	requests := make([]jobs.Request, n)
	for i := range requests {
		request, err := noop.Request(hundred, jobs.After(24*time.Hour+time.Duration(i)*time.Millisecond))
		if err != nil {
			return nil, err
		}
		requests[i] = request
	}
	for len(requests) > 0 {
		k := min(len(requests), 10_000)
		if _, err := h.client.Enqueue(ctx, requests[:k]...); err != nil {
			return nil, err
		}
		requests = requests[k:]
	}
	figures := map[string]float64{"delayed": float64(n), "jobs": float64(defs), "rss_before_mib": h.rss()}
	if h.memory {
		return figures, nil
	}
	_ = h.server.Process.Kill()
	_ = h.server.Wait()
	begin := time.Now()
	if err := h.serve(ctx); err != nil {
		return nil, err
	}
	figures["ready_s"] = time.Since(begin).Seconds()
	timed := hundred
	timed.Report = true
	request, err := noop.Request(timed)
	if err != nil {
		return nil, err
	}
	if _, err := h.client.Enqueue(ctx, request); err != nil {
		return nil, err
	}
	if err := h.started(ctx, 1); err != nil {
		return nil, err
	}
	figures["first_start_s"] = h.starts[request.ID].Sub(begin).Seconds()
	time.Sleep(5 * time.Second)
	figures["rss_after_mib"] = h.rss()
	return figures, nil
}

// rss is the server's resident memory in MiB.
func (h *fixture) rss() float64 { return rssOf(h.server.Process.Pid) }

func rssOf(pid int) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return -1
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	var kib float64
	fmt.Sscan(rest, &kib)
	return kib / 1024
}

// filesOf is how many files and connections a process has open.
func filesOf(pid int) float64 {
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return -1
	}
	return float64(len(files))
}
