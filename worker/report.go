package worker

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// report tells the store how an attempt ended whose handler has returned.
func (w *Worker) report(ctx context.Context, a *attempt, f jobs.Finish) {
	if a.over() { // cancelled, or timed out by the leader: only the return is news
		w.returned(ctx, a)
		return
	}
	w.finish(ctx, a, f)
}

// finish sends the end of an attempt until the store has answered. A refusal means that the run was taken from us
// meanwhile, and then what we know of it is worth nothing to anybody.
func (w *Worker) finish(ctx context.Context, a *attempt, f jobs.Finish) {
	f.ID, f.Worker, f.Attempt = a.ID, w.name, a.Attempt
	late := time.AfterFunc(30*time.Second, func() {
		w.log.Warn("end of an attempt is not known to the store yet, trying on", "key", a.key, "instance", a.ID, "attempt", a.Attempt)
	})
	defer late.Stop()
	w.send(ctx, []jobs.Envelope{w.envelope(f)}, forReport, func(_ int, r metastore.Result) {
		facts := []any{"key", a.key, "instance", a.ID, "attempt", a.Attempt}
		if r.Err == nil {
			w.held.count(f.Outcome)
			w.log.Debug("attempt ended", append(facts, "outcome", f.Outcome)...)
			return
		}
		if !a.over() {
			w.held.count(0)
		}
		facts = append(facts, "err", r.Err)
		switch jobs.CodeOf(r.Err) {
		case jobs.Conflict:
			// Cancelled while we were busy: its slots wait for our word that the handler has returned.
			a.endedBy(r.Err)
			if !f.Running {
				w.returned(ctx, a)
			}
		case jobs.Stale, jobs.NotFound:
			a.disown()
			w.log.Info("run was taken from this worker", facts...)
		case jobs.Unknown, jobs.Unavailable:
			w.log.Error("outcome of an attempt is unknown: its lease will lapse", facts...)
		default:
			w.log.Error("end of an attempt is refused: its lease will lapse", facts...)
			a.disown()
		}
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
