package bustest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
)

// accepted has a worker accept pushes at its address and answer each with its own bytes, and passes them on.
func accepted(ctx context.Context, t *testing.T, b bus.Bus, at bus.Address) <-chan string {
	t.Helper()
	got := make(chan string, 1000)
	must(t, b.Accept(ctx, at, func(push []byte) ([]byte, func()) {
		got <- string(push)
		return push, nil
	}), "accept at %v", at)
	return got
}

// answered pushes a text and wants it as the answer.
func answered(ctx context.Context, t *testing.T, b bus.Bus, to bus.Address, text string) {
	t.Helper()
	answer, err := b.Push(ctx, to, []byte(text))
	must(t, err, "push to %v", to)
	if string(answer) != text {
		t.Fatalf("the answer is %.60q, not %.60q", answer, text)
	}
}

// pushing pushes in the background and passes the error on.
func pushing(ctx context.Context, b bus.Bus, to bus.Address) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := b.Push(ctx, to, []byte("x"))
		ended <- err
	}()
	return ended
}

// hanging has a worker accept pushes with a function that hangs until free is closed, and passes on that it was called.
func hanging(ctx context.Context, t *testing.T, b bus.Bus, free <-chan struct{}) (called <-chan struct{}) {
	t.Helper()
	calls := make(chan struct{}, 10)
	must(t, b.Accept(ctx, rings, func([]byte) ([]byte, func()) {
		calls <- struct{}{}
		<-free
		return nil, nil
	}), "accept")
	return calls
}

var pushCases = []Case{
	{"a push reaches its worker, and the answer comes back", func(t *testing.T, h Harness) {
		ctx, node, worker := within(t), h.As(t, leader), h.As(t, ringer)
		got := make(chan string, 1)
		must(t, worker.Accept(ctx, rings, func(push []byte) ([]byte, func()) {
			got <- string(push)
			return []byte("an\x00swer\r\n"), nil
		}), "accept")
		answer, err := node.Push(ctx, rings, []byte("pu\x00sh\r\n\xff"))
		must(t, err, "push")
		if push := come(t, got, "the push"); push != "pu\x00sh\r\n\xff" || string(answer) != "an\x00swer\r\n" {
			t.Fatalf("pushed: %q, answered: %q", push, answer)
		}
	}},
	{"addresses are apart: by tenant, app, worker and start", func(t *testing.T, h Harness) {
		ctx, node, worker, rival, stranger := within(t), h.As(t, leader), h.As(t, ringer), h.As(t, other), h.As(t, foreign)
		ends := map[bus.Address]bus.Bus{
			rings: worker,
			{Tenant: "default", App: billing, Worker: ringer.Name + "-5f2a"}: worker,
			{Tenant: "default", App: billing, Worker: ringer.Name + "-9c1e"}: worker,
			{Tenant: "default", App: "billing", Worker: ringer.Name}:         worker,
			{Tenant: "default", App: "billing_eu", Worker: ringer.Name}:      worker,
			{Tenant: "default", App: billing, Worker: other.Name}:            rival,
			{Tenant: "acme.eu", App: billing, Worker: foreign.Name}:          stranger,
			{Tenant: "acme.eu", App: "Billing.eu-", Worker: foreign.Name}:    stranger,
		}
		got := map[bus.Address]<-chan string{}
		for at, b := range ends {
			got[at] = accepted(ctx, t, b, at)
		}
		for at := range ends {
			answered(ctx, t, node, at, fmt.Sprint(at))
		}
		for at, pushes := range got {
			if push := come(t, pushes, "the push"); push != fmt.Sprint(at) || len(pushes) > 0 {
				t.Fatalf("at %v: %s, and %d more", at, push, len(pushes))
			}
		}
	}},
	{"pushes are accepted one after the other, in order", func(t *testing.T, h Harness) {
		ctx, node, worker := within(t), h.As(t, leader), h.As(t, ringer)
		inside := make(chan struct{}, 1)
		got := make(chan string, 200)
		must(t, worker.Accept(ctx, rings, func(push []byte) ([]byte, func()) {
			select {
			case inside <- struct{}{}:
			default:
				t.Error("called while a call was going on")
			}
			got <- string(push)
			<-inside
			return nil, nil
		}), "accept")
		for i := range 100 {
			_, err := node.Push(ctx, rings, []byte(fmt.Sprint(i)))
			must(t, err, "push")
			if push := <-got; push != fmt.Sprint(i) {
				t.Fatalf("push %d was %s", i, push)
			}
		}
		var all []<-chan error
		for range 100 {
			all = append(all, pushing(ctx, node, rings))
		}
		for _, one := range all {
			must(t, come(t, one, "an answer"), "one of many pushes")
		}
	}},
	{"Push returns while then still runs", func(t *testing.T, h Harness) {
		ctx, node, worker := within(t), h.As(t, leader), h.As(t, ringer)
		begun, free := make(chan struct{}, 1), make(chan struct{})
		must(t, worker.Accept(ctx, rings, func(push []byte) ([]byte, func()) {
			return push, func() {
				begun <- struct{}{}
				<-free
			}
		}), "accept")
		answered(ctx, t, node, rings, "first")
		come(t, begun, "then")
		second := pushing(ctx, node, rings)
		close(free)
		must(t, come(t, second, "the second answer"), "push")
		come(t, begun, "the second then")
	}},
	{"then may close the bus: the answer arrives", func(t *testing.T, h Harness) {
		ctx, node := within(t), h.As(t, leader)
		for i := range 20 {
			worker, at := h.As(t, ringer), rings
			at.Worker += fmt.Sprint("-", i) // the end of the one before may not be known everywhere
			closed := make(chan error, 1)
			must(t, worker.Accept(ctx, at, func(push []byte) ([]byte, func()) {
				return push, func() { closed <- worker.Close() }
			}), "accept")
			answered(ctx, t, node, at, "last words")
			must(t, come(t, closed, "the end of the worker"), "close")
		}
	}},
	{"then is called although the caller of Push has gone", func(t *testing.T, h Harness) {
		ctx, node, worker := within(t), h.As(t, leader), h.As(t, ringer)
		called, free, begun := make(chan struct{}), make(chan struct{}), make(chan struct{})
		must(t, worker.Accept(ctx, rings, func([]byte) ([]byte, func()) {
			close(called)
			<-free
			return nil, func() { close(begun) }
		}), "accept")
		short, cancel := context.WithCancel(ctx)
		ended := pushing(short, node, rings)
		come(t, called, "the push")
		cancel()
		wantErr(t, come(t, ended, "the end of the push"), context.Canceled, "push")
		close(free)
		come(t, begun, "then")
	}},
	{"a push to a worker that is not there, or has gone, has no receiver", func(t *testing.T, h Harness) {
		ctx, node, worker := within(t), h.As(t, leader), h.As(t, ringer)
		push := func() error {
			limited, cancel := context.WithTimeout(ctx, attempt)
			defer cancel()
			_, err := node.Push(limited, rings, []byte("x"))
			return err
		}
		wantErr(t, push(), bus.ErrNoReceiver, "push before the worker is there")
		short, cancel := context.WithCancel(ctx)
		first := accepted(short, t, worker, rings)
		answered(ctx, t, node, rings, "while it is there")
		cancel()
		eventuallyGone(t, push)
		before := len(first)
		wantErr(t, push(), bus.ErrNoReceiver, "push after the context of Accept has ended")
		if len(first) != before {
			t.Fatal("the worker got a push that had no receiver")
		}
		accepted(ctx, t, worker, rings)
		answered(ctx, t, node, rings, "while it is there again")
		must(t, worker.Close(), "close")
		eventuallyGone(t, push)
	}},
	{"pushes that wait while Accept ends have no receiver", func(t *testing.T, h Harness) {
		ctx, node, worker := within(t), h.As(t, leader), h.As(t, ringer)
		free := make(chan struct{})
		short, cancel := context.WithCancel(ctx)
		called := hanging(short, t, worker, free)
		inside := pushing(ctx, node, rings)
		come(t, called, "the push")
		var behind []<-chan error
		for range 20 {
			behind = append(behind, pushing(ctx, node, rings))
		}
		elsewhere := bus.Address{Tenant: "default", App: "billing", Worker: ringer.Name}
		accepted(ctx, t, worker, elsewhere)
		answered(ctx, t, node, elsewhere, "those sent before have arrived")
		cancel()
		close(free)
		must(t, come(t, inside, "the answer to the push that was accepted"), "push")
		for _, one := range behind {
			wantErr(t, come(t, one, "the end of a push"), bus.ErrNoReceiver, "a push that waited")
		}
		if len(called) > 0 {
			t.Fatal("a push without a receiver has one")
		}
	}},
	{"a push ends with its context while the worker hangs", func(t *testing.T, h Harness) {
		ctx, node, worker := within(t), h.As(t, leader), h.As(t, ringer)
		free := make(chan struct{})
		defer close(free)
		called := hanging(ctx, t, worker, free)
		short, cancel := context.WithCancel(ctx)
		ended := pushing(short, node, rings)
		come(t, called, "the push")
		cancel()
		wantErr(t, come(t, ended, "the end of the push"), context.Canceled, "push")
		shorter, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		wantErr(t, come(t, pushing(shorter, node, rings), "the end of the push behind it"), context.DeadlineExceeded, "push")
	}},
	{"only nodes push, and no worker accepts another tenant's pushes", func(t *testing.T, h Harness) {
		ctx, worker, stranger := within(t), h.As(t, ringer), h.As(t, foreign)
		got := accepted(ctx, t, worker, rings)
		for _, p := range []bus.Principal{other, caller} {
			_, err := h.As(t, p).Push(ctx, rings, []byte("x"))
			wantErr(t, err, jobs.Forbidden, "push as "+p.Actor())
		}
		accept := func(push []byte) ([]byte, func()) { return push, nil }
		wantErr(t, stranger.Accept(ctx, rings, accept), jobs.Forbidden, "accept by another tenant's worker")
		answered(ctx, t, h.As(t, leader), rings, "the leader's")
		if push := <-got; push != "the leader's" {
			t.Fatalf("the worker got %q", push)
		}
	}},
	{"an address to accept at names a worker", func(t *testing.T, h Harness) {
		at := bus.Address{Tenant: "default", App: billing}
		err := h.As(t, ringer).Accept(within(t), at, func([]byte) ([]byte, func()) { return nil, nil })
		wantErr(t, err, jobs.BadInput, "accept")
	}},
	{"pushes may be empty, and as long as Limit, their answers as long as RequestLimit, and no longer", func(t *testing.T, h Harness) {
		ctx, node, worker := within(t), h.As(t, leader), h.As(t, ringer)
		most, mostAnswer := node.Limit(), node.RequestLimit()
		pushes := make(chan int, 10)
		must(t, worker.Accept(ctx, rings, func(push []byte) ([]byte, func()) {
			pushes <- len(push)
			if string(push) == "too much" {
				return make([]byte, mostAnswer+1), nil
			}
			return push[:min(len(push), mostAnswer)], nil
		}), "accept")
		answered(ctx, t, node, rings, "")
		large := bytes.Repeat([]byte("x"), most)
		answer, err := node.Push(ctx, rings, large)
		must(t, err, "a push as long as the limit")
		if len(answer) != mostAnswer {
			t.Fatalf("the answer has %d bytes, not %d", len(answer), mostAnswer)
		}
		_, err = node.Push(ctx, rings, []byte("too much"))
		wantErr(t, err, jobs.BadInput, "an answer beyond the limit")
		_, err = node.Push(ctx, rings, append(large, 'x'))
		wantErr(t, err, jobs.BadInput, "a push beyond the limit")
		if errors.Is(err, bus.ErrNoReceiver) || len(pushes) != 3 {
			t.Fatalf("%d pushes arrived, not 3; the last error is %v", len(pushes), err)
		}
	}},
}
