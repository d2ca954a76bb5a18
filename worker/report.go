package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// conclusion is how an attempt ended whose handler has returned.
type conclusion struct {
	a *attempt
	f jobs.Finish
}

// reports are conclusions on their way to the store. Those that come while others are under way go together.
type reports struct {
	mu      sync.Mutex
	waiting []conclusion
	busy    int
}

const (
	reportsTogether = 1000 // conclusions in one batch
	reportsAtOnce   = 4    // batches under way
)

// conclude passes a conclusion on to the store and forgets the attempt when it is known there. It does not wait.
func (w *Worker) conclude(ctx context.Context, c conclusion) {
	r := &w.reports
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, c)
	if r.busy < reportsAtOnce {
		r.busy++
		go w.deliver(ctx)
	}
}

// deliver sends conclusions until none is waiting.
func (w *Worker) deliver(ctx context.Context) {
	r := &w.reports
	for {
		r.mu.Lock()
		batch := r.waiting[:min(len(r.waiting), reportsTogether)]
		r.waiting = r.waiting[len(batch):]
		if len(batch) == 0 {
			r.busy--
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		w.finish(ctx, batch, func(a *attempt, cancelled bool) {
			if !cancelled {
				w.held.drop(a)
				return
			}
			go func() { // its slots wait for our word that the handler has returned
				w.returned(ctx, a)
				w.held.drop(a)
			}()
		})
	}
}

// finish sends the ends of attempts until the store has answered, and calls known for each then. A refusal means
// that the run was taken from us meanwhile, and then what we know of it is worth nothing to anybody; or that it was
// cancelled while we were busy.
func (w *Worker) finish(ctx context.Context, ends []conclusion, known func(a *attempt, cancelled bool)) {
	late := time.AfterFunc(30*time.Second, func() {
		w.log.Warn("ends of attempts are not known to the store yet, trying on", "attempts", len(ends), "instance", ends[0].a.ID)
	})
	defer late.Stop()
	batch := make([]jobs.Envelope, len(ends))
	for i, c := range ends {
		c.f.ID, c.f.Worker, c.f.Attempt = c.a.ID, w.name, c.a.Attempt
		batch[i] = w.envelope(c.f)
	}
	w.send(ctx, batch, forReport, func(i int, r metastore.Result) {
		a, f := ends[i].a, &ends[i].f
		if r.Err == nil {
			w.held.count(f.Outcome)
			if w.log.Enabled(ctx, slog.LevelDebug) {
				w.log.Debug("attempt ended", "key", a.key, "instance", a.ID, "attempt", a.Attempt, "outcome", f.Outcome)
			}
			known(a, false)
			return
		}
		if !a.over() {
			w.held.count(0)
		}
		facts := []any{"key", a.key, "instance", a.ID, "attempt", a.Attempt, "err", r.Err}
		cancelled := false
		switch jobs.CodeOf(r.Err) {
		case jobs.Conflict:
			a.endedBy(r.Err)
			cancelled = true
		case jobs.Stale, jobs.NotFound:
			a.disown()
			w.log.Info("run was taken from this worker", facts...)
		case jobs.Unknown, jobs.Unavailable:
			w.log.Error("outcome of an attempt is unknown: its lease will lapse", facts...)
		default:
			w.log.Error("end of an attempt is refused: its lease will lapse", facts...)
			a.disown()
		}
		known(a, cancelled)
	})
}

// returned tells the store that the handler of an attempt which was over has returned: its slots are free.
func (w *Worker) returned(ctx context.Context, a *attempt) {
	if a.isStale() {
		return
	}
	w.sayReturned(ctx, a.token)
}

func (w *Worker) sayReturned(ctx context.Context, t token) {
	batch := []jobs.Envelope{w.envelope(jobs.Returned{ID: t.ID, Worker: w.name, Attempt: t.Attempt})}
	w.send(ctx, batch, forReport, func(_ int, r metastore.Result) {
		if r.Err != nil {
			w.log.Debug("return of a handler is refused", "instance", t.ID, "attempt", t.Attempt, "err", r.Err)
		}
	})
}
