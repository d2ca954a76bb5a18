package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/outcome"
	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/trace"
)

// attempt is one attempt of a run that this worker holds.
type attempt struct {
	token
	key     jobs.Key
	handler jobs.Key      // of the job whose code runs it
	leftAt  time.Time     // when its handler returned; zero = it has not; guarded by held.mu
	dropped chan struct{} // closed when it is forgotten; nil = no waiter; guarded by held.mu
	renewed time.Time     // see held.renewed; guarded by held.mu

	in       *kernel.Run // as it was pushed; never changed
	accepted time.Time   // when the push was: the attempt's time begins here
	// spent is how much of its time had passed before: of an attempt that was begun elsewhere.
	spent time.Duration
	// finish is how it ended; set by the code that reports it to the store.
	finish kernel.Finish
	// unknown: the store has not answered whether it has that.
	unknown bool

	// The next fields are for attempts with a deadline and without a timer; guarded by young.mu.
	young        bool
	bornAt       uint64
	older, newer *attempt

	mu       sync.Mutex
	living   context.Context // of the worker; nil until the attempt has begun
	onEnd    func()          // called when the handler's context has ended
	ctx      context.Context // of the handler; nil until first used (see handlerContext)
	cancel   context.CancelCauseFunc
	release  func()        // of the timer of its deadline; nil = no deadline
	forgo    func() bool   // of onEnd
	back     bool          // the handler has returned, or will not be called
	left     bool          // the attempt has gone on without it
	returned chan struct{} // closed when the handler returns; nil = no waiter
	span     trace.Span

	endCause   error // why the handler's context was ended, or is to be
	ended      error // why the attempt was ended elsewhere (the store knows already), or nil
	stale      bool  // not ours any more: our reports about it are ignored
	stuck      bool
	logger     *slog.Logger
	progress   *bus.Progress
	result     []byte
	checkpoint []byte
	log        attemptLog
	settled    *kernel.Run // the run as the attempt left it, once the store has that
	refusal    error       // why the store refused its end
	released   *kernel.Run // the run as the return of a handler left it, whose attempt had ended before
}

// deadline is when the attempt times out, on this machine's clock; zero = never. Deadline and Started are both the
// store's times, so their difference is right even if the clocks differ.
func (a *attempt) deadline() time.Time {
	if a.in.Deadline.IsZero() {
		return time.Time{}
	}
	return a.accepted.Add(a.in.Deadline.Sub(a.in.Started) - a.spent)
}

// answer is the result of a handler, and when it returned.
type answer struct {
	at      time.Time
	outcome kernel.Outcome // as the handler has it: Success, Error, Fatal or Snooze
	text    string         // of the error
	code    string         // of the error, as jobs.Fail gave it
	delay   time.Duration
	// echo: the error is that of a context which ended, and not the handler's own.
	echo bool
	// cause is why its context had ended when it returned, or nil.
	cause error
}

// attend runs one attempt, on the goroutine that calls it, and forgets it, or leaves that to the report that is on its
// way. A handler that continues after its context has ended is left to overdue.
func (w *Worker) attend(living context.Context, a *attempt) {
	cause := a.begin(living, func() { w.overdue(living, a) })
	switch {
	case a.over(): // stopped before it began
		a.comesBack()
		w.returned(living, a)
		w.held.drop(a)
		return
	case cause != nil || w.held.isClosed() || !w.leased(a):
		// The worker is draining: better another one begins this run than this one breaks it off. Or the store may have
		// taken the attempt away, and another worker begins the run.
		a.comesBack()
		a.finish = kernel.Finish{Outcome: kernel.OutcomeHandback, Error: jobs.ErrShutdown.Error()}
		w.conclude(living, a)
		return
	}
	if !a.in.Deadline.IsZero() {
		w.young.add(a)
	}
	if a.in.Terms.LeaseLost == jobs.LeaseCancel {
		go w.guard(a.context(), a)
	}
	if w.log.Enabled(living, slog.LevelDebug) { // naming the facts costs more than a run that does nothing
		w.log.Debug("attempt begun", "key", a.key, "run", a.ID, "attempt", a.Attempt)
	}
	ctx, span := trace.Attempt(handlerContext{a}, a.in)
	a.traceBegun(span)
	got := answer{outcome: kernel.OutcomeError}
	defer w.came(living, a, &got) // deferred, because a handler may end its goroutine
	call(jobs.WithRunning(ctx, &lent{w, a}), a, w.handler(a.handler), &got)
}

// came processes the result of a handler, now that it has returned.
func (w *Worker) came(living context.Context, a *attempt, got *answer) {
	w.young.gone(a)
	w.held.left(a, got.at) // first: the next attempt may be pushed as soon as the store has this one's end
	if !a.comesBack() {
		return
	}
	a.finish = a.verdict(got)
	a.traceOver(a.finish, got.at)
	if !a.over() {
		w.conclude(living, a)
		return
	}
	// Cancelled, or timed out by the leader: only the return is to be reported.
	w.returned(living, a)
	w.held.drop(a)
}

// facts are the log attributes of an attempt.
func (a *attempt) facts() []any { return []any{"key", a.key, "run", a.ID, "attempt", a.Attempt} }

// traceBegun keeps the span of the attempt.
func (a *attempt) traceBegun(span trace.Span) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.span = span
}

// traceOver ends the span of an attempt.
func (a *attempt) traceOver(f kernel.Finish, at time.Time) {
	a.mu.Lock()
	span, over := a.span, a.ended != nil
	a.mu.Unlock()
	if over {
		f.Outcome = trace.Cancelled
	}
	span.Over(f.Outcome, f.Error, at)
}

// over reports whether the store already knows that the attempt has ended.
func (a *attempt) over() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ended != nil
}

func (a *attempt) isStuck() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stuck
}

func (a *attempt) isStale() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stale
}

// line returns the attempt's entry in a heartbeat.
func (a *attempt) line() bus.Held {
	a.mu.Lock()
	defer a.mu.Unlock()
	return bus.Held{ID: a.ID, Attempt: a.Attempt, Stuck: a.stuck, Progress: a.progress}
}

// call calls a handler and survives a panic or runtime.Goexit. It also classifies the handler's error, because errors
// are user code as well.
func call(ctx context.Context, a *attempt, h Handler, got *answer) {
	done := false
	defer func() {
		got.at, got.cause = time.Now(), a.cause()
		if !done {
			*got = answer{at: got.at, cause: got.cause, outcome: kernel.OutcomeError}
			if p := recover(); p != nil {
				got.code = kernel.CodePanic
				got.text = fmt.Sprintf("panic: %v\n\n%s", p, debug.Stack())
			} else {
				got.text = fmt.Sprintf("the handler ended its goroutine (runtime.Goexit)\n\n%s", debug.Stack())
			}
		}
		if got.text != "" {
			got.text = plain.Short(got.text, kernel.MaxError)
		}
	}()
	err := h(ctx, a.in.Args)
	if err == nil {
		got.outcome = kernel.OutcomeSuccess
	} else if delay, ok := outcome.Snoozed(err); ok {
		got.outcome, got.delay = kernel.OutcomeSnooze, min(max(delay, 0), kernel.MaxDelay)
		if got.code = outcome.CodeOf(err); got.code != "" { // a code was given
			got.text = err.Error()
		}
	} else {
		got.text, got.code = err.Error(), outcome.CodeOf(err)
		got.echo = errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Cause(ctx))
		if outcome.IsFinal(err) {
			got.outcome = kernel.OutcomeFatal
		}
	}
	done = true
}

// verdict turns a handler's result into how its attempt ended:
//
//   - It returned at or after its deadline: Timeout, with any result. Before: its result, even if that was not looked
//     at until later.
//   - Its context had been ended because the worker is stopping or its lease was lost, and it returned an error: the
//     run is given back, because that is no failure of its own. (An error from jobs.NoRetry that is more than the
//     context's own stays what it is.)
//   - Otherwise it is the handler's result. A nil counts in spite of an ended context: the work is done.
//
// Of a cancelled run, only the handler's return is reported; see report.
func (a *attempt) verdict(got *answer) kernel.Finish {
	f := kernel.Finish{Outcome: got.outcome, Error: got.text, Code: got.code, Delay: got.delay}
	due := a.deadline()
	switch {
	case !due.IsZero() && !got.at.Before(due):
		f = kernel.Finish{Outcome: kernel.OutcomeTimeout, Error: a.timeoutText()}
		if got.text != "" && !got.echo {
			f.Error = plain.Short(f.Error+"; then the handler returned: "+got.text, kernel.MaxError)
		}
	case got.outcome == kernel.OutcomeSuccess:
		a.mu.Lock()
		f.Result = a.result
		a.mu.Unlock()
	case got.outcome == kernel.OutcomeError || got.outcome == kernel.OutcomeFatal && got.echo:
		if errors.Is(got.cause, jobs.ErrShutdown) || errors.Is(got.cause, jobs.ErrLeaseLost) {
			f.Outcome = kernel.OutcomeHandback
		}
	}
	return f
}

func (a *attempt) timeoutText() string {
	return fmt.Sprintf("%v of %v", jobs.ErrTimeout, a.in.Deadline.Sub(a.in.Started))
}
