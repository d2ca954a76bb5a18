package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Given is a run that a poll is answered with.
type Given struct {
	*kernel.Run
	Left time.Duration // of the attempt's time; 0 = it has no end
}

// Poll waits until it can return runs (at most want) or Stops, or wait has passed. batch names the response: until a
// poll confirms it with got, each poll returns the same runs, so that a lost response loses none. A poll ends the
// previous one. After one that broke off, because its connection or its token ended, nothing is sent until the next.
func (r *Remote) Poll(ctx context.Context, want int, got string, wait time.Duration) (batch string, list []Given, err error) {
	r.Touch()
	mine := make(chan struct{})
	r.mu.Lock()
	if r.polling != nil {
		close(r.polling)
	}
	r.polling = mine
	if got == r.number {
		r.batch = nil
	}
	again := slices.Clone(r.batch)
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if err == nil {
			r.seen = time.Now()
		}
		if r.polling != mine {
			return
		}
		if r.polling, r.active = nil, time.Now(); err != nil {
			r.active = time.Time{}
			r.worker.heartbeatNow()
		}
	}()
	if err := r.check(ctx, again); err != nil {
		return "", nil, err
	}
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	for {
		list, batch, rang, over := r.next(mine, want)
		if over || len(list) > 0 {
			return batch, list, nil
		}
		select {
		case <-rang:
		case <-timeout.C:
			return batch, nil, nil
		case <-mine:
			return batch, nil, nil
		case <-ctx.Done():
			return "", nil, ctx.Err()
		case <-r.gone:
			return "", nil, errGone
		case <-r.ended:
			return "", nil, errGone
		}
	}
}

// next returns what a poll can be answered with now; over means that it is to be answered in any case. Otherwise rang
// is closed when there may be more. What the store may have taken back since the last heartbeat is not given, and its
// batch has no name meanwhile, so that no poll confirms it.
func (r *Remote) next(mine chan struct{}, want int) (list []Given, batch string, rang <-chan struct{}, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.polling != mine {
		return nil, r.number, nil, true
	}
	for _, t := range r.turns {
		over = over || t.stop != nil && t.given && !t.sent
	}
	r.batch = slices.DeleteFunc(r.batch, func(t *turn) bool { return r.turns[t.attempt.token] != t || t.stop != nil })
	if len(r.batch) == 0 {
		r.queue = slices.DeleteFunc(r.queue, func(t *turn) bool {
			t.given = len(r.batch) < want && r.worker.fresh(t.attempt)
			if t.given {
				r.batch = append(r.batch, t)
			}
			return t.given
		})
		if len(r.batch) > 0 {
			r.number = strings.ToLower(rand.Text()[:10])
		}
	}
	if slices.ContainsFunc(slices.Concat(r.batch, r.queue), func(t *turn) bool { return !r.worker.fresh(t.attempt) }) {
		r.worker.heartbeatNow() // its answer renews the leases, or takes the attempts back
	}
	if slices.ContainsFunc(r.batch, func(t *turn) bool { return !r.worker.fresh(t.attempt) }) {
		return nil, "", r.rang, over
	}
	for _, t := range r.batch {
		g := Given{Run: t.attempt.in}
		if due := t.attempt.deadline(); !due.IsZero() {
			g.Left = time.Until(due)
		}
		list = append(list, g)
	}
	if len(list) == 0 && !over {
		r.asks(want)
	}
	return list, r.number, r.rang, over
}

// Stops lists the attempts that the HTTP worker is to end. Each is listed until Finish reports how it ended.
func (r *Remote) Stops() (list []bus.Stop) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for t, turn := range r.turns {
		if turn.stop == nil || !turn.given {
			continue
		}
		turn.sent = true
		s := bus.Stop{ID: t.ID, Attempt: t.Attempt, Timeout: errors.Is(turn.stop, jobs.ErrTimeout), Stale: errors.Is(turn.stop, jobs.ErrLeaseLost)}
		if by, ok := errors.AsType[*jobs.CancelledError](turn.stop); ok {
			s.By, s.Reason = by.By, by.Reason
		}
		list = append(list, s)
	}
	return list
}

// check drops those of a batch that is sent again which have ended. The HTTP worker may have received them, gone to
// another node, and ended them there.
func (r *Remote) check(ctx context.Context, again []*turn) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	for _, t := range again {
		k := t.attempt.token
		run, err := r.own(ctx, k)
		switch code := jobs.CodeOf(err); {
		case err != nil && code != jobs.Stale:
			return kernel.Refuse(jobs.Unavailable, "unknown whether run %s goes on: poll again: %v", k.ID, err)
		case err == nil && (run.State == jobs.Processing || run.Lingering):
			continue
		}
		r.worker.held.disown(t.attempt)
		t.end(jobs.ErrLeaseLost)
		r.forget(t)
	}
	return nil
}
