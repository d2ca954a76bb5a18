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
	firstLook = 250 * time.Millisecond // what Wait does without a signal: it looks after this time,
	mostLook  = 5 * time.Second        // then after twice as long, up to this
)

// waiting is who waits for which runs. While anybody does, the client listens to what changes.
type waiting struct {
	mu     sync.Mutex
	runs   map[jobs.ID][]chan bool
	stop   context.CancelFunc // ends listening; nil = nobody waits
	closed bool
}

// Wait waits until a run is finished, and returns it. The error is a *jobs.RunError if the run did not succeed; any other
// error means that the client could not wait any longer, and says nothing about the run.
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
			// So much changes that nobody says what; looking each time would be too much.
			select {
			case <-ctx.Done():
			case <-time.After(firstLook):
			}
		case <-time.After(pause):
		}
	}
}

// join has news told of a run: true if the run was named, false if it may have been among many.
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
	// Should it fail, looking now and then still finds what it would have told.
	go func() { _ = c.signals.Listen(ctx, c.config.Tenant, bus.TopicLive, "", c.hear) }()
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

// hear passes on that runs have changed.
func (c *Client) hear(s bus.Signal) {
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
		tell(w.runs[id], true)
	}
	if changes.Many {
		for _, list := range w.runs {
			tell(list, false)
		}
	}
}

func tell(list []chan bool, named bool) {
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
