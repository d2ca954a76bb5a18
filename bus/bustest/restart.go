package bustest

import (
	"context"
	"errors"
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
	{"Serve, Listen and Accept go on after a restart", func(t *testing.T, h Harness) {
		ctx, node, worker := within(t), h.As(t, leader), h.As(t, ringer)
		must(t, node.Serve(ctx, bus.ServiceStore, echo), "serve")
		logged := make(chan bus.Signal, 1000)
		must(t, node.Listen(ctx, "*", bus.TopicLog, "", func(s bus.Signal) { logged <- s }), "listen")
		accepted(ctx, t, worker, rings)
		restart(t, h)
		again(t, "a call", func() error {
			limited, cancel := context.WithTimeout(ctx, 5*attempt/2)
			defer cancel()
			_, err := worker.Call(limited, bus.ServiceStore, nil)
			return err
		})
		again(t, "a signal", func() error {
			if err := worker.Signal(ctx, bus.Signal{Topic: bus.TopicLog, Data: []byte("x")}); err != nil {
				return err
			}
			come(t, logged, "the signal")
			return nil
		})
		again(t, "a push", func() error {
			limited, cancel := context.WithTimeout(ctx, attempt)
			defer cancel()
			_, err := node.Push(limited, rings, []byte("x"))
			return err
		})
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
