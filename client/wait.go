package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
)

// ErrClosed is what Wait returns when its client is closed.
var ErrClosed = errors.New("client: closed")

const (
	firstLook = 250 * time.Millisecond // without a signal, Wait polls after this time,
	mostLook  = 5 * time.Second        // then after twice as long, up to this
)

// waiting has the calls of Wait, by run. While there are any, the client listens to signals of changes.
type waiting struct {
	mu     sync.Mutex
	runs   map[jobs.ID][]chan bool
	stop   context.CancelFunc // ends listening; nil = no calls wait
	closed bool
}

// Wait waits until a run is finished, and returns it. The error is a *jobs.RunError if the run did not succeed; any
// other error means that the client could not wait longer, and does not affect the run.
func (c *Client) Wait(ctx context.Context, id jobs.ID) (jobs.Run, error) {
	news := make(chan bool, 1)
	if err := c.join(id, news); err != nil {
		return jobs.Run{}, err
	}
	defer c.leave(id, news)
	for pause := firstLook; ; pause = min(2*pause, mostLook) {
		run, err := c.Get(ctx, id)
		switch {
		case err == nil && run.State == jobs.Succeeded:
			return run, nil
		case err == nil && run.State.Final():
			return run, &jobs.RunError{Run: run}
		case err != nil && ctx.Err() != nil:
			return jobs.Run{}, context.Cause(ctx)
		case errors.Is(err, bus.ErrClosed):
			return jobs.Run{}, err
		case err != nil && jobs.CodeOf(err) != jobs.Unavailable && jobs.CodeOf(err) != jobs.Unknown:
			return jobs.Run{}, err
		}
		select {
		case <-ctx.Done():
			return jobs.Run{}, context.Cause(ctx)
		case named, open := <-news:
			if !open {
				return jobs.Run{}, ErrClosed
			}
			if pause = firstLook; named {
				continue
			}
			// Too many runs changed to be named: polling at each signal would overload the store.
			select {
			case <-ctx.Done():
			case <-time.After(firstLook):
			}
		case <-time.After(pause):
		}
	}
}

// join registers news for a run: it receives true if a signal named the run, false if the run may be among many.
func (c *Client) join(id jobs.ID, news chan bool) error {
	w := &c.waiting
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrClosed
	}
	w.runs[id] = append(w.runs[id], news)
	if w.stop != nil || c.signals == nil {
		return nil
	}
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	// Errors are ignored: Wait polls, too.
	go func() { _ = c.signals.Listen(ctx, c.config.Tenant, bus.TopicLive, "", c.receive) }()
	return nil
}

// leave takes news off the list. The last one to leave ends the listening.
func (c *Client) leave(id jobs.ID, news chan bool) {
	w := &c.waiting
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs[id] = slices.DeleteFunc(w.runs[id], func(other chan bool) bool { return other == news })
	if len(w.runs[id]) == 0 {
		delete(w.runs, id)
	}
	if len(w.runs) == 0 && w.stop != nil {
		w.stop()
		w.stop = nil
	}
}

// receive passes a signal to the calls of Wait.
func (c *Client) receive(s bus.Signal) {
	changes, err := bus.Decode[bus.Changes](s.Data)
	if err != nil {
		return
	}
	w := &c.waiting
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	for _, id := range changes.Runs {
		notify(w.runs[id], true)
	}
	if changes.Many {
		for _, list := range w.runs {
			notify(list, false)
		}
	}
}

func notify(list []chan bool, named bool) {
	for _, news := range list {
		select {
		case news <- named:
		default:
		}
	}
}

func (w *waiting) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.closed = true
	for _, list := range w.runs {
		for _, news := range list {
			close(news)
		}
	}
	clear(w.runs)
	if w.stop != nil {
		w.stop()
		w.stop = nil
	}
}
