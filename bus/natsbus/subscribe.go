package natsbus

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
)

// subscribe subscribes until ctx ends or the bus is closed, and returns when the server knows. make is given a
// context that ends then.
func (b *Bus) subscribe(ctx context.Context, subject string, make func(context.Context) (*nats.Subscription, error)) error {
	lasting, cancel := b.lasting(ctx)
	sub, err := make(lasting)
	if err != nil {
		err = b.reason(ctx, err)
		cancel(err)
		return err
	}
	context.AfterFunc(lasting, func() {
		// Both fail only if it has ended with its connection.
		if sub.Type() == nats.ChanSubscription {
			_ = sub.Unsubscribe()
		} else {
			_ = sub.Drain() // what is on its way is still answered, with goneCode
		}
	})
	if err := b.flushed(ctx, subject); err != nil {
		cancel(err)
		return err
	}
	return nil
}

// flushed returns when the server has seen all that was sent, and has not refused the subject.
func (b *Bus) flushed(ctx context.Context, subject string) error {
	for {
		if err := b.link.wait(ctx, b.life); err != nil {
			return err
		}
		attempt, done := b.attempt(ctx, subject)
		limited, cancel := context.WithTimeout(attempt, 5*time.Second)
		err := b.nc.FlushWithContext(limited)
		cancel()
		done()
		if err == nil {
			// The server answers in order: had it refused the subject, the library would know by now.
			if denied, is := deniedSubject(b.nc.LastError()); is && denied == subject {
				return forbidden(subject)
			}
			return nil
		}
		var e ended
		switch {
		case b.life.Err() != nil:
			return bus.ErrClosed
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(context.Cause(attempt), &e) && errors.Is(e, jobs.Forbidden):
			return e.error
		}
		// The connection broke meanwhile. The library subscribes again with the next one.
	}
}
