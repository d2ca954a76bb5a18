package bustest

import (
	"context"
	"testing"

	"github.com/carillon-scheduler/carillon/bus"
)

var closeCases = []Case{
	{"after Close everything returns ErrClosed", func(t *testing.T, h Harness) {
		ctx, node := within(t), h.As(t, leader)
		must(t, node.Close(), "close")
		must(t, node.Close(), "close again")
		_, err := node.Push(ctx, rings, nil)
		wantErr(t, err, bus.ErrClosed, "push")
		wantErr(t, node.Accept(ctx, rings, func([]byte) ([]byte, func()) { return nil, nil }), bus.ErrClosed, "accept")
		wantErr(t, node.Signal(ctx, bus.Signal{Topic: bus.TopicLive}), bus.ErrClosed, "signal")
		wantErr(t, node.Listen(ctx, "*", bus.TopicLive, "", func(bus.Signal) {}), bus.ErrClosed, "listen")
		_, err = node.Call(ctx, bus.ServiceStore, nil)
		wantErr(t, err, bus.ErrClosed, "call")
		wantErr(t, node.Serve(ctx, bus.ServiceStore, echo), bus.ErrClosed, "serve")
	}},
	{"Close ends what waits", func(t *testing.T, h Harness) {
		ctx, node, worker := within(t), h.As(t, leader), h.As(t, ringer)
		asked, free := make(chan struct{}), make(chan struct{})
		defer close(free)
		must(t, node.Serve(ctx, bus.ServiceStore, func(context.Context, bus.Principal, []byte) ([]byte, error) {
			close(asked)
			<-free
			return nil, nil
		}), "serve")
		called := make(chan error, 1)
		go func() {
			_, err := worker.Call(ctx, bus.ServiceStore, nil)
			called <- err
		}()
		come(t, asked, "the call")
		pusher := h.As(t, second)
		hangs := hanging(ctx, t, worker, free)
		pushed := pushing(ctx, pusher, rings)
		come(t, hangs, "the push")
		must(t, pusher.Close(), "close the node's end")
		wantErr(t, come(t, pushed, "the end of the push"), bus.ErrClosed, "push")
		must(t, worker.Close(), "close")
		wantErr(t, come(t, called, "the end of the call"), bus.ErrClosed, "call")
	}},
	{"a handler's context ends with Close", func(t *testing.T, h Harness) {
		ctx, node, client := within(t), h.As(t, leader), h.As(t, caller)
		asked, ended := make(chan struct{}), make(chan struct{})
		must(t, node.Serve(ctx, bus.ServiceStore, func(ctx context.Context, _ bus.Principal, _ []byte) ([]byte, error) {
			close(asked)
			<-ctx.Done()
			close(ended)
			return nil, ctx.Err()
		}), "serve")
		short, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() { _, _ = client.Call(short, bus.ServiceStore, nil) }()
		come(t, asked, "the call")
		must(t, node.Close(), "close")
		come(t, ended, "the end of the handler")
	}},
	{"a closed end serves nothing any more", func(t *testing.T, h Harness) {
		ctx, node, client := within(t), h.As(t, leader), h.As(t, caller)
		must(t, node.Serve(ctx, bus.ServiceStore, echo), "serve")
		count := make(chan bus.Signal, 10)
		must(t, node.Listen(ctx, "*", bus.TopicLive, "", func(s bus.Signal) { count <- s }), "listen")
		stays, other := listenTo(t, client, "", bus.TopicLive, ""), h.As(t, second)
		must(t, node.Close(), "close")
		signal(t, other, bus.TopicLive, "", "", "after")
		wantSignals(t, stays, "the one that stays", "after")
		if len(count) != 0 {
			t.Fatal("a closed end got a signal")
		}
		eventuallyGone(t, func() error {
			limited, cancel := context.WithTimeout(ctx, attempt)
			defer cancel()
			_, err := client.Call(limited, bus.ServiceStore, nil)
			return err
		})
	}},
}
