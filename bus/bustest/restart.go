package bustest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
)

// A bus without a server has nothing to restart; its cases run all the same and show that subscriptions last.
func restart(t *testing.T, h Harness) {
	if h.Restart != nil {
		h.Restart(t)
	}
}

var restartCases = []Case{
	{"Serve, Listen and Receive go on after a restart", func(t *testing.T, h Harness) {
		ctx, node, worker := within(t), h.As(t, leader), h.As(t, ringer)
		lane := bus.Lane{Tenant: "default", App: "billing.eu", Worker: ringer.Name}
		must(t, node.Serve(ctx, bus.ServiceStore, echo), "serve")
		cameBack := make(chan bus.Signal, 1000)
		must(t, node.Listen(ctx, "*", bus.TopicBack, "", func(s bus.Signal) { cameBack <- s }), "listen")
		must(t, worker.Receive(ctx, lane, func([]bus.Offer) {}), "receive")
		restart(t, h)
		again(t, "a call", func() error {
			limited, cancel := context.WithTimeout(ctx, 5*attempt/2)
			defer cancel()
			_, err := worker.Call(limited, bus.ServiceStore, nil)
			return err
		})
		again(t, "a signal", func() error {
			if err := worker.Signal(ctx, bus.Signal{Topic: bus.TopicBack, Data: []byte("x")}); err != nil {
				return err
			}
			come(t, cameBack, "the signal")
			return nil
		})
		again(t, "a personal list", func() error { return node.Hand(ctx, lane, offers("x", 1)) })
	}},
	{"offers go on after a restart, and a Take that waits gets them", func(t *testing.T, h Harness) {
		ctx, node, worker := within(t), h.As(t, leader), h.As(t, ringer)
		queue := open(t, node, 7)
		must(t, node.Offer(ctx, queue, billing), "make the app's queue")
		waiting := taking(ctx, worker, queue, billing, 1)
		restart(t, h)
		again(t, "an offer", func() error { return node.Offer(ctx, queue, billing, offers("after", 1)) })
		got := come(t, waiting, "the offer")
		must(t, got.err, "take")
		if !slices.Equal(got.list, offers("after", 1)) {
			t.Fatalf("taken: %v", got.list)
		}
		got.done()
	}},
	{"a new term can be opened after a restart", func(t *testing.T, h Harness) {
		ctx, node, worker := within(t), h.As(t, leader), h.As(t, ringer)
		open(t, node, 7)
		restart(t, h)
		var queue string
		again(t, "open", func() (err error) {
			queue, err = node.Open(ctx, 8)
			return err
		})
		again(t, "an offer", func() error { return node.Offer(ctx, queue, billing, offers("after", 1)) })
		got := take(ctx, worker, queue, billing, 1)
		must(t, got.err, "take")
		got.done()
	}},
}

// again tries until it works: for a while after a restart no end knows of any other.
func again(t *testing.T, what string, do func() error) {
	t.Helper()
	var err error
	for ctx := within(t); ctx.Err() == nil; {
		if err = do(); err == nil {
			return
		}
		if errors.Is(err, bus.ErrClosed) {
			break
		}
		<-time.After(2 * time.Millisecond) // a new connection is not announced here
	}
	t.Fatalf("%s after a restart: %v", what, err)
}
