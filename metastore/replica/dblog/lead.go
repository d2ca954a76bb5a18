package dblog

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/carillon-scheduler/carillon/metastore/replica"
)

// A leader has a lease, by the database's clock. It measures it by its own, from before it asked, and a little shorter.
// Two nodes may take themselves for the leader all the same, as when one was frozen: what they write decides.

// Lead calls lead while this node leads: see [replica.Log].
func (l *Log) Lead(ctx context.Context, lead func(ctx context.Context, term uint64) error) error {
	for {
		asked := time.Now()
		asking, cancel := context.WithTimeout(ctx, l.cfg.Lease-margin)
		term, err := l.db.Take(asking, l.cfg.Node, l.seen.Load(), l.cfg.Lease)
		cancel()
		switch {
		case l.ctx.Err() != nil:
			return errClosed
		case ctx.Err() != nil:
			if err == nil && term > 0 {
				l.release(ctx, term)
			}
			return nil
		case err != nil:
			l.episodes.Failed(slog.LevelWarn, "", "leader election failed", "err", err)
		default:
			l.episodes.End("", "leader election failed")
		}
		if err == nil && term > 0 {
			err := l.serve(ctx, term, asked, lead)
			if l.release(ctx, term); err != nil && !errors.Is(err, errLost) {
				return err
			}
		}
		rest := tryTime
		if l.unable.Swap(false) {
			rest = restTime // another node may be able to
		}
		select {
		case <-l.ctx.Done():
			return errClosed
		case <-ctx.Done():
			return nil
		case <-time.After(rest):
		}
	}
}

// serve leads until the lease cannot be renewed, another node writes, lead returns, or ctx ends.
func (l *Log) serve(ctx context.Context, term uint64, since time.Time, lead func(context.Context, uint64) error) error {
	leading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(l.ctx, func() { stop(errClosed) })()
	writing := outlasting(leading)
	l.confirm(term, since)
	renewing := make(chan struct{})
	go func() {
		defer close(renewing)
		l.renew(leading, term, since, func(why error) {
			stop(why)
			l.lose(errNoLead)
		})
	}()
	defer func() { stop(nil); <-renewing }()
	if err := l.begin(leading, writing, term, stop); err != nil {
		if leading.Err() == nil {
			l.episodes.Failed(slog.LevelWarn, "", "a term could not begin", "err", err)
		}
		return errLost
	}
	defer l.lose(errNoLead)
	l.cfg.Logger.Debug("leading", "node", l.cfg.Node, "term", term)
	err := lead(leading, term)
	switch {
	case ctx.Err() != nil:
		return nil
	case leading.Err() != nil, errors.Is(err, replica.ErrAgain):
		return errLost
	case err == nil:
		return errors.New("the leader's duties ended by themselves")
	}
	return err
}

// outlasting is the context of a term's statements that write: it ends with the lease, and a moment after a term that
// ended before, whose last entries a database that answers writes meanwhile.
func outlasting(leading context.Context) context.Context {
	writing, cut := context.WithCancel(context.WithoutCancel(leading))
	context.AfterFunc(leading, func() {
		if context.Cause(leading) == errLost {
			cut()
		} else {
			time.AfterFunc(releaseTime, cut)
		}
	})
	return writing
}

// begin applies all that was written before the term, and writes the term's first entry: after it no former leader
// writes anything.
func (l *Log) begin(ctx, writing context.Context, term uint64, depose func(error)) error {
	for {
		if err := l.catchUp(ctx); err != nil {
			return err
		}
		if err := l.turn.take(ctx); err != nil {
			return err
		}
		first := &pending{entry: replica.TermEntry(), done: make(chan struct{})}
		l.insert(writing, term, []*pending{first})
		if first.err == nil {
			l.mu.Lock()
			switch {
			case l.wrong.Load():
				first.err = errWrong
			case ctx.Err() == nil:
				l.term, l.writable, l.depose = term, writing, depose
			}
			l.mu.Unlock()
		}
		l.turn.give()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case first.err == nil:
			return nil
		case !errors.Is(first.err, errDeposed):
			return first.err
		}
		// What a former leader wrote last had been under way.
	}
}

// confirm notes that this node had the lease of a term.
func (l *Log) confirm(term uint64, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.confirmed = confirmation{term, at}
}

// renew renews the lease until ctx ends, and calls lost when it cannot be in time.
func (l *Log) renew(ctx context.Context, term uint64, since time.Time, lost func(error)) {
	over := time.NewTimer(time.Until(since.Add(l.cfg.Lease - margin)))
	defer over.Stop()
	tick := time.NewTicker(renewTime)
	defer tick.Stop()
	type answer struct {
		at   time.Time
		held bool
		err  error
	}
	answers := make(chan answer, 1)
	asking := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-over.C:
			l.cfg.Logger.Warn("leadership was lost: the database did not renew it in time", "term", term)
			l.unable.Store(true)
			lost(errLost)
			return
		case a := <-answers:
			asking = false
			switch {
			case a.err != nil:
				if ctx.Err() == nil {
					l.episodes.Failed(slog.LevelWarn, "", "the lease of leadership was not renewed", "err", a.err)
				}
			case !a.held:
				l.cfg.Logger.Warn("leadership was lost: another node has it", "term", term)
				lost(errLost)
				return
			default:
				l.episodes.End("", "the lease of leadership was not renewed")
				l.confirm(term, a.at)
				over.Reset(time.Until(a.at.Add(l.cfg.Lease - margin)))
			}
		case <-tick.C:
			if asking {
				continue
			}
			asking = true
			go func() {
				at := time.Now()
				asked, cancel := context.WithTimeout(ctx, l.cfg.Lease-margin)
				defer cancel()
				held, err := l.db.Renew(asked, l.cfg.Node, term, l.cfg.Lease)
				answers <- answer{at, held, err}
			}()
		}
	}
}

// release lets the next node lead at once.
func (l *Log) release(ctx context.Context, term uint64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	if err := l.db.Release(ctx, l.cfg.Node, term); err != nil {
		l.cfg.Logger.Debug("leadership was not released", "err", err)
	}
}
