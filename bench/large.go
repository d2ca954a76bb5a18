package main

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

// definitions registers a million recurring jobs, and restarts the server with them.
func definitions(ctx context.Context, h *fixture) (map[string]float64, error) {
	if err := h.hire(ctx); err != nil {
		return nil, err
	}
	n := number(1_000_000) - 10 // the worker has some, and there is a limit
	begin := time.Now()
	if err := h.define(ctx, n, idly()); err != nil { // nothing is due: no worker has these jobs
		return nil, err
	}
	figures := map[string]float64{"definitions": float64(n), "defined_per_s": float64(n) / time.Since(begin).Seconds(), "server_rss_mib": h.rss()}
	if err := h.again(ctx, figures); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := h.bulk(ctx, 10_000); err != nil {
		return nil, err
	}
	took, err := h.settled(ctx, began)
	if err != nil {
		return nil, err
	}
	figures["jobs_per_s_beside"] = 10_000 / took.Seconds()
	looks, err := h.look("/jobs", 20)
	figures["jobs_page_p95_ms"] = percentile(looks, .95)
	return figures, err
}

// idleFor is how long idle watches.
var idleFor = time.Minute

// idly is the day of a month that is far away, for jobs that are not to run while something is measured.
func idly() string { return fmt.Sprintf("1 %d *", time.Now().UTC().AddDate(0, 6, 0).Month()) }

// idle is what the server costs while nothing is due: it has many jobs, and no worker.
func idle(ctx context.Context, h *fixture) (map[string]float64, error) {
	n, length := number(100_000), idleFor
	if *count > 0 {
		length = min(length, 10*time.Second)
	}
	if err := h.define(ctx, n, idly()); err != nil {
		return nil, err
	}
	time.Sleep(min(length, 10*time.Second)) // what registering has left to do is done
	cpu, begin := h.serverCPU(), time.Now()
	time.Sleep(length)
	return map[string]float64{"definitions": float64(n), "cores": (h.serverCPU() - cpu).Seconds() / time.Since(begin).Seconds(), "server_rss_mib": h.rss()}, nil
}

// finished runs ten million jobs, in parts so that what waits stays small, and restarts the server with their history.
func finished(ctx context.Context, h *fixture) (map[string]float64, error) {
	if err := h.hire(ctx); err != nil {
		return nil, err
	}
	n := number(10_000_000)
	portion := max(n/100, 1)
	var rates []float64
	for done := 0; done < n; done += portion {
		begin := time.Now()
		if err := h.bulk(ctx, portion); err != nil {
			return nil, err
		}
		took, err := h.settled(ctx, begin)
		if err != nil {
			return nil, err
		}
		rates = append(rates, float64(portion)/took.Seconds())
	}
	tenth := max(len(rates)/10, 1)
	figures := map[string]float64{"finished": float64(portion * len(rates)), "first_tenth_jobs_per_s": median(rates[:tenth]), "last_tenth_jobs_per_s": median(rates[len(rates)-tenth:]),
		"slower":         1 - median(rates[len(rates)-tenth:])/median(rates[:tenth]),
		"server_rss_mib": h.rss(), "disk_bytes_per_job": float64(weight(filepath.Join(h.dir, "data"))) / float64(portion*len(rates))}
	for first := 0; first+tenth <= len(rates); first += tenth {
		figures[at(portion*first)] = median(rates[first : first+tenth])
	}
	for name, path := range map[string]string{"runs_page": "/runs", "job_page": "/jobs/bench.noop", "overview_page": "/"} {
		looks, err := h.look(path, 20)
		if err != nil {
			return nil, err
		}
		figures[name+"_p95_ms"] = percentile(looks, .95)
	}
	return figures, h.again(ctx, figures)
}

// again kills the server and starts it with what it has kept.
func (h *fixture) again(ctx context.Context, figures map[string]float64) error {
	if h.memory {
		return nil
	}
	_ = h.server.Process.Kill()
	_ = h.server.Wait()
	begin := time.Now()
	if err := h.serve(ctx); err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	figures["ready_again_s"] = time.Since(begin).Seconds()
	figures["rss_again_mib"] = h.rss()
	return nil
}

// weight is what the files of a directory take on the disk.
func weight(dir string) int64 {
	var sum int64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if i, err := d.Info(); err == nil {
				sum += i.Size()
			}
		}
		return nil
	})
	return sum
}
