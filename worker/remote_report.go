package worker

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Progress passes on the progress of an attempt.
func (r *Remote) Progress(ctx context.Context, run jobs.ID, attempt uint32, p bus.Progress) error {
	t, err := r.turn(ctx, token{run, attempt})
	if err != nil {
		return err
	}
	jobs.Progress(t.ctx, p.Done, p.Total, p.Text)
	return nil
}

// Save stores JSON for the next attempt of a run. It is durable when Save returns nil.
func (r *Remote) Save(ctx context.Context, run jobs.ID, attempt uint32, data []byte) error {
	t, err := r.turn(ctx, token{run, attempt})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return (&lent{r.worker, t.attempt}).Save(ctx, json.RawMessage(data))
}

// Line is a line of an attempt's log.
type Line struct {
	Level slog.Level
	Text  string
}

// Log appends lines. first is the number of the first of them, from 1, so that lines that come twice are stored once; 0
// = unnumbered.
func (r *Remote) Log(ctx context.Context, run jobs.ID, attempt uint32, first uint64, lines []Line) error {
	t, err := r.turn(ctx, token{run, attempt})
	if err != nil {
		return err
	}
	r.mu.Lock() // one request's lines follow each other
	defer r.mu.Unlock()
	known := r.worker.lines.number(t.attempt, first)
	for _, l := range lines[min(known, uint64(len(lines))):] {
		r.worker.lines.append(t.attempt, levelName(l.Level), l.Text)
	}
	return nil
}

// Finish ends an attempt with the outcome f of a handler. It returns the state of the run after the commit; a repeated
// call returns the same. The error is jobs.Stale if the worker had lost the attempt.
func (r *Remote) Finish(ctx context.Context, f kernel.Finish) (*kernel.Run, error) {
	r.Touch()
	if err := kernel.CheckResult(f.Result); err != nil {
		return nil, err
	}
	f.Error, f.Worker = plain.Short(f.Error, kernel.MaxError), r.worker.name
	k := token{f.ID, f.Attempt}
	r.mu.Lock()
	e := r.ends[k]
	if e == nil {
		e = &ending{done: make(chan struct{})}
		r.ends[k] = e
		go r.conclude(e, k, r.turns[k], f)
	}
	r.mu.Unlock()
	select {
	case <-e.done:
		return e.in, e.err
	case <-time.After(answerTime):
	case <-ctx.Done():
	}
	return nil, kernel.Refuse(jobs.Unavailable, "the end of run %s is not stored yet: send it again", f.ID)
}

// conclude completes the end of an attempt through its handler, or, if it has none here, through the store itself.
func (r *Remote) conclude(e *ending, k token, t *turn, f kernel.Finish) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	if t == nil {
		r.report(ctx, e, k, f)
	} else {
		dropped := r.worker.held.watch(t.attempt)
		if f.Outcome == kernel.OutcomeSuccess && len(f.Result) > 0 {
			t.attempt.mu.Lock()
			t.attempt.result = f.Result
			t.attempt.mu.Unlock()
		}
		t.end(errorOf(f))
		<-dropped
		a := t.attempt
		a.mu.Lock()
		settled, refusal, stale, released := a.settled, a.refusal, a.stale, a.released
		a.mu.Unlock()
		switch {
		case settled != nil && !a.over():
			e.in = settled
		case stale && refusal == nil:
			e.err = staleOf(k)
			select {
			case <-r.gone: // it may be another Remote's here, and is still the HTTP worker's
				e.err = errGone
			default:
			}
		case refusal != nil && jobs.CodeOf(refusal) != jobs.Conflict:
			e.err = refusal
		case released != nil: // it had ended before
			e.in = released
		default:
			e.in, e.err = r.own(ctx, k)
		}
	}
	if jobs.CodeOf(e.err) == jobs.NotFound {
		e.err = staleOf(k)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if code := jobs.CodeOf(e.err); e.err != nil && code != jobs.Stale {
		delete(r.ends, k) // it may be sent again
	} else {
		time.AfterFunc(keepEnds, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.ends, k)
		})
	}
	close(e.done)
}

// report sends an end to the store itself: of an attempt that is not held.
func (r *Remote) report(ctx context.Context, e *ending, k token, f kernel.Finish) {
	r.worker.send(ctx, []kernel.Envelope{r.worker.envelope(f)}, answerTime-time.Second, func(_ int, res metastore.Result) {
		e.in, e.err = res.Run(), res.Err
	})
	if e.err == nil {
		return
	}
	e.in = nil
	if jobs.CodeOf(e.err) == jobs.Conflict { // it had ended before, and its slots wait for its return
		if e.in, e.err = r.worker.sendReturned(ctx, k), nil; e.in == nil {
			e.in, e.err = r.own(ctx, k)
		}
	}
}

// errorOf returns the error by which a handler would end an attempt so.
func errorOf(f kernel.Finish) error {
	if f.Outcome == kernel.OutcomeSuccess {
		return nil
	}
	if f.Outcome == kernel.OutcomeSnooze {
		return jobs.Snooze(f.Delay)
	}
	err := errors.New(f.Error)
	if f.Code != "" {
		err = jobs.Fail(f.Code, err)
	}
	if f.Outcome == kernel.OutcomeFatal {
		err = jobs.NoRetry(err)
	}
	return err
}
