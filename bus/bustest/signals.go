package bustest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
)

// listenTo listens and passes on what comes.
func listenTo(t *testing.T, b bus.Bus, tenant jobs.Tenant, topic bus.Topic, to string) <-chan bus.Signal {
	t.Helper()
	ch := make(chan bus.Signal, 1000)
	must(t, b.Listen(t.Context(), tenant, topic, to, func(s bus.Signal) { ch <- s }), "listen to %s", topic)
	return ch
}

// signal sends a signal with a text.
func signal(t *testing.T, b bus.Bus, topic bus.Topic, tenant jobs.Tenant, to, text string) {
	t.Helper()
	err := b.Signal(within(t), bus.Signal{Topic: topic, Tenant: tenant, To: to, Data: []byte(text)})
	must(t, err, "signal %q", text)
}

// wantSignals ends the test unless exactly these texts come, in this order. The last one should be one that comes last.
func wantSignals(t *testing.T, ch <-chan bus.Signal, who string, texts ...string) {
	t.Helper()
	for _, want := range texts {
		if s := come(t, ch, fmt.Sprintf("%q to %s", want, who)); string(s.Data) != want {
			t.Fatalf("%s got %q, not %q", who, s.Data, want)
		}
	}
}

var signalCases = []Case{
	{"a signal reaches all who listen to its topic, with its sender", func(t *testing.T, h Harness) {
		node, worker, rival := h.As(t, leader), h.As(t, ringer), h.As(t, other)
		ears := map[string]<-chan bus.Signal{
			"the worker":       listenTo(t, worker, "default", bus.TopicChanged, ""),
			"the other worker": listenTo(t, rival, "default", bus.TopicChanged, other.Name),
			"the node":         listenTo(t, node, "*", bus.TopicChanged, ""),
		}
		from := bus.Principal{Role: bus.Node, Name: "forged"}
		err := node.Signal(within(t), bus.Signal{Topic: bus.TopicChanged, From: from, Data: []byte("a\x00b")})
		must(t, err, "signal")
		for who, ear := range ears {
			got := come(t, ear, "the signal to "+who)
			if string(got.Data) != "a\x00b" || got.From != leader || got.Tenant != "default" || got.To != "" || got.Topic != bus.TopicChanged {
				t.Fatalf("%s got %+v", who, got)
			}
		}
	}},
	{"a signal without a listener is no error", func(t *testing.T, h Harness) {
		signal(t, h.As(t, ringer), bus.TopicLog, "", "", "x")
	}},
	{"signals to a worker reach it, those to others do not", func(t *testing.T, h Harness) {
		node, worker, rival := h.As(t, leader), h.As(t, ringer), h.As(t, other)
		mine := listenTo(t, worker, "default", bus.TopicCancel, ringer.Name)
		others := listenTo(t, rival, "default", bus.TopicCancel, other.Name)
		all := listenTo(t, node, "default", bus.TopicCancel, "")
		signal(t, node, bus.TopicCancel, "", ringer.Name, "to the first")
		signal(t, node, bus.TopicCancel, "default", other.Name, "to the second")
		signal(t, node, bus.TopicCancel, "default", "", "to both")
		wantSignals(t, mine, "the first", "to the first", "to both")
		wantSignals(t, others, "the second", "to the second", "to both")
		wantSignals(t, all, "one that gets all", "to the first", "to the second", "to both")
	}},
	{"topics are apart", func(t *testing.T, h Harness) {
		node := h.As(t, leader)
		live := listenTo(t, node, "default", bus.TopicLive, "")
		signal(t, node, bus.TopicChanged, "", "", "changed")
		signal(t, node, bus.TopicLive, "", "", "live")
		wantSignals(t, live, "one that listens to live", "live")
	}},
	{"tenants are apart, and nodes receive all", func(t *testing.T, h Harness) {
		node, worker, stranger := h.As(t, leader), h.As(t, ringer), h.As(t, foreign)
		ours := listenTo(t, worker, "", bus.TopicChanged, "")
		theirs := listenTo(t, stranger, "acme.eu", bus.TopicChanged, "")
		every := listenTo(t, node, "*", bus.TopicChanged, "")
		signal(t, node, bus.TopicChanged, "acme.eu", "", "theirs")
		signal(t, node, bus.TopicChanged, "default", "", "ours")
		signal(t, node, bus.TopicChanged, "acme.eu", "", "end")
		signal(t, node, bus.TopicChanged, "default", "", "end")
		wantSignals(t, ours, "our worker", "ours", "end")
		wantSignals(t, theirs, "their worker", "theirs", "end")
		wantSignals(t, every, "the node", "theirs", "ours", "end", "end")

		ctx := within(t)
		wantErr(t, stranger.Signal(ctx, bus.Signal{Topic: bus.TopicLog, Tenant: "default", Data: []byte("x")}), jobs.Forbidden, "signal to another tenant")
		wantErr(t, stranger.Listen(ctx, "default", bus.TopicLive, "", func(bus.Signal) {}), jobs.Forbidden, "listen to another tenant")
		wantErr(t, stranger.Listen(ctx, "*", bus.TopicLive, "", func(bus.Signal) {}), jobs.Forbidden, "listen to all tenants")
	}},
	{"a role sends and receives its topics and no others", func(t *testing.T, h Harness) {
		ctx := within(t)
		for _, p := range []bus.Principal{leader, ringer, caller} {
			b := h.As(t, p)
			for _, topic := range bus.Topics() {
				sent, listened := b.Signal(ctx, bus.Signal{Topic: topic, Data: []byte("x")}), b.Listen(t.Context(), "", topic, "", func(bus.Signal) {})
				for what, c := range map[string]struct {
					err error
					may bool
				}{"send": {sent, topic.MaySend(p.Role)}, "listen to": {listened, topic.MayReceive(p.Role)}} {
					if c.may && c.err != nil || !c.may && !errors.Is(c.err, jobs.Forbidden) {
						t.Errorf("%s may %s %s: %t; the answer is %v", p.Actor(), what, topic, c.may, c.err)
					}
				}
			}
		}
	}},
	{"a signal without data is refused", func(t *testing.T, h Harness) {
		wantErr(t, h.As(t, leader).Signal(within(t), bus.Signal{Topic: bus.TopicLive}), jobs.BadInput, "an empty signal")
	}},
	{"a listener is called with one signal after the other, in order", func(t *testing.T, h Harness) {
		node, worker := h.As(t, leader), h.As(t, ringer)
		inside := make(chan struct{}, 1)
		got, ended := make([]string, 0, 300), make(chan struct{})
		err := node.Listen(t.Context(), "*", bus.TopicLog, "", func(s bus.Signal) {
			select {
			case inside <- struct{}{}:
			default:
				t.Error("called while a call was going on")
			}
			got = append(got, string(s.Data))
			<-inside
			if len(got) == 300 {
				close(ended)
			}
		})
		must(t, err, "listen")
		for i := range 300 {
			signal(t, worker, bus.TopicLog, "", "", fmt.Sprint(i))
		}
		come(t, ended, "the last signal")
		for i, text := range got {
			if text != fmt.Sprint(i) {
				t.Fatalf("signal %d was %s", i, text)
			}
		}
	}},
	{"a listener that hangs delays no other", func(t *testing.T, h Harness) {
		node, worker := h.As(t, leader), h.As(t, ringer)
		free := make(chan struct{})
		defer close(free)
		must(t, node.Listen(t.Context(), "*", bus.TopicLog, "", func(bus.Signal) { <-free }), "listen")
		quick := listenTo(t, node, "*", bus.TopicLog, "")
		for i := range 100 {
			signal(t, worker, bus.TopicLog, "", "", fmt.Sprint(i))
		}
		for i := range 100 {
			wantSignals(t, quick, "the quick listener", fmt.Sprint(i))
		}
	}},
	{"Listen ends with its context", func(t *testing.T, h Harness) {
		node, worker := h.As(t, leader), h.As(t, ringer)
		ctx, cancel := context.WithCancel(t.Context())
		count := make(chan bus.Signal, 100)
		must(t, worker.Listen(ctx, "", bus.TopicLive, "", func(s bus.Signal) { count <- s }), "listen")
		stays := listenTo(t, worker, "", bus.TopicLive, "")
		signal(t, node, bus.TopicLive, "default", "", "before")
		wantSignals(t, stays, "the one that stays", "before")
		wantSignals(t, count, "the one that goes", "before")
		cancel()
		signal(t, node, bus.TopicLive, "default", "", "after")
		wantSignals(t, stays, "the one that stays", "after")
		if len(count) != 0 {
			t.Fatal("a signal came after the listener's context had ended")
		}
	}},
}
