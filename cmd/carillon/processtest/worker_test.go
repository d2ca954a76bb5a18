//go:build unix

package processtest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// workerSpec configures a worker process.
type workerSpec struct {
	URL     string
	Name    string
	Journal string // the directory
	Slots   int
	Ticks   bool // it has the recurring jobs, too
}

// task is what a run is asked to do: to take its time.
type task struct {
	Number int    `json:"number,omitempty"`
	Millis int    `json:"millis,omitempty"` // for so long,
	Until  string `json:"until,omitempty"`  // or until a file of this name is there
	// Stubborn: it does not heed its context.
	Stubborn bool `json:"stubborn,omitempty"`
	// First is a file that the first attempt waits for, without heeding its context. Later attempts are as above.
	First string `json:"first,omitempty"`
}

// token is the result of a run: which attempt did the work, and where.
type token struct {
	Attempt uint32 `json:"attempt"`
	PID     int    `json:"pid"`
}

// The jobs of the worker.
const (
	plainJob   jobs.Trigger[task] = "process.plain"
	threeJob   jobs.Trigger[task] = "process.three" // at most three at a time; the others wait
	oneJob     jobs.Trigger[task] = "process.one"   // at most one
	hastyJob   jobs.Trigger[task] = "process.hasty" // at most one, for a second
	floodJob   jobs.Trigger[task] = "process.flood" // only the first run of a process is in the journal
	tickAllJob jobs.Key           = "process.tick-all"
	tickOneJob jobs.Key           = "process.tick-once"
)

// beWorker is the life of a worker process.
func beWorker(raw string) int {
	if err := work(raw); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func work(raw string) error {
	var h workerSpec
	if err := json.Unmarshal([]byte(raw), &h); err != nil {
		return err
	}
	j, err := openJournal(h.Journal)
	if err != nil {
		return err
	}
	do := jobs.TriggeredFunc[task](j.do)
	tick := jobs.RecurringFunc(func(ctx context.Context) error { return j.do(ctx, task{}) })
	var once sync.Once
	flood := jobs.TriggeredFunc[task](func(ctx context.Context, a task) (err error) {
		once.Do(func() { err = j.do(ctx, a) })
		return err
	})
	all := func(o jobs.Options) jobs.Options { // tests ask for every run
		o.KeepSucceeded, o.KeepOthers = jobs.None, jobs.None
		return o
	}
	list := []jobs.Job{
		jobs.NewTriggered(do, all(jobs.Options{Key: jobs.Key(plainJob)})),
		jobs.NewTriggered(do, all(jobs.Options{Key: jobs.Key(threeJob), MaxConcurrency: 3})),
		jobs.NewTriggered(do, all(jobs.Options{Key: jobs.Key(oneJob), MaxConcurrency: 1})),
		jobs.NewTriggered(do, all(jobs.Options{Key: jobs.Key(hastyJob), MaxConcurrency: 1, Timeout: time.Second, Retries: 1})),
		jobs.NewTriggered(flood, all(jobs.Options{Key: jobs.Key(floodJob)})),
	}
	if h.Ticks {
		list = append(list,
			jobs.NewRecurring(tick, all(jobs.Options{Key: tickAllJob, Cron: "* * * * * *", Misfire: jobs.MisfireAll, MaxConcurrency: jobs.None})),
			jobs.NewRecurring(tick, all(jobs.Options{Key: tickOneJob, Cron: "* * * * * *", Misfire: jobs.MisfireOnce, MaxConcurrency: jobs.None})))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	w, err := carillon.NewWorker(h.URL, worker.Config{App: "process", Name: h.Name, Slots: h.Slots, Logger: log}, list...)
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// do is the handler of all jobs.
func (j *journal) do(ctx context.Context, a task) error {
	at := jobs.Attempt(ctx)
	l := line{What: began, Run: at.Run, Key: at.Key, Due: at.Due, Attempt: at.Number, PID: os.Getpid(), At: time.Now()}
	if err := j.write(l); err != nil {
		return err
	}
	err := a.take(ctx, at.Number)
	l.What, l.At = ended, time.Now()
	if err != nil {
		l.Cause = err.Error()
	}
	if err := j.write(l); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	return jobs.Result(ctx, token{at.Number, os.Getpid()})
}

// take takes its time. It returns why it was broken off, or nil.
func (a task) take(ctx context.Context, attempt uint32) error {
	heed := ctx.Done()
	if a.Stubborn {
		heed = nil
	}
	if a.First != "" && attempt == 1 {
		return task{Until: a.First, Stubborn: true}.take(ctx, attempt)
	}
	over := time.After(time.Duration(a.Millis) * time.Millisecond)
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		if a.Until == "" {
			look.Stop()
		}
		select {
		case <-heed:
			return context.Cause(ctx)
		case <-look.C:
			if _, err := os.Stat(a.Until); err == nil {
				return nil
			}
			continue
		case <-over:
		}
		if a.Until == "" {
			return nil
		}
		over = nil
	}
}
