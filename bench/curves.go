package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// How throughput changes with something that grows. The figures are jobs a second, under the names that at gives.

// at names the jobs a second where what grows is n.
func at(n int) string { return fmt.Sprintf("at %d", n) }

// atOf is what has grown how far by the name of a figure; ok is false if it is another figure.
func atOf(name string) (n int, ok bool) {
	text, ok := strings.CutPrefix(name, "at ")
	n, err := strconv.Atoi(text)
	return n, ok && err == nil
}

// grown measures at each of some sizes, three times in turn, and answers with the medians.
func grown(ctx context.Context, sizes []int, rate func(ctx context.Context, size int) (float64, error)) (map[string]float64, error) {
	all := map[string][]float64{}
	for range 3 {
		for _, size := range sizes {
			r, err := rate(ctx, size)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", at(size), err)
			}
			all[at(size)] = append(all[at(size)], r)
		}
	}
	figures := map[string]float64{}
	for name, rates := range all {
		figures[name] = median(rates)
	}
	return figures, nil
}

// rate enqueues n runs in calls of some size, from 4 callers, and answers how many a second are done.
func (h *fixture) rate(ctx context.Context, a noArgs, n, size int) (float64, error) {
	begin := time.Now()
	if err := h.bulkOf(ctx, h.client, noop, a, n, size); err != nil {
		return 0, err
	}
	took, err := h.settled(ctx, begin)
	return float64(n) / took.Seconds(), err
}

// sizes is throughput by how many runs are in a call.
func sizes(ctx context.Context, h *fixture) (map[string]float64, error) {
	if err := h.hire(ctx); err != nil {
		return nil, err
	}
	if _, err := h.rate(ctx, hundred, number(20_000), 1000); err != nil { // warm up
		return nil, err
	}
	return grown(ctx, []int{1, 10, 100, 1000}, func(ctx context.Context, size int) (float64, error) {
		return h.rate(ctx, hundred, number(min(20_000*size, 100_000)), size)
	})
}

// payloads is throughput by how many bytes of arguments a run has; calls are of 1,000 runs, but of 1 MiB at most.
func payloads(ctx context.Context, h *fixture) (map[string]float64, error) {
	if err := h.hire(ctx); err != nil {
		return nil, err
	}
	if _, err := h.rate(ctx, hundred, number(20_000), 1000); err != nil { // warm up
		return nil, err
	}
	return grown(ctx, []int{100, 1_000, 10_000, 100_000}, func(ctx context.Context, bytes int) (float64, error) {
		a := hundred
		a.Note += strings.Repeat("x", bytes-100)
		return h.rate(ctx, a, number(min(200_000_000/bytes, 100_000)), min(1000, 1<<20/bytes))
	})
}

// backlog is how fast runs are done by how many others go on waiting: a worker comes to a full queue, and is watched
// until only the others are left.
func backlog(ctx context.Context, h *fixture) (map[string]float64, error) {
	if err := h.hire(ctx); err != nil { // so that the job is known
		return nil, err
	}
	if _, err := h.rate(ctx, hundred, number(20_000), 1000); err != nil { // warm up
		return nil, err
	}
	figures := map[string]float64{}
	n := number(100_000)
	for _, others := range []int{0, n, 10 * n} {
		h.dismiss()
		waiting, err := h.live()
		if err != nil {
			return nil, err
		}
		if err := h.bulkOf(ctx, h.client, noop, hundred, others+n-waiting, 1000); err != nil {
			return nil, err
		}
		full, err := h.live()
		if err != nil {
			return nil, err
		}
		begin := time.Now()
		if err := h.hire(ctx); err != nil {
			return nil, err
		}
		begun := false // the time counts from when the first of them are seen to be done
		left := full
		for left > others {
			if left, err = h.live(); err != nil {
				return nil, err
			}
			switch {
			case ctx.Err() != nil:
				return nil, fmt.Errorf("%d runs are left: %w", left, ctx.Err())
			case !begun && left < full && left > others:
				begun, begin, full = true, time.Now(), left
			}
			time.Sleep(5 * time.Millisecond)
		}
		figures[at(others)] = float64(full-left) / time.Since(begin).Seconds()
	}
	return figures, nil
}
