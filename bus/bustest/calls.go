package bustest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// echo answers with the request.
func echo(_ context.Context, _ bus.Principal, request []byte) ([]byte, error) { return request, nil }

var callCases = []Case{
	{"a call is answered, and the server knows who asks", func(t *testing.T, h Harness) {
		ctx, node := within(t), h.As(t, leader)
		must(t, node.Serve(ctx, bus.ServiceStore, func(_ context.Context, from bus.Principal, request []byte) ([]byte, error) {
			return fmt.Appendf(nil, "%s/%s says %s", from.Tenant, from.Actor(), request), nil
		}), "serve")
		for _, p := range []bus.Principal{ringer, other, foreign, caller, second, leader} {
			got, err := h.As(t, p).Call(ctx, bus.ServiceStore, []byte("hello\x00"))
			must(t, err, "call as %v", p)
			if want := fmt.Sprintf("%s/%s says hello\x00", p.Tenant, p.Actor()); string(got) != want {
				t.Fatalf("answer is %q, not %q", got, want)
			}
		}
	}},
	{"nothing can be asked and answered", func(t *testing.T, h Harness) {
		ctx, node, client := within(t), h.As(t, leader), h.As(t, caller)
		must(t, node.Serve(ctx, bus.ServiceStore, echo), "serve")
		got, err := client.Call(ctx, bus.ServiceStore, nil)
		must(t, err, "call")
		if len(got) != 0 {
			t.Fatalf("answer is %q", got)
		}
	}},
	{"a call without a server is refused", func(t *testing.T, h Harness) {
		ctx, node, client := within(t), h.As(t, leader), h.As(t, caller)
		must(t, node.Serve(ctx, bus.ServiceStore, echo), "serve")
		_, err := client.Call(ctx, bus.ServiceHeartbeat, nil)
		wantErr(t, err, bus.ErrNoReceiver, "call")
	}},
	{"Serve ends with its context", func(t *testing.T, h Harness) {
		ctx, node, client := within(t), h.As(t, leader), h.As(t, caller)
		short, cancel := context.WithCancel(ctx)
		must(t, node.Serve(short, bus.ServiceStore, echo), "serve")
		_, err := client.Call(ctx, bus.ServiceStore, nil)
		must(t, err, "call")
		cancel()
		eventuallyGone(t, func() error {
			limited, cancel := context.WithTimeout(ctx, attempt)
			defer cancel()
			_, err := client.Call(limited, bus.ServiceStore, nil)
			return err
		})
	}},
	{"only nodes serve", func(t *testing.T, h Harness) {
		ctx := within(t)
		for _, p := range []bus.Principal{ringer, caller} {
			wantErr(t, h.As(t, p).Serve(ctx, bus.ServiceStore, echo), jobs.Forbidden, "serve as "+p.Actor())
		}
		_, err := h.As(t, caller).Call(ctx, bus.ServiceStore, nil)
		wantErr(t, err, bus.ErrNoReceiver, "call")
	}},
	{"a refusal arrives as one", func(t *testing.T, h Harness) {
		ctx, node, client := within(t), h.As(t, leader), h.As(t, caller)
		refusals := map[string]error{
			"made by Refuse":    kernel.Refuse(jobs.Stale, "attempt 3 has\nbeen taken over: \x00 %%"),
			"wrapped":           fmt.Errorf("finish: %w", kernel.Refuse(jobs.NotFound, "no such run")),
			"a bare code":       jobs.Conflict,
			"with a long story": kernel.Refuse(jobs.BadInput, "%s", strings.Repeat("long ", 500)),
		}
		must(t, node.Serve(ctx, bus.ServiceStore, func(_ context.Context, _ bus.Principal, request []byte) ([]byte, error) {
			return []byte("not seen"), refusals[string(request)]
		}), "serve")
		for name, want := range refusals {
			got, err := client.Call(ctx, bus.ServiceStore, []byte(name))
			var code jobs.Code
			errors.As(want, &code)
			wantErr(t, err, code, name)
			var refusal *kernel.Refusal
			if !errors.As(err, &refusal) || err.Error() != want.Error() {
				t.Fatalf("%s: %q (%T) arrived, not %q", name, err, err, want)
			}
			if len(got) != 0 {
				t.Fatalf("%s: an answer came, too: %q", name, got)
			}
		}
	}},
	{"any other error of a handler is none that the bus has a meaning for", func(t *testing.T, h Harness) {
		ctx, node, client := within(t), h.As(t, leader), h.As(t, caller)
		failures := map[string]error{
			"a plain one": errors.New("disk on fire"),
			"no receiver": fmt.Errorf("asked further: %w", bus.ErrNoReceiver),
			"closed":      bus.ErrClosed,
			"deadline":    context.DeadlineExceeded,
			"empty":       errors.New(""),
		}
		must(t, node.Serve(ctx, bus.ServiceStore, func(_ context.Context, _ bus.Principal, request []byte) ([]byte, error) {
			return nil, failures[string(request)]
		}), "serve")
		for name, failure := range failures {
			_, err := client.Call(ctx, bus.ServiceStore, []byte(name))
			var code jobs.Code
			if err == nil || errors.Is(err, bus.ErrNoReceiver) || errors.Is(err, bus.ErrClosed) || isDeadline(err) || errors.As(err, &code) {
				t.Fatalf("%s: error is %v", name, err)
			}
			if !strings.Contains(err.Error(), failure.Error()) {
				t.Fatalf("%s: %q does not contain %q", name, err, failure)
			}
		}
	}},
	{"a call ends with its context", func(t *testing.T, h Harness) {
		ctx, node, client := within(t), h.As(t, leader), h.As(t, caller)
		asked, free := make(chan struct{}, 1), make(chan struct{})
		defer close(free)
		must(t, node.Serve(ctx, bus.ServiceStore, func(context.Context, bus.Principal, []byte) ([]byte, error) {
			asked <- struct{}{}
			<-free
			return nil, nil
		}), "serve")
		short, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			_, err := client.Call(short, bus.ServiceStore, nil)
			ended <- err
		}()
		come(t, asked, "the call")
		cancel()
		wantErr(t, come(t, ended, "the end of the call"), context.Canceled, "call")
	}},
	{"calls are answered at the same time", func(t *testing.T, h Harness) {
		ctx, node, client := within(t), h.As(t, leader), h.As(t, caller)
		const many = 50
		var all sync.WaitGroup
		all.Add(many)
		must(t, node.Serve(ctx, bus.ServiceStore, func(context.Context, bus.Principal, []byte) ([]byte, error) {
			all.Done()
			all.Wait() // no call is answered before all have asked
			return nil, nil
		}), "serve")
		ended := make(chan error, many)
		for range many {
			go func() {
				_, err := client.Call(ctx, bus.ServiceStore, nil)
				ended <- err
			}()
		}
		for range many {
			must(t, come(t, ended, "an answer"), "call")
		}
	}},
	{"one of several servers gets each call", func(t *testing.T, h Harness) {
		ctx, client := within(t), h.As(t, caller)
		var mu sync.Mutex
		count := 0
		for _, p := range []bus.Principal{leader, second} {
			must(t, h.As(t, p).Serve(ctx, bus.ServiceStore, func(context.Context, bus.Principal, []byte) ([]byte, error) {
				mu.Lock()
				defer mu.Unlock()
				count++
				return nil, nil
			}), "serve")
		}
		for range 100 {
			_, err := client.Call(ctx, bus.ServiceStore, nil)
			must(t, err, "call")
		}
		mu.Lock()
		defer mu.Unlock()
		if count != 100 {
			t.Fatalf("100 calls were answered %d times", count)
		}
	}},
	{"requests may be as long as RequestLimit, answers as long as Limit, and no longer", func(t *testing.T, h Harness) {
		ctx, node, client := within(t), h.As(t, leader), h.As(t, caller)
		most, mostRequest := client.Limit(), client.RequestLimit()
		if most < 64<<10 || most != node.Limit() {
			t.Fatalf("the limit is %d for a client and %d for a node", most, node.Limit())
		}
		if mostRequest > min(most, bus.MaxRequest) || mostRequest < 64<<10 || mostRequest != node.RequestLimit() {
			t.Fatalf("the limit of requests is %d for a client and %d for a node", mostRequest, node.RequestLimit())
		}
		asked := make(chan struct{}, 10)
		must(t, node.Serve(ctx, bus.ServiceStore, func(_ context.Context, from bus.Principal, request []byte) ([]byte, error) {
			asked <- struct{}{}
			if string(request) == "too much" {
				return make([]byte, most+1), nil
			}
			return bytes.Repeat(request[:1], most), nil
		}), "serve")
		request := bytes.Repeat([]byte("x"), mostRequest)
		got, err := client.Call(ctx, bus.ServiceStore, request)
		must(t, err, "a call as long as the limit")
		if !bytes.Equal(got, bytes.Repeat([]byte("x"), most)) {
			t.Fatal("the answer is not what was asked")
		}
		_, err = client.Call(ctx, bus.ServiceStore, []byte("too much"))
		wantErr(t, err, jobs.BadInput, "an answer beyond the limit")
		_, err = client.Call(ctx, bus.ServiceStore, append(request, 'x'))
		wantErr(t, err, jobs.BadInput, "a request beyond the limit")
		if len(asked) != 2 {
			t.Fatalf("the handler was called %d times, not 2", len(asked))
		}
	}},
}
