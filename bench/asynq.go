package main

import (
	"context"
	"encoding/json"
	"net/url"
	"time"

	"github.com/hibiken/asynq"
)

// asynqQueue is asynq on Redis. It forgets a task that has succeeded at once; the others keep it.
type asynqQueue struct {
	tuned     bool
	aof       string // no, everysec, always
	db        *server
	client    *asynq.Client
	inspector *asynq.Inspector
	fleet     workerSet
}

// asynqAt has a connection for each of 64 callers and handlers.
func asynqAt(path string) asynq.RedisClientOpt {
	return asynq.RedisClientOpt{Network: "unix", Addr: path, PoolSize: 80}
}

func (q *asynqQueue) start(ctx context.Context, dir string, workers int) (err error) {
	args := []string{"--appendonly", "no"}
	if q.aof != "no" {
		args = []string{"--appendonly", "yes", "--appendfsync", q.aof}
	}
	if q.db, err = launch(ctx, "redis", dir, args...); err != nil {
		return err
	}
	q.client, q.inspector = asynq.NewClient(asynqAt(q.db.url.Path)), asynq.NewInspector(asynqAt(q.db.url.Path))
	for range workers {
		if err := q.fleet.hire(ctx, q.order(0)); err != nil {
			return err
		}
	}
	return nil
}

func (q *asynqQueue) order(keys int) order {
	return order{System: "asynq", URL: q.db.url.String(), Tuned: q.tuned, Keys: keys}
}

func (q *asynqQueue) batch(context.Context, int, int) error { return errNone }

func asynqTask(a noArgs) (*asynq.Task, error) {
	b, err := json.Marshal(a)
	return asynq.NewTask("bench", b), err
}

func (q *asynqQueue) one(ctx context.Context, a noArgs) error {
	task, err := asynqTask(a)
	if err != nil {
		return err
	}
	_, err = q.client.EnqueueContext(ctx, task)
	return err
}

func (q *asynqQueue) later(ctx context.Context, due []time.Time) error {
	for i, at := range due {
		a := hundredOf(i)
		a.Report = true
		task, err := asynqTask(a)
		if err != nil {
			return err
		}
		if _, err := q.client.EnqueueContext(ctx, task, asynq.ProcessAt(at)); err != nil {
			return err
		}
	}
	return nil
}

func (q *asynqQueue) everySecond(ctx context.Context, keys int) error {
	q.fleet.dismiss()
	return q.fleet.hire(ctx, q.order(keys))
}

func (q *asynqQueue) unsettled(context.Context) (int, error) {
	queues, err := q.inspector.Queues()
	if err != nil || len(queues) == 0 { // the queue comes into being with its first task
		return 0, err
	}
	i, err := q.inspector.GetQueueInfo("default")
	if err != nil {
		return 0, err
	}
	return i.Pending + i.Active + i.Scheduled + i.Retry + i.Archived, nil
}

func (q *asynqQueue) workerSet() *workerSet { return &q.fleet }

func (q *asynqQueue) pids() []int { return append(q.fleet.pids(), q.db.cmd.Process.Pid) }

func (q *asynqQueue) stop() {
	q.fleet.dismiss()
	if q.client != nil {
		_ = q.client.Close()
		_ = q.inspector.Close()
	}
	q.db.stop()
}

func handAsynq(o order, t *tally) (leave func(), err error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, err
	}
	c := asynq.Config{LogLevel: asynq.ErrorLevel}
	if o.Tuned {
		c.Concurrency, c.TaskCheckInterval, c.DelayedTaskCheckInterval = 64, 10*time.Millisecond, 10*time.Millisecond
	}
	server := asynq.NewServer(asynqAt(u.Path), c)
	run := asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		var a noArgs
		if err := json.Unmarshal(task.Payload(), &a); err != nil {
			return err
		}
		t.ran(a, time.Time{}) // handlers do not get the due time
		return nil
	})
	if err := server.Start(run); err != nil {
		return nil, err
	}
	if o.Keys == 0 {
		return server.Shutdown, nil
	}
	scheduler := asynq.NewScheduler(asynqAt(u.Path), &asynq.SchedulerOpts{LogLevel: asynq.ErrorLevel})
	for k := range o.Keys {
		a := hundredOf(k)
		a.Report = true
		task, err := asynqTask(a)
		if err != nil {
			return nil, err
		}
		if _, err := scheduler.Register("@every 1s", task); err != nil {
			return nil, err
		}
	}
	return func() { scheduler.Shutdown(); server.Shutdown() }, scheduler.Start()
}
