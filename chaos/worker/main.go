// Command worker is a worker of the chaos driver: an ordinary program of an ordinary user, which knows jobs, workers
// and the URL of a bus. Its handlers write down what they do in a file that the scheduler knows nothing of.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/chaos/judge"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// orders is the worker's configuration, as JSON in the environment.
type orders struct {
	URL   string
	Name  string
	Slots int
	Dir   string // of the journals
	Specs []judge.Spec
}

// task is what a run is asked to do.
type task struct {
	Millis   int  `json:"millis,omitempty"`   // take so long,
	Fail     int  `json:"fail,omitempty"`     // fail in the first so many attempts,
	Stubborn bool `json:"stubborn,omitempty"` // and heed no context
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var o orders
	if err := json.Unmarshal([]byte(os.Getenv("CHAOS_WORKER")), &o); err != nil {
		return fmt.Errorf("CHAOS_WORKER: %w", err)
	}
	journal, err := judge.Open(o.Dir, judge.JournalFile(fmt.Sprintf("%s-%d", o.Name, os.Getpid())))
	if err != nil {
		return err
	}
	h := &handler{journal}
	var list []jobs.Job
	for _, s := range o.Specs {
		list = append(list, h.job(s))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	for {
		w, err := carillon.NewWorker(o.URL, worker.Config{App: "chaos", Name: o.Name, Slots: o.Slots, Logger: log, Grace: 10 * time.Second}, list...)
		if err == nil {
			return w.Run(ctx)
		}
		log.Warn("no bus answers yet", "err", err) // a worker that starts during an outage waits for its end
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

// handler is the handler of all jobs.
type handler struct{ journal *judge.Writer }

// job makes a job of what it is meant to be.
func (h *handler) job(s judge.Spec) jobs.Job {
	o := jobs.Options{Key: jobs.Key(s.Key), TimeZone: s.Zone, Start: s.Start, End: s.End, Misfire: jobs.Misfire(s.Misfire), Overlap: jobs.Overlap(s.Overlap),
		MaxConcurrency: s.MaxConcurrency, Retries: s.Retries, Timeout: s.Timeout, OnLost: jobs.OnLost(s.OnLost),
		KeepSucceeded: jobs.None, KeepOthers: jobs.None} // the judge asks for all of them
	if s.MaxConcurrency == 0 {
		o.MaxConcurrency = jobs.None
	}
	for _, l := range s.Limits {
		o.Limits = append(o.Limits, jobs.Limit{Name: l.Name, Max: l.Max})
	}
	if s.Schedule == "" {
		return jobs.NewTriggered(jobs.TriggeredFunc[task](h.do), o)
	}
	if every, ok := strings.CutPrefix(s.Schedule, "@every "); ok {
		o.Every, _ = time.ParseDuration(every)
	} else {
		o.Cron = s.Schedule
	}
	return jobs.NewRecurring(jobs.RecurringFunc(func(ctx context.Context) error {
		return h.do(ctx, task{Millis: int(s.Typical.Milliseconds() * (50 + rand.Int64N(100)) / 100)})
	}), o)
}

// do is the handler of all jobs.
func (h *handler) do(ctx context.Context, t task) error {
	of := jobs.Attempt(ctx)
	line := judge.Line{What: judge.Start, Key: string(of.Key), Run: of.Run.String(), Due: of.Due.UnixNano(), Attempt: of.Number, Worker: of.Worker, PID: os.Getpid(), At: judge.Now()}
	if err := h.journal.Write(line); err != nil {
		return err
	}
	err := t.take(ctx, of.Number)
	if err == nil {
		err = jobs.Result(ctx, judge.Token{Attempt: of.Number, PID: os.Getpid()})
	}
	line.What, line.Outcome = judge.End, "ok"
	if err != nil {
		line.Outcome = err.Error()
	}
	if ctx.Err() != nil {
		line.Cause = context.Cause(ctx).Error()
	}
	line.At = judge.Now()
	return errors.Join(err, h.journal.Write(line))
}

func (t task) take(ctx context.Context, attempt uint32) error {
	heed := ctx.Done()
	if t.Stubborn {
		heed = nil
	}
	select {
	case <-heed:
		return context.Cause(ctx)
	case <-time.After(time.Duration(t.Millis) * time.Millisecond):
	}
	if int(attempt) <= t.Fail {
		return errors.New("fails on request")
	}
	return nil
}
