package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

var (
	settleIn = 3 * time.Second  // from the workers' start to the first due time that counts
	window   = 10 * time.Second // of due times that count
	grace    = 4 * time.Second  // for the last of them to start
	mercy    time.Duration      // for those that have not started even then: on a machine of which nothing is measured
)

// everySecond watches jobs that are due at each full second: each key has to start once for each due time.
func everySecond(ctx context.Context, s system, keys int) (map[string]float64, error) {
	if err := s.everySecond(ctx, keys); err != nil {
		return nil, err
	}
	from := time.Now().Add(settleIn).Truncate(time.Second)
	to := from.Add(window)
	time.Sleep(time.Until(from))
	pids := s.pids()
	cpu := cpuOf(pids)
	time.Sleep(time.Until(to))
	cores := (cpuOf(pids) - cpu).Seconds() / window.Seconds()
	time.Sleep(grace)
	var starts []start
	for by := time.Now().Add(mercy); ; time.Sleep(100 * time.Millisecond) {
		more, err := s.workerSet().starts()
		if err != nil {
			return nil, err
		}
		starts = append(starts, more...)
		figures := judge(starts, keys, from, to)
		if figures["missed"] == 0 || ctx.Err() != nil || !time.Now().Before(by) {
			figures["cores"] = cores
			return figures, nil
		}
	}
}

// rungs is how often fires adds as many keys again.
const rungs = 3

// fires looks for how many due times a second are kept up with: the figures are those of the last number of keys at
// which none was missed or doubled and 99 of 100 started before the next was due. Where even the first number is too
// many, they are of that, and fires_per_s is 0.
func fires(ctx context.Context, s system, keys int) (map[string]float64, error) {
	var best map[string]float64
	for rung := 1; rung <= rungs; rung++ {
		figures, err := everySecond(ctx, s, rung*keys)
		if err != nil && rung == 1 {
			return nil, err
		}
		if err != nil || figures["missed"] > 0 || figures["doubled"] > 0 || figures["late_p99_ms"] >= 1000 {
			fmt.Fprintf(os.Stderr, "bench: %d due times a second are too many: %v, %v\n", rung*keys, figures, err)
			if rung == 1 {
				best, best["fires_per_s"] = figures, 0
			}
			break
		}
		figures["fires_per_s"] = figures["delivered"] / window.Seconds()
		best = figures
	}
	return best, nil
}

// togetherIn is how long before they are due the jobs of together are registered.
var togetherIn = 30 * time.Second

// together has recurring jobs be due at one second, and asks the server how many have become runs until all have.
func together(ctx context.Context, s system, keys int) (map[string]float64, error) {
	o, ok := s.(*ours)
	if !ok {
		return nil, errNone
	}
	due := time.Now().UTC().Add(togetherIn).Truncate(time.Second)
	if err := o.recurring(ctx, keys, due.Format("5 4 15 * * *")); err != nil {
		return nil, err
	}
	before, err := o.fixture.fired()
	if err != nil {
		return nil, err
	}
	left := time.Until(due)
	if left < time.Second {
		return nil, fmt.Errorf("to register %d jobs took %v of %v", keys, togetherIn-left, togetherIn)
	}
	time.Sleep(left)
	figures := map[string]float64{}
	for figures["created_s"] == 0 {
		now, err := o.fixture.fired()
		switch {
		case err != nil:
			return nil, err
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%d of %d are there: %w", now-before, keys, ctx.Err())
		case now-before >= keys:
			figures["created_s"] = time.Since(due).Seconds()
		default:
			time.Sleep(10 * time.Millisecond)
		}
	}
	if err := done(ctx, s, 0, keys); err != nil {
		return nil, err
	}
	starts, err := o.fleet.starts()
	if err != nil {
		return nil, err
	}
	if err := eachOnce(starts, keys); err != nil {
		return nil, err
	}
	var late []time.Duration
	for _, st := range starts {
		late = append(late, time.Unix(0, st.At).Sub(due))
	}
	delivered(figures, late)
	figures["started_s"] = figures["late_max_ms"] / 1000
	return figures, nil
}

// fired returns how many due times have become runs since the server was started, as the server reports.
func (h *fixture) fired() (int, error) {
	text, err := h.get("/metrics")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(text, "\ncarillon_due_times_fired_total ")
	value, _, _ := strings.Cut(rest, "\n")
	f, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return 0, fmt.Errorf("/metrics has nothing about due times: %w", err)
	}
	return int(f), nil
}

// judge counts the due times between from and to that were delivered, missed and delivered twice.
//
// A system that does not pass the due time to its handlers gets the benefit of the doubt: the kth start of a key counts
// for the kth second since the first start.
func judge(starts []start, keys int, from, to time.Time) map[string]float64 {
	slices.SortFunc(starts, func(a, b start) int { return cmp.Compare(a.At, b.At) })
	second := int64(time.Second)
	nth := make([]int64, keys)
	seen := map[[2]int64]bool{}
	var late []time.Duration
	doubled := 0
	for _, st := range starts {
		if st.Due == 0 {
			st.Due = (starts[0].At/second + nth[st.N]) * second
			nth[st.N]++
		}
		if st.Due < from.UnixNano() || st.Due >= to.UnixNano() {
			continue
		}
		if seen[[2]int64{st.N, st.Due}] {
			doubled++
			continue
		}
		seen[[2]int64{st.N, st.Due}] = true
		late = append(late, time.Duration(st.At-st.Due))
	}
	expected := keys * int(to.Sub(from)/time.Second)
	figures := map[string]float64{"expected": float64(expected), "delivered": float64(len(seen)), "missed": float64(expected - len(seen)), "doubled": float64(doubled)}
	delivered(figures, late)
	return figures
}
