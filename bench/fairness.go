package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/jobs"
)

// steady enqueues one run of a job after the other at a rate, and returns how long each waited for its handler.
func (h *fixture) steady(ctx context.Context, c *client.Client, job jobs.Trigger[noArgs], a noArgs, perSecond int, length time.Duration) ([]time.Duration, error) {
	a.Report = true
	asked := map[jobs.ID]time.Time{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for begin := time.Now(); time.Since(begin) < length; {
		<-tick.C
		request, err := job.Request(a)
		if err != nil {
			return nil, err
		}
		wg.Go(func() {
			at := time.Now()
			if _, err := c.Enqueue(ctx, request); err != nil {
				fmt.Fprintln(os.Stderr, "enqueue:", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			asked[request.ID] = at
		})
	}
	wg.Wait()
	waits := make([]time.Duration, 0, len(asked))
	for ctx.Err() == nil && len(waits) < len(asked) {
		time.Sleep(50 * time.Millisecond)
		waits = waits[:0]
		h.mu.Lock()
		for id, at := range asked {
			if began, ok := h.starts[id]; ok {
				waits = append(waits, began.Sub(at))
			}
		}
		h.mu.Unlock()
	}
	return waits, ctx.Err()
}

// uneven has two workers of ten slots, with handlers of 10 ms; one is ten times slower. The load is what the fast one
// can do alone: what of it waits, waits because the slow one was sent too much.
func uneven(ctx context.Context, h *fixture) (map[string]float64, error) {
	if err := h.hireFor(ctx, post{Slots: 10}); err != nil {
		return nil, err
	}
	a := hundred
	a.Millis = 10
	length := 20 * time.Second
	if *count > 0 {
		length = time.Second
	}
	alone, err := h.steady(ctx, h.client, noop, a, 500, length)
	if err != nil {
		return nil, err
	}
	if err := h.hireFor(ctx, post{Slots: 10, Slower: 10}); err != nil {
		return nil, err
	}
	both, err := h.steady(ctx, h.client, noop, a, 500, length)
	return map[string]float64{"alone_p50_ms": percentile(alone, .5), "alone_p99_ms": percentile(alone, .99), "start_p50_ms": percentile(both, .5),
		"start_p99_ms": percentile(both, .99), "start_max_ms": percentile(both, 1), "jobs": float64(len(both))}, err
}

// deadHost stops one of three unlimited workers under load, as if its machine had lost its power: no connection ends.
func deadHost(ctx context.Context, h *fixture) (map[string]float64, error) {
	for range 3 {
		if err := h.hireFor(ctx, post{}); err != nil {
			return nil, err
		}
	}
	length := 30 * time.Second
	if *count > 0 {
		length = time.Second
	}
	victim := h.workers[0].Process
	dies := time.AfterFunc(length/3, func() { _ = victim.Signal(syscall.SIGSTOP) })
	defer dies.Stop()
	a := hundred
	a.Millis = 20
	waits, err := h.steady(ctx, h.client, noop, a, 300, length)
	late := 0
	for _, w := range waits {
		if w > time.Second {
			late++
		}
	}
	return map[string]float64{"jobs": float64(len(waits)), "late": float64(late), "start_p50_ms": percentile(waits, .5), "start_p99_ms": percentile(waits, .99),
		"start_max_ms": percentile(waits, 1)}, err
}

// flooded has an app that enqueues ten runs a second while another one enqueues very many at once.
func flooded(ctx context.Context, h *fixture) (map[string]float64, error) {
	if err := h.hireFor(ctx, post{}); err != nil {
		return nil, err
	}
	if err := h.hireFor(ctx, post{App: "quiet"}); err != nil {
		return nil, err
	}
	flooding := make(chan error, 1)
	n, begin := number(200_000), time.Now()
	took := time.Duration(0)
	go func() {
		err := h.bulk(ctx, n)
		if err == nil {
			took, err = h.settled(ctx, begin)
		}
		flooding <- err
	}()
	var waits []time.Duration
	for {
		some, err := h.steady(ctx, h.client, jobs.Trigger[noArgs]("quiet.noop"), hundred, 10, time.Second)
		if err != nil {
			return nil, err
		}
		waits = append(waits, some...)
		select {
		case err := <-flooding:
			return map[string]float64{"jobs": float64(len(waits)), "flood": float64(n), "flood_s": took.Seconds(), "start_p50_ms": percentile(waits, .5),
				"start_p99_ms": percentile(waits, .99), "start_max_ms": percentile(waits, 1)}, err
		default:
		}
	}
}
