package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
)

const (
	// moment is what a handler gets to return after its context has ended, before the store is told that it has not.
	moment = time.Second
	// stuckAfter is when a handler that has not returned is called stuck.
	stuckAfter = 10 * time.Second
)

// attempt is one attempt of a run, in this worker's hand.
type attempt struct {
	token
	key   jobs.Key
	phase phase // guarded by held.mu

	in   *jobs.Instance // as claimed; never changed
	sent time.Time      // when the claim was sent: the attempt's clocks begin here

	mu         sync.Mutex
	cancel     context.CancelCauseFunc // nil until the handler has a context
	told       error                   // why the handler's context was ended, or is to be
	ended      error                   // why the attempt is over without our doing (the store knows already), or nil
	stale      bool                    // it is not ours any more: nothing that we say of it counts
	stuck      bool
	logger     *slog.Logger
	progress   *bus.Progress
	result     []byte
	checkpoint []byte
	log        attemptLog
}

// deadline is when the attempt times out, on this machine's clock; zero = never. Deadline and Started are both
// the store's times, so their difference is right whatever the clocks say; and the attempt began after the claim
// was sent, so this is never late.
func (a *attempt) deadline() time.Time {
	if a.in.Deadline.IsZero() {
		return time.Time{}
	}
	return a.sent.Add(a.in.Deadline.Sub(a.in.Started))
}

// answer is what a handler said, and when.
type answer struct {
	at      time.Time
	outcome jobs.Outcome // as the handler has it: Success, Error, Fatal or Snooze
	text    string       // of the error
	delay   time.Duration
	// echo: the error is that of a context which ended, and so nothing that the handler found out by itself.
	echo bool
	// cause is why its context had ended when it returned, or nil.
	cause error
}

// attend sees one attempt through and forgets it, or leaves that to the report that is on its way.
func (w *Worker) attend(living context.Context, a *attempt) {
	if f := w.through(living, a); f != nil && !a.over() {
		w.conclude(living, conclusion{a, *f})
		return
	} else if f != nil { // cancelled, or timed out by the leader: only the return is news
		w.returned(living, a)
	}
	w.held.drop(a)
}

// through calls the handler of an attempt and waits for it, or for the end of its context. It answers with how the
// attempt ended, or nil if the store has been told.
func (w *Worker) through(living context.Context, a *attempt) *jobs.Finish {
	ctx, cancel := context.WithCancelCause(living)
	defer cancel(nil)
	told := a.arm(cancel)
	switch {
	case a.over():
		return &jobs.Finish{} // cancelled before it began
	case told != nil || w.held.isClosed():
		// The worker is leaving: better another one begins this than this one breaks it off.
		return &jobs.Finish{Outcome: jobs.OutcomeHandback, Error: jobs.ErrShutdown.Error()}
	}
	if due := a.deadline(); !due.IsZero() {
		var release func()
		ctx, release = context.WithDeadlineCause(ctx, due, jobs.ErrTimeout)
		defer release()
	}
	if a.in.Terms.LeaseLost == jobs.LeaseCancel {
		go w.guard(ctx, a)
	}
	if w.log.Enabled(ctx, slog.LevelDebug) { // naming the facts costs more than a run that does nothing
		w.log.Debug("attempt begun", "key", a.key, "instance", a.ID, "attempt", a.Attempt)
	}

	answers := make(chan answer, 1)
	w.crew.do(func() {
		call(jobs.WithRunning(ctx, &lent{w, a}), w.jobs[a.key].handler, a.in.Args, func(said answer) {
			w.held.left(a) // first: the next attempt may be offered as soon as this one is reported
			answers <- said
		})
	})

	select {
	case said := <-answers:
		return new(a.verdict(said))
	case <-ctx.Done():
	}
	select {
	case said := <-answers:
		return new(a.verdict(said))
	case <-time.After(moment):
	}
	w.outlive(living, a, context.Cause(ctx), answers)
	return nil
}

// outlive deals with a handler that goes on although its context has ended. The store is told that the attempt
// is over and its handler is not, so that nobody begins the next one; and told again when it has returned.
func (w *Worker) outlive(living context.Context, a *attempt, cause error, answers <-chan answer) {
	if !a.over() {
		over := jobs.Finish{Outcome: jobs.OutcomeHandback, Error: cause.Error(), Running: true}
		if errors.Is(cause, jobs.ErrTimeout) {
			over.Outcome, over.Error = jobs.OutcomeTimeout, a.timeoutText()
		}
		w.finish(living, []conclusion{{a, over}}, func(*attempt, bool) {})
		a.endedBy(cause)
	}
	stuck := time.NewTimer(stuckAfter - moment)
	defer stuck.Stop()
	for {
		select {
		case <-answers:
			w.returned(living, a)
			return
		case <-w.quit:
			// The worker leaves, and with it goes the process, most likely. The leader frees what was held.
			return
		case <-stuck.C:
			a.mu.Lock()
			a.stuck = true
			a.mu.Unlock()
			w.log.Warn("handler is stuck: its context has ended and it does not return", "key", a.key, "instance", a.ID,
				"attempt", a.Attempt, "since", stuckAfter, "cause", cause)
		}
	}
}

// arm gives the attempt the means to end its handler's context, and answers with what it was told to end for
// before it had them.
func (a *attempt) arm(cancel context.CancelCauseFunc) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cancel = cancel
	return a.told
}

// end ends the handler's context.
func (a *attempt) end(cause error) {
	a.mu.Lock()
	cancel := a.cancel
	if a.told == nil {
		a.told = cause
	}
	a.mu.Unlock()
	if cancel != nil {
		cancel(cause)
	}
}

// over says that the store knows already that the attempt is over.
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

// line is what a beat says about the attempt, and whether it is ours at all.
func (a *attempt) line(t token) (bus.Held, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return bus.Held{ID: t.ID, Attempt: t.Attempt, Stuck: a.stuck, Progress: a.progress}, !a.stale
}

// call calls a handler, whatever it does: return, panic, or end its goroutine. What it answers is judged here
// too, because errors are code of the user as well.
func call(ctx context.Context, h Handler, args []byte, reply func(answer)) {
	said := answer{outcome: jobs.OutcomeError}
	done := false
	defer func() {
		said.at, said.cause = time.Now(), context.Cause(ctx)
		if !done {
			said = answer{at: said.at, cause: said.cause, outcome: jobs.OutcomeError}
			if p := recover(); p != nil {
				said.text = fmt.Sprintf("panic: %v\n\n%s", p, debug.Stack())
			} else {
				said.text = fmt.Sprintf("the handler ended its goroutine (runtime.Goexit)\n\n%s", debug.Stack())
			}
		}
		said.text = cut(said.text, jobs.MaxError)
		reply(said)
	}()
	err := h(ctx, args)
	if delay, ok := jobs.Snoozed(err); ok {
		said.outcome, said.delay = jobs.OutcomeSnooze, min(max(delay, 0), jobs.MaxDelay)
	} else if err == nil {
		said.outcome = jobs.OutcomeSuccess
	} else {
		said.text = err.Error()
		said.echo = errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Cause(ctx))
		if jobs.IsFinal(err) {
			said.outcome = jobs.OutcomeFatal
		}
	}
	done = true
}

// verdict turns what a handler said into how its attempt ended:
//
//   - It returned at or after its deadline: Timeout, whatever it said. Before: what it said, even if nobody has
//     looked at it until later.
//   - Its context had been ended because the worker is stopping or its lease was lost, and it returned an error: the run
//     is handed back, because that is no failure of its own. (An error from jobs.NoRetry that is more than the
//     context's own stays what it is.)
//   - Otherwise it is what the handler said. A nil counts in spite of an ended context: the work is done.
//
// Of a run that was cancelled, nothing is said but that its handler has returned; see report.
func (a *attempt) verdict(said answer) jobs.Finish {
	f := jobs.Finish{Outcome: said.outcome, Error: said.text, Delay: said.delay}
	due := a.deadline()
	switch {
	case !due.IsZero() && !said.at.Before(due):
		f = jobs.Finish{Outcome: jobs.OutcomeTimeout, Error: a.timeoutText()}
		if said.text != "" && !said.echo {
			f.Error = cut(f.Error+"; then the handler returned: "+said.text, jobs.MaxError)
		}
	case said.outcome == jobs.OutcomeSuccess:
		a.mu.Lock()
		f.Result = a.result
		a.mu.Unlock()
	case said.outcome == jobs.OutcomeError || said.outcome == jobs.OutcomeFatal && said.echo:
		if errors.Is(said.cause, jobs.ErrShutdown) || errors.Is(said.cause, jobs.ErrLeaseLost) {
			f.Outcome = jobs.OutcomeHandback
		}
	}
	return f
}

func (a *attempt) timeoutText() string {
	return fmt.Sprintf("%v of %v", jobs.ErrTimeout, a.in.Deadline.Sub(a.in.Started))
}

// cut makes s valid text of at most n bytes.
func cut(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	// Cleaning may add bytes, and cutting may leave half a character at the end.
	s = strings.ToValidUTF8(s, "\uFFFD")
	for len(s) > n {
		s = strings.ToValidUTF8(s[:n], "")
	}
	return s
}
