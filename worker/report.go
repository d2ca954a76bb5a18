package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// reports are attempts whose handlers have returned, on their way to the store. Those that come while others are under
// way are sent together.
type reports struct {
	mu      sync.Mutex
	waiting []*attempt
	busy    int
}

const (
	reportsTogether = 1000 // attempts in one batch
	reportsAtOnce   = 4    // batches under way
)

// conclude reports to the store how an attempt ended, and forgets it when that is stored. It does not wait.
func (w *Worker) conclude(ctx context.Context, a *attempt) {
	r := &w.reports
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, a)
	if r.busy < reportsAtOnce {
		r.busy++
		go w.deliver(ctx)
	}
}

// deliver sends waiting reports until there are none.
func (w *Worker) deliver(ctx context.Context) {
	r := &w.reports
	for {
		r.mu.Lock()
		n := min(len(r.waiting), reportsTogether)
		batch := r.waiting[:n:n]
		if r.waiting = r.waiting[n:]; len(r.waiting) == 0 {
			r.waiting = nil // the batch is ours alone
		}
		if n == 0 {
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
			go func() { // its slots wait for our report that the handler has returned
				w.returned(ctx, a)
				w.held.drop(a)
			}()
		})
	}
}

// finish sends the ends of attempts until the store has answered, and calls known for each then. A refusal means that
// the run was taken from us meanwhile, and then our result is worthless; or that it was cancelled while we were busy.
func (w *Worker) finish(ctx context.Context, ends []*attempt, known func(a *attempt, cancelled bool)) {
	late := time.AfterFunc(30*time.Second, func() {
		w.episodes.Failed(slog.LevelWarn, "", "ends of attempts are not stored yet, trying again", "attempts", len(ends), "run", ends[0].ID)
	})
	defer late.Stop()
	batch := make([]kernel.Envelope, len(ends))
	for i, a := range ends {
		a.finish.ID, a.finish.Worker, a.finish.Attempt = a.ID, w.name, a.Attempt
		batch[i] = w.envelope(a.finish)
		if w.config.Echo != nil && a.finish.Error != "" { // before the store knows: the next attempt may begin at once
			w.config.Echo.With(a.facts()...).Warn("attempt failed", "err", a.finish.Error)
		}
	}
	w.send(ctx, batch, forReport, func(i int, r metastore.Result) {
		a := ends[i]
		f := &a.finish
		if w.remote != nil { // for a waiting Finish
			a.settle(r)
		}
		if r.Err == nil {
			w.held.count(f.Outcome)
			if w.log.Enabled(ctx, slog.LevelDebug) {
				w.log.Debug("attempt ended", "key", a.key, "run", a.ID, "attempt", a.Attempt, "outcome", f.Outcome)
			}
			known(a, false)
			return
		}
		if !a.over() {
			w.held.count(0)
		}
		facts := []any{"key", a.key, "run", a.ID, "attempt", a.Attempt, "err", r.Err}
		cancelled := false
		switch jobs.CodeOf(r.Err) {
		case jobs.Conflict:
			a.endedBy(r.Err)
			cancelled = true
		case jobs.Stale, jobs.NotFound:
			w.held.disown(a)
			w.log.Info("run was taken from this worker", facts...)
		case jobs.Unknown, jobs.Unavailable:
			a.unknown = true
			w.held.lose(a)
			w.episodes.Failed(slog.LevelWarn, "", "outcome of an attempt is unknown: its lease will expire", facts...)
		default:
			w.held.lose(a)
			w.episodes.Failed(slog.LevelError, "", "end of an attempt is refused: its lease will expire", facts...)
			w.held.disown(a)
		}
		known(a, cancelled)
	})
}

// settle records the store's answer about the end of an attempt.
func (a *attempt) settle(r metastore.Result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.settled, a.refusal = r.Run(), r.Err; r.Err != nil {
		a.settled = nil
	}
}

// returned reports to the store that the handler of an attempt which had ended has returned: its slots are free.
func (w *Worker) returned(ctx context.Context, a *attempt) {
	if a.isStale() {
		return
	}
	run := w.sendReturned(ctx, a.token)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.released = run
}

// sendReturned returns the run as it was then, or nil if that was refused. A moment later it may be in its next attempt.
func (w *Worker) sendReturned(ctx context.Context, t token) (run *kernel.Run) {
	batch := []kernel.Envelope{w.envelope(kernel.Returned{ID: t.ID, Worker: w.name, Attempt: t.Attempt})}
	w.send(ctx, batch, forReport, func(_ int, r metastore.Result) {
		if r.Err != nil {
			w.log.Debug("return of a handler is refused", "run", t.ID, "attempt", t.Attempt, "err", r.Err)
			return
		}
		run = r.Run()
	})
	return run
}
