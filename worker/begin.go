package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
)

// beginJobs initialises the jobs, one after the other. A job that fails is not served by this worker, which shows that
// in its log and on the page of workers; the others are served. It is an error if none is left.
func (w *Worker) beginJobs(ctx context.Context) error {
	var first error
	for _, key := range slices.Clone(w.order) {
		job := w.jobs[key].source
		err := guarded(func() error { return job.Init(ctx) })
		if err == nil {
			w.begun = append(w.begun, job)
			continue
		}
		w.log.Error("a job could not be initialised and is not served by this worker", "key", key, "err", err)
		if first == nil {
			first = fmt.Errorf("job %s: init: %w", key, err)
		}
		w.fault(key, plain.Short(err.Error(), mostProgress))
		delete(w.jobs, key)
		w.order = slices.DeleteFunc(w.order, func(k jobs.Key) bool { return k == key })
	}
	if len(w.order) == 0 && w.others == nil {
		return errors.Join(errors.New("no job is left to serve"), first)
	}
	return nil
}

// fault records why a job is not served.
func (w *Worker) fault(key jobs.Key, why string) {
	w.faulty.Lock()
	defer w.faulty.Unlock()
	if w.faults == nil {
		w.faults = map[jobs.Key]string{}
	}
	w.faults[key] = why
}

// finishJobs closes what was initialised, the last one first. No handler runs any more, but for those that do not
// return.
func (w *Worker) finishJobs() {
	for _, job := range slices.Backward(w.begun) {
		if err := guarded(job.Close); err != nil {
			w.log.Warn("a job could not be closed", "key", job.Key(), "err", err)
		}
	}
}

// guarded calls code of the user, which may panic.
func guarded(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n\n%s", p, debug.Stack())
		}
	}()
	return fn()
}
