package main

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// measure is one scenario that every system can run. n is how many jobs; figures are by name, with their unit in it.
type measure struct {
	name  string
	n     int // jobs; keys for those that are due every second
	about string
	run   func(ctx context.Context, s system, n int) (map[string]float64, error)
}

// measures in the order in which they are run. Those that are due every second come last: they change the workers.
var measures = []measure{
	{"batch", 100_000, "enqueue in calls of 1,000 from 4 callers, while the worker is at work, to the final state", inBatches},
	{"x1", 4_000, "enqueue one at a time, one caller, to the final state", byCallers(1)},
	{"x16", 30_000, "one at a time, 16 callers", byCallers(16)},
	{"x64", 30_000, "one at a time, 64 callers", byCallers(64)},
	{"latency200", 1_000, "200 jobs/s, evenly: from the call to the handler's first line", startingAt(200)},
	{"latency2000", 10_000, "2,000 jobs/s", startingAt(2000)},
	{"delayed", 2_000, "jobs with due times 2.5 ms apart: how late the handler starts", lateness(2500 * time.Microsecond)},
	{"herd", 10_000, "jobs that are all due at one instant", lateness(0)},
	{"second100", 100, "100 jobs that are due at every full second, for 10 s", everySecond},
	{"second1000", 1_000, "1,000 of them", everySecond},
	{"second10000", 10_000, "10,000 jobs that are due at every full second, for 10 s", everySecond},
	{"fires", 10_000, "10,000 jobs that are due every second, then twice and three times as many, as long as none is missed or doubled and 99 of 100 start within their second", fires},
	{"together", 10_000, "10,000 recurring jobs that are due at the same second, once: when the last run is there, and when the last has started", together},
}

// spent runs f and adds what a job cost.
func spent(s system, n int, f func() (map[string]float64, error)) (map[string]float64, error) {
	pids := s.pids()
	cpu := cpuOf(pids)
	figures, err := f()
	if err != nil {
		return nil, err
	}
	figures["jobs"] = float64(n)
	figures["cpu_us_per_job"] = float64((cpuOf(pids) - cpu).Microseconds()) / float64(n)
	figures["memory_mib"] = memoryOf(pids)
	return figures, nil
}

// done waits until n more handlers have run than before and no job is unsettled. One that ran twice is an error: the
// figures would be of another number of jobs.
func done(ctx context.Context, s system, before, n int) error {
	for {
		k, err := s.workerSet().count()
		if err != nil {
			return err
		}
		if k >= before+n {
			break
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%d of %d jobs have run: %w", k-before, n, ctx.Err())
		}
		time.Sleep(2 * time.Millisecond)
	}
	for {
		k, err := s.unsettled(ctx)
		if err != nil {
			return err
		}
		if k == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if k, err := s.workerSet().count(); err != nil || k != before+n {
		return fmt.Errorf("%d handlers have run for %d jobs: %w", k-before, n, cmp.Or(err, errDoubled))
	}
	return nil
}

var errDoubled = fmt.Errorf("some ran twice")

// throughput enqueues n jobs by put, from some callers, and waits for the last final state.
func throughput(ctx context.Context, s system, n, callers, size int, put func(first, n int) error) (map[string]float64, error) {
	before, err := s.workerSet().count()
	if err != nil {
		return nil, err
	}
	return spent(s, n, func() (map[string]float64, error) {
		var next atomic.Int64
		begin := time.Now()
		errs := make(chan error, callers)
		for range callers {
			go func() {
				for {
					first := int(next.Add(int64(size))) - size
					if first >= n {
						errs <- nil
						return
					}
					if err := put(first, min(size, n-first)); err != nil {
						errs <- err
						return
					}
				}
			}()
		}
		for range callers {
			if err := <-errs; err != nil {
				return nil, err
			}
		}
		enqueued := time.Since(begin)
		if err := done(ctx, s, before, n); err != nil {
			return nil, err
		}
		return map[string]float64{"jobs_per_s": float64(n) / time.Since(begin).Seconds(), "enqueued_per_s": float64(n) / enqueued.Seconds()}, nil
	})
}

func inBatches(ctx context.Context, s system, n int) (map[string]float64, error) {
	return throughput(ctx, s, n, *callers, *size, func(first, k int) error { return s.batch(ctx, first, k) })
}

func byCallers(callers int) func(context.Context, system, int) (map[string]float64, error) {
	return func(ctx context.Context, s system, n int) (map[string]float64, error) {
		return throughput(ctx, s, n, callers, 1, func(first, _ int) error { return s.one(ctx, hundredOf(first)) })
	}
}

// startingAt enqueues at a pace, whatever the answers take. The first tenth warms up and is not counted.
func startingAt(perSecond int) func(context.Context, system, int) (map[string]float64, error) {
	return func(ctx context.Context, s system, n int) (map[string]float64, error) {
		before, err := s.workerSet().count()
		if err != nil {
			return nil, err
		}
		if _, err := s.workerSet().starts(); err != nil {
			return nil, err
		}
		asked, acked := make([]time.Time, n), make([]time.Duration, n)
		errs := make(chan error, n)
		figures, err := spent(s, n, func() (map[string]float64, error) {
			var wg sync.WaitGroup
			begin := time.Now()
			for i := range n {
				time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(perSecond))))
				wg.Go(func() {
					a := hundredOf(i)
					a.Report = true
					asked[i] = time.Now()
					if err := s.one(ctx, a); err != nil {
						errs <- err
					}
					acked[i] = time.Since(asked[i])
				})
			}
			wg.Wait()
			if len(errs) > 0 {
				return nil, <-errs
			}
			return map[string]float64{}, done(ctx, s, before, n)
		})
		if err != nil {
			return nil, err
		}
		starts, err := s.workerSet().starts()
		if err != nil {
			return nil, err
		}
		if err := eachOnce(starts, n); err != nil {
			return nil, err
		}
		var waited []time.Duration
		for _, st := range starts {
			if st.N >= int64(n/10) {
				waited = append(waited, time.Unix(0, st.At).Sub(asked[st.N]))
			}
		}
		figures["start_p50_ms"], figures["start_p99_ms"], figures["start_max_ms"] = percentile(waited, .5), percentile(waited, .99), percentile(waited, 1)
		figures["ack_p50_ms"], figures["ack_p99_ms"] = percentile(acked[n/10:], .5), percentile(acked[n/10:], .99)
		return figures, nil
	}
}

// eachOnce checks that each of n jobs has run, and none twice.
func eachOnce(starts []start, n int) error {
	seen := make([]bool, n)
	for _, st := range starts {
		if st.N < 0 || st.N >= int64(n) || seen[st.N] {
			return fmt.Errorf("job %d: %w", st.N, errDoubled)
		}
		seen[st.N] = true
	}
	if len(starts) != n {
		return fmt.Errorf("%d of %d jobs have run", len(starts), n)
	}
	return nil
}

// ahead is how long before they are due delayed jobs are enqueued. River looks every 5 s for what is due in the next
// 5 s; with less it would be measured for its lookout, and not for its timing.
var ahead = 8 * time.Second

func lateness(apart time.Duration) func(context.Context, system, int) (map[string]float64, error) {
	return func(ctx context.Context, s system, n int) (map[string]float64, error) {
		before, err := s.workerSet().count()
		if err != nil {
			return nil, err
		}
		if _, err := s.workerSet().starts(); err != nil {
			return nil, err
		}
		due := make([]time.Time, n)
		first := time.Now().Add(ahead).Truncate(time.Microsecond)
		for i := range due {
			due[i] = first.Add(time.Duration(i) * apart)
		}
		figures, err := spent(s, n, func() (map[string]float64, error) {
			if err := s.later(ctx, due); err != nil {
				return nil, err
			}
			left := time.Until(first)
			if left < 0 {
				return nil, fmt.Errorf("enqueuing %d delayed jobs took %v longer than there was time", n, -left)
			}
			return map[string]float64{"ready_before_s": left.Seconds()}, done(ctx, s, before, n)
		})
		if err != nil {
			return nil, err
		}
		starts, err := s.workerSet().starts()
		if err != nil {
			return nil, err
		}
		if err := eachOnce(starts, n); err != nil {
			return nil, err
		}
		var late []time.Duration
		for _, st := range starts {
			late = append(late, time.Unix(0, st.At).Sub(due[st.N]))
		}
		delivered(figures, late)
		return figures, nil
	}
}

// delivered adds how late starts were. One before its time is early, however little.
func delivered(figures map[string]float64, late []time.Duration) {
	early := 0
	for _, d := range late {
		if d < 0 {
			early++
		}
	}
	figures["early"] = float64(early)
	figures["late_p50_ms"], figures["late_p99_ms"], figures["late_max_ms"] = percentile(late, .5), percentile(late, .99), percentile(late, 1)
}
