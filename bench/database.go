package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/jobs"
)

// inDatabase are the scenarios whose server has its rows in a database, by default in PostgreSQL.
var inDatabase = map[string]bool{"takeover": true, "tenmillion": true, "held": true, "listsdb": true}

// filled are the scenarios whose store is filled before the server starts.
var filled = map[string]bool{"lists": true, "listsdb": true}

// buildOn starts a database, and a server that has its rows there.
func buildOn(ctx context.Context, kind string, filling bool) (*fixture, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // databases do not run as root, and their directories are inside
		return nil, err
	}
	db, err := launch(ctx, kind, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	h, err := build(ctx, setup{store: db.url.String(), db: db, filling: filling})
	if err != nil {
		db.stop()
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return h, nil
}

// takeover is how long it takes until another process leads a million unfinished runs: one that follows, and one that
// has to start.
func takeover(ctx context.Context, h *fixture) (map[string]float64, error) {
	if err := h.hire(ctx); err != nil { // so that the job is known
		return nil, err
	}
	h.dismiss()
	n := number(1_000_000)
	for first := 0; first < n; first += 1000 {
		requests := make([]jobs.Request, min(1000, n-first))
		for i := range requests {
			request, err := noop.Request(hundredOf(first+i), jobs.After(24*time.Hour+time.Duration(first+i)*time.Millisecond))
			if err != nil {
				return nil, err
			}
			requests[i] = request
		}
		if _, err := h.client.Enqueue(ctx, requests...); err != nil {
			return nil, err
		}
	}
	figures := map[string]float64{"live": float64(n), "server_rss_mib": h.rss()}
	begin := time.Now()
	web, bus := freeAddress(), freeAddress()
	next := exec.CommandContext(ctx, h.program, "server", "--node", "next", "--http", web, "--nats-addr", bus, "--data", filepath.Join(h.dir, "next"), "--store", h.store)
	next.Env, next.SysProcAttr = append(os.Environ(), "CARILLON_LOG_LEVEL=warn"), bound()
	if *verbose {
		next.Stderr, next.Stdout = os.Stderr, os.Stderr
	}
	if err := next.Start(); err != nil {
		return nil, err
	}
	h.others, h.buses = append(h.others, next), append(h.buses, bus)
	if err := ready(ctx, web+"/readyz", next); err != nil {
		return nil, err
	}
	h.client.Close()
	var err error
	if h.client, err = carillon.Dial(h.url()); err != nil {
		return nil, err
	}
	figures["follows_s"] = time.Since(begin).Seconds()
	time.Sleep(2 * time.Second) // nothing is left to do: what is measured is the takeover alone
	_ = h.server.Process.Kill()
	begin = time.Now()
	if err := ready(ctx, web+"/leaderz", next); err != nil {
		return nil, err
	}
	figures["warm_leads_s"] = time.Since(begin).Seconds()
	if _, err := noop.Enqueue(ctx, h.client, hundred); err != nil {
		return nil, err
	}
	figures["warm_enqueues_s"] = time.Since(begin).Seconds()
	_, _ = next.Process.Kill(), h.server.Wait()
	begin = time.Now()
	if err := h.serve(ctx); err != nil {
		return nil, err
	}
	figures["cold_leads_s"] = time.Since(begin).Seconds()
	if _, err := noop.Enqueue(ctx, h.client, hundred); err != nil {
		return nil, err
	}
	figures["cold_enqueues_s"] = time.Since(begin).Seconds()
	return figures, nil
}

// tenMillion compares the same work before and after ten million finished runs of another job are in the table.
func tenMillion(ctx context.Context, h *fixture) (map[string]float64, error) {
	if err := h.hire(ctx); err != nil {
		return nil, err
	}
	db, err := h.db.open()
	if err != nil {
		return nil, err
	}
	defer db.Close()
	work := func() (rate float64, err error) {
		var rates []float64
		for range 7 {
			begin := time.Now()
			if err := h.bulk(ctx, number(100_000)); err != nil {
				return 0, err
			}
			took, err := h.settled(ctx, begin)
			if err != nil {
				return 0, err
			}
			rates = append(rates, float64(number(100_000))/took.Seconds())
		}
		return median(rates), nil
	}
	before, err := work()
	if err != nil {
		return nil, err
	}
	for there := false; !there; time.Sleep(10 * time.Millisecond) { // they are written behind commits
		if err := db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM carillon_runs)").Scan(&there); err != nil {
			return nil, err
		}
	}
	n := number(10_000_000)
	begin := time.Now()
	for first := 1; first <= n; first += 500_000 {
		if _, err := db.ExecContext(ctx, fmt.Sprintf(`INSERT INTO carillon_runs (number, stored_at, tenant, id, job, app, state, worker, parent, priority, attempts, created_at, due_at, started_at, ended_at, code, error, args, result, body)
			SELECT -g, now(), r.tenant, gen_random_uuid(), 'bench.other', r.app, r.state, r.worker, r.parent, r.priority, r.attempts, r.created_at, r.due_at, r.started_at, r.ended_at, r.code, r.error, r.args, r.result, r.body
			FROM (SELECT * FROM carillon_runs WHERE number > 0 LIMIT 1) r, generate_series(%d, %d) g`, first, min(first+500_000-1, n))); err != nil {
			return nil, err
		}
	}
	filled := time.Since(begin)
	var rows, size int64
	if err := db.QueryRowContext(ctx, "SELECT (SELECT count(*) FROM carillon_runs), (SELECT sum(pg_total_relation_size(inhrelid))::bigint FROM pg_inherits WHERE inhparent = 'carillon_runs'::regclass)").Scan(&rows, &size); err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, "VACUUM ANALYZE carillon_runs"); err != nil { // as the database does by itself some time later
		return nil, err
	}
	if _, err := db.ExecContext(ctx, "CHECKPOINT"); err != nil {
		return nil, err
	}
	after, err := work()
	if err != nil {
		return nil, err
	}
	figures := map[string]float64{"rows": float64(rows), "bytes_per_row": float64(size) / float64(rows), "filled_s": filled.Seconds(), "before_jobs_per_s": before, "after_jobs_per_s": after, "slower": 1 - after/before}
	for name, path := range map[string]string{"runs_page": "/runs", "job_page": "/jobs/bench.noop", "overview_page": "/"} {
		looks, err := h.look(path, 20)
		if err != nil {
			return nil, err
		}
		figures[name+"_p95_ms"] = percentile(looks, .95)
	}
	return figures, nil
}

// heldFor is how long a transaction holds its snapshot.
var heldFor = 10 * time.Minute

// held is how long requests take before, and while another transaction holds a snapshot: the database may not
// remove a row that was deleted since.
func held(ctx context.Context, h *fixture) (map[string]float64, error) {
	if err := h.hire(ctx); err != nil {
		return nil, err
	}
	db, err := h.db.open()
	if err != nil {
		return nil, err
	}
	defer db.Close()
	length := heldFor
	if *count > 0 {
		length = min(length, 4*time.Second)
	}
	// A request every 2 ms, and beside them enough in bulk to have the log cut again and again.
	watch := func(length time.Duration) (took []time.Duration, err error) {
		end := time.Now().Add(length)
		bulk := make(chan error, 1)
		go func() {
			for time.Now().Before(end) {
				if err := h.bulkOf(ctx, h.client, noop, hundred, number(2_000), 500); err != nil {
					bulk <- err
					return
				}
				time.Sleep(500 * time.Millisecond)
			}
			bulk <- nil
		}()
		for time.Now().Before(end) {
			begin := time.Now()
			if _, err := noop.Enqueue(ctx, h.client, hundred); err != nil {
				return nil, errors.Join(err, <-bulk)
			}
			took = append(took, time.Since(begin))
			time.Sleep(2 * time.Millisecond)
		}
		return took, <-bulk
	}
	if _, err := watch(length / 60); err != nil { // warm up
		return nil, err
	}
	before, err := watch(length / 5)
	if err != nil {
		return nil, err
	}
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return nil, err
	}
	var rows int64
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM carillon_log").Scan(&rows); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	figures := map[string]float64{"before_p50_ms": percentile(before, .5), "before_p99_ms": percentile(before, .99)}
	first, err := watch(length * 4 / 5)
	if err == nil {
		var last []time.Duration
		if last, err = watch(length / 5); err == nil {
			figures["held_p99_ms"] = percentile(append(first, last...), .99)
			figures["last_p50_ms"], figures["last_p99_ms"] = percentile(last, .5), percentile(last, .99)
			figures["held_s"] = length.Seconds()
		}
	}
	if h.db.url.Scheme == "postgres" && err == nil {
		var dead int64
		err = db.QueryRowContext(ctx, "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'carillon_log'").Scan(&dead)
		figures["dead_rows"] = float64(dead)
	}
	return figures, errors.Join(err, tx.Rollback())
}
