package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// take takes offers from the shared lane of the queue that the leader names, until taking ends.
func (w *Worker) take(taking, living context.Context) error {
	failed := make(chan error, 1)
	for {
		queue, moved := w.leader.current()
		here, leave := context.WithCancel(taking)
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			if queue != "" {
				if err := w.takeFrom(here, living, queue); err != nil {
					failed <- err
				}
			}
		}()
		var err error
		select {
		case <-moved:
		case <-taking.Done():
		case err = <-failed:
		}
		leave()
		<-gone
		if err != nil || taking.Err() != nil {
			return err
		}
	}
}

// takeFrom takes offers from one queue: free slots first, then as many offers. A full worker asks for nothing.
func (w *Worker) takeFrom(here, living context.Context, queue string) error {
	lane := bus.Lane{Tenant: w.config.Tenant, App: w.config.App}
	for pause := 50 * time.Millisecond; ; {
		want := w.held.await(here)
		if want == 0 {
			return nil
		}
		list, done, err := w.bus.Take(here, queue, lane, want)
		switch {
		case err == nil:
			w.accept(living, list, done)
			pause = 50 * time.Millisecond
		case here.Err() != nil:
			return nil
		case errors.Is(err, bus.ErrClosed):
			return err
		case errors.Is(err, bus.ErrNoReceiver):
			// The queue appears or disappears: heartbeats will show. Take has paced itself.
		default:
			w.log.Debug("no offers can be taken", "queue", queue, "err", err)
			select {
			case <-here.Done():
				return nil
			case <-time.After(pause):
			}
			pause = min(2*pause, time.Second)
		}
	}
}

// accept takes what fits of a list, gives back the rest at once, and claims. done is called when the bus may forget the
// list.
func (w *Worker) accept(living context.Context, list []bus.Offer, done func()) {
	taken, back := w.held.admit(list, func(k jobs.Key) bool { return w.handler(k) != nil })
	w.giveBack(living, back)
	if len(taken) == 0 {
		done()
		return
	}
	// Do not wait: while this claim is under way, the next list may come.
	go func() {
		w.claim(living, taken)
		done()
	}()
}

// giveBack reports to the leader that offers are free again. If that message is lost, its sweep finds them.
func (w *Worker) giveBack(ctx context.Context, offers []bus.Offer) {
	if len(offers) == 0 {
		return
	}
	back := bus.Back{App: w.config.App, Worker: w.name, Offers: offers}
	err := w.bus.Signal(ctx, bus.Signal{Topic: bus.TopicBack, Tenant: w.config.Tenant, Data: bus.Encode(back)})
	if err != nil {
		w.log.Debug("offers could not be given back", "offers", len(offers), "err", err)
	}
}

// claim claims a list in one batch and starts what became ours. A lost claim is dropped silently.
func (w *Worker) claim(ctx context.Context, taken []*attempt) {
	sent := time.Now()
	batch := make([]kernel.Envelope, len(taken))
	for i, a := range taken {
		a.sent = sent
		batch[i] = w.envelope(kernel.Claim{ID: a.ID, Worker: w.name, Attempt: a.Attempt})
	}
	w.send(ctx, batch, forClaim, func(i int, r metastore.Result) {
		a := taken[i]
		run := r.Run()
		switch {
		case r.Err != nil:
			if jobs.CodeOf(r.Err) == jobs.Unknown {
				w.episodes.Failed(slog.LevelWarn, "", "outcome of a claim is unknown", "key", a.key, "run", a.ID, "attempt", a.Attempt, "err", r.Err)
			}
			if a.over() {
				w.returned(ctx, a) // cancelled between two sendings: its slots wait for our report
			}
			w.held.drop(a)
		case run == nil || run.Worker != w.name || run.Attempt != a.Attempt || run.State != jobs.Processing:
			w.held.drop(a)
		default:
			a.in = run
			w.held.begun(a)
			w.pool.see(a)
		}
	})
}
