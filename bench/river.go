package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverQueue is River on PostgreSQL.
type riverQueue struct {
	tuned  bool
	db     *server
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
	fleet  workerSet
}

// riverArgs are the arguments of all systems; River wants a kind.
type riverArgs struct{ noArgs }

// Kind is the name under which River stores the job.
func (riverArgs) Kind() string { return "bench" }

func riverLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

// riverPool has a connection for each of 64 callers: the driver's own limit of four would be what is measured.
func riverPool(ctx context.Context, url string, conns int32) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	c.MaxConns = conns
	return pgxpool.NewWithConfig(ctx, c)
}

func (r *riverQueue) start(ctx context.Context, dir string, workers int) (err error) {
	if r.db, err = launch(ctx, "postgres", dir); err != nil {
		return err
	}
	if r.pool, err = riverPool(ctx, r.db.url.String(), 64); err != nil {
		return err
	}
	driver := riverpgxv5.New(r.pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: riverLog()})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	c := &river.Config{Logger: riverLog()}
	r.tune(c)
	if r.client, err = river.NewClient(driver, c); err != nil {
		return err
	}
	for range workers {
		if err := r.fleet.hire(ctx, r.order(0)); err != nil {
			return err
		}
	}
	return r.led(ctx)
}

// tune sets what both sides have: who enqueues does not wake workers more often than the cooldown.
func (r *riverQueue) tune(c *river.Config) {
	if r.tuned {
		c.FetchCooldown, c.FetchPollInterval = 2*time.Millisecond, 20*time.Millisecond
	}
}

func (r *riverQueue) order(keys int) order {
	return order{System: "river", URL: r.db.url.String(), Tuned: r.tuned, Keys: keys}
}

// led waits for a leader, without which nothing that is delayed would be released.
func (r *riverQueue) led(ctx context.Context) error {
	for {
		var n int
		err := r.pool.QueryRow(ctx, "SELECT count(*) FROM river_leader").Scan(&n)
		if err != nil || n > 0 {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// batch uses COPY, River's fastest way in.
func (r *riverQueue) batch(ctx context.Context, first, n int) error {
	many := make([]river.InsertManyParams, n)
	for i := range many {
		many[i].Args = riverArgs{hundredOf(first + i)}
	}
	_, err := r.client.InsertManyFast(ctx, many)
	return err
}

func (r *riverQueue) one(ctx context.Context, a noArgs) error {
	_, err := r.client.Insert(ctx, riverArgs{a}, nil)
	return err
}

func (r *riverQueue) later(ctx context.Context, due []time.Time) error {
	many := make([]river.InsertManyParams, len(due))
	for i, at := range due {
		a := hundredOf(i)
		a.Report = true
		many[i] = river.InsertManyParams{Args: riverArgs{a}, InsertOpts: &river.InsertOpts{ScheduledAt: at}}
	}
	_, err := r.client.InsertManyFast(ctx, many)
	return err
}

func (r *riverQueue) everySecond(ctx context.Context, keys int) error {
	r.fleet.dismiss()
	if err := r.fleet.hire(ctx, r.order(keys)); err != nil {
		return err
	}
	return r.led(ctx)
}

func (r *riverQueue) unsettled(ctx context.Context) (n int, err error) {
	err = r.pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE state IN ('available', 'running', 'scheduled', 'pending', 'retryable')").Scan(&n)
	return n, err
}

func (r *riverQueue) workerSet() *workerSet { return &r.fleet }

func (r *riverQueue) pids() []int {
	return append(r.fleet.pids(), r.db.cmd.Process.Pid)
}

func (r *riverQueue) stop() {
	r.fleet.dismiss()
	if r.pool != nil {
		r.pool.Close()
	}
	r.db.stop()
}

// riverWorker is River's handler.
type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	t *tally
}

// Work runs one job.
func (w *riverWorker) Work(_ context.Context, job *river.Job[riverArgs]) error {
	w.t.ran(job.Args.noArgs, job.ScheduledAt)
	return nil
}

// secondly is a schedule of each full second, as cron means it.
type secondly struct{}

// Next is the next full second.
func (secondly) Next(t time.Time) time.Time { return t.Truncate(time.Second).Add(time.Second) }

func handRiver(ctx context.Context, o order, t *tally) (leave func(), err error) {
	pool, err := riverPool(ctx, o.URL, 32)
	if err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{t: t})
	c := &river.Config{Logger: riverLog(), Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}}}
	if o.Tuned {
		c.Queues[river.QueueDefault] = river.QueueConfig{MaxWorkers: 2000}
	}
	(&riverQueue{tuned: o.Tuned}).tune(c)
	for k := range o.Keys {
		a := riverArgs{hundredOf(k)}
		a.Report = true
		c.PeriodicJobs = append(c.PeriodicJobs, river.NewPeriodicJob(secondly{}, func() (river.JobArgs, *river.InsertOpts) { return a, nil }, nil))
	}
	client, err := river.NewClient(riverpgxv5.New(pool), c)
	if err != nil {
		return nil, err
	}
	return func() { _ = client.Stop(context.Background()) }, client.Start(ctx)
}
