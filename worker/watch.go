package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// This file handles handlers that take long.

const (
	// moment is how long a handler may take to return after its context has ended, before the store is notified that it
	// has not.
	moment = time.Second
	// stuckAfter is when a handler that has not returned is called stuck.
	stuckAfter = 10 * time.Second
	// youth is the interval of looking for attempts that have run for a while. Those begun before the last look get
	// timers of their own then, which is early enough for timeouts of three times this; shorter ones have a timer from
	// the beginning.
	youth = time.Second
)

// young are attempts that have a deadline and no timer yet, in the order in which they were begun.
type young struct {
	mu             sync.Mutex
	oldest, newest *attempt
	look           uint64 // number of the next look
	looking        bool   // it will come
}

// add has the deadline of an attempt watched.
func (y *young) add(a *attempt) {
	if time.Until(a.deadline()) < 3*youth {
		a.context()
		return
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	a.young, a.bornAt, a.older = true, y.look, y.newest
	if y.newest != nil {
		y.newest.newer = a
	} else {
		y.oldest = a
	}
	y.newest = a
	if !y.looking {
		y.looking = true
		time.AfterFunc(youth, y.grow)
	}
}

// remove forgets an attempt that has ended, or has a timer now. The lock is held.
func (y *young) remove(a *attempt) {
	if a.older != nil {
		a.older.newer = a.newer
	} else {
		y.oldest = a.newer
	}
	if a.newer != nil {
		a.newer.older = a.older
	} else {
		y.newest = a.older
	}
	a.young, a.older, a.newer = false, nil, nil
}

// gone records that the handler of an attempt has returned.
func (y *young) gone(a *attempt) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if a.young {
		y.remove(a)
	}
}

// grow gives timers to the attempts of the last look.
func (y *young) grow() {
	var grown []*attempt
	y.mu.Lock()
	for a := y.oldest; a != nil && a.bornAt < y.look; a = y.oldest {
		y.remove(a)
		grown = append(grown, a)
	}
	y.look++
	if y.looking = y.oldest != nil; y.looking {
		time.AfterFunc(youth, y.grow)
	}
	y.mu.Unlock()
	for _, a := range grown {
		a.context()
	}
}

// overdue is called when the context of a running handler has ended: after a moment to return, the attempt ends without
// it.
func (w *Worker) overdue(living context.Context, a *attempt) {
	returned := a.awaitBack()
	wait := time.NewTimer(moment)
	defer wait.Stop()
	select {
	case <-returned:
		return
	case <-wait.C:
	}
	if !a.giveUp() {
		return
	}
	cause := a.cause()
	a.traceOver(a.cutOff(cause), time.Now())
	w.outlive(living, a, cause, returned)
	w.held.drop(a)
}

// awaitBack returns a channel that is closed when the handler has returned.
func (a *attempt) awaitBack() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	returned := make(chan struct{})
	if a.back {
		close(returned)
	} else {
		a.returned = returned
	}
	return returned
}

// giveUp has the attempt continue without its handler, unless that has returned.
func (a *attempt) giveUp() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left = !a.back
	return a.left
}

// comesBack records that the handler has returned, or will not be called. It reports whether its result is wanted.
func (a *attempt) comesBack() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.back = true
	if a.ctx != nil {
		a.free()
	}
	if a.returned != nil {
		close(a.returned)
	}
	return !a.left
}

// outlive handles a handler that runs on although its context has ended. It reports to the store that the attempt has
// ended and its handler has not, so that no worker starts the next one; and reports again when it has returned.
func (w *Worker) outlive(living context.Context, a *attempt, cause error, returned <-chan struct{}) {
	if !a.over() {
		a.finish = a.cutOff(cause)
		w.finish(living, []*attempt{a}, func(*attempt, bool) {})
		a.endedBy(cause)
	}
	stuck := time.NewTimer(stuckAfter - moment)
	defer stuck.Stop()
	for {
		select {
		case <-returned:
			w.returned(living, a)
			return
		case <-w.quit:
			// The worker leaves, and with it most likely the process. The leader frees what was held.
			return
		case <-stuck.C:
			a.mu.Lock()
			a.stuck = true
			a.mu.Unlock()
			w.log.Warn("handler is stuck: its context has ended and it does not return", "key", a.key, "run", a.ID,
				"attempt", a.Attempt, "took", stuckAfter, "cause", cause)
		}
	}
}

// cutOff returns how an attempt ends whose context has ended and whose handler runs on.
func (a *attempt) cutOff(cause error) kernel.Finish {
	if errors.Is(cause, jobs.ErrTimeout) {
		return kernel.Finish{Outcome: kernel.OutcomeTimeout, Error: a.timeoutText(), Running: true}
	}
	return kernel.Finish{Outcome: kernel.OutcomeHandback, Error: cause.Error(), Running: true}
}
